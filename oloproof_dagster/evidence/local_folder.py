"""Evidence in a folder of this machine: files are written beside their place, synced, and moved over the old ones."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from oloproof_dagster.errors import reading_from, writing_to
from oloproof_dagster.evidence.folder_lock import folder_lock
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.evidence.store import Busy
from oloproof_dagster.liveness import is_alive

Value = TypeVar("Value")


ABANDONED_AFTER_SECONDS = 600


class LocalFolder:
    """A folder of this machine: files are written beside their place, synced, and moved over the old ones."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """The file of a name."""
        return self.root / name

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted."""
        with reading_from(self.root / folder):
            try:
                return sorted(os.listdir(self.root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, or None."""
        return self._found(name, Path.read_bytes)

    def modified(self, name: str) -> float | None:
        """When a file was last written, in seconds since 1970, or None."""
        return self._found(name, lambda path: path.stat().st_mtime)

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file whole: synced, then moved into its place."""
        target = self.root / name
        with writing_to(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            coming = target.with_name(f".{target.name}.{os.getpid()}.coming")
            with coming.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        self.put(coming, name)

    def staging(self, name: str) -> Path:
        """A path beside the file, on the same file system, that no reader looks at."""
        target = self.root / name
        return target.with_name(f".{target.name}.{os.getpid()}.staged")

    def put(self, staged: Path, name: str) -> None:
        """Moves a staged file into its place."""
        target = self.root / name
        with writing_to(target):
            os.replace(staged, target)
            _settle(target.parent)

    def copy(self, name: str, to: str) -> None:
        """By a hard link where there are such: a file is replaced whole, so a second name for it never changes."""
        source, target = self.root / name, self.root / to
        coming = target.with_name(f".{target.name}.{os.getpid()}.coming")
        with writing_to(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            coming.unlink(missing_ok=True)
            try:
                os.link(source, coming)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copy2(source, coming)
            coming.replace(target)
            coming.unlink(missing_ok=True)  # of two names of one file neither is moved over the other

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all that is in it."""
        path = self.root / name
        with writing_to(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def resume_log(self, folder: str) -> ResumeLog:
        """The finished work that is kept in a folder."""
        return ResumeLog(self.root / folder)

    def is_held(self, folder: str) -> bool:
        """Whether a lock of the folder is taken: for a moment it is taken to see that."""
        path = self.root / folder
        if not path.is_dir():
            return False
        try:
            with reading_from(path), folder_lock(path):
                return False
        except Busy:
            return True

    @contextmanager
    def held(self, folder: str, shard: int | None = None) -> Iterator[None]:
        """Holds a folder, or one shard of it, by file locks; see `Store.held`."""
        path = self.root / folder
        with ExitStack() as lock:
            with writing_to(path):
                path.mkdir(parents=True, exist_ok=True)
                lock.enter_context(folder_lock(path, shard))
            _sweep(path)
            yield

    def _found(self, name: str, read: Callable[[Path], Value]) -> Value | None:
        with reading_from(self.root / name):
            try:
                return read(self.root / name)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None


def _sweep(folder: Path) -> None:
    """Removes what killed processes were writing: of a process that is gone here, and so old that none is writing it
    elsewhere either."""
    for left in (*folder.glob(".*.staged"), *folder.glob(".*.coming")):
        with suppress(OSError):
            pid = left.name.split(".")[-2]
            is_old = time.time() - left.stat().st_mtime > ABANDONED_AFTER_SECONDS
            if is_old and pid.isdecimal() and not is_alive(int(pid)):
                left.unlink()


def _settle(folder: Path) -> None:
    """Makes a replaced file's name durable; where folders cannot be opened (Windows) there is nothing to do."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
