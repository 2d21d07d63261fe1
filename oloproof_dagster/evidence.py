"""Where evidence lies: a folder for each system version, tables and parts in it, and what is said about attempts.

<root>/<version>/attempt.json           the attempt in force and whether it is complete
<root>/<version>/<table>.parquet        the release run's tables
<root>/<version>/attempts/<n>/          the tables of former attempts, the last ten
<root>/<version>/parts/<n>/<what>/      finished executions and replays of attempt n, until they are in a table
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.tables import TABLES, Stored

FORMER_ATTEMPTS_KEPT = 10
LONGEST_NAME = 120

What = Literal["executions", "replays"]


def encode_version(version: str) -> str:
    """A version as a folder's name: one name a version, on case-insensitive file systems too, never nested.

    Lower-case letters, digits, `_`, `-` and inner dots stand for themselves, every other byte is %xx; a name that
    grows long ends in `~` and the version's digest.

    >>> encode_version("feature/x"), encode_version("V1"), encode_version("v1.2")
    ('feature%2fx', '%561', 'v1.2')
    """
    encoded = re.sub(rb"[^a-z0-9_\-.]|^\.|\.$", lambda match: b"%" + match[0].hex().encode(), version.encode()).decode()
    if encoded in _RESERVED_ON_WINDOWS or encoded.partition(".")[0] in _RESERVED_ON_WINDOWS:
        encoded = f"%{ord(encoded[0]):02x}{encoded[1:]}"
    if len(encoded) <= LONGEST_NAME:
        return encoded
    return f"{encoded[:40]}~{sha256(version.encode()).hexdigest()}"


_RESERVED_ON_WINDOWS = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One pass over a release run's cases. `complete` once its executions and replays are in the tables."""

    version: str
    number: int
    complete: bool = False


class Evidence:
    """The evidence of one project, under one root folder. Every write is whole or not there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, version: str) -> Path:
        return self.root / encode_version(version)

    def path(self, table: str, version: str, attempt: int | None = None) -> Path:
        """The file of a table of a version; of a former attempt where one is named."""
        folder = self.folder(version)
        return (folder if attempt is None else folder / "attempts" / str(attempt)) / f"{table}.parquet"

    def table(self, name: str, version: str, attempt: int | None = None) -> Stored[Any]:
        """A stored table; one that is not there reads as no rows."""
        return Stored(self.path(name, version, attempt), TABLES[name])

    def staging(self, name: str, version: str) -> Path:
        """A file, in the folder of the table it is to become, that no reader looks at."""
        return self.folder(version) / f".{name}.{os.getpid()}.staged"

    def versions(self) -> tuple[str, ...]:
        """The versions that have an attempt, oldest first."""
        if not self.root.is_dir():
            return ()
        found = sorted(self.root.glob("*/attempt.json"), key=lambda path: (path.stat().st_ctime_ns, path.name))
        return tuple(str(json.loads(path.read_text("utf-8"))["version"]) for path in found)

    def attempt(self, version: str) -> Attempt | None:
        """The attempt in force, or None where nothing was ever executed."""
        try:
            found = json.loads((self.folder(version) / "attempt.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise EvidenceError(f"{self.folder(version) / 'attempt.json'} cannot be read: {error}") from None
        return Attempt(**found)

    def former_attempts(self, version: str) -> tuple[int, ...]:
        """The numbers of the former attempts that are kept, oldest first."""
        folder = self.folder(version) / "attempts"
        return tuple(sorted(int(each.name) for each in folder.glob("[0-9]*"))) if folder.is_dir() else ()

    def open_attempt(self, version: str, *, fresh: bool) -> Attempt:
        """The attempt to work on: an unfinished one is resumed, fresh or not; else `fresh` opens the next."""
        attempt = self.attempt(version)
        if attempt is None:
            attempt = Attempt(version, 1)
        elif attempt.complete and fresh:
            self._keep_tables(attempt)
            attempt = Attempt(version, attempt.number + 1)
        else:
            return attempt
        self._note(attempt)
        return attempt

    def complete(self, attempt: Attempt) -> None:
        """Notes that the attempt's executions and replays are in the tables; its parts are not needed any more."""
        if not attempt.complete:
            self._note(replace(attempt, complete=True))
        shutil.rmtree(self.folder(attempt.version) / "parts", ignore_errors=True)

    def parts(self, attempt: Attempt, what: What) -> "Parts":
        return Parts(self.folder(attempt.version) / "parts" / str(attempt.number) / what)

    @contextmanager
    def held(self, version: str) -> Iterator[None]:
        """Keeps other runs from executing the same version meanwhile; a killed holder lets go by dying.

        Raises:
            EvidenceError: another run is at it.
        """
        folder = self.folder(version)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / ".lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise EvidenceError(
                f"another run is executing version {version!r} at this moment; wait for it to end,"
                " then run again: what it finished is kept"
            ) from None
        except OSError as error:
            raise EvidenceError(f"cannot write evidence to {folder}: {error.strerror}") from None
        try:
            yield
        finally:
            lock.release()

    def _keep_tables(self, attempt: Attempt) -> None:
        """Copies the tables of a complete attempt aside before another one replaces them."""
        folder = self.folder(attempt.version)
        kept = folder / "attempts" / str(attempt.number)
        if not kept.exists():
            coming = folder / "attempts" / f".{attempt.number}.coming"
            shutil.rmtree(coming, ignore_errors=True)
            coming.mkdir(parents=True)
            for table in TABLES:
                if (folder / f"{table}.parquet").exists():
                    shutil.copy2(folder / f"{table}.parquet", coming)
            coming.replace(kept)
        for number in self.former_attempts(attempt.version)[:-FORMER_ATTEMPTS_KEPT]:
            shutil.rmtree(folder / "attempts" / str(number))

    def _note(self, attempt: Attempt) -> None:
        folder = self.folder(attempt.version)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            coming = folder / ".attempt.json.coming"
            with coming.open("w", encoding="utf-8") as stream:
                json.dump(asdict(attempt), stream)
                stream.flush()
                os.fsync(stream.fileno())
            coming.replace(folder / "attempt.json")
        except OSError as error:
            raise EvidenceError(f"cannot write evidence to {folder}: {error.strerror}") from None


