"""Tables: values come back as they were, schemas do not depend on data, and a file is whole or not there."""

import dataclasses
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oloproof_dagster.digests import canonical_json, json_in_order
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence import parquet
from oloproof_dagster.evidence.parquet import GROUP_ROWS, Index, Stored, stage
from oloproof_dagster.records.schema import JSONText, Table
from oloproof_dagster.records.tables import (
    EXECUTIONS,
    GATE,
    REPLAYS,
    STATES,
    TABLES,
    VERDICTS,
    ExecutionRow,
    GateRow,
    StateRow,
    VerdictRow,
)
from tests.support.engine import Engine
from tests.support.former import as_an_earlier_release_wrote_it
from tests.support.projects import case, write_project

unhurried = settings(deadline=None)  # on a busy machine an example may take long

TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
SAMPLES: dict[Any, tuple[Any, Any]] = {
    str: ("a", "b"),
    JSONText: ("{}", "[]"),
    int: (1, 2),
    float: (0.5, 1.5),
    bool: (True, False),
}


def kinds(table: Table[Any]) -> dict[str, tuple[Any, bool]]:
    """Each column's type and whether it may be null."""
    found = {}
    for name, hint in get_type_hints(table.row).items():
        options = get_args(hint) if isinstance(hint, types.UnionType) or type(None) in get_args(hint) else (hint,)
        found[name] = (next(each for each in options if each is not type(None)), type(None) in options)
    return found


def a_row(table: Table[Any], *, nulls: bool = False, **members: Any) -> Any:
    """A row of samples; with `nulls`, null wherever that may be."""
    given = {name: None if nulls and nullable else SAMPLES[kind][0] for name, (kind, nullable) in kinds(table).items()}
    return table.row(**{**given, **members})


def stored(folder: Path, table: Table[Any], rows: Any, **facts: Any) -> Stored[Any]:
    return Stored(stage(folder / f"{table.name}.parquet", table, rows, lambda: facts).path, table)


@TABLE
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_come_back_as_they_were_written(table: Table[Any], nulls: bool, tmp_path: Path) -> None:
    rows = [a_row(table, nulls=nulls), a_row(table)]
    found = stored(tmp_path, table, rows)
    assert list(found.rows()) == rows
    assert len(found) == 2
    for back in found.rows():
        for name, value in dataclasses.asdict(back).items():
            assert type(value) in (type(getattr(rows[0], name)), type(getattr(rows[1], name)))


@TABLE
def test_a_schema_does_not_depend_on_what_is_null_or_whether_there_are_rows(table: Table[Any], tmp_path: Path) -> None:
    schemas = []
    for name, rows in (("none", []), ("null", [a_row(table, nulls=True)]), ("full", [a_row(table)])):
        found = stored(tmp_path / name, table, rows)
        schemas.append(pq.read_schema(found.path).remove_metadata())
        assert list(found.frame().columns) == list(table.columns)
    assert schemas[0] == schemas[1] == schemas[2] == table.schema


def test_a_table_of_an_earlier_release_is_read_with_nulls_for_what_it_did_not_write_yet(tmp_path: Path) -> None:
    row = a_row(EXECUTIONS, retried=None)
    found = stored(tmp_path, EXECUTIONS, [row])
    as_an_earlier_release_wrote_it(found.path, without=("retried",))
    assert list(found.rows()) == [row]
    as_an_earlier_release_wrote_it(found.path, without=("trajectory",))
    with pytest.raises(EvidenceError, match="not those of the table"):
        list(found.rows())


def test_a_column_that_may_not_be_null_is_never_written_as_null(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="null"):
        stored(tmp_path, STATES, [StateRow(None, 0, "k", None, None)])  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


TEXT = st.text(max_size=8) | st.sampled_from(["", "null", "0012", "true", "1e5", "2026-11-30", "NaN", "\x00", "\u2028"])


