"""Evidence on object storage: files are made in a folder of this machine and put whole; a lock is a lease."""

import atexit
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.object_lock import Lease, holder_of
from oloproof_dagster.evidence.object_parts import Segments
from oloproof_dagster.evidence.objects import ObjectFile, Objects
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.evidence.store import Busy

LOCK = ".lock"


class ObjectStore:
    """Whole objects below one URL. In a folder that this process holds, or a shard of it, it writes nothing more once
    another one has taken that over."""

    def __init__(self, url: str) -> None:
        self._objects = Objects(url)
        self.root = self._objects.url
        self._leases: list[tuple[str, Lease]] = []

    def path(self, name: str) -> ObjectFile:
        return ObjectFile(self._objects, name)

    def names(self, folder: str) -> list[str]:
        return self._objects.names(folder)

    def read(self, name: str) -> bytes | None:
        return self._objects.read(name)

    def modified(self, name: str) -> float | None:
        return self._objects.modified(name)

    def write(self, name: str, data: bytes) -> None:
        self._require(name, ask=True)
        self._objects.write(name, data)

    def staging(self, name: str) -> Path:
        return _scratch(os.getpid()) / f"{uuid.uuid4().hex}-{name.rpartition('/')[2]}"

    def put(self, staged: Path, name: str) -> None:
        self._require(name, ask=True)
        self._objects.upload(staged, name)
        staged.unlink()

    def copy(self, name: str, to: str) -> None:
        self._require(to, ask=False)
        self._objects.copy(name, to)

    def remove(self, name: str) -> None:
        self._require(name, ask=False)
        self._objects.remove(name)

    def resume_log(self, folder: str) -> ResumeLog:
        return Segments(self._objects, folder, lambda: self._require(folder, ask=False))

    @contextmanager
    def held(self, folder: str, shard: int | None = None) -> Iterator[None]:
        lease = Lease(self._objects, f"{folder}/{LOCK}" if shard is None else f"{folder}/{LOCK}.{shard}")
        lease.take()
        entry = (folder, lease)
        self._leases.append(entry)
        try:
            # Who holds one looks at the others only then: of two that begin at once, one at least sees the other.
            shards = (name for name in self.names(folder) if name.startswith(f"{LOCK}."))
            for name in shards if shard is None else (LOCK,):
                holder = holder_of(self._objects, f"{folder}/{name}")
                if holder is not None:
                    raise Busy(str(holder))
            yield
        finally:
            self._leases.remove(entry)
            lease.let_go()

    def _require(self, name: str, *, ask: bool) -> None:
        for covers, lease in tuple(self._leases):
            if name.startswith(f"{covers}/"):
                try:
                    lease.require(ask=ask)
                except Busy as by:
                    raise EvidenceError(
                        f"another run took over {self._objects.at(covers)} ({by}), as this one had not renewed its"
                        " lease in time; this one stops, run again to go on with what is finished"
                    ) from None


@functools.cache
def store_at(url: str) -> ObjectStore:
    """The store at a URL, one a process: it knows what the process holds.

    Raises:
        ConfigError: the package that it needs is not installed.
    """
    return ObjectStore(url)


@functools.cache
def _scratch(pid: int) -> Path:
    """A folder of this process alone, which goes with it; of a killed one it stays."""
    folder = Path(tempfile.mkdtemp(prefix="oloproof-"))
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == pid else None)
    return folder
