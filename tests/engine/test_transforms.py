"""Derived cases: what the vectors say, and what a pair has to be."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.digests import canonical_json, digest, parse_canonical
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.text_changes import apply
from oloproof_dagster.suite.transforms import SuiteCount, expand, pair_digest, transform_digest
from tests.support import VECTORS
from tests.support.projects import case, write_project

EXPECTED = json.loads((VECTORS / "digests.json").read_text(encoding="utf-8"))
POLITE = {"name": "polite", "field": "note", "template": "{value}, kindly"}
SHORT = {"name": "short", "field": "note", "replace": [["Please add", "Add"]]}


def suite_of(root: Path, transforms: Iterable[dict[str, Any]], cases: Any = None) -> list[SuiteRow]:
    project = load_project(write_project(root, cases=cases, suite={"metamorphic": {"transforms": list(transforms)}}))
    return list(expand(project, read_cases(project)))


def refusal(root: Path, transforms: Iterable[dict[str, Any]], cases: Any = None) -> str:
    with pytest.raises(ConfigError) as caught:
        suite_of(root, transforms, cases)
    return str(caught.value)


def declared(**keys: Any) -> TransformDeclaration:
    pairs = {"replace": tuple(map(tuple, keys["replace"]))} if "replace" in keys else {}
    return TransformDeclaration(**keys | pairs)


# The vectors.


@pytest.mark.parametrize("vector", EXPECTED["transform_digest"], ids=lambda vector: vector["transform"]["name"])
def test_a_transform_has_the_digest_of_the_vectors(vector: dict[str, Any]) -> None:
    assert transform_digest(declared(**vector["transform"])) == vector["digest"]


@pytest.mark.parametrize("vector", EXPECTED["pair_digest"], ids=lambda vector: vector["digest"][:14])
def test_a_pair_has_the_digest_of_the_vectors(vector: dict[str, Any]) -> None:
    inputs = (canonical_json(vector[key]) for key in ("source_input", "derived_input"))
    assert pair_digest(vector["transform_digest"], *inputs) == vector["digest"]


def test_derived_cases_are_those_of_the_vectors(tmp_path: Path) -> None:
    source, *derived = EXPECTED["derived_case_digest"]
    written = {key: value for key, value in source["case"].items() if key != "group_id"}
    rows = suite_of(tmp_path, [vector["transform"] for vector in EXPECTED["transform_digest"]], [written])
    assert [row.digest for row in rows] == [vector["digest"] for vector in (source, *derived)]
    for row, vector in zip(rows, (source, *derived), strict=True):
        found = {key: parse_canonical(getattr(row, key)) for key in ("input", "expected", "metadata", "initial_state")}
        assert found | {"id": row.case_id, "group_id": row.group_id} == vector["case"]


# What a derived case is.


def test_every_case_is_followed_by_one_copy_for_each_transform(tmp_path: Path) -> None:
    rows = suite_of(tmp_path, [POLITE, SHORT], [case(1), case(2)])
    assert [row.case_id for row in rows] == [
        *("c-001", "c-001~polite", "c-001~short"),
        *("c-002", "c-002~polite", "c-002~short"),
    ]
    assert [row.source_case for row in rows[:3]] == [None, "c-001", "c-001"]
    assert [row.transform for row in rows[:3]] == [None, "polite", "short"]
    assert [row.line for row in rows] == [1, 1, 1, 2, 2, 2]


def test_a_copy_differs_from_its_source_in_the_field_and_in_what_is_noted_of_it(tmp_path: Path) -> None:
    source, copy = suite_of(tmp_path, [POLITE], [case(1, metadata={"kind": "sum"})])
    assert (copy.expected, copy.initial_state, copy.group_id) == (source.expected, source.initial_state, "c-001")
    assert parse_canonical(copy.input) == parse_canonical(source.input) | {"note": "Please add 1, kindly"}
    assert parse_canonical(copy.metadata) == {
        "kind": "sum",
        "metamorphic": {
            "source": "c-001",
            "transform": "polite",
            "version": 1,
            "digest": transform_digest(declared(**POLITE)),
            "pair_digest": copy.pair_digest,
        },
    }
    assert copy.pair_digest == digest(
        "metamorphic_pair/v1",
        {
            "transform": transform_digest(declared(**POLITE)),
            "source_input": parse_canonical(source.input),
            "input": parse_canonical(copy.input),
        },
    )


def test_a_case_and_its_copies_are_one_cluster(tmp_path: Path) -> None:
    rows = suite_of(tmp_path, [POLITE], [case(1), case(2)])
    assert [(row.cluster, row.group_id) for row in rows] == 2 * [("c-001", "c-001")] + 2 * [("c-002", "c-002")]


def test_a_group_of_the_users_own_stays_the_cluster(tmp_path: Path) -> None:
    rows = suite_of(tmp_path, [POLITE], [case(1, group_id="g"), case(2, group_id="g")])
    assert {(row.cluster, row.group_id) for row in rows} == {("g", "g")}


def test_without_transforms_a_case_is_as_it_was_read(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path, cases=[case(1, id="a~b", metadata={"metamorphic": 1})]))
    (read,) = read_cases(project)
    (row,) = expand(project, [read])
    assert (row.case_id, row.digest, row.group_id, row.cluster) == ("a~b", read.digest, None, "a~b")


def test_a_pairs_digest_changes_with_the_source_and_with_what_the_transform_does(tmp_path: Path) -> None:
    def pair(transform: dict[str, Any], **more: Any) -> str | None:
        return suite_of(tmp_path, [transform], [case(1, **more)])[1].pair_digest

    before = pair(POLITE)
    assert pair(POLITE, input={"amount": 1, "note": "Add one"}) != before
    assert pair(POLITE | {"version": 2}) != before
    assert pair(POLITE | {"name": "kind"}) != before
    assert pair(POLITE | {"template": "Kindly: {value}"}) != before
    for unread in ({"expected": {}}, {"metadata": {"kind": "x"}}, {"initial_state": {}}, {"group_id": "g"}):
        assert pair(POLITE, **unread) == before
    assert pair(POLITE | {"minimum_validity": 0.9}) == before


# What a transform does.


def test_replacements_go_in_order_each_at_every_occurrence() -> None:
    assert apply(declared(name="t", field="f", replace=[["a", "b"], ["b", "c"]]), "a b a") == "c c c"
    assert apply(declared(name="t", field="f", replace=[["b", "c"], ["a", "b"]]), "a b a") == "b c b"


def test_the_text_takes_the_place_of_every_value_in_the_template_and_is_not_looked_at_again() -> None:
    template = declared(name="t", field="f", template="<{value}> {value} {other} {{value}}")
    assert apply(template, "{value}%s{0}") == "<{value}%s{0}> {value}%s{0} {other} {{value}%s{0}}"


@given(st.text(), st.text(), st.text())
def test_a_template_is_what_stands_around_the_text(before: str, text: str, after: str) -> None:
    transform = declared(name="t", field="f", template=f"{before.replace('{', '')}{{value}}{after.replace('{', '')}")
    assert apply(transform, text) == before.replace("{", "") + text + after.replace("{", "")


@pytest.mark.parametrize(
    ("field", "given_input", "derived_input"),
    [
        ("$", "add 1", "add 1!"),
        ("note", {"note": "add 1", "n": 1}, {"note": "add 1!", "n": 1}),
        ("a.b.c", {"a": {"b": {"c": "x", "d": 1}}, "e": 2}, {"a": {"b": {"c": "x!", "d": 1}}, "e": 2}),
        ("turns.1.text", {"turns": [{"text": "x"}, {"text": "y"}]}, {"turns": [{"text": "x"}, {"text": "y!"}]}),
        ("0", ["x", "y"], ["x!", "y"]),
        ("1", {"1": "x"}, {"1": "x!"}),
        ("/a.b/c", {"a.b": {"c": "x"}}, {"a.b": {"c": "x!"}}),
        ("/a~1b", {"a/b": "x"}, {"a/b": "x!"}),
        ("/", {"": "x"}, {"": "x!"}),
    ],
)
def test_the_field_is_any_path_into_the_input(tmp_path: Path, field: str, given_input: Any, derived_input: Any) -> None:
    transform = {"name": "loud", "field": field, "template": "{value}!"}
    source, copy = suite_of(tmp_path, [transform], [case(1, input=given_input)])
    assert parse_canonical(source.input) == given_input
    assert parse_canonical(copy.input) == derived_input


def test_numbers_beside_the_field_stay_what_they_were(tmp_path: Path) -> None:
    line = '{"id": "a", "input": {"note": "x", "big": %s, "one": 1.0}, "expected": 1}' % ("9" * 5000)
    copy = suite_of(tmp_path, [POLITE], line)[1]
    assert copy.input == '{"note":"x, kindly","big":%s,"one":1.0}' % ("9" * 5000)


# What is refused.


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"input": {"amount": 1}}, "the input must hold text at 'note', which is not there"),
        ({"input": {"note": 5}}, "the input must hold text at 'note', found the number 5"),
        ({"input": {"note": None}}, "the input must hold text at 'note', found null"),
        ({"input": {"note": ["x"]}}, "the input must hold text at 'note', found a list"),
        ({"input": ["note"]}, "the input must hold text at 'note', which is not there"),
    ],
)
def test_a_field_that_is_no_text_is_refused_with_the_case_and_its_line(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    assert refusal(tmp_path, [POLITE], [case(1), case(2, **more)]) == (
        f"data/cases.jsonl:2: case 'c-002', transform 'polite': {said}"
    )


@pytest.mark.parametrize(
    ("transform", "way"),
    [(SHORT | {"replace": [["nowhere", "x"]]}, "replace"), (SHORT | {"replace": [["a", "a"]]}, "replace")],
)
def test_a_transform_that_changes_nothing_is_refused(tmp_path: Path, transform: dict[str, Any], way: str) -> None:
    assert refusal(tmp_path, [POLITE, transform], [case(1)]) == (
        "data/cases.jsonl:1: case 'c-001', transform 'short': 'Please add 1' stays as it is, and a pair equal to its"
        f" source tests nothing; change the transform's {way}, or the case"
    )


def test_an_empty_template_around_the_text_changes_nothing_too(tmp_path: Path) -> None:
    assert "change the transform's template" in refusal(tmp_path, [POLITE | {"template": "{value}"}], [case(1)])


@pytest.mark.parametrize("case_id", ["c~1", "~", "c-1~polite"])
def test_an_id_with_the_mark_of_derived_cases_is_refused(tmp_path: Path, case_id: str) -> None:
    assert refusal(tmp_path, [POLITE], [case(1, id=case_id)]) == (
        f"data/cases.jsonl:1: case '{case_id}': an id may not hold `~`, which names derived cases; rename the case"
    )


@pytest.mark.parametrize("value", [None, {}, "mine"])
def test_a_case_that_bears_the_note_of_a_copy_is_refused(tmp_path: Path, value: Any) -> None:
    assert "`metadata.metamorphic` is what transforms note of a copy" in refusal(
        tmp_path, [POLITE], [case(1, metadata={"metamorphic": value})]
    )


def test_the_word_metamorphic_elsewhere_in_the_metadata_is_no_such_note(tmp_path: Path) -> None:
    rows = suite_of(tmp_path, [POLITE], [case(1, metadata={"kind": "metamorphic", "of": {"metamorphic": 1}})])
    assert len(rows) == 2


# The suite as a whole.


def counted(rows: list[SuiteRow]) -> dict[str, Any]:
    count = SuiteCount()
    assert list(count.counting(rows)) == rows
    return count.facts()


def test_a_suite_is_counted_while_it_passes(tmp_path: Path) -> None:
    rows = suite_of(tmp_path, [POLITE, SHORT], [case(1), case(2)])
    assert counted(rows) == {
        "suite_digest": digest("suite/v1", sorted([row.case_id, row.digest] for row in rows)),
        "n_source_cases": 2,
        "n_cases": 6,
        "n_clusters": 2,
        "clustered": True,
    }


@pytest.mark.parametrize(("groups", "clustered"), [(("g", "g"), True), (("g", "h"), False), ((None, None), False)])
def test_a_suite_is_clustered_when_a_cluster_holds_two_cases(
    tmp_path: Path, groups: tuple[str | None, str | None], clustered: bool
) -> None:
    cases = [case(n, **({"group_id": group} if group else {})) for n, group in enumerate(groups, 1)]
    facts = counted(suite_of(tmp_path, [], cases))
    assert (facts["clustered"], facts["n_clusters"]) == (clustered, len(set(groups)) if groups[0] else 2)
