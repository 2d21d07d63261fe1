"""What the user's system implements and calls: the two protocols, the change of a replay, and the current case."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.errors import MalformedTrajectory
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentTrajectory, recorded_text


@runtime_checkable
class Stateful(Protocol):
    """A sandbox of the user's own. Both methods may be plain or async; `snapshot` returns any JSON."""

    def reset(self, state: dict[str, Any]) -> Any:
        """Makes the world what `state` says."""

    def snapshot(self) -> Any:
        """The world as it is now."""


@runtime_checkable
class Replayable(Protocol):
    """A system that can go on from a checkpoint of its own recording. May be plain or async."""

    def replay(self, trajectory: AgentTrajectory, *, checkpoint: AgentCheckpoint, change: "ReplayChange") -> Any:
        """The continuation only: what the agent did from the checkpoint on, steps numbered from 1."""


class CurrentCase:
    """The case that the system is in, and the recorder of its trajectory. Inputs and states are fresh copies."""

    def __init__(self, case_id: str, trial: int, input_text: str, initial_state_text: str | None) -> None:
        self.id, self.trial = case_id, trial
        self._input, self._initial_state = input_text, initial_state_text
        self.recorded: str | None = None
        self.malformed: MalformedTrajectory | None = None

    @property
    def input(self) -> Any:
        """A fresh copy of the case's input."""
        return parse_canonical(self._input)

    @property
    def initial_state(self) -> dict[str, Any] | None:
        """A fresh copy of the state that the case starts from, or None."""
        return None if self._initial_state is None else parse_canonical(self._initial_state)

    def agent_trajectory(self, trajectory: AgentTrajectory | dict[str, Any]) -> None:
        """Records what the agent did; called again, the later recording replaces the earlier.

        Raises:
            MalformedTrajectory: the recording breaks agent_trajectory/v1; the case counts as an error even where
                the agent catches this.
        """
        try:
            self.recorded, self.malformed = recorded_text(trajectory), None
        except MalformedTrajectory as error:
            self.recorded, self.malformed = None, error
            raise


_current: ContextVar[CurrentCase] = ContextVar("oloproof_current_case")


def current_case() -> CurrentCase:
    """The case that the system is called with.

    Raises:
        LookupError: outside a case, or in a thread that did not take the context along
            (`contextvars.copy_context().run`, `asyncio.to_thread`).
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError(
            "current_case() was called outside a case, or in a thread without the case's context;"
            " start the thread's work with contextvars.copy_context().run"
        ) from None


@contextmanager
def inside(case: CurrentCase) -> Iterator[CurrentCase]:
    """Makes a case the current one."""
    token = _current.set(case)
    try:
        yield case
    finally:
        _current.reset(token)