class Parts:
    """Finished work, kept as it comes: append-only files of one JSON line a record, each record under its key.

    A line is written whole before the next case starts, so that a killed process loses at most the case in flight;
    a torn last line is passed over. Every writer makes its own file. Of one key the last record counts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where: dict[str, tuple[int, int]] = {}
        self._files: list[Path] = []
        self._readers: dict[int, Any] = {}
        self._writer: Any = None
        for path in sorted(folder.glob("*.jsonl")):
            self._index(path)

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def __len__(self) -> int:
        return len(self._where)

    def get(self, key: str) -> dict[str, Any] | None:
        """The record under a key, or None."""
        if key not in self._where:
            return None
        file, offset = self._where[key]
        if file not in self._readers:
            self._readers[file] = self._files[file].open("rb")
        self._readers[file].seek(offset)
        record: dict[str, Any] = json.loads(self._readers[file].readline())
        return record

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Keeps a record under a key; it survives the process once this returns.

        Raises:
            EvidenceError: it cannot be written; what was kept before stays kept.
        """
        try:
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"{len(self._files):06d}-{os.getpid()}.jsonl"
                self._writer = path.open("xb")
                self._files.append(path)
            offset = self._writer.tell()
            self._writer.write(json.dumps({**record, "key": key}, ensure_ascii=False).encode() + b"\n")
            self._writer.flush()
        except OSError as error:
            raise EvidenceError(f"cannot write evidence to {self._folder}: {error.strerror}") from None
        self._where[key] = (len(self._files) - 1, offset)

    def close(self) -> None:
        """Closes the files; what is kept stays kept."""
        for stream in (*self._readers.values(), self._writer):
            if stream is not None:
                stream.close()
        self._readers, self._writer = {}, None

    def _index(self, path: Path) -> None:
        number = len(self._files)
        self._files.append(path)
        offset = 0
        with path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    with suppress(ValueError, KeyError, TypeError):  # torn by a lost machine: executed again
                        self._where[json.loads(line)["key"]] = (number, offset)
                offset += len(line)
