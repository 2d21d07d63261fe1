"""The spacing bound: right values, what it has in common with Clopper and Pearson's, and what never lowers it."""

import json
import math
import time
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oloproof_dagster.decision.intervals import SPACING, Interval, clopper_pearson_missing_bounded
from oloproof_dagster.decision.spacing import FAILED, PASSED, Cluster, Kind, kinds, lower_bound, reaches, spacing_bound
from tests.support import VECTORS

ROWS = json.loads((VECTORS / "spacing.json").read_text())["rows"]
LEVELS = st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999])
CLUSTER = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)).filter(any)
CLUSTERS = st.lists(CLUSTER, min_size=2, max_size=40)

SOME = settings(max_examples=30)
"""A bound takes about ten milliseconds."""


def bounds(clusters: list[Cluster], level: float) -> Interval:
    found = spacing_bound(Counter(clusters), level)
    assert found is not None
    return found


def totals(clusters: list[Cluster]) -> tuple[int, int, int]:
    passed, failed, missing = (sum(column) for column in zip(*clusters, strict=True))
    return passed, failed, missing


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_bounds_are_the_right_values(row: dict[str, Any]) -> None:
    counts = zip(row["passed"], row["sizes"], row["missing"], strict=True)
    found = bounds(
        [(passed, size - passed - missing, missing) for passed, size, missing in counts], row["confidence_level"]
    )
    assert found.lower == pytest.approx(row["lower"], abs=1e-7)
    assert found.upper == pytest.approx(row["upper"], abs=1e-7)
    assert found.method == SPACING


@SOME
@given(st.lists(st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1)]), min_size=2, max_size=60), LEVELS)
def test_one_verdict_a_cluster_has_clopper_and_pearsons_bounds(clusters: list[Cluster], level: float) -> None:
    passed, failed, missing = totals(clusters)
    exact = clopper_pearson_missing_bounded(passed, passed + failed, missing, level)
    found = bounds(clusters, level)
    assert (found.lower, found.upper) == pytest.approx((exact.lower, exact.upper), abs=1e-9)


@SOME
@given(st.integers(2, 40), st.integers(0, 60), st.integers(0, 60), LEVELS)
def test_equal_clusters_that_pass_or_fail_whole_have_clopper_and_pearsons_bounds_of_clusters(
    size: int, passing: int, failing: int, level: float
) -> None:
    assume(passing + failing >= 2)
    exact = clopper_pearson_missing_bounded(passing, passing + failing, 0, level)
    found = spacing_bound({(size, 0, 0): passing, (0, size, 0): failing}, level)
    assert found is not None
    assert (found.lower, found.upper) == pytest.approx((exact.lower, exact.upper), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "failed", "level"), [(10_000, 37, 0.99), (10_000, 5_000, 0.99), (1_000_000, 1_000, 0.95)]
)
def test_many_clusters_of_one_verdict_have_clopper_and_pearsons_bounds(n: int, failed: int, level: float) -> None:
    exact = clopper_pearson_missing_bounded(n - failed, n, 0, level)
    found = spacing_bound({(1, 0, 0): n - failed, (0, 1, 0): failed}, level)
    assert found is not None
    assert (found.lower, found.upper) == pytest.approx((exact.lower, exact.upper), abs=5e-12)


@SOME
@given(CLUSTERS, st.data(), LEVELS)
def test_bounds_never_fall_where_a_verdict_gets_better(
    clusters: list[Cluster], data: st.DataObject, level: float
) -> None:
    at = data.draw(st.integers(0, len(clusters) - 1))
    passed, failed, missing = clusters[at]
    better = [(passed + 1, failed - 1, missing)] * (failed > 0) + [(passed + 1, failed, missing - 1)] * (missing > 0)
    for changed in better:
        one, other = bounds(clusters, level), bounds([*clusters[:at], changed, *clusters[at + 1 :]], level)
        assert other.lower >= one.lower - 1e-11
        if missing == changed[2]:
            assert other.upper >= one.upper - 1e-11


@SOME
@given(st.lists(CLUSTER, min_size=2, max_size=12), st.data(), LEVELS)
def test_missing_verdicts_filled_in_any_way_stay_within_the_bounds(
    clusters: list[Cluster], data: st.DataObject, level: float
) -> None:
    filled = []
    for passed, failed, missing in clusters:
        kept = data.draw(st.integers(0, missing))
        filled.append((passed + kept, failed + missing - kept, 0))
    found, known = bounds(clusters, level), bounds(filled, level)
    assert found.lower <= known.lower + 1e-11
    assert known.upper <= found.upper + 1e-11


@SOME
@given(CLUSTERS, LEVELS)
def test_bounds_enclose_every_possible_rate_in_order(clusters: list[Cluster], level: float) -> None:
    passed, failed, missing = totals(clusters)
    n = passed + failed + missing
    found = bounds(clusters, level)
    assert 0 <= found.lower <= passed / n + 1e-12
    assert (passed + missing) / n <= found.upper + 1e-12
    assert found.upper <= 1


