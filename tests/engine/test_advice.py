"""Advice on undecided rules: every number that it names is evaluated again, at that number and one below."""

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oloproof_dagster.decision.advice import REALISTIC, advice, interval_at, smallest_deciding, units
from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.decide import SuiteFacts, decide
from oloproof_dagster.decision.intervals import GUARDED, clopper_pearson_missing_bounded
from oloproof_dagster.decision.metrics import measure
from oloproof_dagster.project.release_yaml import Policy, Rule, State
from oloproof_dagster.records.reasons import DecisionReason, VerdictReason
from oloproof_dagster.records.tables import DecisionRow, VerdictRow
from tests.support.letters import measured


def decided(clusters: list[str], rule: dict[str, Any], **options: Any) -> DecisionRow:
    """The decision of one rule over clusters given as words; approximate methods are allowed unless said."""
    unchecked = options.pop("unchecked", {})
    policy = Policy.model_validate(
        {
            "version": 1,
            "allow_approximate_methods": True,
            "rules": ({"id": "bar", "metric": "polite", **rule},),
            **options,
        }
    )
    facts = SuiteFacts(any(len(letters) > 1 for letters in clusters), len(clusters), False)
    (row,) = decide(policy, {"polite": measured(clusters)}, facts, unchecked)
    return row


def advised(clusters: list[str], rule: dict[str, Any], **options: Any) -> str:
    line = decided(clusters, rule, **options).advice
    assert line is not None
    assert "\n" not in line
    return line


def the_number(pattern: str, line: str) -> int:
    match = re.search(pattern, line)
    assert match is not None, line
    return int(match[1].replace(",", ""))


# ------------------------------------------------------------------------------------------------- how many cases


def test_the_number_of_cases_decides_a_rule_and_one_fewer_does_not() -> None:
    needed = the_number(
        r"^([\d,]+) eligible cases \(now 20\) of the same rate would pass it$", advised(list("P" * 20), {"min": 0.9})
    )
    assert decided(list("P" * needed), {"min": 0.9}).state == "PASS"
    assert decided(list("P" * (needed - 1)), {"min": 0.9}).state == "INSUFFICIENT_EVIDENCE"


def test_the_number_of_clusters_decides_a_rule_and_one_fewer_does_not() -> None:
    line = advised(["PP"] * 22, {"min": 0.9})
    needed = the_number(
        r"^([\d,]+) clusters alike with [\d,]+ verdicts \(now 22 with 44\) of the same rate would pass", line
    )
    assert f"with {2 * needed} verdicts" in line
    assert decided(["PP"] * needed, {"min": 0.9}).state == "PASS"
    assert decided(["PP"] * (needed - 1), {"min": 0.9}).state == "INSUFFICIENT_EVIDENCE"


