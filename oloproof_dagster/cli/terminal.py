"""The terminal of a command: bars at the bottom for what takes a while, above them what the system prints."""

import contextlib
import os
import time
from typing import Any

SHOWN_AFTER_SECONDS = 1.0
"""How long a stage takes before it has a bar."""


class Screen:
    """What stderr shows while a run is under way. Where it is no terminal, it is left to whoever prints."""

    def __init__(self) -> None:
        self.is_terminal = os.isatty(2)
        self._began: dict[str, float] = {}
        self._tasks: dict[str, Any] = {}
        self._bars: Any = None
        self._unended = b""

    def move(self, stage: str, done: int, total: int) -> None:
        """Moves a stage's bar; it has one once it has taken a second."""
        now = time.monotonic()
        began = self._began.setdefault(stage, now)
        if stage not in self._tasks and now - began > SHOWN_AFTER_SECONDS:
            self._bars = self._bars or _bars()
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        if stage in self._tasks:
            self._bars.update(self._tasks[stage], completed=done)

    def show(self, data: bytes) -> None:
        """Shows what was printed, by whole lines once there are bars."""
        lines, end, rest = (self._unended + data).rpartition(b"\n")
        if self._bars is None:
            self._unended = b""
            _write(lines + end + rest)
            return
        self._unended = rest
        if end:
            from rich.text import Text

            self._bars.console.print(Text.from_ansi(lines.decode(errors="backslashreplace")), soft_wrap=True)

    def close(self) -> None:
        """Takes the bars away and shows the last line, which nobody ended."""
        if self._bars is not None:
            self._bars.stop()
        _write(self._unended)


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):  # there is nobody left to show it to
        while data:
            data = data[os.write(2, data) :]
