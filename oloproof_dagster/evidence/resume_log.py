"""Finished work kept as it comes, before it is in a table: what a killed run is resumed from."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from oloproof_dagster.digests import dump
from oloproof_dagster.errors import EvidenceError, reading_from, writing_to


class ResumeLog:
    """Append-only files of one line a record, each record under its key, as JSON behind its digest.

    A line is written whole before the next case starts, so that a killed process loses at most the cases in flight;
    a line that is torn or damaged is passed over. Every writer makes its own file. Of one key the last record counts.
    Lines of earlier releases bear no digest.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where: dict[str, tuple[int, int]] = {}
        self._files: list[Path] = []
        self._readers: dict[int, Any] = {}
        self._writer: Any = None
        for path in sorted(folder.glob("*.jsonl")):
            if path.is_file():
                with reading_from(path):
                    self._index(path)

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def __len__(self) -> int:
        return len(self._where)

    def get(self, key: str) -> list[Any] | None:
        """The record that stood under a key when this was opened, or None."""
        if key not in self._where:
            return None
        file, offset = self._where[key]
        if file not in self._readers:
            self._readers[file] = self._files[file].open("rb")
        self._readers[file].seek(offset)
        return record[1:] if (record := _record(self._readers[file].readline())) else None

    def append(self, key: str, record: Sequence[Any]) -> None:
        """Keeps a record under a key; it survives the process once this returns.

        Raises:
            EvidenceError: it cannot be written; what was kept before stays kept.
        """
        line = dump([key, *record]).encode()
        self._write(_digest(line) + b" " + line + b"\n")

    def close(self) -> None:
        """Closes the files; what is kept stays kept."""
        for stream in (*self._readers.values(), self._writer):
            if stream is not None:
                stream.close()
        self._readers, self._writer = {}, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except EvidenceError:
            if error is None:  # what went wrong first is what is raised
                raise

    def _write(self, line: bytes) -> None:
        with writing_to(self._folder):
            try:
                if self._writer is None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    name = f"{len(self._files):06d}-{uuid.uuid4().hex[:12]}.jsonl"
                    self._writer = (self._folder / name).open("xb")
                self._writer.write(line)
                self._writer.flush()
            except OSError:
                self._abandon_writer()
                raise

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
                record = _record(line)
                if record is not None:
                    self._where[record[0]] = (number, offset)
                offset += len(line)


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest().encode()


def _record(line: bytes) -> list[Any] | None:
    """The key and record of a line; None where it is torn or damaged, and so as good as not recorded."""
    if not line.endswith(b"\n"):
        return None
    line = line[:-1]
    if not line.startswith(b"["):  # with which the lines of earlier releases begin, that bear no digest
        digest, _, line = line.partition(b" ")
        if digest != _digest(line):
            return None
    with suppress(ValueError, RecursionError):
        match json.loads(line):
            case [str(key), *rest]:
                return [key, *rest]
    return None
