"""Advice on undecided rules: every number that it names is evaluated again, at that number and one below."""

import json
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from oloproof_dagster.decision.advice import advice
from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.decide import SuiteFacts, decide
from oloproof_dagster.decision.metrics import clusters_of, measure
from oloproof_dagster.decision.planning import (
    REALISTIC,
    counted_towards,
    deciding_by_chance,
    enlarged,
    interval_of,
    smallest_deciding,
    units,
)
from oloproof_dagster.decision.spacing import FAILED, PASSED
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
        r"^([\d,]+) eligible cases \(now 20\) without a failure would pass it$", advised(list("P" * 20), {"min": 0.9})
    )
    assert decided(list("P" * needed), {"min": 0.9}).state == "PASS"
    assert decided(list("P" * (needed - 1)), {"min": 0.9}).state == "INSUFFICIENT_EVIDENCE"


def test_the_number_of_clusters_decides_a_rule_and_one_fewer_does_not() -> None:
    line = advised(["PP"] * 22, {"min": 0.9})
    needed = the_number(
        r"^([\d,]+) clusters alike, [\d,]+ verdicts \(now 22 with 44\), without a failure, would pass it$", line
    )
    assert f", {2 * needed} verdicts" in line
    assert decided(["PP"] * needed, {"min": 0.9}).state == "PASS"
    assert decided(["PP"] * (needed - 1), {"min": 0.9}).state == "INSUFFICIENT_EVIDENCE"


def test_failures_per_case_are_rounded_up() -> None:
    observed, bar = "PPPPPPPPPF", {"min": 0.8}
    line = advised(list(observed), bar)
    needed = the_number(
        r"^([\d,]+) eligible cases \(now 10\) with as many failures per case \(now 1\) would pass", line
    )

    def with_failures(n: int) -> list[str]:
        failures = -(-n // 10)
        return list("P" * (n - failures) + "F" * failures)

    assert decided(with_failures(needed), bar).state == "PASS"
    assert all(decided(with_failures(n), bar).state == "INSUFFICIENT_EVIDENCE" for n in range(10, needed))


def test_of_a_suite_with_failures_the_number_that_passes_by_chance_is_larger() -> None:
    line = advised(list("P" * 27 + "FFF"), {"min": 0.8})
    needed = the_number(r"^([\d,]+) eligible cases", line)
    likely = the_number(r" \(about ([\d,]+) cases with a chance of 80%, if that is the true rate\)$", line)
    assert likely > needed


@pytest.mark.parametrize(("failures", "bar"), [(3, 0.8), (6, 0.7), (1, 0.9)])
def test_the_number_by_chance_passes_in_about_80_percent(failures: int, bar: float) -> None:
    metric = measured(list("P" * (30 - failures) + "F" * failures))
    likely = deciding_by_chance(Rule(id="bar", metric="polite", min=bar), metric, "PASS")
    assert likely is not None
    accepted = next(
        failed - 1
        for failed in range(likely + 1)
        if interval_of({(1, 0, 0): likely - failed, (0, 1, 0): failed}, 0.95).lower < bar
    )
    assert stats.binom.cdf(accepted, likely, failures / 30) == pytest.approx(0.8, abs=0.07)


def test_where_all_verdicts_agree_one_number_is_enough() -> None:
    assert "80%" not in advised(list("P" * 20), {"min": 0.9})


def test_the_cluster_that_costs_the_bound_is_named() -> None:
    line = advised(["P" * 12, *["P"] * 24], {"min": 0.85})
    found = re.search(
        r"; the cluster of '0' holds 12 verdicts, the next largest 1: that costs, the lower bound is (0\.\d+) with it"
        r" and 0\.857 without it$",
        line,
    )
    assert found is not None, line
    assert float(found[1]) < 0.857


def test_clusters_that_are_as_large_as_others_are_not_named() -> None:
    assert "costs" not in advised(["PPP", "PPP", *["PP"] * 20], {"min": 0.9})
    assert "costs" not in advised(["PP"] * 22, {"min": 0.9})


def test_mending_that_would_pass_the_rule_now_comes_before_any_number() -> None:
    assert advised(list("P" * 21 + "MMM"), {"min": 0.85}).startswith(
        f"mend first execution_error (3): {VerdictReason.EXECUTION_ERROR.meaning}; with all of them passes, 24 of 24"
        " would pass now; "
    )
    assert advised(list("F" * 21 + "MMM"), {"max": 0.15}).startswith(
        f"mend first execution_error (3): {VerdictReason.EXECUTION_ERROR.meaning}; with all of them failures, 0 of 24"
        " would pass now; "
    )


def test_mending_that_would_not_be_enough_promises_nothing() -> None:
    assert "would pass now" not in advised(list("P" * 20 + "M"), {"min": 0.85})


def test_a_maximum_is_advised_on_by_its_upper_bound() -> None:
    needed = the_number(
        r"^([\d,]+) eligible cases \(now 20\) without a pass would pass it$", advised(list("F" * 20), {"max": 0.1})
    )
    assert decided(list("F" * needed), {"max": 0.1}).state == "PASS"
    assert decided(list("F" * (needed - 1)), {"max": 0.1}).state == "INSUFFICIENT_EVIDENCE"


@pytest.mark.parametrize(("letter", "rule", "side"), [("F", {"min": 0.05}, "below"), ("P", {"max": 0.95}, "above")])
def test_a_rate_on_the_wrong_side_is_told_that_no_number_passes_and_which_fails(
    letter: str, rule: dict[str, Any], side: str
) -> None:
    line = advised([letter] * 20, rule)
    assert re.match(rf"no number of cases would pass it: the observed rate \d+/20 is {side} the bar 0\.\d+; ", line)
    needed = the_number(r"; ([\d,]+) eligible cases \(now 20\) without a (?:pass|failure) would fail it$", line)
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
        "mend first execution_error (2), execution_timeout (1): "
        + VerdictReason.EXECUTION_ERROR.meaning
        + "; no number of cases would decide it while 3 of 20 verdicts are missing: the rate is 0.75 if they failed and"
        " 0.9 if they passed, around the bar 0.8"
    )


