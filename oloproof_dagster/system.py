"""What the user's system implements and calls: the two protocols, the change of a replay, and the current case."""

import signal
import threading
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


class Interrupts:
    """Tells a person's Ctrl-C from a KeyboardInterrupt that the system raises by itself.

    Python raises the same exception for both; only a signal handler sees the difference, and only the main thread
    has one.
    """

    def __init__(self) -> None:
        self._watching = self._noticed = self._is_worker = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notices interrupts; what handled them before still does, and no handler of the system's own instead."""
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(former):
            yield
            return

        def notice(number: int, frame: Any) -> None:
            self._noticed = True
            former(number, frame)

        theirs: Any = signal.default_int_handler
        install = signal.signal

        def keep_ours(number: int, handler: Any) -> Any:
            nonlocal theirs
            in_main = threading.current_thread() is threading.main_thread()
            if number != signal.SIGINT or not in_main or not self._watching:  # it may be kept beyond this block
                return install(number, handler)
            before, theirs = theirs, handler
            return before

        install(signal.SIGINT, notice)
        signal.signal = keep_ours  # type: ignore[assignment]
        self._watching, self._noticed = True, False
        try:
            yield
        finally:
            self._watching = self._noticed = False
            signal.signal = install
            if signal.getsignal(signal.SIGINT) is notice:
                install(signal.SIGINT, former)

    def none_are_expected(self) -> None:
        """Whatever foreign code lets through is the system's own: this process is a worker, which nobody interrupts."""
        self._is_worker = True

    def end_the_run(self, error: BaseException) -> bool:
        """Whether what foreign code let through is a person's or the orchestrator's wish to stop, no case's error."""
        if self._is_worker:
            return False
        if isinstance(error, KeyboardInterrupt):
            return self._noticed or not self._watching
        return type(error).__name__ == "DagsterExecutionInterruptedError"

    def insist(self) -> None:
        """Raises KeyboardInterrupt where a person wished to stop and foreign code made something else of it."""
        if self._noticed:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()
"""Of this process: there is one handler of a signal."""


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
