"""One sandbox: reset, call, snapshot under one lock, and replays under the same; foreign code is caught here alone."""

import asyncio
import contextlib
import inspect
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oloproof_dagster.digests import json_in_order, parse_canonical
from oloproof_dagster.errors import MalformedTrajectory, NotJSON
from oloproof_dagster.project.oloproof_yaml import SandboxDeclaration
from oloproof_dagster.records.faults import comes_from_a_fault
from oloproof_dagster.records.paths import show_path
from oloproof_dagster.records.replay_change import Replayed
from oloproof_dagster.records.reset_errors import reset_error
from oloproof_dagster.records.trajectory import AgentCheckpoint, from_text, is_malformed, recorded_text, why_malformed
from oloproof_dagster.system.calls import Call, Outcome, ReplayOf
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.left_behind import (
    GRACE_SECONDS,
    NOTHING,
    LeftBehind,
    Task,
    ended,
    name_of,
    tasks_of,
    threads_since,
)
from oloproof_dagster.system.loading import System
from oloproof_dagster.system.protocols import CurrentCase, inside
from oloproof_dagster.system.reset_check import ResetCheck, World, in_words

BELIEVING = SandboxDeclaration.model_validate({"verify_reset": False})
"""A sandbox whose resets are believed."""

PLAIN = frozenset({type(None), bool, int, float, str, list, dict})
"""The types of what most calls return, of which nothing has to be awaited."""


class _Failed(Exception):
    """A step of a case went wrong; its message is what the evidence says.

    A message may hold bytes of a file's name that are no text; they are escaped, as evidence is UTF-8.
    """

    def __init__(
        self, message: str, *, transient: bool = False, raised_fault: bool = False, unreset: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message.encode("utf-8", "backslashreplace").decode("utf-8"))
        self.transient, self.raised_fault, self.unreset = transient, raised_fault, unreset