def test_missing_verdicts_are_to_be_mended_before_cases_are_added() -> None:
    line = advised([*["P"] * 11, "M"], {"min": 0.75})
    assert line.startswith("mend first ")
    assert "without a failure and the same share missing would pass it" in line


def test_a_rate_next_to_the_bar_is_told_that_no_realistic_number_decides() -> None:
    assert advised(list("PF" * 50), {"min": 0.4999}) == (
        "no realistic number of cases would pass it: the observed rate 50/100 lies too close to the bar 0.4999"
    )
    assert advised(list("PF" * 50), {"min": 0.5001}) == (
        "no number of cases would pass it: the observed rate 50/100 is below the bar 0.5001;"
        " no realistic number would fail it either"
    )


EXACT_METRICS = st.text("PFM", min_size=1, max_size=60).map(list)
CLUSTERED_METRICS = st.lists(st.text("PFM", min_size=1, max_size=3), min_size=20, max_size=30)
BARS = st.builds(
    lambda percent, direction: {direction: percent / 100}, st.integers(1, 99), st.sampled_from(["min", "max"])
)


@settings(max_examples=60)
@given(EXACT_METRICS | CLUSTERED_METRICS, BARS, st.sampled_from(["PASS", "FAIL"]))
def test_every_number_decides_and_the_one_below_it_does_not(
    clusters: list[str], bar: dict[str, float], state: State
) -> None:
    row, metric = decided(clusters, bar), measured(clusters)
    rule = Rule.model_validate({"id": "bar", "metric": "polite", **bar})
    assume(DecisionReason.INTERVAL_OVERLAPS_THRESHOLD in row.reasons)
    needed = smallest_deciding(rule, metric, state)

    def decides(n_units: int) -> bool:
        suite = enlarged(clusters_of(metric), n_units, counted_towards(rule, state))
        interval = interval_of(suite, metric.confidence_level)
        return against_the_bar(rule, interval.lower, interval.upper)[0] == state

    above = (rule.direction == "min") == (state == "PASS")
    threshold = Fraction(str(rule.threshold)) * row.n_eligible
    reachable = row.n_passed > threshold if above else row.n_passed + row.n_missing < threshold
    if needed is None:
        assert not reachable or not decides(REALISTIC * units(metric) // row.n_eligible)
    else:
        assert reachable
        assert needed > units(metric)
        assert decides(needed)
        assert not decides(needed - 1)
        assert f"{needed:,} " in str(row.advice)


@given(EXACT_METRICS | CLUSTERED_METRICS)
def test_at_its_own_size_an_enlarged_suite_is_the_metrics_own(clusters: list[str]) -> None:
    metric = measured(clusters)
    for counted in (PASSED, FAILED):
        assert enlarged(clusters_of(metric), units(metric), counted) == clusters_of(metric)


@given(CLUSTERED_METRICS, st.integers(1, 200), st.sampled_from([PASSED, FAILED]))
def test_an_enlarged_suite_has_so_many_clusters_and_no_better_rate(
    clusters: list[str], more: int, counted: int
) -> None:
    own = clusters_of(measured(clusters))
    suite = enlarged(own, len(clusters) + more, counted)
    assert sum(suite.values()) == len(clusters) + more
    shares = {cluster: Fraction(cluster[counted], sum(cluster)) for cluster in own}
    for share in shares.values():
        no_better = [cluster for cluster in own if shares[cluster] <= share]
        before, after = (sum(each[cluster] for cluster in no_better) for each in (own, suite))
        assert after * len(clusters) >= before * (len(clusters) + more)


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


def test_too_few_eligible_cases_of_a_count_are_counted() -> None:
    assert advised(list("PPN"), {"max_failures": 0, "min_eligible": 20}) == ("needs at least 20 eligible cases, 2 are")


def test_missing_verdicts_that_could_break_a_count_are_counted() -> None:
    assert advised(list("PPFMM"), {"max_failures": 2}) == (
        "2 missing verdicts could raise the failures from 1 to 3, over the limit of 2; mend first execution_error (2): "
        + VerdictReason.EXECUTION_ERROR.meaning
    )


def test_a_rule_for_a_person_says_which_line_decides_it() -> None:
    line = advised(list("PPP"), {"min": 0.5, "requires_manual_review": True})
    said, written = line.split("reviews.jsonl: ")
    assert said == (
        "a person decides this rule (requires_manual_review); its numbers are shown for them, who write to "
    )
    review = json.loads(written.removesuffix(" (or false)"))
    assert review.keys() == {"rule", "evidence", "by", "approve"}
    assert re.fullmatch("sha256:[0-9a-f]{64}", review["evidence"])


def test_a_clustered_suite_without_permission_is_told_the_line_to_write() -> None:
    assert advised(["PP"] * 30, {"min": 0.5}, allow_approximate_methods=False) == (
        "set allow_approximate_methods: true in release.yaml if an interval of clustered verdicts may decide"
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