@unhurried
@given(
    st.lists(
        st.builds(
            ExecutionRow,
            case_id=TEXT,
            trial=st.integers(0, 2**62),
            execution_key=TEXT,
            status=TEXT,
            error=st.none() | TEXT,
            duration_ms=st.floats(allow_nan=False),
            output=st.none() | TEXT,
            trajectory=st.none() | TEXT,
            retried=st.none() | TEXT,
        ),
        max_size=4,
    )
)
def test_any_text_and_number_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    assert list(stored(tmp_path_factory.mktemp("t"), EXECUTIONS, rows).rows()) == rows


def content(folder: Path, table: Table[Any], *rows: Any) -> str:
    return stored(folder, table, rows).content


DIGESTED = {"input", "expected", "metadata", "initial_state"}
UNCOVERED = {
    "cases": DIGESTED,
    "transformed_cases": DIGESTED | {"given_digest", "initial_digest"},
    "trajectories": {"duration_ms", "retried", "left_tasks", "left_threads"},
    "gate": {"basis"},
}
"""Columns of which the case's digest says all but the order of their keys, what no two runs have in common, and the
digests of what a Gate was decided on: under another policy the same Gate is the same."""


@TABLE
def test_the_content_digest_covers_every_column_that_is_not_volatile_or_stood_for_by_another(
    table: Table[Any], tmp_path: Path
) -> None:
    base = content(tmp_path / "base", table, a_row(table))
    assert base.startswith("sha256:")
    for name, (kind, nullable) in kinds(table).items():
        for number, value in enumerate([SAMPLES[kind][1], *([None] if nullable else [])]):
            row = dataclasses.replace(a_row(table), **{name: value})
            same = content(tmp_path / f"{name}-{number}", table, row) == base
            assert same == (name in UNCOVERED.get(table.name, {"duration_ms", "retried"})), name


def test_the_content_digest_covers_the_order_and_number_of_rows_and_nothing_of_the_file(tmp_path: Path) -> None:
    one, two = a_row(STATES, execution_key="1"), a_row(STATES, execution_key="2")
    contents = [
        content(tmp_path / str(n), STATES, *rows) for n, rows in enumerate([(), (one,), (one, two), (two, one)])
    ]
    assert len(set(contents)) == 4
    noted = stored(tmp_path / "noted", STATES, [one, two], attempt=7)
    assert noted.content == contents[2]
    assert noted.facts() == {"attempt": 7, "content": contents[2]}


def test_what_is_noted_of_a_table_is_asked_for_when_its_rows_are_through(tmp_path: Path) -> None:
    seen: list[int] = []

    def rows() -> Iterator[Any]:
        for number in range(3):
            seen.append(number)
            yield a_row(STATES, execution_key=str(number))

    staged = stage(tmp_path / "t.parquet", STATES, rows(), lambda: {"n_seen": len(seen)})
    assert Stored(staged.path, STATES).facts()["n_seen"] == staged.n_rows == 3


def failing() -> Iterator[Any]:
    yield a_row(STATES)
    raise RuntimeError("the walk broke")


def too_large() -> Iterator[Any]:
    yield a_row(STATES, trial=2**63)


def not_text() -> Iterator[Any]:
    yield a_row(STATES, initial="\ud800")


@pytest.mark.parametrize("rows", [failing, too_large, not_text])
def test_a_write_that_fails_leaves_no_file_and_the_former_one_as_it_was(tmp_path: Path, rows: Any) -> None:
    former = stored(tmp_path, STATES, [a_row(STATES)])
    before = former.path.read_bytes()
    with pytest.raises((RuntimeError, OverflowError, ValueError)):
        stage(tmp_path / "coming.parquet", STATES, rows(), dict)
    assert list(tmp_path.iterdir()) == [former.path]
    assert former.path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EvidenceError, match=r"cannot write evidence to .*file"):
        stage(tmp_path / "file" / "t.parquet", STATES, [a_row(STATES)], dict)