@SOME
@given(CLUSTERS.flatmap(lambda clusters: st.tuples(st.just(clusters), st.permutations(clusters))), LEVELS)
def test_bounds_do_not_depend_on_the_order_of_clusters(
    orders: tuple[list[Cluster], list[Cluster]], level: float
) -> None:
    one, other = (bounds(each, level) for each in orders)
    assert one == other


@SOME
@given(CLUSTERS, st.integers(1, 15), LEVELS)
def test_one_more_passing_cluster_no_larger_than_the_largest_never_lowers_the_lower_bound(
    clusters: list[Cluster], size: int, level: float
) -> None:
    assume(size <= max(map(sum, clusters)))
    assert bounds([*clusters, (size, 0, 0)], level).lower >= bounds(clusters, level).lower - 1e-11


@SOME
@given(CLUSTERS, LEVELS)
def test_bounds_of_passes_and_of_failures_mirror_each_other(clusters: list[Cluster], level: float) -> None:
    found = bounds(clusters, level)
    mirrored = bounds([(failed, passed, missing) for passed, failed, missing in clusters], level)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - found.upper, 1 - found.lower), abs=1e-11)


@SOME
@given(CLUSTERS, LEVELS, LEVELS)
def test_a_higher_level_never_narrows_the_bounds(clusters: list[Cluster], one: float, other: float) -> None:
    low, high = (bounds(clusters, level) for level in sorted((one, other)))
    assert high.lower <= low.lower + 1e-11
    assert low.upper <= high.upper + 1e-11


@SOME
@given(CLUSTERS, st.floats(0, 1), LEVELS)
def test_a_bound_reaches_what_is_not_above_it(clusters: list[Cluster], bar: float, level: float) -> None:
    found, tail = bounds(clusters, level), (1 - level) / 2
    assume(min(abs(found.lower - bar), abs(1 - found.upper - bar)) > 1e-9)
    assert reaches(kinds(Counter(clusters), PASSED), tail, bar) == (found.lower >= bar)
    assert reaches(kinds(Counter(clusters), FAILED), tail, bar) == (1 - found.upper >= bar)


@SOME
@given(st.lists(CLUSTER, min_size=2, max_size=8), LEVELS)
def test_bounds_are_the_quantiles_of_ratios_under_random_weights(clusters: list[Cluster], level: float) -> None:
    assume(totals(clusters)[0])
    rng = np.random.default_rng(1)
    sizes = np.array([*map(sum, clusters), max(map(sum, clusters))], dtype=float)
    passes = np.array([*(passed for passed, _, _ in clusters), 0], dtype=float)
    weights = rng.exponential(size=(40_000, len(sizes)))
    below = np.mean((weights @ passes) / (weights @ sizes) <= bounds(clusters, level).lower)
    tail = (1 - level) / 2
    assert below == pytest.approx(tail, abs=5 * math.sqrt(tail * (1 - tail) / 40_000))


@SOME
@given(st.lists(st.tuples(st.integers(-4, 4), st.just(4)), min_size=2, max_size=20), LEVELS)
def test_numerators_of_any_range_are_bounded_as_rates_are(pairs: list[tuple[int, int]], level: float) -> None:
    tail = (1 - level) / 2
    differences = Counter(Kind(numerator, size) for numerator, size in pairs)
    rates = Counter(Kind((numerator + size) / 2, size) for numerator, size in pairs)
    found = lower_bound(differences, tail, least=-1, most=1)
    assert found == pytest.approx(2 * lower_bound(rates, tail) - 1, abs=1e-10)


@SOME
@given(st.integers(2, 40), st.integers(1, 9), LEVELS)
def test_bounds_are_exactly_zero_and_one_at_the_ends(n: int, size: int, level: float) -> None:
    assert bounds([(size, 0, 0)] * n, level).upper == 1
    assert bounds([(0, size, 0)] * n, level).lower == 0


@pytest.mark.parametrize("clusters", [[], [(2, 1, 0)], [(2, 1, 0), (0, 0, 0)]])
def test_fewer_than_two_clusters_have_no_bounds(clusters: list[Cluster]) -> None:
    assert spacing_bound(Counter(clusters), 0.95) is None


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan])
def test_a_confidence_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level lies between 0 and 1"):
        bounds([(1, 1, 0), (2, 0, 0)], level)


@pytest.mark.parametrize("level", [1e-20, 1 - 1e-9, 1 - 2**-53])
def test_levels_next_to_their_ends_still_give_bounds(level: float) -> None:
    found = bounds([(2, 1, 0), (3, 0, 0), (1, 2, 0)], level)
    assert 0 <= found.lower < 2 / 3 < found.upper <= 1


def test_ten_thousand_clusters_are_bounded_in_a_second() -> None:
    random = Random(1)
    sizes = [random.randint(1, 30) for _ in range(10_000)]
    clusters = Counter((passed := random.randint(0, size), size - passed, 0) for size in sizes)
    begun = time.process_time()
    found = spacing_bound(clusters, 0.95)
    assert found is not None
    assert found.upper - found.lower < 0.03
    assert time.process_time() - begun < 1
