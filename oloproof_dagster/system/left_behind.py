"""What a case leaves running: tasks on the event loop, which are ended, and threads, which nothing can end."""

import asyncio
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import thread as executors
from dataclasses import dataclass
from typing import Any

GRACE_SECONDS = 5.0
Task = asyncio.Task[Any]


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """How many tasks and threads a case left running, and the name of one of each; all of it is 0 and None mostly."""

    tasks: int = 0
    threads: int = 0
    task: str | None = None
    thread: str | None = None


NOTHING = LeftBehind()


def tasks_of(loop: asyncio.AbstractEventLoop | None, kept: frozenset[Task] = frozenset()) -> set[Task]:
    """The tasks on a loop that are not among those that are kept."""
    return set() if loop is None or loop.is_closed() else asyncio.all_tasks(loop) - kept


async def ended(tasks: set[Task], settle_s: float) -> None:
    """Lets tasks finish for so long, then cancels them and awaits their end, up to GRACE_SECONDS."""
    pending = tasks
    if settle_s:
        pending = (await asyncio.wait(tasks, timeout=settle_s))[1]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=GRACE_SECONDS)


def name_of(task: Task) -> str:
    """The name of what a task runs."""
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", None) or task.get_name()


def threads_since(before: Iterable[threading.Thread]) -> list[threading.Thread]:
    """The threads that began since and live on. An executor's thread that waits for work does nothing."""
    new = set(threading.enumerate()).difference(before)
    if not new:
        return []
    frames = sys._current_frames()
    return [each for each in new if not _is_idle(frames.get(each.ident or 0)) and not _is_ours(each)]


def _is_idle(frame: object) -> bool:
    return getattr(frame, "f_code", None) is executors._worker.__code__


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith("oloproof-")
