"""Lists that differ, shown by what was added, removed or moved."""

from typing import Any

import pytest

from oloproof_dagster.digests import json_in_order
from oloproof_dagster.project.evaluator_keys import StateMatches, StateUnchanged
from oloproof_dagster.records.compared import compare_at
from oloproof_dagster.records.comparison import EXACT
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import StateRow, SuiteRow
from oloproof_dagster.report.list_changes import aligned
from oloproof_dagster.report.panels import CasePanel

LOANS = [{"id": n, "title": f"book {n}"} for n in range(5)]
MATCHES, UNCHANGED = (
    StateMatches(type="state_matches"),
    StateUnchanged.model_validate({"type": "state_unchanged", "paths": ("loans",)}),
)


def shown(expected: Any, actual: Any, declared: Any = MATCHES) -> list[tuple[str, str]]:
    """The path and the change of each row that is shown, as the verdict's rows have it where they are shorter."""
    empty = JSONText("{}")
    initial, wanted = JSONText(json_in_order(expected)), JSONText(json_in_order({"state": expected}))
    case = SuiteRow("c", "sha256:0", 1, empty, wanted, empty, None, initial, cluster="c")
    state = StateRow("c", 0, "", None, JSONText(json_in_order(actual)))
    panel = CasePanel(case, 0, 1, None, None, state, (), ())
    rows = [row.members() for row in compare_at(EXACT, (), expected, actual)[1:]]
    return [(row["path"], row.get("change", "differs")) for row in aligned(rows, panel, declared)]


@pytest.mark.parametrize(
    ("actual", "changes"),
    [
        ([{"id": 9}, *LOANS], [("loans.0", "added")]),
        (LOANS[1:], [("loans.0", "removed")]),
        ([LOANS[4], *LOANS[:4]], [("loans.4", "moved to 0")]),
        ([*LOANS[1:], {"id": 9}], [("loans.0", "removed"), ("loans.4", "added")]),
        ([LOANS[0], {"id": 9, "title": "other"}, *LOANS[2:]], [("loans.1", "changed")]),
    ],
    ids=["put in front", "taken out", "moved", "one for another", "changed"],
)
def test_a_list_is_shown_by_what_was_done_to_it(actual: list[Any], changes: list[tuple[str, str]]) -> None:
    assert shown({"loans": LOANS, "n": 1}, {"loans": actual, "n": 1}) == changes
    assert shown({"loans": LOANS}, {"loans": actual}, UNCHANGED) == changes


def test_leaves_stay_where_aligning_shows_no_less() -> None:
    changed = [{**each, "title": "other"} for each in LOANS]
    assert shown({"loans": LOANS}, {"loans": changed}) == [(f"loans.{n}.title", "differs") for n in range(5)]


def test_what_lies_beside_the_list_is_shown_as_it_is() -> None:
    found = shown({"a": 1, "loans": LOANS, "z": 1}, {"a": 2, "loans": LOANS[1:], "z": 2})
    assert sorted(found) == [("a", "differs"), ("loans.0", "removed"), ("z", "differs")]
