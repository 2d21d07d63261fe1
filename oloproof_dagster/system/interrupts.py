"""Tells a person's interrupt from one that the system under test raises by itself."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Tells a person's Ctrl-C from a KeyboardInterrupt that the system raises by itself.

    Python raises the same exception for both; only a signal handler sees the difference, and only the main thread
    has one.
    """

    def __init__(self) -> None:
        self._watching = self._noticed = self._stopping = self._is_worker = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notices interrupts; what handled them before still does, and does so again afterwards.

        Where the process ignores them, nobody can interrupt it, and every KeyboardInterrupt is the system's own.
        """
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or former is None:
            yield
            return

        def notice(number: int, frame: Any) -> None:
            self._noticed = True
            if callable(former):
                former(number, frame)

        if callable(former):
            signal.signal(signal.SIGINT, notice)
        self._watching, self._noticed = True, False
        try:
            yield
        finally:
            self._watching = self._noticed = False
            signal.signal(signal.SIGINT, former)

    def stop(self) -> None:
        """Ends the run at its next step whatever the system does with the signal: the process is to end."""
        self._stopping = True

    def none_are_expected(self) -> None:
        """Whatever foreign code lets through is the system's own: this process is a worker, which nobody interrupts."""
        self._is_worker = True

    def end_the_run(self, error: BaseException) -> bool:
        """Whether what foreign code let through is a person's or the orchestrator's wish to stop, no case's error."""
        if self._is_worker:
            return False
        if isinstance(error, KeyboardInterrupt):
            return self._noticed or self._stopping or not self._watching
        return _is_dagsters(error)

    def insist(self) -> None:
        """Raises KeyboardInterrupt where a person wished to stop and foreign code made something else of it."""
        if self._noticed or self._stopping:
            raise KeyboardInterrupt


def _is_dagsters(error: BaseException) -> bool:
    """Whether an exception is the one by which Dagster ends a step; a system's own class may bear the same name."""
    dagster = sys.modules.get("dagster")
    interrupted = getattr(dagster, "DagsterExecutionInterruptedError", None)
    return interrupted is not None and isinstance(error, interrupted)


INTERRUPTS = Interrupts()
"""Of this process: there is one handler of a signal."""
