"""Slices: how they are written, which cases join them, and each criterion within them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.decision.intervals import EXACT, SPACING
from oloproof_dagster.decision.metrics import measure
from oloproof_dagster.decision.slices import measure_slices
from oloproof_dagster.digests import canonical_json
from oloproof_dagster.project.slice_names import parse_slice
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.records.tables import SliceRow, VerdictRow
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory
from tests.support.letters import REASONS, STATUSES

BOUNDS = st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True).map(sorted)


def recording(*tools: str, messages: int = 0, truncated: bool = False) -> AgentTrajectory:
    """A recording of calls of these tools, then messages."""
    steps = [AgentStep(index=index, kind="tool_call", tool_name=tool) for index, tool in enumerate(tools, 1)]
    steps += [AgentStep(index=len(tools) + index, kind="message") for index in range(1, messages + 1)]
    return AgentTrajectory(steps=tuple(steps), truncated=truncated)


def verdicts(letters: str, criterion: str = "polite") -> list[VerdictRow]:
    """One verdict a case, the cases numbered from 0."""
    return [
        VerdictRow(str(case), 0, criterion, STATUSES[letter], REASONS.get(letter), None, None, None)
        for case, letter in enumerate(letters)
    ]


def sliced(
    rows: list[VerdictRow], *memberships: tuple[tuple[str, str], ...], min_support: int = 0, **options: Any
) -> tuple[SliceRow, ...]:
    """The slices of cases numbered from 0, given the pairs that each belongs to; every case is its own cluster."""
    return measure_slices(
        rows,
        {(str(case), 0): pairs for case, pairs in enumerate(memberships)},
        {row.case_id: row.case_id for row in rows},
        confidence_level=0.95,
        min_clusters=20,
        min_support=min_support,
        **options,
    )


# ------------------------------------------------------------------------------------------------- spelling


@pytest.mark.parametrize(
    ("text", "kind", "key", "bounds"),
    [
        ("metadata.category", "metadata", "category", ()),
        ("metadata.a.b", "metadata", "a.b", ()),
        ("tool_calls:1,2", "tool_calls", "", (1, 2)),
        ("trajectory_length:12", "trajectory_length", "", (12,)),
        ("first_tool", "first_tool", "", ()),
    ],
)
def test_a_slice_is_read_as_written(text: str, kind: str, key: str, bounds: tuple[int, ...]) -> None:
    found = parse_slice(text)
    assert (found.text, found.kind, found.key, found.bounds) == (text, kind, key, bounds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "metadata",
        "metadata.",
        "first_tool:1",
        "last_tool",
        "tool_calls",
        "tool_calls:",
        "tool_calls:1,",
        "tool_calls: 1",
        "tool_calls:-1",
        "tool_calls:1.5",
        "tool_calls:one",
        "tool_calls:٣",
        "Tool_calls:1",
        "tool_calls:1\n",
    ],
)
def test_what_is_no_slice_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no slice; write metadata\.<key>, first_tool, tool_calls:<bounds>"):
        parse_slice(text)


@pytest.mark.parametrize(
    "text", ["tool_calls:0", "tool_calls:0,1", "tool_calls:2,1", "trajectory_length:3,3", "tool_calls:01,2"]
)
def test_bounds_that_do_not_ascend_from_above_zero_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"the bounds of '{text}' are not ascending positive integers; write"):
        parse_slice(text)


# ------------------------------------------------------------------------------------------------- membership


@pytest.mark.parametrize(("n_calls", "value"), [(0, "le_1"), (1, "le_1"), (2, "le_2"), (3, "gt_2"), (9, "gt_2")])
def test_tool_calls_fall_in_the_range_of_their_number(n_calls: int, value: str) -> None:
    assert parse_slice("tool_calls:1,2").value_of({}, recording(*["look_up"] * n_calls, messages=5)) == value


@pytest.mark.parametrize(("n_messages", "value"), [(0, "le_3"), (2, "le_3"), (3, "le_6"), (6, "gt_6")])
def test_trajectory_length_counts_every_step(n_messages: int, value: str) -> None:
    assert parse_slice("trajectory_length:3,6").value_of({}, recording("look_up", messages=n_messages)) == value


@given(BOUNDS, st.integers(0, 45))
def test_every_length_falls_in_the_one_range_that_holds_it(bounds: list[int], length: int) -> None:
    text = "trajectory_length:" + ",".join(map(str, bounds))
    value = parse_slice(text).value_of({}, recording(messages=length))
    edges = [-1, *bounds]
    inside = [f"le_{high}" for low, high in zip(edges, bounds, strict=False) if low < length <= high]
    assert [value] == (inside or [f"gt_{bounds[-1]}"])


@pytest.mark.parametrize("text", ["tool_calls:1,2", "trajectory_length:3"])
def test_a_missing_or_truncated_recording_joins_the_length_slices_as_unrecorded(text: str) -> None:
    assert parse_slice(text).value_of({}, None) == "unrecorded"
    assert parse_slice(text).value_of({}, recording("look_up", truncated=True)) == "unrecorded"


def test_a_truncated_recording_keeps_its_first_tool() -> None:
    first_tool = parse_slice("first_tool")
    assert first_tool.value_of({}, recording("look_up", "refund", truncated=True)) == "look_up"
    assert first_tool.value_of({}, recording(messages=2)) is None
    assert first_tool.value_of({}, None) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("late", "late"),
        ("", ""),
        (3, "3"),
        (3.0, "3"),
        (1e300, canonical_json(int(1e300))),
        ("3", '"3"'),
        ("-0.5", '"-0.5"'),
        ("1e3", '"1e3"'),
        ("true", '"true"'),
        ('"3"', r'"\"3\""'),
        ("3 days", "3 days"),
        (0.1, "0.1"),
        (True, "true"),
        (False, "false"),
        (None, None),
        (10**30, "1" + "0" * 30),
    ],
)
def test_metadata_names_its_slice_by_its_json_text(value: Any, name: str | None) -> None:
    assert parse_slice("metadata.tier").value_of({"tier": value}, None) == name


def test_absent_metadata_joins_no_slice() -> None:
    assert parse_slice("metadata.tier").value_of({"other": 1}, recording("look_up")) is None


def test_a_dot_in_a_metadata_slice_belongs_to_the_key() -> None:
    dotted = parse_slice("metadata.a.b")
    assert dotted.value_of({"a.b": "flat", "a": {"b": "nested"}}, None) == "flat"
    assert dotted.value_of({"a": {"b": "nested"}}, None) is None


@pytest.mark.parametrize(("value", "kind"), [({"a": 1}, "an object"), ([], "a list")])
def test_metadata_that_is_no_single_value_is_an_error(value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"metadata.tier is {kind}"):
        parse_slice("metadata.tier").value_of({"tier": value}, None)


# ------------------------------------------------------------------------------------------------- measuring


def test_a_slice_counts_the_verdicts_of_its_own_cases() -> None:
    rows = sliced(
        verdicts("PFPMN"),
        (("first_tool", "a"),),
        (("first_tool", "b"),),
        (("first_tool", "a"),),
        (("first_tool", "a"),),
        (("first_tool", "a"),),
    )
    assert [(r.value, r.n_observed, r.n_passed, r.n_missing, r.support, r.estimate) for r in rows] == [
        ("a", 2, 2, 1, 3, 1.0),
        ("b", 1, 0, 0, 1, 0.0),
    ]


def test_a_case_counts_once_in_each_slice_that_it_joins() -> None:
    rows = sliced(verdicts("P"), (("first_tool", "a"), ("metadata.tier", "1")))
    assert [(row.slice, row.support) for row in rows] == [("first_tool", 1), ("metadata.tier", 1)]


def test_a_case_without_memberships_joins_nothing() -> None:
    assert sliced(verdicts("P"), ()) == ()
    assert sliced(verdicts("P")) == ()


def test_trials_of_one_case_may_join_different_slices() -> None:
    rows = [VerdictRow("a", trial, "polite", "passed", None, None, None, None) for trial in range(3)]
    pairs = {("a", trial): (("first_tool", "look_up" if trial else "refund"),) for trial in range(3)}
    found = measure_slices(rows, pairs, {"a": "a"}, confidence_level=0.95, min_clusters=20, min_support=0)
    assert [(row.value, row.support) for row in found] == [("look_up", 2), ("refund", 1)]


def test_a_slice_in_which_nothing_is_eligible_has_no_row() -> None:
    assert sliced(verdicts("N"), (("first_tool", "a"),)) == ()


def test_a_slice_of_the_whole_suite_has_the_metrics_interval() -> None:
    letters = "PPFMPPN"
    (row,) = sliced(verdicts(letters), *[(("first_tool", "a"),)] * len(letters))
    (metric,) = measure(
        verdicts(letters),
        {str(case): str(case) for case in range(len(letters))},
        ["polite"],
        clustered=False,
        confidence_level=0.95,
        min_clusters=20,
    )
    assert (row.lower, row.upper, row.estimate, row.method) == (metric.lower, metric.upper, metric.estimate, EXACT)


def test_the_method_is_that_of_the_verdicts_within_the_slice() -> None:
    rows = verdicts("PPPF")
    pairs = {(str(case), 0): (("first_tool", "a" if case < 2 else "b"),) for case in range(4)}
    clusters = {"0": "one", "1": "two", "2": "one", "3": "one"}
    found = measure_slices(rows, pairs, clusters, confidence_level=0.95, min_clusters=20, min_support=0)
    assert [(row.value, row.method, row.no_bounds) for row in found] == [
        ("a", EXACT, None),
        ("b", SPACING, DecisionReason.INTERVAL_UNAVAILABLE),
    ]


def test_support_under_the_minimum_shows_the_rate_without_an_interval() -> None:
    pairs = [(("first_tool", "a"),)] * 3
    (under,) = sliced(verdicts("PFM"), *pairs, min_support=4)
    (reached,) = sliced(verdicts("PFM"), *pairs, min_support=3)
    assert (under.lower, under.upper, under.no_bounds) == (None, None, DecisionReason.INTERVAL_UNAVAILABLE)
    assert (under.estimate, under.support) == (0.5, 3)
    assert reached.lower is not None
    assert reached.no_bounds is None


def test_bounds_of_fewer_clusters_than_the_policy_asks_for_are_marked() -> None:
    rows = [
        VerdictRow(str(n), trial, "polite", "passed", None, None, None, None) for n in range(20) for trial in (0, 1)
    ]
    pairs = {(str(n), trial): (("first_tool", "a" if n < 19 else "b"),) for n in range(20) for trial in (0, 1)}
    clusters = {str(n): str(n) for n in range(20)}
    few = measure_slices(rows, pairs, clusters, confidence_level=0.95, min_clusters=20, min_support=3)
    enough = measure_slices(rows, pairs, clusters, confidence_level=0.95, min_clusters=19, min_support=3)
    assert [(row.value, row.lower is not None, row.caution) for row in few] == [
        ("a", True, DecisionReason.INSUFFICIENT_CLUSTERS),
        ("b", False, None),
    ]
    assert enough[0].caution is None


def test_ranges_ascend_and_other_values_go_by_their_text() -> None:
    values = ["gt_10", "le_10", "le_2", "unrecorded"]
    rows = sliced(verdicts("PPPP"), *[(("tool_calls:2,10", value), ("metadata.size", value)) for value in values])
    assert [(row.slice, row.value) for row in rows] == [
        ("tool_calls:2,10", "le_2"),
        ("tool_calls:2,10", "le_10"),
        ("tool_calls:2,10", "gt_10"),
        ("tool_calls:2,10", "unrecorded"),
        ("metadata.size", "gt_10"),
        ("metadata.size", "le_10"),
        ("metadata.size", "le_2"),
        ("metadata.size", "unrecorded"),
    ]


def test_slices_go_in_the_declared_order_and_else_as_first_met() -> None:
    memberships = ((("first_tool", "a"),), (("metadata.tier", "1"), ("first_tool", "a")))
    met = sliced(verdicts("PP"), *memberships)
    declared = sliced(verdicts("PP"), *memberships, declared=("metadata.tier", "first_tool"))
    assert [row.slice for row in met] == ["first_tool", "metadata.tier"]
    assert [row.slice for row in declared] == ["metadata.tier", "first_tool"]


def test_criteria_go_as_first_met_also_where_their_first_verdict_is_not_eligible() -> None:
    rows = [*verdicts("N", "safe"), *verdicts("PP", "polite"), *verdicts("PP", "safe")[1:]]
    found = sliced(rows, (("first_tool", "a"),), (("first_tool", "a"),))
    assert [row.metric for row in found] == ["safe", "polite"]