def test_a_table_that_is_not_there_reads_as_no_rows(tmp_path: Path) -> None:
    absent = Stored(tmp_path / "t.parquet", STATES)
    assert not absent.exists
    assert (len(absent), list(absent.rows()), list(absent.columns("case_id"))) == (0, [], [])
    assert (absent.facts(), absent.content, len(absent.frame())) == ({}, "", 0)
    index = Index(absent)
    assert (index.get("k"), index.all("k"), ("k",) in index) == (None, (), False)
    index.close()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    for read in (Stored.facts, Stored.frame, len, Index):
        with pytest.raises(EvidenceError, match=r"t\.parquet cannot be read as Parquet"):
            read(Stored(path, STATES))


def test_a_parquet_file_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    pq.write_table(STATES.schema.empty_table(), tmp_path / "t.parquet")
    with pytest.raises(EvidenceError, match="was not written by Oloproof"):
        Stored(tmp_path / "t.parquet", STATES).facts()


def test_a_frame_has_the_tables_columns_alone_wherever_it_lies(tmp_path: Path) -> None:
    """Some readers take a folder named key=value for a column."""
    frame = stored(tmp_path / "version=1", STATES, [a_row(STATES)]).frame()
    assert list(frame.columns) == list(STATES.columns)
    assert frame.loc[0, "state"] == "{}"


