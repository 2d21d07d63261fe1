"""Every table of a release run: one row type each, its Arrow schema, and Parquet files streamed in and out.

Schemas are fixed here and never inferred, so a column that is null throughout keeps its type. JSON values (inputs,
states, outputs, recordings) are canonical text: 1, 1.0 and true, {} and null survive storage as they were.
"""

import dataclasses
import hashlib
import json
import os
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from oloproof_dagster.errors import EvidenceError

if TYPE_CHECKING:
    import pandas as pd

JSONText = NewType("JSONText", str)
"""Canonical JSON text (digests.canonical_json)."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case of the dataset. `line` is its line in the file; `initial_state` is null where none is declared."""

    case_id: str
    digest: str
    line: int
    input: JSONText
    expected: JSONText
    metadata: JSONText
    group_id: str | None
    initial_state: JSONText | None


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One case or derived case of the suite; a source case has no source_case, transform and pair_digest."""

    case_id: str
    digest: str
    line: int
    input: JSONText
    expected: JSONText
    metadata: JSONText
    group_id: str | None
    initial_state: JSONText | None
    cluster: str
    source_case: str | None = None
    transform: str | None = None
    pair_digest: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """One execution of a case: what the system returned and recorded. `duration_ms` covers reset, call, snapshot."""

    case_id: str
    trial: int
    execution_key: str
    status: str
    error: str | None
    duration_ms: float
    output: JSONText | None
    trajectory: JSONText | None


@dataclass(frozen=True, slots=True)
class StateRow:
    """The snapshot after one execution: environment_state/v1. `state` is null where none was recorded."""

    case_id: str
    trial: int
    execution_key: str
    initial: str | None
    state: JSONText | None


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One replay; the control (`kind` control) is a row of its own and has no fault and step_index.

    `trajectory` is the recording up to the checkpoint (its first `prefix_steps` steps), then the continuation.
    `discarded` is the reason code why the replay tells nothing, null where it does. `state_matches` is the
    control's: whether its state equals the recorded one.
    """

    case_id: str
    replay_key: str
    kind: str
    checkpoint_id: str
    prefix_steps: int
    fault: str | None
    step_index: int | None
    status: str
    discarded: str | None
    error: str | None
    duration_ms: float
    trajectory: JSONText | None
    state: JSONText | None
    state_matches: bool | None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One criterion's result for one case and trial. `compared` lists the compared paths (state.Compared.members).

    `noop` says, for a state criterion, whether the case's initial state already satisfies the check.
    """

    case_id: str
    trial: int
    criterion: str
    status: str
    reason: str | None
    detail: str | None
    compared: JSONText | None
    noop: bool | None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One criterion over the suite. Rates and bounds lie in [0, 1]; null where there is nothing to estimate.

    `no_bounds` is the reason code why there is no interval; `missing` and `excluded` map reason codes to counts.
    `n_clusters` counts clusters with an eligible verdict, null in a suite that is not clustered. `cluster_moments`
    (intervals.Clusters) is what a clustered interval was computed from, null under the exact method.
    """

    metric: str
    estimate: float | None
    lower: float | None
    upper: float | None
    confidence_level: float
    method: str | None
    no_bounds: str | None
    n_eligible: int
    n_observed: int
    n_passed: int
    n_missing: int
    n_excluded: int
    n_clusters: int | None
    missing: JSONText
    excluded: JSONText
    noop_passed: int | None
    cluster_moments: JSONText | None = None


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One criterion within one named subset of the cases; descriptive, no rule reads it. `support` = eligible."""

    slice: str
    value: str
    metric: str
    estimate: float | None
    lower: float | None
    upper: float | None
    method: str | None
    no_bounds: str | None
    n_observed: int
    n_passed: int
    n_missing: int
    support: int


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One rule of release.yaml, decided. `reasons` lists reason codes; a count rule's interval columns are null."""

    rule_id: str
    metric: str
    state: str
    reasons: JSONText
    direction: str
    threshold: float
    estimate: float | None
    lower: float | None
    upper: float | None
    method: str | None
    n_eligible: int
    n_observed: int
    n_passed: int
    n_missing: int
    n_excluded: int
    n_clusters: int | None
    advice: str | None


