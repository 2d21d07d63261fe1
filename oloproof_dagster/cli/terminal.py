"""The terminal while a run is under way: stdout kept for our answer, bars on stderr for what takes a while."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from oloproof_dagster.local_run import mirror

SECONDS_FOR_THREADS, SECONDS_AT_EXIT = 1.0, 10.0
"""How long what the user's system has left is waited for at the end."""

SHOWN_AFTER_SECONDS = 1.0
"""How long a stage takes before it has a bar."""


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Sends what the user's system prints to stderr, also from C code, so that stdout holds our answer alone."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no real stdout to protect
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(_beside_stderr()):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _beside_stderr() -> TextIO:
    """A stream that leads where stderr does, by a descriptor of its own: whoever holds on to it never has our
    stdout."""
    try:
        if sys.stderr.fileno() == 2:
            return open(os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
    except (OSError, ValueError):  # a stream that a caller put in its place
        pass
    return sys.stderr


@contextlib.contextmanager
def no_silent_end() -> Iterator[None]:
    """Gives an `os._exit` of the user's system the exit code of a crash: no code of its own may look like a Gate's."""
    leave, process = os._exit, os.getpid()

    def refuse(code: int) -> None:
        if os.getpid() == process:
            os.write(2, b"oloproof: the system ended the process with os._exit; what was finished is kept\n")
            mirror.show_now()
        leave(70 if os.getpid() == process else code)

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


def end_in_time(code: int) -> None:
    """Lets the process end though the user's system has left a thread, or something to be done at exit, that never
    does."""
    main = threading.main_thread()
    has_threads = any(not each.daemon and each is not main for each in threading.enumerate())

    def leave() -> None:
        time.sleep(SECONDS_FOR_THREADS if has_threads else SECONDS_AT_EXIT)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)

    threading.Thread(target=leave, name="oloproof-end", daemon=True).start()


@contextlib.contextmanager
def progress_bars() -> Iterator[None]:
    """Bars on stderr for stages that take more than a second; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from oloproof_dagster.execution.progress import listening

    # A descriptor of its own: while steps run, 2 leads into a file.
    with open(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace") as terminal:
        bars = _Bars(terminal)
        with listening(bars.told), mirror.shown_by(bars.show):
            try:
                yield
            finally:
                bars.close()


class _Bars:
    """A bar a stage, at the bottom of a terminal, and above them what the user's system prints."""

    def __init__(self, terminal: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._terminal = terminal
        self._progress = Progress(
            *columns, console=Console(file=terminal), transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._began: dict[str, float] = {}
        self._tasks: dict[str, Any] = {}
        self._unended: dict[int, bytes] = {}

    def told(self, stage: str, done: int, total: int) -> None:
        """Moves a stage's bar."""
        now = time.monotonic()
        began = self._began.setdefault(stage, now)
        if stage not in self._tasks and now - began > SHOWN_AFTER_SECONDS:
            self._progress.start()
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        if stage in self._tasks:
            self._progress.update(self._tasks[stage], completed=done)

    def show(self, descriptor: int, data: bytes) -> None:
        """Shows what was printed, by whole lines once there are bars."""
        lines, end, rest = (self._unended.pop(descriptor, b"") + data).rpartition(b"\n")
        if not self._tasks:
            mirror.straight(descriptor, lines + end + rest)
            return
        if rest:
            self._unended[descriptor] = rest
        if end:
            from rich.text import Text

            self._progress.console.print(Text.from_ansi(lines.decode(errors="backslashreplace")), soft_wrap=True)

    def close(self) -> None:
        """Takes the bars away and shows the last line, which nobody ended."""
        self._progress.stop()
        self._terminal.write(b"".join(self._unended.values()).decode(errors="backslashreplace"))