class Sandbox:
    """One instance of the system with its world and one event loop for its whole life.

    Everything that the system is given is a fresh copy and everything it gives is copied before the lock is let go,
    so that nothing it keeps, shares or mutates reaches another case. What a case leaves running on the loop is
    ended before its world is looked at.
    """

    def __init__(
        self, system: System, declared: SandboxDeclaration = BELIEVING, retry_on: tuple[str, ...] = ()
    ) -> None:
        self._system, self._declared, self._retry_on = system, declared, frozenset(retry_on)
        self._reset_check = None if declared.verify_reset is None else ResetCheck(declared.verify_reset)
        self._kept: frozenset[Task] | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    def answer(self, call: Call) -> Outcome:
        """Executes or replays one case. Never raises for what the system does: that is the outcome's error."""
        if call.wait_s:
            time.sleep(call.wait_s)
        current = CurrentCase(call.case_id, call.trial, call.input, call.initial_state)
        with self._lock, inside(current):
            wanted = call.replay
            start = time.perf_counter()
            output = trajectory = state = failed = None
            tasks, threads = set[Task](), threading.enumerate()
            try:
                self._open()
                self._reset(call)
                try:
                    if call.only_reset:
                        pass
                    elif wanted is None:
                        output = self._call(call, current)
                    else:
                        trajectory, output = self._continuation(wanted)
                except _Failed as error:
                    failed = error
                tasks = self._end_tasks()
                # Also after a failed call: what a crashing agent left behind is evidence.
                state = self._snapshot(call)
            except _Failed as error:
                failed = failed or error
            duration_ms = (time.perf_counter() - start) * 1000
            if wanted is None:
                trajectory = current.recorded
            elif failed is not None:
                trajectory = output = None
            outcome = Outcome("ok", None, duration_ms, output, trajectory, state, left=_left(tasks, threads))
            if failed is None:
                return outcome
            return replace(
                outcome,
                status="error",
                error=str(failed),
                transient=failed.transient,
                raised_fault=wanted is not None and failed.raised_fault,
                unreset=failed.unreset,
            )

    def close(self) -> None:
        """Closes the system and ends the event loop; what is left running on it is cancelled."""
        if self._kept is not None:
            self._kept = None
            for close in self._system.closes:
                with contextlib.suppress(_Failed):  # there is no case that it could cost
                    self._guarded("close: ", close)
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=GRACE_SECONDS))
        if all(task.done() for task in left):  # one that refuses to end would spin on a closed loop
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _open(self) -> None:
        """Opens the system before the first case; tasks that this begins are the system's own and kept."""
        if self._kept is None:
            for each in self._system.opens:
                self._guarded("open: ", each)
            self._kept = frozenset(tasks_of(self._loop))

    def _end_tasks(self) -> set[Task]:
        """The tasks that the case has left on the loop, ended: none of them writes into another's world."""
        tasks = tasks_of(self._loop, self._kept or frozenset())
        if tasks:
            self._guarded("a task that was left behind: ", lambda: ended(tasks, self._declared.settle_s))
        return tasks

    def _keeps_state(self, call: Call) -> bool:
        return self._system.is_stateful and call.initial_state is not None

    def _reset(self, call: Call) -> None:
        reset, text, snapshot = self._system.reset, call.initial_state, self._system.snapshot
        if reset is None or text is None:
            return
        give, look = reset, snapshot

        def reset_to(state: str) -> None:
            self._guarded("reset: ", lambda: give(parse_canonical(state)))

        reset_to(text)
        if self._reset_check is None or look is None or not self._keeps_state(call):
            return
        world = World(
            reset_to, lambda: self._guarded("snapshot: ", look), lambda found: self._copied("snapshot", found)
        )
        wrong = self._reset_check.differences(text, world)
        if wrong:
            raise _Failed(reset_error(in_words(wrong)), unreset=tuple(show_path(each.path) for each in wrong))

    def _call(self, call: Call, current: CurrentCase) -> str:
        output = self._guarded("", lambda: self._system.call(parse_canonical(call.input)))
        if current.malformed is not None:  # the agent caught it and went on
            raise _Failed(f"malformed_trajectory: {current.malformed}")
        return self._copied("output", output)

    def _snapshot(self, call: Call) -> str | None:
        snapshot = self._system.snapshot
        if snapshot is None or not self._keeps_state(call):
            return None
        return self._copied("snapshot", self._guarded("snapshot: ", snapshot))

    def _continuation(self, wanted: ReplayOf) -> tuple[str, str | None]:
        """The continuation's text, and that of what the agent answered where `replay` returns a Replayed."""
        replay = self._system.replay
        assert replay is not None, "load_system refuses a system without replay where one is needed"
        # Read from their texts: what the system mutates is its own, and the next replay starts from the same recording.
        given = from_text(wanted.recording)
        start_from = AgentCheckpoint.model_validate(parse_canonical(wanted.checkpoint))
        returned = self._guarded("", lambda: replay(given, checkpoint=start_from, change=replace(wanted.change)))
        output = None
        if type(returned) is Replayed:
            returned, output = returned.trajectory, self._copied("output", returned.output)
        try:
            return recorded_text(returned), output
        except MalformedTrajectory as error:
            raise _Failed(f"malformed_trajectory: {error}") from None
        except BaseException as error:  # as in _copied
            raise self._left_by("malformed_trajectory: ", error) from None

    def _copied(self, what: str, value: Any) -> str:
        try:
            return json_in_order(value)
        except NotJSON as error:
            raise _Failed(f"{what}: {error}") from None
        except BaseException as error:  # an object of the system's own that raises when it is read
            raise self._left_by(f"{what}: ", error) from None

    def _left_by(self, phase: str, error: BaseException) -> BaseException:
        """What an exception of foreign code is: the run's end where somebody wishes that, else the case's error."""
        return error if INTERRUPTS.end_the_run(error) else _Failed(f"{phase}{self._system.own_files.describe(error)}")

    def _guarded(self, phase: str, function: Callable[[], Any]) -> Any:
        """The one place where the system is called; awaits what it returns where that is awaitable."""
        try:
            value = function()
            if type(value) not in PLAIN and inspect.isawaitable(value):
                value = self._await(value)
            self._leave_a_fork()
            INTERRUPTS.insist()
            return value
        except BaseException as error:
            self._leave_a_fork()
            if INTERRUPTS.end_the_run(error):
                raise
            INTERRUPTS.insist()
            if is_malformed(error):
                raise _Failed(f"malformed_trajectory: {phase}{why_malformed(error)}") from None
            described = f"{phase}{self._system.own_files.describe(error)}"
            raised_fault = comes_from_a_fault(error)
            raise _Failed(described, transient=self._is_transient(error), raised_fault=raised_fault) from None

    def _is_transient(self, error: BaseException) -> bool:
        """Whether the user names the error's class, or one that it derives from, as worth another try."""
        return any(
            name in self._retry_on
            for each in type(error).__mro__
            for name in (each.__name__, f"{each.__module__}.{each.__qualname__}")
        )

    def _leave_a_fork(self) -> None:
        """Ends a child that the system forked and let return: it must not become a second run of the suite."""
        if os.getpid() != self._process:
            os._exit(0)

    def _await(self, value: Any) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        # A task copies the context, so that the current case is seen inside.
        return self._loop.run_until_complete(_as_coroutine(value))


def _left(tasks: set[Task], before: list[threading.Thread]) -> LeftBehind:
    threads = threads_since(before)
    if not tasks and not threads:
        return NOTHING
    names = sorted(map(name_of, tasks)), sorted(each.name for each in threads)
    first_task, first_thread = (each[0] if each else None for each in names)
    return LeftBehind(len(tasks), len(threads), first_task, first_thread)


async def _as_coroutine(value: Any) -> Any:
    return await value