def test_the_number_holds_for_a_rate_that_some_cases_failed() -> None:
    observed, bar = "PPPPPPPPPF", {"min": 0.8}
    needed = the_number(r"^([\d,]+) eligible cases", advised(list(observed), bar))
    times = -(-needed // 10)
    assert decided(list(observed * times), bar).state == "PASS"
    assert decided(list(observed * (times - 1)), bar).state == "INSUFFICIENT_EVIDENCE"


def test_a_maximum_is_advised_on_by_its_upper_bound() -> None:
    needed = the_number(
        r"^([\d,]+) eligible cases \(now 20\) of the same rate would pass it$", advised(list("F" * 20), {"max": 0.1})
    )
    assert decided(list("F" * needed), {"max": 0.1}).state == "PASS"
    assert decided(list("F" * (needed - 1)), {"max": 0.1}).state == "INSUFFICIENT_EVIDENCE"


@pytest.mark.parametrize(("letter", "rule", "side"), [("F", {"min": 0.05}, "below"), ("P", {"max": 0.95}, "above")])
def test_a_rate_on_the_wrong_side_is_told_that_no_number_passes_and_which_fails(
    letter: str, rule: dict[str, Any], side: str
) -> None:
    line = advised([letter] * 20, rule)
    assert re.match(rf"no number of cases would pass it: the observed rate \d+/20 is {side} the bar 0\.\d+; ", line)
    needed = the_number(r"; ([\d,]+) eligible cases \(now 20\) of the same rate would fail it$", line)
    assert decided([letter] * needed, rule).state == "FAIL"
    assert decided([letter] * (needed - 1), rule).state == "INSUFFICIENT_EVIDENCE"


@pytest.mark.parametrize("direction", ["min", "max"])
def test_a_rate_that_equals_the_bar_is_decided_by_no_number(direction: str) -> None:
    line = advised(list("PPPPF" * 4), {direction: 0.8})
    assert line == "no number of cases would decide it: the observed rate 16/20 equals the bar 0.8"
    assert decided(list("PPPPF" * 4000), {direction: 0.8}).state == "INSUFFICIENT_EVIDENCE"


def test_a_bar_that_no_interval_reaches_is_named_with_what_to_write_instead() -> None:
    assert advised(list("P" * 50), {"min": 1.0}) == (
        "no number of cases would decide it: no interval reaches a bar of 1;"
        " where no failure is accepted, write max_failures: 0"
    )
    assert advised(list("F" * 50), {"max": 0.0}) == (
        "no number of cases would decide it: no interval reaches a bar of 0"
    )


def test_missing_verdicts_on_both_sides_of_the_bar_have_to_be_mended_first() -> None:
    line = advised(list("P" * 15 + "F" * 2 + "M" * 2 + "T"), {"min": 0.8})
    assert line == (
        "no number of cases would decide it while 3 of 20 verdicts are missing: the rate is 0.75 if they failed and"
        " 0.9 if they passed, around the bar 0.8; mend first execution_error (2), execution_timeout (1): "
        + VerdictReason.EXECUTION_ERROR.meaning
    )


def test_missing_verdicts_are_to_be_mended_before_cases_are_added() -> None:
    line = advised([*["P"] * 11, "M"], {"min": 0.7})
    assert line.startswith("mend first ")
    assert "of the same rate would pass it" in line


def test_a_rate_next_to_the_bar_is_told_that_no_realistic_number_decides() -> None:
    assert advised(list("PF" * 50), {"min": 0.4999}) == (
        "no realistic number of cases would pass it: the observed rate 50/100 lies too close to the bar 0.4999"
    )
    assert advised(list("PF" * 50), {"min": 0.5001}) == (
        "no number of cases would pass it: the observed rate 50/100 is below the bar 0.5001;"
        " no realistic number would fail it either"
    )


EXACT_METRICS = st.text("PFM", min_size=1, max_size=60).map(list)
GUARDED_METRICS = st.lists(st.text("PFM", min_size=1, max_size=4), min_size=20, max_size=40)
BARS = st.builds(
    lambda percent, direction: {direction: percent / 100}, st.integers(1, 99), st.sampled_from(["min", "max"])
)


@given(EXACT_METRICS | GUARDED_METRICS, BARS, st.sampled_from(["PASS", "FAIL"]))
def test_every_number_decides_and_the_one_below_it_does_not(
    clusters: list[str], bar: dict[str, float], state: State
) -> None:
    row, metric = decided(clusters, bar), measured(clusters)
    rule = Rule.model_validate({"id": "bar", "metric": "polite", **bar})
    assume(DecisionReason.INTERVAL_OVERLAPS_THRESHOLD in row.reasons)
    have, needed = units(metric), smallest_deciding(rule, metric, state)
    above = (rule.direction == "min") == (state == "PASS")

    def decides(n_units: float) -> bool:
        interval = interval_at(metric, n_units / have)
        return interval.lower >= rule.threshold if above else interval.upper <= rule.threshold

    threshold = Fraction(str(rule.threshold)) * row.n_eligible
    reachable = row.n_passed > threshold if above else row.n_passed + row.n_missing < threshold
    assert (needed is not None) == (reachable and decides(REALISTIC * have // row.n_eligible))
    if needed is not None:
        assert needed > have
        assert decides(needed)
        assert not decides(needed - 1)
        assert f"{needed:,} " in str(row.advice)


@given(EXACT_METRICS | GUARDED_METRICS)
def test_at_its_own_size_the_scaled_interval_is_the_metrics_own(clusters: list[str]) -> None:
    metric = measured(clusters)
    assume(metric.lower is not None)
    own = interval_at(metric, 1)
    assert (own.lower, own.upper, own.method) == (metric.lower, metric.upper, metric.method)


@given(st.lists(st.text("PFM", min_size=2, max_size=4), min_size=20, max_size=30), st.integers(2, 4))
def test_a_scaled_clustered_metric_is_that_of_as_many_clusters_alike(clusters: list[str], times: int) -> None:
    some, many = measured(clusters), measured(clusters * times)
    assume(some.lower is not None)
    scaled = interval_at(some, times)
    assert (scaled.lower, scaled.upper) == pytest.approx((many.lower, many.upper), abs=1e-12)
    assert many.method == GUARDED


@pytest.mark.parametrize(
    ("direction", "lower", "upper", "state"),
    [
        ("min", 0.5, 0.9, "PASS"),
        ("min", 0.4, 0.9, "INSUFFICIENT_EVIDENCE"),
        ("min", 0.4, 0.5, "INSUFFICIENT_EVIDENCE"),
        ("min", 0.3, 0.4, "FAIL"),
        ("max", 0.1, 0.5, "PASS"),
        ("max", 0.4, 0.9, "INSUFFICIENT_EVIDENCE"),
        ("max", 0.5, 0.9, "INSUFFICIENT_EVIDENCE"),
        ("max", 0.6, 0.9, "FAIL"),
    ],
)
def test_a_bound_on_the_bar_counts_for_passing_and_never_for_failing(
    direction: str, lower: float, upper: float, state: str
) -> None:
    rule = Rule.model_validate({"id": "bar", "metric": "polite", direction: 0.5})
    assert against_the_bar(rule, lower, upper)[0] == state


def test_scaling_keeps_the_missing_share() -> None:
    metric = measured(list("PPPPPPFFMM"))
    scaled = clopper_pearson_missing_bounded(9, 12, 3, 0.95)
    assert interval_at(metric, 1.5) == scaled


def test_advice_asks_for_no_more_than_a_realistic_number_of_verdicts() -> None:
    metric = measured(list("PF" * 50))
    near = Rule(id="bar", metric="polite", min=0.4996)
    needed = smallest_deciding(near, metric, "PASS")
    assert needed is not None
    assert 100 < needed <= REALISTIC
    assert smallest_deciding(Rule(id="bar", metric="polite", min=0.4999), metric, "PASS") is None


# ------------------------------------------------------------------------------------------------- what else to do


def test_nothing_observed_names_what_is_missing_most_first() -> None:
    assert advised(list("TMTT"), {"min": 0.5}) == (
        "none of 4 eligible verdicts was observed; mend first execution_timeout (3), execution_error (1): "
        + VerdictReason.EXECUTION_TIMEOUT.meaning
    )


def test_nothing_eligible_names_why_cases_are_excluded() -> None:
    assert advised(list("NNN"), {"min": 0.5}) == (
        f"no case is eligible for polite; excluded: no_expected_state (3): {VerdictReason.NO_EXPECTED_STATE.meaning}"
    )


def test_nothing_recorded_says_to_run_the_suite() -> None:
    assert advised([], {"min": 0.5}) == "no verdict of polite is recorded; run the suite to its end"


def test_a_reason_of_a_users_own_is_listed_without_a_meaning() -> None:
    verdicts = [VerdictRow("0", 0, "polite", "missing", "judge_was_down", None, None, None)]
    (metric,) = measure(verdicts, {"0": "0"}, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20)
    line = advice(
        Rule(id="bar", metric="polite", min=0.5),
        metric,
        [DecisionReason.NO_OBSERVATIONS],
        min_clusters=20,
        suite_clusters=1,
    )
    assert line == "none of 1 eligible verdicts was observed; mend first judge_was_down (1)"


def test_too_much_missing_names_the_share_and_the_reasons() -> None:
    assert advised(list("P" * 18 + "TT"), {"min": 0.5, "max_missing_fraction": 0.05}) == (
        "2 of 20 verdicts are missing, more than the share of 0.05 that the rule accepts; mend first"
        f" execution_timeout (2): {VerdictReason.EXECUTION_TIMEOUT.meaning}"
    )


def test_too_few_clusters_says_how_many_a_clustered_suite_wants() -> None:
    assert advised(["PP"] * 12, {"min": 0.5}) == (
        "needs at least 20 clusters, the suite has 12; a clustered suite wants at least 20 source cases"
    )
    assert advised(["PP"] * 12 + ["NN"] * 3, {"min": 0.5}, min_clusters=15) == (
        "needs at least 15 clusters, 12 of 15 have an eligible verdict;"
        " a clustered suite wants at least 20 source cases"
    )


def test_uneven_clusters_are_told_how_uneven_they_are() -> None:
    assert advised(["P" * 12, *["P"] * 24], {"min": 0.5}) == (
        "make the clusters more alike in size, or add clusters: their sizes vary by 1.5 of the mean (at most 0.8),"
        " the largest holds 0.333 of the verdicts (at most 0.12)"
    )


def test_missing_verdicts_that_could_break_a_count_are_counted() -> None:
    assert advised(list("PPFMM"), {"max_failures": 2}) == (
        "2 missing verdicts could raise the failures from 1 to 3, over the limit of 2; mend first execution_error (2): "
        + VerdictReason.EXECUTION_ERROR.meaning
    )


def test_a_rule_for_a_person_says_so() -> None:
    assert advised(list("PPP"), {"min": 0.5, "requires_manual_review": True}) == (
        "a person decides this rule (requires_manual_review); its numbers are shown for them"
    )


def test_a_clustered_suite_without_permission_is_told_the_line_to_write() -> None:
    assert advised(["PP"] * 30, {"min": 0.5}, allow_approximate_methods=False) == (
        "set allow_approximate_methods: true in release.yaml if clustered evidence may decide"
    )


def test_an_unchecked_transform_comes_with_the_line_given_and_with_what_else_is_lacking() -> None:
    assert advised(list("PPP"), {"min": 0.5}, unchecked={"polite": "label 12 more pairs"}) == "label 12 more pairs"
    assert advised(list("NN"), {"min": 0.5}, unchecked={"polite": "label 12 more pairs"}) == (
        "label 12 more pairs; no case is eligible for polite; excluded: no_expected_state (2): "
        + VerdictReason.NO_EXPECTED_STATE.meaning
    )


def test_a_reason_that_nothing_can_be_done_about_is_told_by_its_meaning() -> None:
    line = advice(
        Rule(id="bar", metric="polite", min=0.5),
        measured(["PP"]),
        [DecisionReason.INTERVAL_UNAVAILABLE],
        min_clusters=20,
        suite_clusters=20,
    )
    assert line == DecisionReason.INTERVAL_UNAVAILABLE.meaning
