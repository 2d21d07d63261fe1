"""What evidence asks of the place where it lies.

A name is a path below the root, with `/`. What is written is whole or not there. Every operation that fails raises
EvidenceError, in one line that names the place.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, Self

from oloproof_dagster.evidence.resume_log import ResumeLog


class Busy(Exception):
    """Another one holds what was to be held; the message says who, and is empty where that is not known."""


class RemoteFile(Protocol):
    """A file that is no file of this machine: as much of pathlib.Path as whoever reads tables uses."""

    def exists(self) -> bool:
        """Whether it is there."""

    def open(self, mode: str = "rb") -> Any:
        """The file, to be read from anywhere in it; FileNotFoundError where there is none."""

    def end(self, n_bytes: int) -> bytes:
        """Its last bytes, all of a shorter file; FileNotFoundError where there is none."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes it; FileNotFoundError where there is none, unless that is fine."""

    def with_name(self, name: str) -> Self:
        """The file of another name in the same folder."""


class Store(Protocol):
    """Whole files below one root."""

    @property
    def root(self) -> Path | str:
        """The folder, or the URL without a slash at its end."""

    def path(self, name: str) -> Path | RemoteFile:
        """A file of the store, for who reads it."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted; nothing where there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """A small file's bytes, None where there is none."""

    def modified(self, name: str) -> float | None:
        """When a file was last written, in seconds since 1970; None where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, in place of one that is there."""

    def staging(self, name: str) -> Path:
        """A path on this machine where the file that is to become `name` can be written."""

    def put(self, staged: Path, name: str) -> None:
        """Puts a file that was written to its staging path into its place; the staged one is gone then."""

    def copy(self, name: str, to: str) -> None:
        """Keeps a file under a second name as it is now; it must be there."""

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all that is in it; nothing where there is neither."""

    def resume_log(self, folder: str) -> ResumeLog:
        """The finished work that is kept in a folder, to be read and added to."""

    def is_held(self, folder: str) -> bool:
        """Whether anybody works on a folder, or on a shard of it, at this moment."""

    def held(self, folder: str, shard: int | None = None) -> AbstractContextManager[None]:
        """Keeps others from working on a folder, or on the same shard of it: a folder that is held whole has no shard
        at work. A holder that dies lets go.

        Raises:
            Busy: another one holds it.
        """
