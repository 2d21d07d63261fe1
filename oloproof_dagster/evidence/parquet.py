"""Tables as Parquet files: written whole, a batch at a time, and read the same way, in order or by key."""

import contextlib
import hashlib
import io
import operator
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa
import pyarrow.parquet as pq

from oloproof_dagster.digests import dump
from oloproof_dagster.errors import EvidenceError, writing_to
from oloproof_dagster.evidence.seal import (
    FOOTER_BYTES,
    NotSealed,
    checked_footer,
    facts_in,
    holds_footer,
    members,
    seal,
)
from oloproof_dagster.evidence.store import RemoteFile
from oloproof_dagster.records.schema import Row, Table

if TYPE_CHECKING:
    import pandas as pd

GROUP_ROWS = 1_000
GROUP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A table written whole to a file that nobody reads yet; `content` is the digest of its rows."""

    path: Path
    n_rows: int
    content: str


class Writer(Generic[Row]):
    """A new Parquet file, written a batch at a time; it counts for nothing until it is finished.

    Raises:
        EvidenceError: from every method, where the file cannot be written (disk full, no permission).
    """

    def __init__(self, path: Path, table: Table[Row]) -> None:
        self._path, self._table = path, table
        self._hasher, self._n_rows = hashlib.sha256(), 0
        self._content = operator.attrgetter(*table.content)
        texts = (field.name for field in table.schema if field.type in (pa.string(), pa.large_string()))
        self._beside = [table.columns.index(name) for name in texts if name not in table.content]
        self._values = operator.attrgetter(*table.columns)
        self._batch: list[tuple[Any, ...]] = []
        self._n_bytes = 0
        with writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)

    def add(self, row: Row) -> None:
        """Takes one row."""
        values = self._values(row)
        content = self._content(row)
        for _ in range(self._table.n_added):
            if content[-1] is not None:
                break
            content = content[:-1]
        line = dump(content).encode()
        self._hasher.update(line)
        self._hasher.update(b"\n")
        self._n_bytes += len(line)
        for column in self._beside:  # texts that the digest leaves out
            self._n_bytes += len(values[column] or "")
        self._batch.append(values)
        if len(self._batch) >= GROUP_ROWS or self._n_bytes >= GROUP_BYTES:
            self._write()

    def finish(self, facts: dict[str, Any]) -> Staged:
        """Ends the file with `facts` and the digest of its rows in its own metadata."""
        if self._batch:
            self._write()
        content = "sha256:" + self._hasher.hexdigest()
        with writing_to(self._path):
            self._file.add_key_value_metadata(members({**facts, "content": content}))
            self._file.close()
            seal(self._path)
        return Staged(self._path, self._n_rows, content)

    def abandon(self) -> None:
        """Takes an unfinished file away."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _write(self) -> None:
        with writing_to(self._path):
            columns = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*self._batch, strict=True), self._table.schema, strict=True)
            ]
            self._file.write_table(pa.Table.from_arrays(columns, schema=self._table.schema))
        self._n_rows += len(self._batch)
        self._batch, self._n_bytes = [], 0


@contextlib.contextmanager
def writing(path: Path, table: Table[Row]) -> Iterator[Writer[Row]]:
    """A writer whose file is taken away again where an error comes before its end."""
    writer = Writer(path, table)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


def stage(path: Path, table: Table[Row], rows: Iterable[Row], facts: Callable[[], dict[str, Any]]) -> Staged:
    """Writes rows to a new Parquet file with `facts`, asked for when the rows are through.

    Raises:
        EvidenceError: the file cannot be written (disk full, no permission).
    """
    with writing(path, table) as writer:
        for row in rows:
            writer.add(row)
        return writer.finish(facts())


