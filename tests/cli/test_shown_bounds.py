"""Bounds as they are shown: rounded away from the interval, and marked where they decide nothing."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from oloproof_dagster.cli.gate_view import interval, print_decisions
from oloproof_dagster.decision.advice import LOOKS
from oloproof_dagster.wording import interval_text, outwards


@pytest.mark.parametrize(
    ("bound", "lower", "upper"),
    [
        (0.849996, "0.849", "0.850"),
        (0.8500001, "0.850", "0.851"),
        (0.85, "0.850", "0.850"),
        (0.29, "0.290", "0.290"),  # 0.29 * 1000 is a little less than 290
        (1e-12, "0.000", "0.001"),
        (1 - 1e-12, "0.999", "1.000"),
        (0.0, "0.000", "0.000"),
        (1.0, "1.000", "1.000"),
    ],
)
def test_a_bound_is_rounded_away_from_its_interval(bound: float, lower: str, upper: str) -> None:
    assert (outwards(bound, "lower"), outwards(bound, "upper")) == (lower, upper)


@given(st.floats(0, 1))
def test_a_shown_bound_never_promises_more_than_the_bound(bound: float) -> None:
    assert float(outwards(bound, "lower")) <= bound <= float(outwards(bound, "upper"))


def test_an_interval_is_shown_by_both_bounds_and_none_is_empty() -> None:
    assert interval_text(0.857526, 0.99894) == "0.857 to 0.999"
    assert interval_text(None, None) == ""


def test_bounds_over_too_few_clusters_are_marked_in_the_console() -> None:
    row = {"lower": 0.5, "upper": 0.75, "caution": "insufficient_clusters"}
    assert interval(row) == "0.500 to 0.750 (insufficient_clusters)"
    assert interval({**row, "caution": None}) == interval({"lower": 0.5, "upper": 0.75}) == "0.500 to 0.750"


@pytest.mark.parametrize(
    ("reasons", "times"), [(["interval_overlaps_threshold"], 1), (["interval_overlaps_threshold"] * 2, 1), ([], 0)]
)
def test_that_a_second_look_costs_stands_once_under_advice_with_numbers(reasons: list[str], times: int) -> None:
    console = Console(file=io.StringIO(), width=500, record=True)
    undecided = [
        {
            "rule_id": f"rule_{place}", "metric": "polite", "state": "INSUFFICIENT_EVIDENCE", "reasons": [reason],
            "direction": "min", "threshold": 0.8, "lower": 0.5, "upper": 1.0, "n_passed": 3, "n_observed": 3,
            "n_missing": 0, "advice": "17 eligible cases (now 3) without a failure would pass it",
        }
        for place, reason in enumerate(reasons)
    ]  # fmt: skip
    print_decisions(console, undecided)
    assert console.export_text().count(LOOKS) == times
