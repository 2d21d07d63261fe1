"""The lock of evidence in a folder of this machine: one run at a time on a version, or on one shard of it.

A process that dies lets go of its locks: they are the operating system's.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from oloproof_dagster.evidence.store import Busy

SECONDS_TO_WAIT = 5.0
"""How long a shard waits for others of its run that begin at the same moment."""


@contextmanager
def folder_lock(folder: Path, shard: int | None = None) -> Iterator[None]:
    """Holds a folder whole, or one shard of it; a folder that is held whole has no shard at work.

    Raises:
        Busy: another process holds it.
        OSError: the lock's file cannot be written.
    """
    with ExitStack() as held:
        try:
            # Shards take the lock of the whole for a moment only, so that they need not wait for each other.
            with ExitStack() as whole:
                whole.enter_context(FileLock(folder / ".lock", timeout=0 if shard is None else SECONDS_TO_WAIT))
                shards = folder.glob(".lock.*") if shard is None else [folder / f".lock.{shard}"]
                for lock in shards:
                    held.enter_context(FileLock(lock, timeout=0))
                if shard is None:
                    held.enter_context(whole.pop_all())
        except Timeout:
            raise Busy from None
        yield
