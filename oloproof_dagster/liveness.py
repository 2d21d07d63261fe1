"""Whether a process of this machine lives.

A process is known by its id and by when it began: ids are used again, and a later process of the same id is another
one.
"""

import functools
import os
import platform
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import psutil

SAME_START_SECONDS = 1.5
"""How far apart two readings of one process's start may lie: the clock that they are taken from is set in whole
seconds. No id is used again within that time."""

_ENDED = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def began(pid: int) -> float | None:
    """When a process began, in seconds since this machine did; None where there is no such process.

    A process that has ended and is not yet waited for by its parent still counts. On systems other than Linux the
    seconds are those since 1970.
    """
    # Time since 1970 moves when the clock is set: on Linux psutil adds the boot time, which is taken off again here.
    booted = psutil.boot_time() if psutil.LINUX else 0.0
    try:
        return round(psutil.Process(pid).create_time() - booted, 2)
    except psutil.Error:
        return None


def is_alive(pid: int, since: float | None = None) -> bool:
    """Whether a process of this id runs; with `since`, whether it is still the one that began then.

    One that has ended and is not yet waited for does not run.
    """
    found = began(pid)
    if found is None or (since is not None and not same_start(found, since)):
        return False
    try:
        return psutil.Process(pid).status() not in _ENDED
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # another user's, on a system that does not show more of it
        return True


def same_start(one: float, other: float) -> bool:
    """Whether two results of `began` are of the same process, their ids being equal."""
    return abs(one - other) < SAME_START_SECONDS


def descendants(pid: int) -> list[tuple[int, float]]:
    """The id and the start of every process that a process has started, and that these have, as far as their parents
    are alive."""
    try:
        found = [(each.pid, began(each.pid)) for each in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
    return [(child, since) for child, since in found if since is not None]


@functools.cache
def machine() -> str:
    """A name for this machine until it is started again, and for this container, as each numbers its processes."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        known.append(os.readlink("/proc/self/ns/pid"))
    return sha256("\n".join(known).encode()).hexdigest()[:16]