class Stored(Generic[Row]):
    """A stored table, read a batch at a time; one that is not there reads as no rows, so its cases are missing."""

    def __init__(self, path: Path | RemoteFile, table: Table[Row]) -> None:
        self.path, self.table = path, table

    @property
    def exists(self) -> bool:
        """Whether the table was written."""
        return self.path.exists()

    def remove(self) -> None:
        """Takes the table away, where it is there."""
        with writing_to(self.path):
            self.path.unlink(missing_ok=True)

    def save(self, to: Path) -> None:
        """Copies the file; it must be there."""
        with to.open("wb") as target, self.path.open("rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)

    def nothing(self) -> "Stored[Row]":
        """The same table without its rows."""
        return Stored(self.path.with_name(f".{self.table.name}.none"), self.table)

    def of_attempt(self, number: int | None) -> "Stored[Row]":
        """The table where it was made in an attempt, else none of its rows: no attempt's work is another's evidence."""
        return self if self.facts().get("attempt") == number else self.nothing()

    def facts(self) -> dict[str, Any]:
        """What the writer noted of the whole table: `content` (the digest of its rows) and what else it gave."""
        return self.facts_and_length()[0]

    def facts_and_length(self) -> tuple[dict[str, Any], int]:
        """What the writer noted, and the number of rows, from one look at the file."""
        footer = self._footer()
        with self._reading():
            return (facts_in(footer), int(footer.num_rows)) if footer else ({}, 0)

    @property
    def content(self) -> str:
        """The digest of the rows; empty where nothing is stored."""
        return str(self.facts().get("content", ""))

    def __len__(self) -> int:
        return self.facts_and_length()[1]

    def rows(self) -> Iterator[Row]:
        """All rows in stored order; memory holds one batch."""
        with self._opened() as file:
            if file:
                for group in range(file.num_row_groups):
                    yield from self._rows(self._group(file, group))

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of every row; one that an earlier release did not write is null."""
        with self._opened() as file:
            if file:
                for group in range(file.num_row_groups):
                    with self._reading():
                        batch = file.read_row_group(group, columns=list(names))
                    there = set(batch.column_names)
                    nothing = [None] * batch.num_rows
                    columns = (batch.column(name).to_pylist() if name in there else nothing for name in names)
                    yield from zip(*columns, strict=True)

    def frame(self) -> "pd.DataFrame":
        """The table as a pandas frame; JSON columns stay text."""
        with self._opened() as file, self._reading():
            arrow = file.read() if file else self.table.schema.empty_table()
        frame: pd.DataFrame = arrow.replace_schema_metadata(None).to_pandas()
        return frame

    def _open(self) -> pq.ParquetFile | None:
        """The file, None where there is none; `close(force=True)` closes it, wherever it lies."""
        with self._reading(), contextlib.ExitStack() as opened:
            try:
                source = opened.enter_context(
                    pa.OSFile(os.fspath(self.path)) if isinstance(self.path, Path) else self.path.open()
                )
            except FileNotFoundError:
                return None
            file = pq.ParquetFile(source, metadata=checked_footer(source), page_checksum_verification=True)
            opened.pop_all()
            return file

    def _footer(self) -> pq.FileMetaData | None:
        """What the file says of itself, from one read of its end where it lies elsewhere."""
        if not isinstance(self.path, Path):
            try:
                end = self.path.end(FOOTER_BYTES)
            except FileNotFoundError:
                return None
            if holds_footer(end):
                with self._reading():
                    return checked_footer(io.BytesIO(end))
        with self._opened() as file:
            return file.metadata if file else None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile | None]:
        file = self._open()
        try:
            yield file
        finally:
            if file:
                file.close(force=True)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Says in one line that a file is damaged: pages bear checksums and the footer a seal."""
        try:
            yield
        except NotSealed as error:
            raise EvidenceError(f"{self.path} {error}; delete it and run again") from None
        except (OSError, ValueError, pa.ArrowException) as error:
            why = str(error).splitlines()[0]
            raise EvidenceError(f"{self.path} cannot be read as Parquet; delete it and run again ({why})") from None

    def _group(self, file: pq.ParquetFile, group: int) -> pa.Table:
        with self._reading():
            batch = file.read_row_group(group, columns=list(self.table.columns))
            # What this release has and an earlier one did not write.
            for name in self.table.optional.difference(batch.schema.names):
                field = self.table.schema.field(name)
                batch = batch.append_column(field, pa.nulls(len(batch), field.type))
            batch = batch.select([name for name in self.table.columns if name in batch.schema.names])
            if batch.schema.names != self.table.schema.names or batch.schema.types != self.table.schema.types:
                raise pa.ArrowInvalid("its columns are not those of the table")
            return batch

    def _rows(self, group: pa.Table) -> Iterator[Row]:
        return map(self.table.row, *(column.to_pylist() for column in group.columns))


class Index(Generic[Row]):
    """A stored table's rows by key (or by other columns), with as many row groups in memory as HELD_BYTES allow, at
    least one. Rows asked for in about the stored order are read once, and no key of the others is held meanwhile."""

    HELD_BYTES = 48 << 20
    BYTES_OF_A_ROW = 500
    """What Python adds to a row's own bytes, about."""

    def __init__(self, stored: Stored[Row], *, by: tuple[str, ...] | None = None) -> None:
        self._stored, self._held = stored, OrderedDict[int, tuple[list[Row], int]]()
        self._n_bytes = 0
        self._file = stored._open()
        self._n_groups = self._file.num_row_groups if self._file else 0
        self._by = by or stored.table.key
        self._places: dict[int, dict[Any, int]] = {}
        self._at = 0

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._where

    def all(self, *key: Any) -> tuple[Row, ...]:
        """The rows with this key, in stored order."""
        return tuple(self._group(group)[position] for group, position in self._where.get(key, ()))

    def get(self, *key: Any) -> Row | None:
        """The first row with this key, or None."""
        if "_where" not in self.__dict__:
            for group in (self._at, self._at + 1, self._at - 1):
                position = self._places_in(group).get(key) if 0 <= group < self._n_groups else None
                if position is not None:
                    self._at = max(self._at, group)
                    return self._group(group)[position]
        found = self._where.get(key)
        return self._group(found[0][0])[found[0][1]] if found else None

    @cached_property
    def _where(self) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
        """Where every key's rows are: read once some key is not met in the stored order."""
        found: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for group in range(self._n_groups):
            assert self._file is not None
            with self._stored._reading():
                keys = self._file.read_row_group(group, columns=list(self._by)).to_pydict()
            for position, key in enumerate(zip(*(keys[name] for name in self._by), strict=True)):
                found.setdefault(key, []).append((group, position))
        self._places.clear()
        return found

    def _places_in(self, group: int) -> dict[Any, int]:
        if group not in self._places:
            self._places = {kept: places for kept, places in self._places.items() if abs(kept - self._at) <= 1}
            keys = zip(*(map(operator.attrgetter(name), self._group(group)) for name in self._by), strict=True)
            places: dict[Any, int] = {}
            for position, key in enumerate(keys):
                places.setdefault(key, position)
            self._places[group] = places
        return self._places[group]

    def _group(self, group: int) -> list[Row]:
        if group not in self._held:
            assert self._file is not None
            read = self._stored._group(self._file, group)
            n_bytes = int(read.nbytes) + len(read) * self.BYTES_OF_A_ROW
            while self._held and self._n_bytes + n_bytes > self.HELD_BYTES:
                self._n_bytes -= self._held.popitem(last=False)[1][1]
            self._held[group] = list(self._stored._rows(read)), n_bytes
            self._n_bytes += n_bytes
        self._held.move_to_end(group)
        return self._held[group][0]

    def close(self) -> None:
        """Lets the file go."""
        self._held.clear()
        if self._file:
            self._file.close(force=True)
