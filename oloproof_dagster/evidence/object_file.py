"""One object as readers of tables have it: a file that is read from anywhere in it."""

import io
from collections.abc import Callable
from dataclasses import dataclass

from oloproof_dagster.evidence.objects import Objects

BLOCK_BYTES = 4 << 20
"""How far a read of a table goes ahead: a footer comes in one request, a row group in a few."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """The object of one name; as much of pathlib.Path as `RemoteFile` lists."""

    objects: Objects
    name: str

    def __str__(self) -> str:
        return self.objects.at(self.name)

    def exists(self) -> bool:
        """Whether the object is there."""
        return self.objects.exists(self.name)

    def open(self, mode: str = "rb") -> "Reading":
        """The object as it is now, to be read from anywhere in it; FileNotFoundError where there is none.

        A read raises EvidenceError once another object has taken its place.
        """
        meta = self.objects.head(self.name)
        if meta is None:
            raise FileNotFoundError(str(self))
        size, e_tag = meta["size"], meta["e_tag"]
        return Reading(lambda start, end: self.objects.range(self.name, start, end, e_tag), size)

    def end(self, n_bytes: int) -> bytes:
        """The last bytes, all of a shorter object; FileNotFoundError where there is none."""
        found = self.objects.end(self.name, n_bytes)
        if found is None:
            raise FileNotFoundError(str(self))
        return found

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the object; FileNotFoundError where there is none, unless that is as good."""
        if not missing_ok and not self.exists():
            raise FileNotFoundError(str(self))
        self.objects.remove(self.name)

    def with_name(self, name: str) -> "ObjectFile":
        """The object of another name in the same folder."""
        return ObjectFile(self.objects, "/".join([*self.name.split("/")[:-1], name]))


class Reading(io.RawIOBase):
    """An open object of known size, read a block ahead; `fetch` gives the bytes from a start to before an end."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size = fetch, size
        self._at = self._start = 0
        self._block = b""

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, as many as there are of `size`; all that follow where it is negative or None."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if not self._start <= self._at <= end <= self._start + len(self._block):
            block_end = min(max(end, self._at + BLOCK_BYTES), self._size)
            self._start, self._block = self._at, self._fetch(self._at, block_end)
        data = self._block[self._at - self._start : end - self._start]
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """The new place, counted from the start, from here or from the end."""
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def tell(self) -> int:
        """The place that the next read begins at."""
        return self._at
