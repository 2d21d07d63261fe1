"""Sandboxes in worker processes: each loads its own copy of the system, is killed at its time limit, and replaced.

This is the side that steers them: which calls go to which of them, and what has come of each. One process by itself is
`outside`; how long is waited for what stands in `timing`.

A lane is one sandbox: the calls that are its own, and one process after another that answers them. It holds the calls
that wait, and the one that its process has. The next is handed over once the caller has seen the outcome, and so has
recorded it: a kill loses at most one finished call a lane.

    state    what happens                             next     what the caller of the call sees
    empty    a call is added                          loading  nothing
    loading  the process has loaded the system        idle     nothing
    loading  it cannot load the system                -        ConfigError
    loading  it dies                                  killed   nothing; the MOST_LOADS-th time in a row ConfigError
    idle     a call waits                             busy     nothing
    idle     it dies                                  killed   nothing, once the next call finds it dead
    busy     "answered": the call's outcome comes     idle     the outcome
    busy     "late": the call passes its limit        killed   timeout
    busy     "cut short": ended long before its limit killed   nothing: the wall clock was set, the call is made again
    busy     "died in it": the process dies           killed   error worker_died, with how it ended
    busy     "died before it": not begun by then      killed   nothing; with the MOST_STARTS-th process worker_died
    killed   all that it had started is gone          empty    nothing; a call not answered waits again, the first one
    any      the pool is closed                       closed   nothing; what was not answered never is

Empty, with calls that wait, is at once loading again: the process is replaced. Every replacement has the lane's index.
"""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Literal

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.sandboxes import Done
from oloproof_dagster.system.calls import Call, Outcome
from oloproof_dagster.workers.inside import Started
from oloproof_dagster.workers.outside import DiedLoading, Printed, WorkerProcess
from oloproof_dagster.workers.recipe import Packed, Recipe
from oloproof_dagster.workers.timing import (
    CLOCKS_DIFFER_SECONDS,
    FAREWELL_SECONDS,
    LATE_SECONDS,
    LET_GO_SECONDS,
    MOST_LOADS,
    MOST_STARTS,
    TICK_SECONDS,
)


class WorkerProcesses:
    """N sandboxes in N processes; cases of one cluster stay on one of them. `timeout_s` bounds every call."""

    def __init__(self, recipe: Recipe, workers: int, timeout_s: float | None) -> None:
        packed = recipe.packed()
        self._woken = queue.SimpleQueue[None]()
        self._lanes = [_Lane(packed, index, timeout_s, lambda: self._woken.put(None)) for index in range(workers)]
        self._of_cluster: dict[str, _Lane] = {}
        self._undealt = deque[tuple[Call, Done]]()

    @property
    def workers(self) -> int:
        """How many calls are answered at the same time."""
        return len(self._lanes)

    def load(self) -> Started:
        """Starts the first worker and gives what it says of the system that it loaded.

        Raises:
            ConfigError: the system cannot be loaded.
        """
        first = self._lanes[0]
        first.start()
        while (started := first.started(TICK_SECONDS)) is None:
            pass
        return started

    def submit(self, call: Call, done: Done) -> None:
        """Takes a call for the lane of its cluster, or for the next one that is free."""
        self._undealt.append((call, done))  # also where its cluster has a worker: calls are begun in their order
        self._deal()

    def wait(self) -> None:
        """Returns once at least one more outcome is there."""
        told = 0
        while not told and any(map(len, self._lanes)):
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=TICK_SECONDS)
            told = sum(lane.collect() for lane in self._lanes)
            self._deal()

    def _deal(self) -> None:
        """Gives clusters to workers that have no call, so that none waits behind another's slow case."""
        while self._undealt:
            call, done = self._undealt[0]
            lane = self._of_cluster.get(call.cluster)
            if lane is None:
                lane = min(self._lanes, key=len)
                if len(lane):
                    return
                self._of_cluster[call.cluster] = lane
            self._undealt.popleft()
            lane.add(call, done)

    def close(self) -> None:
        """Ends the workers. Where none is in the middle of a call they first close their sandboxes in good order."""
        processes = [lane.process for lane in self._lanes if lane.process is not None]
        try:
            if not any(map(len, self._lanes)):
                deadline = time.monotonic() + FAREWELL_SECONDS
                for ending in [each.say_farewell(FAREWELL_SECONDS) for each in processes if each.is_ready]:
                    with contextlib.suppress(Exception):
                        ending.result(max(0.0, deadline - time.monotonic()))
        finally:
            threads = [*WorkerProcess.end(*processes), *(lane.close() for lane in self._lanes)]
            deadline = time.monotonic() + LET_GO_SECONDS
            for thread in filter(None, threads):
                thread.join(max(0.0, deadline - time.monotonic()))


Event = Literal["answered", "late", "cut short", "died in it", "died before it"]
"""What may become of the call that a process has; see the table above."""


@dataclass(slots=True)
class _Sent:
    """The call that a process has. `starts` counts the processes that it was handed to."""

    call: Call
    done: Done
    starts: int
    future: "Future[Outcome]"