ROWS = [a_row(STATES, execution_key=f"k{number}", case_id=f"c{number % 700}") for number in range(2 * GROUP_ROWS + 500)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Stored[Any]:
    found = stored(tmp_path_factory.mktemp("many"), STATES, ROWS)
    assert pq.ParquetFile(found.path).num_row_groups == 3
    return found


@pytest.mark.parametrize("step", [1, -1, 997])
def test_an_index_finds_every_row_asked_for_in_any_order(many: Stored[Any], step: int) -> None:
    index = Index(many)
    for number in range(0, len(ROWS) * step, step):
        row = ROWS[number % len(ROWS)]
        assert index.get(row.execution_key) == row
    assert index.get("absent") is None
    index.close()


@pytest.mark.parametrize(("held_bytes", "n_groups"), [(1, 1), (1_200_000, 2), (48 << 20, 3)])
def test_an_index_holds_what_its_bytes_allow_and_finds_rows_of_a_group_it_let_go(
    many: Stored[Any], monkeypatch: pytest.MonkeyPatch, held_bytes: int, n_groups: int
) -> None:
    monkeypatch.setattr(Index, "HELD_BYTES", held_bytes)
    index, most = Index(many), 0
    for number in (0, 2_400, 1, 1_500, 2, 2_401, 3, 1_501):
        assert index.get(f"k{number}") == ROWS[number]
        most = max(most, len(index._held))
    assert most == n_groups
    index.close()


SMALL_GROUP = 4


@pytest.fixture(scope="module")
def small_groups(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Stored[Any]]:
    """By their number of rows, tables whose rows `k0`, `k1`, ... lie in groups of four."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", SMALL_GROUP)
        return {n: stored(folder / str(n), STATES, ROWS[:n]) for n in (0, 1, 4, 5, 18, 40)}


@unhurried
@given(data=st.data(), n_rows=st.sampled_from([0, 1, 4, 5, 18, 40]), held_bytes=st.sampled_from([1, 3_000, 48 << 20]))
def test_an_index_gives_each_key_its_row_or_nothing_whatever_is_asked_for_before(
    small_groups: dict[int, Stored[Any]], data: Any, n_rows: int, held_bytes: int
) -> None:
    index = Index(small_groups[n_rows])
    index.HELD_BYTES = held_bytes  # type: ignore[misc]
    for number in data.draw(st.lists(st.integers(0, n_rows + 6), max_size=30)):
        assert index.get(f"k{number}") == (ROWS[number] if number < n_rows else None)
    index.close()


class Watched(Stored[Any]):
    """A stored table that notes which row groups are read whole."""

    def __init__(self, of: Stored[Any]) -> None:
        super().__init__(of.path, of.table)
        self.read: list[int] = []

    def _group(self, file: Any, group: int) -> Any:
        self.read.append(group)
        return super()._group(file, group)


@unhurried
@given(steps=st.lists(st.integers(-SMALL_GROUP, SMALL_GROUP), min_size=1, max_size=60))
def test_rows_asked_for_in_about_the_stored_order_are_read_once_and_without_an_index_of_all_keys(
    small_groups: dict[int, Stored[Any]], steps: list[int]
) -> None:
    """As a control that two evaluators share is asked for again after the first one's fault, in the next group."""
    watched = Watched(small_groups[40])
    index, furthest = Index(watched), 0
    for step in steps:
        number = min(max(furthest + step, 0), 39)
        assert index.get(f"k{number}") == ROWS[number]
        furthest = max(furthest, number)
    assert watched.read == list(range(watched.read[-1] + 1))
    assert "_where" not in vars(index)
    index.close()


def test_a_key_that_is_not_there_reads_the_keys_alone_and_then_rows_are_found_as_before(
    small_groups: dict[int, Stored[Any]],
) -> None:
    watched = Watched(small_groups[40])
    index = Index(watched)
    assert index.get("absent") is None
    before = len(watched.read)
    assert before <= 2
    for _ in range(3):
        assert index.get("still absent") is None
    assert [index.get(f"k{number}") for number in range(40)] == ROWS[:40]
    assert sorted(set(watched.read)) == sorted(watched.read) == list(range(10))
    index.close()


def test_an_index_by_another_column_gives_all_its_rows_in_stored_order(many: Stored[Any]) -> None:
    index = Index(many, by=("case_id",))
    assert index.all("c3") == tuple(row for row in ROWS if row.case_id == "c3")
    assert index.get("c3") == ROWS[3]
    index.close()


def test_columns_are_read_alone_and_in_order(many: Stored[Any]) -> None:
    found = list(many.columns("execution_key", "case_id"))
    assert found == [(row.execution_key, row.case_id) for row in ROWS]


def test_large_values_are_written_in_groups_that_fit_in_memory(tmp_path: Path) -> None:
    state = JSONText('"' + "x" * 6_000_000 + '"')
    found = stored(tmp_path, STATES, (a_row(STATES, execution_key=str(n), state=state) for n in range(5)))
    assert pq.ParquetFile(found.path).num_row_groups == 2
    assert [len(row.state) for row in found.rows()] == [len(state)] * 5


def test_an_open_reader_goes_on_reading_the_table_it_opened(tmp_path: Path) -> None:
    first = stored(tmp_path, REPLAYS, [a_row(REPLAYS, replay_key="old")])
    index = Index(first)
    stage(tmp_path / "coming", REPLAYS, [a_row(REPLAYS, replay_key="new")], dict).path.replace(first.path)
    assert index.get("old") is not None
    index.close()
    assert [row.replay_key for row in first.rows()] == ["new"]


MIRROR = '''
import json


class Mirror:
    """Answers with its input; its world stays as it was reset."""

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, given):
        return given


mirror = Mirror()
'''
SUITE = {
    "system": {"name": "mirror", "version": "v1", "callable": "app:mirror"},
    "evaluators": [{"type": "state_matches"}, {"type": "exact_match", "field": "v", "expected_field": "v"}],
}
FAITHFUL: dict[str, str] = {  # JSON source texts, so that nothing of Python's stands between
    "one": "1",
    "one-point-zero": "1.0",
    "true": "true",
    "zero": "0",
    "minus-zero": "-0.0",
    "null": "null",
    "empty-object": "{}",
    "empty-list": "[]",
    "empty-text": '""',
    "absent-member": '{"a": {}}',
    "null-member": '{"a": {"b": null}}',
    "beyond-64-bits": "123456789012345678901234567890",
    "beyond-any-double": "1" + "0" * 400,
    "beyond-pythons-digits": "1" + "0" * 5_000,
    "2-to-53-plus-1": "9007199254740993",
    "smallest-double": "5e-324",
    "largest-double": "1.7976931348623157e308",
    "seventeen-digits": "0.30000000000000004",
    "leading-zeros": '"0012"',
    "date": '"2026-11-30"',
    "time": '"2026-11-30T12:00:00Z"',
    "text-nan": '"NaN"',
    "composed": '"\u00e9"',
    "decomposed": '"e\u0301"',
    "escaped": '"\\u0000\\u2028\\ud83d\\ude80\\\\ \\""',
    "dotted-keys": '{"a.b": {"c/d": {"~": {"": {"$": {"*": 1}}}}}}',
    "digit-keys": '{"0": 1, "00": 2}',
    "mixed-list": '[1, 1.0, true, null, "1", [], {}]',
    "same-key-in-two-cases": '{"a": 1, "A": 2}',
    "private-key": '{"__v": 1}',
}


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Every value above as a case's input, initial state and expectation, taken through the whole walk."""
    lines = [
        f'{{"id": "{name}", "input": {{"v": {text}}}, "initial_state": {{"v": {text}}},'
        f' "expected": {{"state": {{"v": {text}}}, "v": {text}}}}}\n'
        for name, text in FAITHFUL.items()
    ]
    root = write_project(tmp_path_factory.mktemp("mirror"), cases="".join(lines), app=MIRROR, suite=SUITE)
    engine = Engine(root)
    engine.run()
    return engine


def loads(text: str) -> Any:
    from oloproof_dagster.digests import integers_of_any_size

    with integers_of_any_size():
        return json.loads(text)


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_value_goes_through_the_whole_walk_as_it_was_written(mirrored: Engine, name: str) -> None:
    text = json_in_order({"v": loads(FAITHFUL[name])})
    (execution,) = (row for row in mirrored.rows("trajectories") if row.case_id == name)
    (state,) = (row for row in mirrored.rows("environment_states") if row.case_id == name)
    assert (execution.status, execution.error) == ("ok", None)
    assert (execution.output, state.state) == (text, text)
    frame = mirrored.stored("environment_states").frame().set_index("case_id")
    assert frame.loc[name, "state"] == text


def test_every_value_satisfies_its_own_expectation(mirrored: Engine) -> None:
    assert {row.status for row in mirrored.rows("verdicts")} == {"passed"}
    assert len(mirrored.rows("verdicts")) == 2 * len(FAITHFUL)


def test_no_two_of_these_values_are_stored_as_the_same_text(mirrored: Engine) -> None:
    assert len({row.state for row in mirrored.rows("environment_states")}) == len(FAITHFUL)


def test_ids_that_differ_in_case_or_signs_alone_are_cases_of_their_own(tmp_path: Path) -> None:
    ids = ["caf\u00e9", "CAF\u00c9", "a.b", "a/b", "A/B", " a", "0012", "12", "null"]
    cases = [case(number, id=id_) for number, id_ in enumerate(ids, 1)]
    engine = Engine(write_project(tmp_path, cases=cases))
    verdicts = engine.run()
    assert [row.case_id for row in engine.rows("trajectories")] == ids
    assert [verdicts[id_, "state_matches"].status for id_ in ids] == ["passed"] * len(ids)


@pytest.mark.slow
def test_a_state_of_ten_megabytes_is_recorded_compared_and_read_back(tmp_path: Path) -> None:
    rows = {f"row-{number:06d}": {"text": "x" * 1_000, "n": number} for number in range(10_000)}
    whole = canonical_json({"rows": rows})
    assert len(whole) > 10_000_000
    changed = whole.replace('"n":9999', '"n":9998')
    lines = [
        f'{{"id": "{name}", "input": {{"v": 1}}, "initial_state": {state}, "expected": {{"state": {whole}, "v": 1}}}}\n'
        for name, state in (("same", whole), ("other", changed))
    ]
    engine = Engine(write_project(tmp_path, cases="".join(lines), app=MIRROR, suite=SUITE))
    verdicts = engine.run()
    assert [row.state for row in engine.rows("environment_states")] == [whole, changed]
    assert verdicts["same", "state_matches"].status == "passed"
    failed = verdicts["other", "state_matches"]
    assert failed.status == "failed"
    assert [(each["path"], each["expected"], each["actual"]) for each in json.loads(failed.compared or "")[1:]] == [
        ("rows.row-009999.n", 9999, 9998)
    ]


SEALED_ROW = VerdictRow("c-1", 0, "right", "failed", None, "1 is not 2", None, None)


def flips(path: Path, places: range) -> Iterator[int]:
    """Each of the file's bits in these places turned over, one at a time."""
    whole = path.read_bytes()
    for place in places:
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            yield place
    path.write_bytes(whole)


@pytest.mark.slow
def test_no_bit_of_a_small_table_turned_over_changes_what_it_says_and_in_the_footer_each_is_noticed(
    tmp_path: Path,
) -> None:
    table = stored(tmp_path, GATE, [GateRow("BLOCK", 1, JSONText("[]"))], n_unreached=5)
    as_written = table.facts_and_length(), list(table.rows())
    end = table.path.read_bytes()[-8:-4]
    footer = table.path.stat().st_size - 8 - int.from_bytes(end, "little")
    for place in flips(table.path, range(table.path.stat().st_size)):
        found: Any = None
        try:
            found = list(table.rows())
            found = table.facts_and_length(), found
        except EvidenceError as error:
            assert str(error).startswith(f"{table.path} ")  # noqa: PT017 - either is right, a third is not
            assert str(error).count("\n") == 0  # noqa: PT017
        assert found in (None, as_written)
        assert found is None or place < footer
    assert (table.facts_and_length(), list(table.rows())) == as_written


def test_a_table_of_an_earlier_release_bears_no_seal_and_is_read(tmp_path: Path) -> None:
    table = stored(tmp_path, VERDICTS, [SEALED_ROW], n_unreached=5)
    as_written = table.facts_and_length()
    as_an_earlier_release_wrote_it(table.path)
    assert (table.facts_and_length(), list(table.rows())) == (as_written, [SEALED_ROW])


def test_other_readers_of_parquet_read_a_sealed_table(tmp_path: Path) -> None:
    table = stored(tmp_path, VERDICTS, [SEALED_ROW])
    assert pq.read_table(table.path).to_pylist() == [dataclasses.asdict(SEALED_ROW)]


def test_damage_in_a_page_is_told_and_never_read_as_evidence(tmp_path: Path) -> None:
    rows = [VerdictRow(f"c-{n}", 0, "right", "failed", None, None, None, None) for n in range(50)]
    path = tmp_path / "verdicts.parquet"
    stage(path, VERDICTS, rows, dict)
    whole = path.read_bytes()
    n_told = 0
    for place in range(4, len(whole) // 2, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            assert list(Stored(path, VERDICTS).rows()) == rows
        except EvidenceError as error:
            assert "delete it and run again" in str(error)  # noqa: PT017 - either is right, a third is not
            n_told += 1
    assert n_told


def test_a_resume_line_of_an_earlier_release_lacks_the_newer_columns_and_is_read() -> None:
    newer = ("delivery", "output", "trial", "raised_fault")
    assert REPLAYS.columns[-len(newer) :] == newer
    values = ["a", "k", "control", "start", 0, None, None, "ok", None, None, 1.0, "{}", None, None, None]
    row = REPLAYS.row_of(values)
    assert row is not None
    assert [getattr(row, name) for name in newer] == [None] * len(newer)
    assert REPLAYS.row_of(values[:10]) is None
    assert REPLAYS.row_of([*values, None, None, None, None, None]) is None


def test_a_column_that_an_earlier_release_did_not_write_is_null(tmp_path: Path) -> None:
    engine = Engine(write_project(tmp_path, cases=[case(1), case(2)]))
    engine.run()
    path = engine.stored("verdicts").path
    as_an_earlier_release_wrote_it(path, without=("diverged",))
    stored = engine.stored("verdicts")
    assert list(stored.columns("status", "diverged")) == [("passed", None)] * 2
    assert [row.diverged for row in stored.rows()] == [None, None]
