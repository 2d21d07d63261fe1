"""Tables as Parquet files: written whole, a batch at a time, and read the same way, in order or by key."""

import contextlib
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa
import pyarrow.parquet as pq

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.tables import Row, Table

if TYPE_CHECKING:
    import pandas as pd

GROUP_ROWS = 1_000
GROUP_BYTES = 16 << 20
_FACTS = b"oloproof"


@dataclass(frozen=True, slots=True)
class Staged:
    """A table written whole to a file that nobody reads yet; `content` is the digest of its rows."""

    path: Path
    n_rows: int
    content: str


def stage(path: Path, table: Table[Row], rows: Iterable[Row], facts: Callable[[], dict[str, Any]]) -> Staged:
    """Writes rows to a new Parquet file, a batch at a time, with `facts` (asked for when the rows are through) and
    the content digest in its own metadata.

    Raises:
        EvidenceError: the file cannot be written (disk full, no permission).
    """
    hasher, n_rows = hashlib.sha256(), 0
    content = [table.columns.index(column) for column in table.content]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True) as writer:
            for batch in _batches(table, rows):
                for row in batch:
                    hasher.update(json.dumps([row[i] for i in content], ensure_ascii=False).encode() + b"\n")
                n_rows += len(batch)
                writer.write_table(_arrow(table, batch))
            digest = "sha256:" + hasher.hexdigest()
            writer.add_key_value_metadata({_FACTS: json.dumps({**facts(), "content": digest})})
        with path.open("rb+") as written:
            os.fsync(written.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise EvidenceError(f"cannot write evidence to {path}: {error.strerror or error}") from None
        raise
    return Staged(path, n_rows, digest)


def _batches(table: Table[Row], rows: Iterable[Row]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        values = tuple(getattr(row, column) for column in table.columns)
        size += sum(len(value) for value in values if isinstance(value, str))
        batch.append(values)
        if len(batch) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _arrow(table: Table[Any], batch: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = [
        pa.array(values, type=field.type) for values, field in zip(zip(*batch, strict=True), table.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


class Stored(Generic[Row]):
    """A stored table, read a batch at a time; one that is not there reads as no rows, so its cases are missing."""

    def __init__(self, path: Path, table: Table[Row]) -> None:
        self.path, self.table = path, table

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def nothing(self) -> "Stored[Row]":
        """The same table without its rows."""
        return Stored(self.path.with_name(f".{self.table.name}.none"), self.table)

    def of_attempt(self, number: int | None) -> "Stored[Row]":
        """The table where it was made in an attempt, else none of its rows: no attempt's work is another's evidence."""
        return self if self.facts().get("attempt") == number else self.nothing()

    def facts(self) -> dict[str, Any]:
        """What the writer noted of the whole table: `content` (the digest of its rows) and what else it gave."""
        if not self.exists:
            return {}
        try:
            with self._open() as file:
                found = file.metadata.metadata or {}
            return dict(json.loads(found[_FACTS]))
        except (KeyError, ValueError):
            raise EvidenceError(f"{self.path} was not written by Oloproof") from None

    @property
    def content(self) -> str:
        """The digest of the rows; empty where nothing is stored."""
        return str(self.facts().get("content", ""))

    def __len__(self) -> int:
        if not self.exists:
            return 0
        with self._open() as file:
            return int(file.metadata.num_rows)

    def rows(self) -> Iterator[Row]:
        """All rows in stored order; memory holds one batch."""
        if self.exists:
            with self._open() as file:
                for group in range(file.num_row_groups):
                    yield from self._rows(self._group(file, group))

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of every row."""
        if self.exists:
            with self._open() as file:
                for group in range(file.num_row_groups):
                    with self._reading():
                        batch = file.read_row_group(group, columns=list(names))
                    yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def frame(self) -> "pd.DataFrame":
        """The table as a pandas frame; JSON columns stay text."""
        if self.exists:
            with self._open() as file, self._reading():
                arrow = file.read()
        else:
            arrow = self.table.schema.empty_table()
        frame: pd.DataFrame = arrow.replace_schema_metadata(None).to_pandas()
        return frame

    def _open(self) -> pq.ParquetFile:
        with self._reading():
            return pq.ParquetFile(self.path, page_checksum_verification=True)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Says in one line that a file is damaged; every page bears a checksum, so no damage reads as evidence."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            why = str(error).splitlines()[0]
            raise EvidenceError(f"{self.path} cannot be read as Parquet; delete it and run again ({why})") from None

    def _group(self, file: pq.ParquetFile, group: int) -> pa.Table:
        with self._reading():
            batch = file.read_row_group(group, columns=list(self.table.columns))
            if batch.schema.names != self.table.schema.names or batch.schema.types != self.table.schema.types:
                raise pa.ArrowInvalid("its columns are not those of the table")
            return batch

    def _rows(self, group: pa.Table) -> Iterator[Row]:
        return map(self.table.row, *(column.to_pylist() for column in group.columns))


class Index(Generic[Row]):
    """A stored table's rows by key (or by other columns), in any order, with as many row groups in memory as
    HELD_BYTES allow, at least one: rows asked for in about the stored order are read once."""

    HELD_BYTES = 48 << 20
    BYTES_OF_A_ROW = 500
    """What Python adds to a row's own bytes, about."""

    def __init__(self, stored: Stored[Row], *, by: tuple[str, ...] | None = None) -> None:
        self._stored, self._held = stored, OrderedDict[int, tuple[list[Row], int]]()
        self._n_bytes = 0
        self._where: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        self._file = stored._open() if stored.exists else None
        columns = list(by or stored.table.key)
        for group in range(self._file.num_row_groups if self._file else 0):
            assert self._file is not None
            with stored._reading():
                keys = self._file.read_row_group(group, columns=columns).to_pydict()
            for position, key in enumerate(zip(*(keys[name] for name in columns), strict=True)):
                self._where.setdefault(key, []).append((group, position))

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._where

    def all(self, *key: Any) -> tuple[Row, ...]:
        """The rows with this key, in stored order."""
        return tuple(self._row(group, position) for group, position in self._where.get(key, ()))

    def get(self, *key: Any) -> Row | None:
        """The first row with this key, or None."""
        found = self._where.get(key)
        return self._row(*found[0]) if found else None

    def _row(self, group: int, position: int) -> Row:
        if group not in self._held:
            assert self._file is not None
            read = self._stored._group(self._file, group)
            n_bytes = int(read.nbytes) + len(read) * self.BYTES_OF_A_ROW
            while self._held and self._n_bytes + n_bytes > self.HELD_BYTES:
                self._n_bytes -= self._held.popitem(last=False)[1][1]
            self._held[group] = list(self._stored._rows(read)), n_bytes
            self._n_bytes += n_bytes
        self._held.move_to_end(group)
        return self._held[group][0][position]

    def close(self) -> None:
        """Lets the file go."""
        self._held.clear()
        if self._file:
            self._file.close()
