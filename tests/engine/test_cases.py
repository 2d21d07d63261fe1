"""The dataset read: ids, all-or-none keys, digests."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.digests import canonical_json, digest, parse_canonical
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.tables import CaseRow
from oloproof_dagster.suite.cases import ReadNotes, dataset_digest, read_cases, suite_digest
from tests.support import VECTORS
from tests.support.projects import case, write_project

EXPECTED = json.loads((VECTORS / "digests.json").read_text(encoding="utf-8"))
POLITE = {"transforms": [{"name": "polite", "field": "note", "template": "{value}, please"}]}


def read(root: Path, cases: Any, notes: ReadNotes | None = None, **more: Any) -> list[CaseRow]:
    return list(read_cases(load_project(write_project(root, cases=cases, **more)), notes))


def refusal(root: Path, cases: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(root, cases, **more)
    return str(caught.value)


# Digests.


@pytest.mark.parametrize("vector", EXPECTED["case_digest"], ids=lambda vector: vector["case"]["id"])
def test_a_case_has_the_digest_of_the_vectors(tmp_path: Path, vector: dict[str, Any]) -> None:
    (row,) = read(tmp_path, [vector["case"]])
    assert row.digest == vector["digest"]


def test_what_is_left_out_of_a_case_counts_as_its_default(tmp_path: Path) -> None:
    bare, full = read(tmp_path, [{"id": "a", "input": 1}, {"id": "b", "input": 1, "expected": None, "metadata": {}}])
    assert bare.digest == full.digest


def test_an_initial_state_that_is_empty_is_not_the_same_as_none(tmp_path: Path) -> None:
    (without,) = read(tmp_path, [{"id": "a", "input": 1}])
    (empty,) = read(tmp_path, [{"id": "a", "input": 1, "initial_state": {}}])
    assert (without.initial_state, empty.initial_state) == (None, "{}")
    assert without.digest != empty.digest


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("input", {"amount": 2}),
        ("initial_state", {"balance": 1}),
        ("expected", {"state": {}}),
        ("expected", {"state": {"balance": 1, "other": True}}),
        ("metadata", {"kind": "x"}),
        ("group_id", "g"),
    ],
)
def test_every_key_but_the_id_is_part_of_the_digest(tmp_path: Path, key: str, value: Any) -> None:
    (before,) = read(tmp_path, [case(1)])
    (after,) = read(tmp_path, [case(1, **{key: value})])
    assert before.digest != after.digest


def test_the_id_the_line_and_the_order_of_keys_are_no_part_of_the_digest(tmp_path: Path) -> None:
    one = case(1)
    other = dict(reversed(one.items())) | {"id": "other"}
    rows = read(tmp_path, json.dumps(one) + "\n\n" + json.dumps(other))
    assert [(row.case_id, row.line) for row in rows] == [("c-001", 1), ("other", 3)]
    assert rows[0].digest == rows[1].digest


def test_values_are_kept_as_they_were_written(tmp_path: Path) -> None:
    line = '{"id": "a", "input": {"big": %s, "float": 1.0, "int": 1, "true": true, "null": null, "ü": "\\u00fc"}}'
    (row,) = read(tmp_path, line % ("9" * 5000))
    assert row.input == '{"big":%s,"float":1.0,"int":1,"true":true,"null":null,"ü":"ü"}' % ("9" * 5000)


def test_the_suites_digest_is_over_its_sorted_ids_and_digests(tmp_path: Path) -> None:
    rows = read(tmp_path, [case(2), case(1)])
    pairs = [(row.case_id, row.digest) for row in rows]
    assert suite_digest(iter(pairs)) == digest("suite/v1", [list(pair) for pair in sorted(pairs)])
    assert suite_digest(iter(pairs)) == suite_digest(iter(pairs[::-1]))


def test_the_datasets_digest_is_that_of_its_bytes(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path, cases='{"id":"a","input":1}'))
    before = dataset_digest(project)
    project.dataset.write_bytes(project.dataset.read_bytes() + b"\n")
    assert dataset_digest(project) != before


# Ids.


ODD_IDS = [
    "a/b",
    "../a",
    "a|b",
    "a b",
    " c",
    "b ",
    "-a",
    ".",
    "~",
    "a~b",
    "a\nb",
    "a\x00b",
    "a\u2028b",
    "x" * 300,
    "ü",
    unicodedata.normalize("NFD", "ö"),
    "\U0001f600",
    "CON",
    "a",
    "A",
    "1",
    "01",
    "null",
    "é%2F",
]


def test_ids_are_kept_as_they_are_and_never_normalised(tmp_path: Path) -> None:
    rows = read(tmp_path, [{"id": each, "input": n} for n, each in enumerate(ODD_IDS)])
    assert [row.case_id for row in rows] == ODD_IDS


FUER = [unicodedata.normalize(form, "für") for form in ("NFC", "NFD")]


@pytest.mark.parametrize(("first", "second"), [FUER, FUER[::-1], ("a", "a "), ("\ta", "a"), (" a", "a\u00a0")])
def test_ids_that_read_alike_are_duplicates_and_both_lines_are_named(tmp_path: Path, first: str, second: str) -> None:
    lines = [json.dumps({"id": each, "input": 1}) for each in ("other", first, "another", second)]
    assert refusal(tmp_path, "\n".join(lines)) == (
        f"data/cases.jsonl:4: the id {second!a} on line 4 reads like {first!a} on line 2: they differ in spaces at an"
        " end or in how letters are composed; ids are unique, so change one"
    )


def test_an_id_is_unique_and_the_first_bearer_is_named(tmp_path: Path) -> None:
    lines = [json.dumps(case(1)), "", json.dumps(case(2)), json.dumps(case(1))]
    assert refusal(tmp_path, "\n".join(lines)) == (
        "data/cases.jsonl:4: the id 'c-001' stands on line 1 already; ids are unique, so change one"
    )


def test_an_id_written_with_escapes_is_the_same_id(tmp_path: Path) -> None:
    assert "the id 'ü' stands on line 1 already" in refusal(
        tmp_path, '{"id":"ü","input":1}\n{"id":"\\u00fc","input":2}\n'
    )


def test_a_case_without_an_id_is_named_by_its_digest_with_a_warning(tmp_path: Path) -> None:
    notes = ReadNotes()
    named, unnamed = read(tmp_path, [{"id": "a", "input": 1}, {"input": 2}], notes)
    assert unnamed.case_id == unnamed.digest.removeprefix("sha256:")[:16]
    assert named.case_id == "a"
    assert notes.n_cases == 2
    (warning,) = notes.warnings
    assert "data/cases.jsonl: 1 case(s) without `id`" in warning


def test_a_suite_whose_cases_all_have_ids_gives_no_warning(tmp_path: Path) -> None:
    notes = ReadNotes()
    read(tmp_path, None, notes)
    assert (notes.n_cases, notes.warnings) == (3, [])


def test_with_transforms_a_case_needs_an_id(tmp_path: Path) -> None:
    without = {key: value for key, value in case(2).items() if key != "id"}
    assert refusal(tmp_path, [case(1), without], suite={"metamorphic": POLITE}) == (
        "data/cases.jsonl:2: the case has no `id`; with transforms every case needs one, as labels name cases by it"
    )


def test_a_case_that_stands_twice_without_an_id_is_told_as_such(tmp_path: Path) -> None:
    said = refusal(tmp_path, [{"input": 1}, {"input": 2}, {"input": 1}])
    assert said.startswith("data/cases.jsonl:3: the case is named by its digest, ")
    assert said.endswith(", as is the one on line 1: give both an `id`, or remove one")


def test_an_id_may_not_be_the_digest_that_another_case_is_named_by(tmp_path: Path) -> None:
    (unnamed,) = read(tmp_path, [{"input": 1}])
    assert "stands on line 1 already" in refusal(tmp_path, [{"input": 1}, {"id": unnamed.case_id, "input": 2}])


# All or none.


@pytest.mark.parametrize("key", ["initial_state", "group_id"])
@pytest.mark.parametrize("present", [(True, True), (False, False), (True, False), (False, True)])
def test_a_key_that_stands_on_one_case_stands_on_all(tmp_path: Path, key: str, present: tuple[bool, bool]) -> None:
    value: Any = {} if key == "initial_state" else "g"
    cases = [{"id": str(n), "input": 1} | ({key: value} if there else {}) for n, there in enumerate(present)]
    if present[0] == present[1]:
        assert len(read(tmp_path, cases)) == 2
    else:
        has, has_not = (1, 2) if present[0] else (2, 1)
        assert refusal(tmp_path, cases) == (
            f"data/cases.jsonl:2: case '1': `{key}` stands on every case or on none;"
            f" line {has} has it, line {has_not} does not"
        )


# Values.


@pytest.mark.parametrize("value", ["", "text", 0, -1.5, False, [], {}, [None]])
def test_an_input_is_any_json_but_null(tmp_path: Path, value: Any) -> None:
    (row,) = read(tmp_path, [{"id": "a", "input": value}])
    assert row.input == canonical_json(value)


@pytest.mark.parametrize("value", [None, "", "text", 0, False, [], {}])
def test_an_expectation_is_any_json(tmp_path: Path, value: Any) -> None:
    (row,) = read(tmp_path, [{"id": "a", "input": 1, "expected": value}])
    assert row.expected == canonical_json(value)


def test_cases_are_read_one_at_a_time(tmp_path: Path) -> None:
    cases = read_cases(load_project(write_project(tmp_path, cases='{"id":"a","input":1}\nnot json\n')))
    assert next(cases).case_id == "a"
    with pytest.raises(ConfigError, match=r"^data/cases\.jsonl:2: "):
        next(cases)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PARTS = st.tuples(JSON, st.none() | JSON, st.dictionaries(TEXT, JSON, max_size=2))
"""What a case is made of beside its id: input, expectation, metadata."""


@given(st.dictionaries(TEXT.filter(bool), PARTS, min_size=1, max_size=4))
def test_any_dataset_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, cases: dict[str, tuple[Any, Any, dict[str, Any]]]
) -> None:
    written = [
        {"id": key, "input": input, "expected": expected, "metadata": metadata, "initial_state": metadata}
        for key, (input, expected, metadata) in cases.items()
    ]
    rows = read(tmp_path_factory.mktemp("cases", numbered=True), written)
    assert [row.case_id for row in rows] == list(cases)
    for row, each in zip(rows, written, strict=True):
        assert parse_canonical(row.input) == each["input"]
        assert parse_canonical(row.expected) == each["expected"]
        assert row.initial_state is not None
        assert parse_canonical(row.initial_state) == parse_canonical(row.metadata) == each["metadata"]
        members = {"input": each["input"], "expected": each["expected"], "metadata": each["metadata"], "group_id": None}
        assert row.digest == digest("scenario/v1", members | {"initial_state": each["initial_state"]})
