"""Where evidence lies: a folder for each system version, tables and parts in it, and what is said about attempts.

<root>/<version>/attempt.json           the attempt in force and whether it is complete
<root>/<version>/<table>.parquet        the release run's tables
<root>/<version>/attempts/<n>/          the tables of former attempts, the last ten
<root>/<version>/attempts/.suite/       the suite that the attempt in force was completed with
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
from oloproof_dagster.parquet import Stored
from oloproof_dagster.tables import TABLES

FORMER_ATTEMPTS_KEPT = 10
LONGEST_NAME = 120
_SUITE = ("cases", "transformed_cases")

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
        """The versions that have an attempt, by when their latest was opened or completed, the last one last."""
        if not self.root.is_dir():
            return ()
        found = sorted(self.root.glob("*/attempt.json"), key=lambda path: (path.stat().st_mtime_ns, str(path)))
        return tuple(_attempt(path).version for path in found)

    def attempt(self, version: str) -> Attempt | None:
        """The attempt in force, or None where nothing was ever executed."""
        path = self.folder(version) / "attempt.json"
        return _attempt(path) if path.exists() else None

    def former_attempts(self, version: str) -> tuple[int, ...]:
        """The numbers of the former attempts that are kept, oldest first."""
        folder = self.folder(version) / "attempts"
        return tuple(sorted(int(each.name) for each in folder.glob("[0-9]*") if each.name.isdecimal()))

    def open_attempt(self, version: str, *, fresh: bool) -> Attempt:
        """The attempt to work on: an unfinished one is resumed, fresh or not; else `fresh` opens the next."""
        attempt = self.attempt(version)
        if attempt is None:
            attempt = Attempt(version, 1)
        elif attempt.complete and fresh:
            with _writing_to(self.folder(version)):
                self._keep_tables(attempt)
            attempt = Attempt(version, attempt.number + 1)
        else:
            return attempt
        self._note(attempt)
        return attempt

    def complete(self, attempt: Attempt) -> None:
        """Notes that the attempt's executions and replays are in the tables; its parts are not needed any more."""
        folder = self.folder(attempt.version)
        with _writing_to(folder):
            for table in _SUITE:
                if (folder / f"{table}.parquet").exists():
                    _link(folder / f"{table}.parquet", folder / "attempts" / ".suite" / f"{table}.parquet")
        if not attempt.complete:
            self._note(replace(attempt, complete=True))
        shutil.rmtree(folder / "parts", ignore_errors=True)

    def parts(self, attempt: Attempt, what: What) -> "Parts":
        return Parts(self.folder(attempt.version) / "parts" / str(attempt.number) / what)

    @contextmanager
    def held(self, version: str) -> Iterator[None]:
        """Keeps other runs from executing the same version meanwhile; a killed holder lets go by dying.

        Raises:
            EvidenceError: another run is at it.
        """
        folder = self.folder(version)
        with _writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / ".lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise EvidenceError(
                    f"another run is executing version {version!r} at this moment; wait for it to end,"
                    " then run again: what it finished is kept"
                ) from None
        try:
            yield
        finally:
            lock.release()

    def _keep_tables(self, attempt: Attempt) -> None:
        """Copies the tables of a complete attempt aside before another one replaces them; the suite is the one that
        it was completed with, as the next attempt's is in its place by now."""
        folder = self.folder(attempt.version)
        kept = folder / "attempts" / str(attempt.number)
        coming = folder / "attempts" / f".{attempt.number}.coming"
        for left_by_a_kill in (coming, kept):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        coming.mkdir(parents=True)
        for table in TABLES:
            completed_with = folder / "attempts" / ".suite" / f"{table}.parquet"
            stored = completed_with if completed_with.exists() else folder / f"{table}.parquet"
            if stored.exists():
                shutil.copy2(stored, coming)
        coming.replace(kept)
        for number in self.former_attempts(attempt.version)[:-FORMER_ATTEMPTS_KEPT]:
            shutil.rmtree(folder / "attempts" / str(number))

    def _note(self, attempt: Attempt) -> None:
        folder = self.folder(attempt.version)
        with _writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            coming = folder / ".attempt.json.coming"
            with coming.open("w", encoding="utf-8") as stream:
                json.dump(asdict(attempt), stream)
                stream.flush()
                os.fsync(stream.fileno())
            coming.replace(folder / "attempt.json")


def _link(stored: Path, kept: Path) -> None:
    """Keeps a file as it is now under a second name: tables are replaced whole, so a hard link never changes."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    coming = kept.with_suffix(".coming")
    coming.unlink(missing_ok=True)
    try:
        os.link(stored, coming)
    except OSError:  # a file system without hard links
        shutil.copy2(stored, coming)
    coming.replace(kept)


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Says where evidence could not be written, and why."""
    try:
        yield
    except OSError as error:
        raise EvidenceError(f"cannot write evidence to {folder}: {error.strerror}") from None


def _attempt(path: Path) -> Attempt:
    try:
        return Attempt(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from None


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
        line = json.dumps({**record, "key": key}, ensure_ascii=False).encode() + b"\n"
        with _writing_to(self._folder):
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"{len(self._files):06d}-{os.getpid()}.jsonl"
                self._writer = path.open("xb")
                self._files.append(path)
            offset = self._writer.tell()
            try:
                self._writer.write(line)
                self._writer.flush()
            except OSError:
                self._abandon_writer()
                raise
        self._where[key] = (len(self._files) - 1, offset)

    def close(self) -> None:
        """Closes the files; what is kept stays kept."""
        for stream in (*self._readers.values(), self._writer):
            if stream is not None:
                stream.close()
        self._readers, self._writer = {}, None

    def _abandon_writer(self) -> None:
        """Lets a file go whose last line may be torn: what is appended next starts a file of its own."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):
                writer.close()

    def _index(self, path: Path) -> None:
        number = len(self._files)
        self._files.append(path)
        offset = 0
        with path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    with suppress(ValueError, KeyError, TypeError, RecursionError):  # torn: executed again
                        self._where[json.loads(line)["key"]] = (number, offset)
                offset += len(line)
