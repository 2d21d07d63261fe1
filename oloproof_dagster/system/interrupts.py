"""Tells a person's interrupt from one that the system under test raises by itself."""

import signal
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
