"""One worker process from the outside: begun, handed calls, and ended with all that it has started.

It is the one process of a pebble pool of its own. A process that dies may leave a pipe torn in the middle of a message,
or a lock held; no other process ever comes near these.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeVar
from uuid import uuid4

import pebble

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.system.calls import Call, Outcome
from oloproof_dagster.workers import inside as worker
from oloproof_dagster.workers.inside import MARK, Place, Started
from oloproof_dagster.workers.killing import Descent, kill
from oloproof_dagster.workers.recipe import Packed
from oloproof_dagster.workers.timing import STOP_SECONDS

FORWARDED_BYTES = 1 << 20
CUT = b"\n... the rest of what this sandbox's system prints is left out\n"
Left = TypeVar("Left")


class DiedLoading(ConfigError):
    """A process came to its end before it had loaded the system: of that, or by whatever kills processes."""


class Printed:
    """What the system of one sandbox prints: passed on to stderr up to a limit, the rest is left out."""

    def __init__(self) -> None:
        self._read, self.write = ForkServerContext().Pipe(duplex=False)
        self._thread = threading.Thread(target=self._forward, name="oloproof-output", daemon=True)
        self._thread.start()

    @property
    def pipe(self) -> int:
        """By which the system knows the pipe."""
        return os.fstat(self.write.fileno()).st_ino

    def close(self) -> threading.Thread:
        """Ends the forwarding; gives its thread, which ends once all is passed on."""
        self.write.close()
        return self._thread

    def _forward(self) -> None:
        left, is_cut = FORWARDED_BYTES, False
        while printed := os.read(self._read.fileno(), 1 << 16):
            passed_on, left = printed[:left], max(0, left - len(printed))
            if len(passed_on) < len(printed) and not is_cut:
                passed_on, is_cut = passed_on + CUT, True
            with contextlib.suppress(OSError):
                os.write(2, passed_on)
        self._read.close()


class WorkerProcess:
    """One sandbox's process, from its start until it ends, for whatever reason.

    `begun` is memory that it shares with this process. `woken` is called, in a thread of pebble's, when there may be
    something new to learn of it.
    """

    def __init__(self, packed: Packed, index: int, printed: Printed, begun: Any, woken: Callable[[], None]) -> None:
        pebble.CONSTS.term_timeout = STOP_SECONDS
        begun[0] = begun[1] = 0
        self._begun, self._woken, self._n_answered = begun, woken, 0
        mark = uuid4().hex
        self._context = _OneProcess()
        self._steering, theirs = self._context.Pipe(duplex=False)
        self._started: Started | None = None
        place = Place(index, mark, dict(os.environ))
        self._pool = pebble.ProcessPool(
            max_workers=1,
            initializer=worker.begin,
            initargs=(packed, place, begun, theirs, printed.write),
            context=self._context,
        )
        try:
            self._first: Future[Any] = self._pool.schedule(os.getpid)
        finally:
            theirs.close()
        self._descent = Descent.of(self._context.pid, f"{MARK}={mark}", printed.pipe)
        self._first.add_done_callback(self._wake)

    @property
    def is_ready(self) -> bool:
        """Whether it was heard to have loaded the system."""
        return self._started is not None

    def started(self, seconds: float = 0) -> Started | None:
        """What it says of itself once it has loaded the system, waited for so long; None before.

        Raises:
            ConfigError: it could not load the system.
            DiedLoading: it died before it had.
        """
        if self._started is None:
            with contextlib.suppress(EOFError):
                if self._steering.poll(seconds):
                    self._started = self._steering.recv()
            if self._started is None and self.is_over:
                raise DiedLoading(
                    f"a worker process died while it loaded the system ({self.how_it_ended}): run `oloproof check`, or"
                    " import the system's module by hand, to see why"
                )
            if self._started is not None and self._started.problem is not None:
                raise ConfigError(self._started.problem)
        return self._started

    def ask(self, call: Call, timeout_s: float | None) -> "Future[Outcome]":
        """Hands it a call."""
        future = self._schedule(worker.answer, call, timeout=timeout_s)
        future.add_done_callback(self._wake)
        return future

    def answered(self) -> None:
        """Notes that a call's outcome has come."""
        self._n_answered += 1

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or its time limit has ended it."""
        return not self._pool.active

    @property
    def is_in_a_call(self) -> bool:
        """Whether it has begun a call that it has not answered."""
        return int(self._begun[0]) > self._n_answered

    @property
    def seconds_in_call(self) -> float:
        """How long ago it began its latest call."""
        return time.monotonic() - float(self._begun[1])

    @property
    def how_it_ended(self) -> str:
        """How a process that is over came to its end, in words."""
        code = self._context.exit_code
        if code is None:
            return "nothing more can be heard of it"
        if code >= 0:
            return f"it ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it was killed by signal {-code}"

    def say_farewell(self, seconds: float) -> "Future[None]":
        """Lets it close its sandbox in good order, within so many seconds."""
        return self._schedule(worker.end, timeout=seconds)

    def _schedule(self, function: Callable[..., Left], *given: Any, timeout: float | None) -> "Future[Left]":
        try:
            return self._pool.schedule(function, args=given, timeout=timeout)
        except RuntimeError as error:  # it has ended since
            future: Future[Left] = Future()
            future.set_exception(error)
            return future

    def _let_go(self) -> None:
        with contextlib.suppress(Exception):
            self._pool.join()
            self._context.close()

    def _wake(self, _: Any) -> None:
        self._woken()

    @staticmethod
    def end(*processes: "WorkerProcess") -> list[threading.Thread]:
        """Ends them with all that they have started; what they were in the middle of is lost.

        Gives the threads that let go of what this process holds of them.
        """
        for each in processes:
            each._pool.stop()  # type: ignore[no-untyped-call]
        kill(*(each._descent for each in processes))
        threads = []
        for each in processes:
            each._steering.close()
            threads.append(threading.Thread(target=each._let_go, name="oloproof-ending", daemon=True))
            threads[-1].start()
        return threads


class _Process(ForkServerProcess):
    """A process that does not run the script again that the run was started from."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            return ForkServerProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _OneProcess(ForkServerContext):
    """Starts one process and no other: pebble cannot replace the one that has ended, and tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.set_forkserver_preload(["oloproof_dagster.workers.inside", "pebble"])
        self._process: _Process | None = None

    def Process(self, **given: Any) -> _Process:  # type: ignore[override]
        if self._process is not None:
            raise OSError("this process is not replaced")
        self._process = _Process(**given)
        return self._process

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    def close(self) -> None:
        """Lets go of what this process holds of one that has ended."""
        if self._process is not None:
            self._process.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode if self._process else None
