"""Counting verdicts: denominators, which method applies, and why there is no interval."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.decision.intervals import EXACT, SPACING, clopper_pearson_missing_bounded
from oloproof_dagster.decision.metrics import Tally, clusters_of, measure
from oloproof_dagster.decision.planning import interval_of
from oloproof_dagster.decision.spacing import spacing_bound
from oloproof_dagster.evidence.parquet import Stored, stage
from oloproof_dagster.records.reasons import DecisionReason, VerdictReason
from oloproof_dagster.records.tables import METRICS, MetricRow, VerdictRow
from tests.support.letters import REASONS, STATUSES


def verdict(
    case_id: str, letter: str, criterion: str = "polite", *, trial: int = 0, noop: bool | None = None
) -> VerdictRow:
    return VerdictRow(case_id, trial, criterion, STATUSES[letter], REASONS.get(letter), None, None, noop)


def measured(*clusters: str, level: float = 0.95, min_clusters: int = 20) -> MetricRow:
    """The metric of clusters given as words of P, F, M and N, one letter a trial."""
    verdicts = [
        verdict(f"case-{cluster}", letter, trial=trial)
        for cluster, letters in enumerate(clusters)
        for trial, letter in enumerate(letters)
    ]
    cluster_of = {f"case-{cluster}": f"case-{cluster}" for cluster in range(len(clusters))}
    clustered = any(len(letters) > 1 for letters in clusters)
    (row,) = measure(
        verdicts, cluster_of, ["polite"], clustered=clustered, confidence_level=level, min_clusters=min_clusters
    )
    return row


def test_every_declared_criterion_has_a_row_in_the_order_given() -> None:
    verdicts = [verdict("a", "P", "polite"), verdict("a", "F", "safe")]
    rows = measure(
        verdicts, {"a": "a"}, ["safe", "unseen", "polite"], clustered=False, confidence_level=0.95, min_clusters=20
    )
    assert [(row.metric, row.n_passed, row.n_eligible) for row in rows] == [
        ("safe", 0, 1),
        ("unseen", 0, 0),
        ("polite", 1, 1),
    ]


def test_verdicts_of_other_criteria_are_left_out() -> None:
    verdicts = [verdict("a", "P", "polite"), verdict("a", "F", "safe")]
    rows = measure(verdicts, {"a": "a"}, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20)
    assert [(row.metric, row.n_eligible, row.n_passed) for row in rows] == [("polite", 1, 1)]


def test_the_estimate_is_passed_of_observed_and_missing_stays_in_the_bounds() -> None:
    row = measured(*"PPPFMMN")
    assert (row.n_eligible, row.n_observed, row.n_passed, row.n_missing, row.n_excluded) == (6, 4, 3, 2, 1)
    assert row.estimate == 0.75
    expected = clopper_pearson_missing_bounded(3, 4, 2, 0.95)
    assert (row.lower, row.upper, row.method, row.no_bounds) == (expected.lower, expected.upper, EXACT, None)


def test_missing_and_excluded_verdicts_are_counted_by_reason() -> None:
    reasons = [
        ("missing", VerdictReason.EXECUTION_TIMEOUT),
        ("missing", VerdictReason.EXECUTION_ERROR),
        ("missing", VerdictReason.EXECUTION_TIMEOUT),
        ("not_applicable", VerdictReason.METAMORPHIC_COPY),
    ]
    verdicts = [
        VerdictRow(str(case), 0, "polite", status, reason.value, None, None, None)
        for case, (status, reason) in enumerate(reasons)
    ]
    (row,) = measure(
        verdicts,
        {str(case): str(case) for case in range(4)},
        ["polite"],
        clustered=False,
        confidence_level=0.95,
        min_clusters=20,
    )
    assert json.loads(row.missing) == {"execution_timeout": 2, "execution_error": 1}
    assert json.loads(row.excluded) == {"metamorphic_copy": 1}


@pytest.mark.parametrize("clusters", [(), ("N",), ("N", "NN")])
def test_without_an_eligible_case_there_is_no_estimate_and_no_interval(clusters: tuple[str, ...]) -> None:
    row = measured(*clusters)
    assert (row.estimate, row.lower, row.upper, row.method) == (None, None, None, None)
    assert row.no_bounds == DecisionReason.INTERVAL_UNAVAILABLE
    assert row.n_eligible == 0


def test_where_all_is_missing_there_is_no_estimate_and_every_rate_remains_possible() -> None:
    row = measured(*"MMM")
    assert (row.estimate, row.lower, row.upper, row.no_bounds) == (None, 0, 1, None)


def test_a_suite_that_is_not_clustered_has_no_number_of_clusters() -> None:
    assert measured(*"PPF").n_clusters is None
    assert measured("PN", "P", "F").n_clusters == 3


def test_clusters_without_an_eligible_verdict_are_not_counted() -> None:
    assert measured("PP", "NN", "FP").n_clusters == 2


def test_one_eligible_verdict_a_cluster_is_exact_even_in_a_clustered_suite() -> None:
    row, independent = measured("PN", "NP", "FN", "MN"), measured(*"PPFM")
    assert row.method == EXACT
    assert row.clusters is None
    assert (row.lower, row.upper) == (independent.lower, independent.upper)


def test_two_eligible_verdicts_in_one_cluster_take_the_spacing_bound() -> None:
    row = measured("PF", "PM", "F")
    expected = spacing_bound({(1, 1, 0): 1, (1, 0, 1): 1, (0, 1, 0): 1}, 0.95)
    assert expected is not None
    assert (row.lower, row.upper, row.method) == (expected.lower, expected.upper, SPACING)


def test_cases_of_one_cluster_are_counted_together() -> None:
    verdicts = [verdict("a", "P"), verdict("a~copy", "F"), verdict("b", "P")]
    (row,) = measure(
        verdicts,
        {"a": "a", "a~copy": "a", "b": "b"},
        ["polite"],
        clustered=True,
        confidence_level=0.95,
        min_clusters=20,
    )
    assert (row.n_clusters, row.n_eligible, row.method) == (2, 3, SPACING)


def test_a_single_cluster_of_several_verdicts_has_no_bounds_and_keeps_its_method() -> None:
    row = measured("PPF")
    assert (row.lower, row.upper, row.method) == (None, None, SPACING)
    assert row.no_bounds == DecisionReason.INTERVAL_UNAVAILABLE
    assert row.estimate == pytest.approx(2 / 3)


def test_bounds_of_fewer_clusters_than_the_policy_asks_for_are_marked() -> None:
    few, enough, alone = measured(*["PP"] * 19), measured(*["PP"] * 20), measured(*"P" * 19)
    assert (few.lower is not None, few.no_bounds, few.caution) == (True, None, DecisionReason.INSUFFICIENT_CLUSTERS)
    assert (enough.caution, alone.caution) == (None, None)


def test_the_cluster_that_is_larger_than_all_others_is_named() -> None:
    assert measured("PPP", "PF", "P").largest_cluster == "case-0"
    assert measured("PPP", "PFM", "P").largest_cluster is None


def test_noop_passed_counts_eligible_cases_whose_initial_state_already_satisfies_the_check() -> None:
    verdicts = [
        verdict("a", "P", noop=True),
        verdict("b", "F", noop=True),
        verdict("c", "M", noop=True),
        verdict("d", "P", noop=False),
        verdict("e", "N", noop=True),
        verdict("f", "P"),
    ]
    (row,) = measure(
        verdicts, {case: case for case in "abcdef"}, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20
    )
    assert row.noop_passed == 3


def test_noop_passed_is_zero_where_doing_nothing_never_satisfies_and_null_where_it_is_never_asked() -> None:
    (asked,) = measure(
        [verdict("a", "P", noop=False)], {"a": "a"}, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20
    )
    assert asked.noop_passed == 0
    assert measured("P").noop_passed is None


@given(st.lists(st.text("PFMN", min_size=1, max_size=4), max_size=30), st.randoms(use_true_random=False))
def test_a_metric_does_not_depend_on_the_order_of_verdicts(clusters: list[str], random: Random) -> None:
    shuffled = ["".join(random.sample(letters, len(letters))) for letters in clusters]
    random.shuffle(shuffled)
    named = {"largest_cluster": None, "verdicts": None}  # here cases are named by their places
    rows = (replace(measured(*each), **named) for each in (shuffled, clusters))
    assert next(rows) == next(rows)


@given(st.lists(st.sampled_from("PFMN"), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_digest_of_verdicts_is_that_of_the_verdicts_in_whatever_order(letters: list[str], random: Random) -> None:
    verdicts = [verdict(f"c{number}", letter) for number, letter in enumerate(letters)]
    shuffled = random.sample(verdicts, len(verdicts))
    edited = [replace(shuffled[0], detail="another"), *shuffled[1:]]
    again = [*shuffled, replace(shuffled[0], case_id="c-new")]

    def noted(rows: list[VerdictRow]) -> str | None:
        clusters = {row.case_id: row.case_id for row in rows}
        return measure(rows, clusters, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20)[0].verdicts

    assert noted(shuffled) == noted(verdicts)
    assert len({noted(verdicts), noted(edited), noted(again)}) == 3


@given(st.lists(st.text("PFMN", min_size=1, max_size=4), min_size=1, max_size=30))
def test_stored_clusters_give_the_stored_bounds_again(clusters: list[str]) -> None:
    row = measured(*clusters)
    assert (row.clusters is not None) == (row.method == SPACING)
    if row.lower is not None:
        again = interval_of(clusters_of(row), row.confidence_level)
        assert (again.lower, again.upper) == (row.lower, row.upper)


def test_verdicts_are_read_once() -> None:
    def stream() -> Iterator[VerdictRow]:
        yield from (verdict("a", letter, trial=trial) for trial, letter in enumerate("PPF"))

    rows = measure(stream(), {"a": "a"}, ["polite", "safe"], clustered=True, confidence_level=0.95, min_clusters=20)
    assert [row.n_eligible for row in rows] == [3, 0]


def test_a_metric_survives_storage(tmp_path: Path) -> None:
    rows = [measured("PF", "PM", "NF"), measured()]
    staged = stage(tmp_path / "metrics.parquet", METRICS, rows, dict)
    assert list(Stored(staged.path, METRICS).rows()) == rows


def test_a_case_without_a_cluster_is_refused() -> None:
    with pytest.raises(KeyError, match="a"):
        measure([verdict("a", "P")], {}, ["polite"], clustered=False, confidence_level=0.95, min_clusters=20)


def test_an_unknown_status_is_refused_naming_the_case() -> None:
    with pytest.raises(ValueError, match="case a: polite has the unknown status 'passing'"):
        Tally().add(VerdictRow("a", 0, "polite", "passing", None, None, None, None), "a")


@pytest.mark.parametrize("status", ["missing", "not_applicable"])
def test_what_was_not_observed_needs_a_reason(status: str) -> None:
    with pytest.raises(ValueError, match=f"case a: polite is {status} without a reason"):
        Tally().add(VerdictRow("a", 0, "polite", status, None, None, None, None), "a")