class _Lane:
    """One sandbox: the calls that are its own, and one process after another that answers them."""

    def __init__(self, packed: Packed, index: int, timeout_s: float | None, woken: Callable[[], None]) -> None:
        self._packed, self._index, self._timeout_s, self._woken = packed, index, timeout_s, woken
        self._waiting = deque[tuple[Call, Done, int]]()
        self._sent: _Sent | None = None
        self.process: WorkerProcess | None = None
        self._n_died_loading = 0
        self._printed: Printed | None = None
        self._begun = RawArray("d", 2)

    def __len__(self) -> int:
        return len(self._waiting) + (self._sent is not None)

    def start(self) -> WorkerProcess:
        """The process, started where there is none."""
        if self.process is None:
            try:
                self._printed = self._printed or Printed()
                self.process = WorkerProcess(self._packed, self._index, self._printed, self._begun, self._woken)
            except (OSError, RuntimeError) as error:
                raise ConfigError(
                    f"worker process {self._index} cannot be started: {error.__cause__ or error}; declare fewer"
                    " sandbox.workers, or raise this system's limits (ulimit -n, ulimit -u)"
                ) from None
        return self.process

    def started(self, seconds: float = 0) -> Started | None:
        """What the process says of itself once it has loaded the system, waited for so long; None until then.

        Raises:
            ConfigError: the process could not load the system, or (DiedLoading) died before it had.
        """
        return self.process.started(seconds) if self.process else None

    def add(self, call: Call, done: Done) -> None:
        self._waiting.append((call, done, 0))
        self._feed()

    def collect(self) -> int:
        """Tells the outcome that has come, if one has, and gives their number."""
        n_told = 0
        while self._sent is not None and (event := self._event(self._sent)) is not None:
            sent = self._sent
            outcome = self._outcome(sent, event)
            if outcome is not None:
                self._sent = None
            if event != "answered":
                self._begin_again()
            if outcome is not None:
                sent.done(outcome)  # recorded before the process is handed another
                n_told += 1
            self._feed()
        self._feed()
        return n_told

    def close(self) -> threading.Thread | None:
        """Lets go of a process that has been ended. Gives the thread that passes on the last of what it printed."""
        printed, self._printed, self.process = self._printed, None, None
        return printed.close() if printed is not None else None

    def _feed(self) -> None:
        """Hands the process the next call, once it is ready and has none."""
        if not self._waiting or self._sent is not None:
            return
        try:
            if self.start().started() is None:
                return
        except DiedLoading:
            self._n_died_loading += 1
            if self._n_died_loading == MOST_LOADS:
                raise
            self._begin_again()
            return
        self._n_died_loading = 0
        call, done, starts = self._waiting.popleft()
        self._sent = _Sent(call, done, starts + 1, self.start().ask(call, self._limit(call)))

    def _limit(self, call: Call) -> float | None:
        return None if self._timeout_s is None else self._timeout_s + call.wait_s

    def _event(self, sent: _Sent) -> Event | None:
        """What has become of the call, or of the process in it; None while it goes on."""
        process, limit = self.process, self._limit(sent.call)
        is_over = process is None or process.is_over  # before the future: what comes of it in between still counts
        is_late = (
            process is not None
            and limit is not None
            and process.is_in_a_call
            and process.seconds_in_call > limit + LATE_SECONDS
        )
        is_done = sent.future.done()
        if is_done and sent.future.exception() is None:
            return "answered"
        if not (is_done or is_over or is_late):
            return None
        if process is None or not process.is_in_a_call:
            return "died before it"
        problem = sent.future.exception() if is_done else None
        if limit is not None and (is_late or isinstance(problem, TimeoutError)):
            # A clock that was set forward, or that went on while the machine slept, ends calls that are not over.
            return "late" if process.seconds_in_call > limit - CLOCKS_DIFFER_SECONDS else "cut short"
        return "died in it"

    def _outcome(self, sent: _Sent, event: Event) -> Outcome | None:
        """What the caller sees of it; None where the call is made again."""
        if event == "cut short" or (event == "died before it" and sent.starts < MOST_STARTS):
            return None
        if event == "died before it":
            return Outcome("error", "worker_died: its process could not be kept alive", 0.0)
        assert self.process is not None
        if event == "answered":
            self.process.answered()
            return sent.future.result()
        ms = max(0.0, self.process.seconds_in_call - sent.call.wait_s) * 1000
        if event == "late":
            return Outcome("timeout", f"no end within {self._timeout_s:g} s", ms)
        return Outcome("error", f"worker_died: {self.process.how_it_ended}", ms)

    def _begin_again(self) -> None:
        """Ends the process with all that it has started; the call that it has not answered is the next one's."""
        if self.process is not None:
            for thread in WorkerProcess.end(self.process):
                # Before anything is opened anew: pebble closes pipes that its threads may be about to read from.
                thread.join(LET_GO_SECONDS)
            self.process = None
        if self._sent is not None:
            self._waiting.appendleft((self._sent.call, self._sent.done, self._sent.starts))
            self._sent = None
