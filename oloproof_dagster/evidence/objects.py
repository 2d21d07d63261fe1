"""Objects below one URL, by fsspec: every way in which that can fail is one line of an EvidenceError.

Listings and sizes are asked for anew each time: other machines write here too.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oloproof_dagster.errors import ConfigError, EvidenceError

BLOCK_BYTES = 4 << 20
"""How far a read of a table goes ahead: a footer comes in one request, a row group in a few."""

PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
"""The schemes of URLs that evidence can lie at, and the package that each needs."""

_OPTIONS = {"s3": {"max_concurrency": 2}}
"""A large file goes out in pieces of 50 MB, of which so many are in memory at once."""


class Objects:
    """What is stored below a URL, by names with `/`.

    Raises:
        ConfigError: the package that the URL's scheme needs is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._scheme = url.partition("://")[0]
        package = PACKAGES.get(self._scheme)
        if package is not None and find_spec(package) is None:
            wanted = "'oloproof-dagster[s3]'" if self._scheme == "s3" else package
            raise ConfigError(f"{self.url} needs {package}, which is not installed: pip install {wanted}")

    def at(self, name: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def names(self, folder: str) -> list[str]:
        with self._reading(folder):
            try:
                found = self._files.ls(self.at(folder), detail=False)
            except FileNotFoundError:
                return []
        itself = self._files._strip_protocol(self.at(folder))
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found if path.rstrip("/") != itself)

    def read(self, name: str, *, last: int | None = None) -> bytes | None:
        """An object's bytes, or its last so many; None where there is none."""
        with self._reading(name):
            try:
                return bytes(self._files.cat_file(self.at(name), start=None if last is None else -last))
            except FileNotFoundError:
                return None

    def modified(self, name: str) -> float | None:
        with self._reading(name):
            try:
                return float(self._files.modified(self.at(name)).timestamp())
            except FileNotFoundError:
                return None

    def exists(self, name: str) -> bool:
        with self._reading(name):
            try:
                return bool(self._files.info(self.at(name))["type"] == "file")
            except FileNotFoundError:
                return False

    def open(self, name: str) -> "Reading":
        """An object, to be read from anywhere in it; FileNotFoundError where there is none."""
        missing = None
        with self._reading(name):
            try:
                file = self._files.open(self.at(name), "rb", block_size=BLOCK_BYTES, cache_type="readahead")
                return Reading(file, self.at(name))
            except FileNotFoundError as error:
                missing = error
        raise FileNotFoundError(self.at(name)) from missing

    def write(self, name: str, data: bytes) -> None:
        with self._writing(name):
            self._files.pipe_file(self.at(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Writes an object that is not there; False, and nothing written, where there is one, whoever was first."""
        with self._writing(name):
            try:
                self._files.pipe_file(self.at(name), data, mode="create")
            except FileExistsError:
                return False
            except OSError:  # not every server says in the same words that the condition does not hold
                if self.read(name) is None:
                    raise
                return False
            return True

    def upload(self, path: Path, name: str) -> None:
        with self._writing(name):
            self._files.put_file(str(path), self.at(name))

    def download(self, names: Sequence[str], paths: Sequence[Path]) -> None:
        """Objects as files of this machine, many at a time."""
        if names:
            with self._reading(names[0]):
                self._files.get([self.at(name) for name in names], list(map(str, paths)))

    def copy(self, name: str, to: str) -> None:
        with self._writing(to):
            self._files.cp_file(self.at(name), self.at(to))

    def remove(self, name: str) -> None:
        """Removes an object, or all that is below the name; nothing where there is neither."""
        with self._writing(name), suppress(FileNotFoundError):
            self._files.rm(self.at(name), recursive=True)

    @property
    def _files(self) -> Any:
        """fsspec's own, one a process: a forked child gets another."""
        import fsspec

        return fsspec.filesystem(self._scheme, use_listings_cache=False, **_OPTIONS.get(self._scheme, {}))

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        with _told(f"cannot write evidence to {self.at(name)}"):
            yield

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with _told(f"cannot read evidence at {self.at(name)}"):
            yield


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One object, as readers of tables have it."""

    objects: Objects
    name: str

    def __str__(self) -> str:
        return self.objects.at(self.name)

    def exists(self) -> bool:
        return self.objects.exists(self.name)

    def open(self, mode: str = "rb") -> "Reading":
        return self.objects.open(self.name)

    def end(self, n_bytes: int) -> bytes:
        found = self.objects.read(self.name, last=n_bytes)
        if found is None:
            raise FileNotFoundError(str(self))
        return found

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and not self.exists():
            raise FileNotFoundError(str(self))
        self.objects.remove(self.name)

    def with_name(self, name: str) -> "ObjectFile":
        return ObjectFile(self.objects, "/".join([*self.name.split("/")[:-1], name]))


class Reading(io.RawIOBase):
    """An open object, whose failures are EvidenceErrors."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        with _told(f"cannot read evidence at {self._url}"):
            return bytes(self._file.read(-1 if size is None else size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Says in one line what could not be done, and why."""
    try:
        yield
    except EvidenceError:
        raise
    except Exception as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
        raise EvidenceError(f"{what}: {why}") from None