@dataclass(frozen=True, slots=True)
class GateRow:
    """What the decisions mean for the release: ALLOW, WARN or BLOCK; `reasons` as in the release_run/v1 document."""

    action: str
    exit_code: int
    reasons: JSONText


Row = TypeVar("Row")
_ARROW = {str: pa.string(), JSONText: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _field(name: str, annotation: Any) -> pa.Field:
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [option for option in options if option is not type(None)]
    return pa.field(name, _ARROW[kinds[0]], nullable=len(kinds) < len(options))


class Table(Generic[Row]):
    """A table's name, row type and schema. `volatile` columns (durations) are left out of the content digest."""

    def __init__(self, name: str, row: type[Row], *, key: tuple[str, ...], volatile: tuple[str, ...] = ()) -> None:
        self.name, self.row, self.key = name, row, key
        hints = get_type_hints(row)
        self.columns = tuple(field.name for field in dataclasses.fields(row))  # type: ignore[arg-type]
        self.schema = pa.schema([_field(column, hints[column]) for column in self.columns])
        self.content = tuple(column for column in self.columns if column not in volatile)


CASES = Table("cases", CaseRow, key=("case_id",))
SUITE = Table("transformed_cases", SuiteRow, key=("case_id",))
EXECUTIONS = Table("trajectories", ExecutionRow, key=("execution_key",), volatile=("duration_ms",))
STATES = Table("environment_states", StateRow, key=("execution_key",))
REPLAYS = Table("fault_replays", ReplayRow, key=("replay_key",), volatile=("duration_ms",))
VERDICTS = Table("verdicts", VerdictRow, key=("case_id", "trial", "criterion"))
METRICS = Table("metrics", MetricRow, key=("metric",))
SLICES = Table("slices", SliceRow, key=("slice", "value", "metric"))
DECISIONS = Table("decisions", DecisionRow, key=("rule_id",))
GATE = Table("gate", GateRow, key=("action",))

TABLES: dict[str, Table[Any]] = {
    table.name: table
    for table in (CASES, SUITE, EXECUTIONS, STATES, REPLAYS, VERDICTS, METRICS, SLICES, DECISIONS, GATE)
}

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
        with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
            for batch in _batches(table, rows):
                for row in batch:
                    hasher.update(json.dumps([row[i] for i in content], ensure_ascii=False).encode() + b"\n")
                n_rows += len(batch)
                writer.write_table(_arrow(table, batch))
            digest = "sha256:" + hasher.hexdigest()
            writer.add_key_value_metadata({_FACTS: json.dumps({**facts(), "content": digest})})
        with path.open("rb+") as written:
            os.fsync(written.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise EvidenceError(f"cannot write evidence to {path}: {error.strerror or error}") from None
    except BaseException:
        path.unlink(missing_ok=True)
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
                    yield from self._group(file, group)

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of every row."""
        if self.exists:
            with self._open() as file:
                for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=list(names)):
                    yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def frame(self) -> "pd.DataFrame":
        """The table as a pandas frame; JSON columns stay text."""
        arrow = pq.read_table(self.path) if self.exists else self.table.schema.empty_table()
        frame: pd.DataFrame = arrow.replace_schema_metadata(None).to_pandas()
        return frame

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path)
        except (OSError, pa.ArrowInvalid) as error:
            raise EvidenceError(f"{self.path} cannot be read as Parquet: {error}") from None

    def _group(self, file: pq.ParquetFile, group: int) -> Iterator[Row]:
        batch = file.read_row_group(group, columns=list(self.table.columns))
        return map(self.table.row, *(column.to_pylist() for column in batch.columns))


class Index(Generic[Row]):
    """A stored table's rows by key (or by other columns), in any order, with a few row groups in memory: rows asked
    for in about the stored order are read once."""

    HELD = 3

    def __init__(self, stored: Stored[Row], *, by: tuple[str, ...] | None = None) -> None:
        self._stored, self._held = stored, OrderedDict[int, list[Row]]()
        self._where: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        self._file = stored._open() if stored.exists else None
        columns = list(by or stored.table.key)
        for group in range(self._file.num_row_groups if self._file else 0):
            assert self._file is not None
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
            self._held[group] = list(self._stored._group(self._file, group))
            if len(self._held) > self.HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(group)
        return self._held[group][position]

    def close(self) -> None:
        """Lets the file go."""
        self._held.clear()
        if self._file:
            self._file.close()
