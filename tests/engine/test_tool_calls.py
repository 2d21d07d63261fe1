"""tool_calls: order, counts and the calls that a case expects; the calls of one turn have no order."""

from typing import Any

import pytest

from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory
from tests.support.evidence import evidence, judge

R = VerdictReason


def walk(*calls: Any, truncated: bool = False) -> AgentTrajectory:
    """A trajectory of these calls: a tool, a tool with its arguments, or several of one turn in a list."""
    steps: list[AgentStep] = []
    for turn, each in enumerate(calls, 1):
        for one in each if isinstance(each, list) else [each]:
            tool, arguments = one if isinstance(one, tuple) else (one, {})
            together = turn if isinstance(each, list) else None
            index = len(steps) + 1
            steps.append(AgentStep(index=index, kind="tool_call", tool_name=tool, arguments=arguments, turn=together))
    return AgentTrajectory(steps=tuple(steps), truncated=truncated)


def status(declared: dict[str, Any], *calls: Any, expected: Any = None, truncated: bool = False) -> str:
    found = judge({"type": "tool_calls", **declared}, trajectory=walk(*calls, truncated=truncated), expected=expected)
    return found.status


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        (["confirm", "refund"], "passed"),
        (["confirm", "look", "refund"], "passed"),
        (["confirm", "refund", "confirm", "refund"], "passed"),
        (["confirm", "confirm", "refund"], "passed"),
        ([], "passed"),
        (["confirm"], "passed"),
        (["refund", "confirm", "refund"], "failed"),
        (["refund"], "failed"),
        (["confirm", "refund", "refund"], "failed"),
        (["confirm", "confirm", "refund", "refund"], "failed"),
        ([["confirm", "refund"]], "failed"),
        (["confirm", ["confirm", "refund"], "refund"], "passed"),
        (["confirm", ["refund", "refund"]], "failed"),
        (["confirm", "confirm", ["refund", "refund"]], "passed"),
    ],
)
def test_each_call_has_one_of_its_own_before_it_after_the_previous_one(calls: list[Any], verdict: str) -> None:
    assert status({"before": [("confirm", "refund")]}, *calls) == verdict


def test_what_stands_before_shows_a_failure_in_a_truncated_recording_too() -> None:
    assert status({"before": [("confirm", "refund")]}, "refund", truncated=True) == "failed"
    assert status({"before": [("confirm", "refund")]}, "confirm", "refund", truncated=True) == "missing"


@pytest.mark.parametrize(
    ("bounds", "calls", "verdict"),
    [
        ({"refund": {"max": 1}}, ["refund"], "passed"),
        ({"refund": {"max": 1}}, ["refund", "look", "refund"], "failed"),
        ({"look": {"min": 1}}, ["refund"], "failed"),
        ({"look": {"min": 2, "max": 2}}, ["look", "look"], "passed"),
        ({"refund": {"max": 0}}, [], "passed"),
    ],
)
def test_each_tool_is_called_as_often_as_its_bounds_say(bounds: Any, calls: list[str], verdict: str) -> None:
    assert status({"calls": bounds}, *calls) == verdict


A, B, C = ("get", {"id": 1, "more": True}), ("get", {"id": 2}), ("pay", {"cents": 5})
EXPECTED = {"tool_calls": [{"tool": "get", "arguments": {"id": 1}}, {"tool": "pay"}]}


@pytest.mark.parametrize(
    ("calls", "exact", "in_order", "any_order", "subset"),
    [
        ([A, C], "passed", "passed", "passed", "passed"),
        ([C, A], "failed", "failed", "passed", "passed"),
        ([[C, A]], "passed", "passed", "passed", "passed"),
        ([A, B, C], "failed", "passed", "failed", "passed"),
        ([C, B, A], "failed", "failed", "failed", "passed"),
        ([A, C, C], "failed", "passed", "failed", "passed"),
        ([A], "failed", "failed", "failed", "failed"),
        ([B, C], "failed", "failed", "failed", "failed"),
        ([], "failed", "failed", "failed", "failed"),
    ],
)
def test_the_calls_are_compared_with_those_that_the_case_expects(
    calls: list[Any], exact: str, in_order: str, any_order: str, subset: str
) -> None:
    manners = {"exact": exact, "in_order": in_order, "any_order": any_order, "subset": subset}
    found = {manner: status({"expected_calls": manner}, *calls, expected=EXPECTED) for manner in manners}
    assert found == manners


def test_an_expected_call_without_arguments_does_not_take_the_one_that_another_needs() -> None:
    expected = {"tool_calls": [{"tool": "get"}, {"tool": "get", "arguments": {"id": 1}}]}
    for manner in ("any_order", "subset"):
        assert status({"expected_calls": manner}, A, B, expected=expected) == "passed"


def test_a_case_without_expected_calls_does_not_count() -> None:
    row = judge({"type": "tool_calls", "expected_calls": "exact"}, trajectory=walk(A), expected={"answer": 1})
    assert (row.status, row.reason) == ("not_applicable", R.NO_EXPECTED.value)
    assert status({"expected_calls": "exact"}, expected={"tool_calls": []}) == "passed"
    assert status({"expected_calls": "exact"}, A, expected={"tool_calls": []}) == "failed"


def test_a_truncated_recording_fails_only_where_no_later_call_mends_it() -> None:
    for manner, calls, found in (
        ("exact", [A], "missing"),
        ("exact", [C], "failed"),
        ("any_order", [C], "missing"),
        ("any_order", [B], "failed"),
        ("subset", [B], "missing"),
        ("in_order", [B], "missing"),
    ):
        assert status({"expected_calls": manner}, *calls, expected=EXPECTED, truncated=True) == found


def test_calls_of_one_turn_stand_in_any_order() -> None:
    assert status({"in_order": ["confirm", "refund"]}, ["refund", "confirm"]) == "passed"
    assert status({"in_order": ["confirm", "refund"]}, "refund", "confirm") == "failed"
    assert status({"in_order": ["a", "b", "a"]}, ["a", "b"]) == "failed"


def test_same_actions_holds_where_calls_of_one_turn_are_swapped() -> None:
    relation = {"type": "metamorphic_relation", "relation": "same_actions"}
    for source, copy, found in (
        (walk([A, C]), walk([C, A]), "passed"),
        (walk(A, C), walk(C, A), "failed"),
        (walk([A, C]), walk([C, B]), "failed"),
        (walk([A, C], B), walk([C, A], B), "passed"),
    ):
        assert judge(relation, evidence(trajectory=copy, source=evidence(trajectory=source))).status == found
