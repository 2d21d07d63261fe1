"""What the user's system implements and calls: the two protocols, the change of a replay, and the current case."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from oloproof_dagster.declarations import Fault
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.errors import MalformedTrajectory
from oloproof_dagster.trajectory import AgentCheckpoint, AgentTrajectory, recorded_text

FAULT_RESULTS: dict[Fault, dict[str, str]] = {
    "error": {"error": "internal error"},
    "timeout": {"error": "timeout"},
    "malformed": {"raw": '{"status": '},
}
"""What the agent sees instead of the call's result; plain on purpose, nothing in it says that this is a test."""


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


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """What is different in a replay: nothing (`resume`), or the result of one call (`inject_fault`).

    `step_index` is the faulted call's index in the recording.
    """

    kind: Literal["resume", "inject_fault"] = "resume"
    step_index: int | None = None
    fault: Fault | None = None

    @property
    def fault_result(self) -> dict[str, str] | None:
        """A fresh copy of the result that the faulted call returns; None for `resume`."""
        return dict(FAULT_RESULTS[self.fault]) if self.fault else None

    def members(self) -> dict[str, Any]:
        """The change as JSON members, as replay keys take it."""
        return {"kind": self.kind, "step_index": self.step_index, "fault": self.fault}


class CurrentCase:
    """The case that the system is in, and the recorder of its trajectory. Inputs and states are fresh copies."""

    def __init__(self, case_id: str, trial: int, input_text: str, initial_state_text: str | None) -> None:
        self.id, self.trial = case_id, trial
        self._input, self._initial_state = input_text, initial_state_text
        self.recorded: str | None = None
        self.malformed: MalformedTrajectory | None = None

    @property
    def input(self) -> Any:
        return parse_canonical(self._input)

    @property
    def initial_state(self) -> dict[str, Any] | None:
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


def ends_the_run(error: BaseException) -> bool:
    """Whether what foreign code let through is a person's or the orchestrator's wish to stop, and no case's error."""
    return isinstance(error, KeyboardInterrupt) or type(error).__module__.partition(".")[0] == "dagster"


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
