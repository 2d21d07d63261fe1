"""One sandbox: reset, call, snapshot under one lock, and replays under the same; foreign code is caught here alone."""

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from oloproof_dagster.digests import canonical_json, digest_of_text, parse_canonical
from oloproof_dagster.errors import MalformedTrajectory, NotJSON
from oloproof_dagster.loading import System
from oloproof_dagster.system import CurrentCase, ReplayChange, ends_the_run, inside
from oloproof_dagster.tables import SuiteRow
from oloproof_dagster.trajectory import (
    AgentCheckpoint,
    AgentTrajectory,
    from_text,
    is_malformed,
    recorded_text,
    why_malformed,
)

Status = Literal["ok", "error", "timeout"]
GRACE_SECONDS = 5.0
Left = TypeVar("Left")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one execution left: texts are canonical JSON. `initial` is the initial state's digest."""

    status: Status
    error: str | None
    duration_ms: float
    output: str | None
    trajectory: str | None
    initial: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What one replay left; `continuation` is None unless the replay returned one."""

    status: Status
    error: str | None
    duration_ms: float
    continuation: AgentTrajectory | None
    state: str | None


class _Failed(Exception):
    """A step of a case went wrong; its message is what the evidence says.

    A message may hold bytes of a file's name that are no text; they are escaped, as evidence is UTF-8.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.encode("utf-8", "backslashreplace").decode("utf-8"))


class Sandbox:
    """One instance of the system with its world and one event loop for its whole life.

    Everything that the system is given is a fresh copy and everything it gives is copied before the lock is let go,
    so that nothing it keeps, shares or mutates reaches another case.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    def execute(self, case: SuiteRow, trial: int = 0) -> Outcome:
        """Runs one case. Never raises for what the system does: that is the outcome's error."""
        with self._lock, inside(CurrentCase(case.case_id, trial, case.input, case.initial_state)) as current:
            output, state, error, duration_ms = self._in_its_world(case, lambda: self._call(case, current))
            return Outcome(
                "error" if error else "ok", error, duration_ms, output, current.recorded, initial_digest(case), state
            )

    def replay(
        self, case: SuiteRow, trial: int, recording: AgentTrajectory, checkpoint: AgentCheckpoint, change: ReplayChange
    ) -> ReplayOutcome:
        """Resets the world, asks the system for the continuation from a checkpoint, and takes the state after it."""
        replay = self._system.replay
        assert replay is not None, "load_system refuses a system without replay where one is needed"

        def go_on() -> AgentTrajectory:
            # Copies: their values could be mutated, and the next replay starts from the same recording.
            given, start_from = recording.model_copy(deep=True), checkpoint.model_copy(deep=True)
            return self._continuation(self._guarded("", lambda: replay(given, checkpoint=start_from, change=change)))

        with self._lock, inside(CurrentCase(case.case_id, trial, case.input, case.initial_state)):
            continuation, state, error, duration_ms = self._in_its_world(case, go_on)
            return ReplayOutcome("error" if error else "ok", error, duration_ms, None if error else continuation, state)

    def close(self) -> None:
        """Ends the event loop; what the system left running on it is cancelled."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=GRACE_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _in_its_world(
        self, case: SuiteRow, act: Callable[[], Left]
    ) -> tuple[Left | None, str | None, str | None, float]:
        """What an act left between a reset and a snapshot, the state after it, the first error, and milliseconds."""
        start = time.perf_counter()
        left: Left | None = None
        state = error = None
        try:
            self._reset(case)
            try:
                left = act()
            except _Failed as failed:
                error = str(failed)
            # Also after a failed act: what a crashing agent left behind is evidence.
            state = self._snapshot(case)
        except _Failed as failed:
            error = error or str(failed)
        return left, state, error, (time.perf_counter() - start) * 1000

    def _keeps_state(self, case: SuiteRow) -> bool:
        return self._system.reset is not None and case.initial_state is not None

    def _reset(self, case: SuiteRow) -> None:
        reset, text = self._system.reset, case.initial_state
        if reset is not None and text is not None:
            self._guarded("reset: ", lambda: reset(parse_canonical(text)))

    def _call(self, case: SuiteRow, current: CurrentCase) -> str:
        output = self._guarded("", lambda: self._system.call(parse_canonical(case.input)))
        if current.malformed is not None:  # the agent caught it and went on
            raise _Failed(f"malformed_trajectory: {current.malformed}")
        return self._copied("output", output)

    def _snapshot(self, case: SuiteRow) -> str | None:
        snapshot = self._system.snapshot
        if snapshot is None or not self._keeps_state(case):
            return None
        return self._copied("snapshot", self._guarded("snapshot: ", snapshot))

    def _continuation(self, returned: Any) -> AgentTrajectory:
        try:
            return from_text(recorded_text(returned))
        except MalformedTrajectory as error:
            raise _Failed(f"malformed_trajectory: {error}") from None
        except Exception as error:  # as in _copied
            raise _Failed(f"malformed_trajectory: {self._system.own_files.describe(error)}") from None

    def _copied(self, what: str, value: Any) -> str:
        try:
            return canonical_json(value)
        except NotJSON as error:
            raise _Failed(f"{what}: {error}") from None
        except Exception as error:  # an object of the system's own that raises when it is read
            raise _Failed(f"{what}: {self._system.own_files.describe(error)}") from None

    def _guarded(self, phase: str, function: Callable[[], Any]) -> Any:
        """The one place where the system is called; awaits what it returns where that is awaitable."""
        try:
            value = function()
            if inspect.isawaitable(value):
                value = self._await(value)
            self._leave_a_fork()
            return value
        except BaseException as error:
            self._leave_a_fork()
            if ends_the_run(error):
                raise
            if is_malformed(error):
                raise _Failed(f"malformed_trajectory: {phase}{why_malformed(error)}") from None
            raise _Failed(f"{phase}{self._system.own_files.describe(error)}") from None

    def _leave_a_fork(self) -> None:
        """Ends a child that the system forked and let return: it must not become a second run of the suite."""
        if os.getpid() != self._process:
            os._exit(0)

    def _await(self, value: Any) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        # A task copies the context, so that the current case is seen inside.
        return self._loop.run_until_complete(_as_coroutine(value))


def initial_digest(case: SuiteRow) -> str | None:
    """The digest that environment_state/v1 bears of the state that a case started from."""
    return None if case.initial_state is None else digest_of_text("scenario.initial_state/v1", case.initial_state)


async def _as_coroutine(value: Any) -> Any:
    return await value
