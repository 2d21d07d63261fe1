"""Evidence on object storage: files are made in a folder of this machine and put whole; a lock is an object."""

import atexit
import functools
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.object_file import ObjectFile
from oloproof_dagster.evidence.object_lock import Holder, ObjectLock, holder_of, holder_of_numbered
from oloproof_dagster.evidence.object_parts import ObjectResumeLog
from oloproof_dagster.evidence.objects import Objects
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.evidence.store import Busy

LOCK = re.compile(r"(?P<place>\.lock(\.\d+)?)(?P<object>\.json)?")
"""A lock of a whole folder or of one of its shards: an object, or the folder of earlier releases."""


class ObjectStore:
    """Whole objects below one URL. In a folder that this process holds, or a shard of it, it writes nothing more once
    another one has taken that over."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.root = objects.url
        self._locks: list[tuple[str, ObjectLock]] = []

    def path(self, name: str) -> ObjectFile:
        """The object of a name."""
        return ObjectFile(self._objects, name)

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted."""
        return self._objects.names(folder)

    def read(self, name: str) -> bytes | None:
        """A small object's bytes, or None."""
        return self._objects.read(name)

    def modified(self, name: str) -> float | None:
        """When an object was last written, in seconds since 1970, or None."""
        return self._objects.modified(name)

    def write(self, name: str, data: bytes) -> None:
        """Writes a small object, unless its folder was taken over."""
        self._require(name)
        self._objects.write(name, data)

    def staging(self, name: str) -> Path:
        """A path in a folder of this process alone."""
        return _scratch(os.getpid()) / f"{uuid.uuid4().hex}-{name.rpartition('/')[2]}"

    def put(self, staged: Path, name: str) -> None:
        """Puts a staged file into its place, unless its folder was taken over."""
        self._require(name)
        self._objects.upload(staged, name)
        staged.unlink()

    def copy(self, name: str, to: str) -> None:
        """Keeps an object under a second name, unless its folder was taken over."""
        self._require(to)
        self._objects.copy(name, to)

    def remove(self, name: str) -> None:
        """Removes an object, or all that is below the name, unless its folder was taken over."""
        self._require(name)
        self._objects.remove(name)

    def resume_log(self, folder: str) -> ResumeLog:
        """The finished work that is kept below a name."""
        return ObjectResumeLog(self._objects, folder, lambda: self._require(folder))

    def is_held(self, folder: str) -> bool:
        """Whether an object of the folder says so of a holder that lives, or whose time is not up."""
        found = ((name, LOCK.fullmatch(name)) for name in self.names(folder))
        return any(lock is not None and self._holder(folder, name, lock) for name, lock in found)

    @contextmanager
    def held(self, folder: str, shard: int | None = None) -> Iterator[None]:
        """Holds a folder, or one shard of it, by an object; see `Store.held`."""
        place = ".lock" if shard is None else f".lock.{shard}"
        lock = ObjectLock(self._objects, f"{folder}/{place}.json")
        lock.acquire()
        entry = (folder, lock)
        self._locks.append(entry)
        try:
            # Who holds one looks at the others only then: of two that begin at once, one at least sees the other.
            self._require_free(folder, place)
            yield
        finally:
            self._locks.remove(entry)
            lock.release()

    def _require_free(self, folder: str, place: str) -> None:
        """Returns where nobody else holds the folder, or the shard whose lock was taken, or any shard of a folder
        that was taken whole. What dead holders of earlier releases left behind is removed."""
        for name in self.names(folder):
            lock = LOCK.fullmatch(name)
            if lock is None or name == f"{place}.json":
                continue
            if place != ".lock" and lock["place"] not in (".lock", place):  # another shard's
                continue
            holder = self._holder(folder, name, lock)
            if holder is not None:
                raise Busy(str(holder))
            if not lock["object"]:
                self._objects.remove(f"{folder}/{name}")

    def _holder(self, folder: str, name: str, lock: re.Match[str]) -> Holder | None:
        read = holder_of if lock["object"] else holder_of_numbered
        return read(self._objects, f"{folder}/{name}")

    def _require(self, name: str) -> None:
        for covers, lock in tuple(self._locks):
            if name.startswith(f"{covers}/"):
                try:
                    lock.require()
                except Busy as by:
                    raise EvidenceError(
                        f"another run took over {self._objects.at(covers)} ({by}), as this one had not renewed its"
                        " lock in time; this one stops, run again to go on with what is finished"
                    ) from None


@functools.cache
def store_at(url: str) -> ObjectStore:
    """The store at a URL, one a process: it knows what the process holds.

    Raises:
        ConfigError: the package that it needs is not installed.
    """
    return ObjectStore(Objects(url))


@functools.cache
def _scratch(pid: int) -> Path:
    """A folder of this process alone, which goes with it; of a killed one it stays."""
    folder = Path(tempfile.mkdtemp(prefix="oloproof-"))
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == pid else None)
    return folder
