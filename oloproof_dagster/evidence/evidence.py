"""How evidence lies in its store: a folder for each system version, tables and resume logs in it, and its attempts.

<root>/<version>/attempt.json           the attempt in force and whether it is complete
<root>/<version>/<table>.parquet        the release run's tables
<root>/<version>/attempts/<n>/          the tables of former attempts, the last ten
<root>/<version>/attempts/.suite/       the suite that the attempt in force was completed with
<root>/<version>/parts/<n>/<kind>/      finished executions and replays of attempt n, until they are in a table
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.local_folder import LocalFolder
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.evidence.store import Busy, Store
from oloproof_dagster.records.tables import TABLES

FORMER_ATTEMPTS_KEPT = 10
LONGEST_NAME = 120
ATTEMPT = "attempt.json"
_SUITE = ("cases", "transformed_cases")

ResumeKind = Literal["executions", "replays"]


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
    """The evidence of one project, below one root: a folder, or a URL. Every write is whole or not there.

    Raises:
        ConfigError: the root is a URL that nothing installed can reach.
    """

    def __init__(self, root: Path | str) -> None:
        self.store = _store(root)

    @property
    def root(self) -> Path | str:
        """The folder, or the URL without a slash at its end."""
        return self.store.root

    def folder(self, version: str) -> Any:
        """Where a version's tables lie."""
        return self.store.path(encode_version(version))

    def path(self, table: str, version: str, attempt: int | None = None) -> Any:
        """The file of a table of a version; of a former attempt where one is named."""
        return self.store.path(self._name(table, version, attempt))

    def table(self, name: str, version: str, attempt: int | None = None) -> Stored[Any]:
        """A stored table; one that is not there reads as no rows."""
        return Stored(self.path(name, version, attempt), TABLES[name])

    def staging(self, name: str, version: str) -> Path:
        """A file of this machine that no reader looks at, where the table can be written before it is put."""
        return self.store.staging(self._name(name, version))

    def put(self, staged: Path, name: str, version: str) -> None:
        """Puts a table that was written to its staging file into its place."""
        self.store.put(staged, self._name(name, version))

    def versions(self) -> tuple[str, ...]:
        """The versions that have an attempt, by when their latest was opened or completed, the last one last."""
        folders = [name for name in self.store.names("") if not name.startswith(".")]
        noted = [(self.store.modified(f"{folder}/{ATTEMPT}"), folder) for folder in folders]
        found = sorted((at, folder) for at, folder in noted if at is not None)
        attempts = (self._noted(folder) for _, folder in found)
        return tuple(attempt.version for attempt in attempts if attempt is not None)

    def attempt(self, version: str) -> Attempt | None:
        """The attempt in force, or None where nothing was ever executed."""
        return self._noted(encode_version(version))

    def former_attempts(self, version: str) -> tuple[int, ...]:
        """The numbers of the former attempts that are kept, oldest first."""
        kept = [int(name) for name in self.store.names(f"{encode_version(version)}/attempts") if name.isdecimal()]
        in_force = self.attempt(version) if kept else None
        return tuple(sorted(number for number in kept if in_force is None or number < in_force.number))

    def open_attempt(self, version: str, *, fresh: bool) -> Attempt:
        """The attempt to work on: an unfinished one is resumed, fresh or not; else `fresh` opens the next."""
        attempt = self.attempt(version)
        if attempt is not None and not (attempt.complete and fresh):
            return attempt
        if attempt is not None:
            self._keep_tables(attempt)
        attempt = Attempt(version, attempt.number + 1 if attempt else 1)
        self._note(attempt)
        for number in self.former_attempts(version)[:-FORMER_ATTEMPTS_KEPT]:
            self.store.remove(f"{encode_version(version)}/attempts/{number}")
        return attempt

    def complete(self, attempt: Attempt) -> None:
        """Notes that the attempt's executions and replays are in the tables; the resume logs go."""
        folder = encode_version(attempt.version)
        present = self.store.names(folder)
        for file in (f"{table}.parquet" for table in _SUITE):
            if file in present:
                self.store.copy(f"{folder}/{file}", f"{folder}/attempts/.suite/{file}")
        if not attempt.complete:
            self._note(replace(attempt, complete=True))
        with suppress(EvidenceError):  # the next run does it
            self.store.remove(f"{folder}/parts")

    def resume_log(self, attempt: Attempt, kind: ResumeKind) -> ResumeLog:
        """The finished executions, or replays, of an attempt that are in no table yet."""
        return self.store.resume_log(self._parts(attempt, kind))

    def _parts(self, attempt: Attempt, kind: ResumeKind) -> str:
        return f"{encode_version(attempt.version)}/parts/{attempt.number}/{kind}"

    def has_resume_log(self, attempt: Attempt, kind: ResumeKind) -> bool:
        """Whether finished work of the attempt is in no table yet."""
        return any(name.endswith(".jsonl") for name in self.store.names(self._parts(attempt, kind)))

    @contextmanager
    def held(self, version: str, *, shard: int | None = None) -> Iterator[None]:
        """Keeps other runs from executing the same version meanwhile, or the same shard of it: a version that is held
        whole has no shard at work. A killed holder lets go by dying.

        Raises:
            EvidenceError: another run is at it.
        """
        with ExitStack() as held:
            try:
                held.enter_context(self.store.held(encode_version(version), shard))
            except Busy as by:
                raise EvidenceError(
                    f"another run is executing version {version!r} at this moment"
                    f"{f' ({by})' if str(by) else ''}; wait for it to end, then run again: what it finished is kept"
                ) from None
            yield

    def is_held(self, version: str) -> bool:
        """Whether a run executes a version, or a shard of it, at this moment."""
        return self.store.is_held(encode_version(version))

    def _keep_tables(self, attempt: Attempt) -> None:
        """Copies the tables of a complete attempt aside before another one replaces them; the suite is the one that
        it was completed with, as the next attempt's is in its place by now. None of it counts before the next attempt
        is noted, so that what a kill left of an earlier try is made anew."""
        folder = encode_version(attempt.version)
        kept, suite = f"{folder}/attempts/{attempt.number}", f"{folder}/attempts/.suite"
        completed_with, present = self.store.names(suite), self.store.names(folder)
        self.store.remove(kept)
        for file in (f"{table}.parquet" for table in TABLES):
            if file in completed_with:
                self.store.copy(f"{suite}/{file}", f"{kept}/{file}")
            elif file in present:
                self.store.copy(f"{folder}/{file}", f"{kept}/{file}")

    def _note(self, attempt: Attempt) -> None:
        self.store.write(f"{encode_version(attempt.version)}/{ATTEMPT}", json.dumps(asdict(attempt)).encode())

    def _noted(self, folder: str) -> Attempt | None:
        name = f"{folder}/{ATTEMPT}"
        data = self.store.read(name)
        try:
            attempt = None if data is None else Attempt(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise EvidenceError(f"{self.store.path(name)} cannot be read: {error}") from None
        if attempt is not None and [type(each) for each in astuple(attempt)] != [str, int, bool]:
            raise EvidenceError(f"{self.store.path(name)} was not written by Oloproof")
        return attempt

    @staticmethod
    def _name(table: str, version: str, attempt: int | None = None) -> str:
        folder = encode_version(version)
        return f"{folder}/{table}.parquet" if attempt is None else f"{folder}/attempts/{attempt}/{table}.parquet"


def _store(root: Path | str) -> Store:
    """The store that a root names: `file:///...` and a plain path are a folder of this machine."""
    scheme, separator, rest = str(root).partition("://")
    if isinstance(root, Path) or not separator:
        return LocalFolder(Path(root))
    if scheme == "file":
        return LocalFolder(Path(rest))
    from oloproof_dagster.evidence.object_store import store_at

    return store_at(str(root).rstrip("/"))
