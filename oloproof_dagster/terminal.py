"""The terminal while a run is under way: stdout kept for our answer, bars on stderr for what takes a while."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any


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
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def no_silent_end() -> Iterator[None]:
    """Turns an `os._exit(0)` of the user's system into a failure: a run that ends without a Gate is never green."""
    leave, process = os._exit, os.getpid()

    def refuse(code: int) -> None:
        if os.getpid() == process:
            os.write(2, b"oloproof: the system ended the process with os._exit; what was finished is kept\n")
        leave(code or (70 if os.getpid() == process else 0))

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


@contextlib.contextmanager
def progress_bars() -> Iterator[None]:
    """Bars on stderr for stages that take more than a second; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from oloproof_dagster.console import printer
    from oloproof_dagster.progress import listening

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=printer(stderr=True), transient=True)
    began: dict[str, float] = {}
    tasks: dict[str, Any] = {}

    def told(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        began.setdefault(stage, now)
        if stage not in tasks and now - began[stage] > 1:
            progress.start()
            tasks[stage] = progress.add_task(stage, total=total)
        if stage in tasks:
            progress.update(tasks[stage], completed=done)

    with listening(told):
        try:
            yield
        finally:
            progress.stop()
