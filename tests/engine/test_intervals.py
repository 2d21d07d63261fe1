"""The bounds: right values, the levels that they hold, and the moments that they are computed from."""

import json
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from oloproof_dagster.decision.intervals import (
    EXACT,
    GUARDED,
    Clusters,
    Interval,
    clopper_pearson_missing_bounded,
    korn_graubard_guarded,
)
from tests.support import VECTORS

EXPECTED = json.loads((VECTORS / "intervals.json").read_text())
LEVELS = st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999])
COUNTS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 30))
CLUSTER = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)).filter(any)
CLUSTERS = st.lists(CLUSTER, min_size=2, max_size=40)


def exact(passed: int, failed: int, missing: int, level: float) -> Interval:
    return clopper_pearson_missing_bounded(passed, passed + failed, missing, level)


def guarded(counts: list[tuple[int, int, int]], level: float) -> Interval:
    interval = korn_graubard_guarded(Clusters.of(counts), level)
    assert interval is not None
    return interval


def totals(counts: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    passed, failed, missing = (sum(column) for column in zip(*counts, strict=True))
    return passed, failed, missing


# ------------------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("vector", EXPECTED["clopper_pearson_missing_bounded"])
def test_exact_bounds_are_the_right_values(vector: dict[str, float]) -> None:
    found = clopper_pearson_missing_bounded(
        vector["passed"], vector["observed"], vector["missing"], vector["confidence_level"]
    )
    assert found.lower == pytest.approx(vector["lower"], abs=1e-9)
    assert found.upper == pytest.approx(vector["upper"], abs=1e-9)
    assert found.method == EXACT


@given(COUNTS, LEVELS)
def test_exact_bounds_enclose_the_observed_rate_in_order(counts: tuple[int, int, int], level: float) -> None:
    passed, failed, missing = counts
    assume(passed + failed)
    found = exact(passed, failed, missing, level)
    assert 0 <= found.lower <= passed / (passed + failed) <= found.upper <= 1


@given(st.integers(1, 80), st.data(), LEVELS)
def test_exact_bounds_rise_with_every_further_pass(n: int, data: st.DataObject, level: float) -> None:
    passed = data.draw(st.integers(0, n - 1))
    fewer, more = exact(passed, n - passed, 0, level), exact(passed + 1, n - passed - 1, 0, level)
    assert fewer.lower < more.lower
    assert fewer.upper < more.upper


@given(COUNTS, LEVELS)
def test_exact_bounds_contain_every_way_the_missing_may_have_come_out(
    counts: tuple[int, int, int], level: float
) -> None:
    passed, failed, missing = counts
    assume(sum(counts))
    found = exact(passed, failed, missing, level)
    outcomes = [exact(passed + kept, failed + missing - kept, 0, level) for kept in range(missing + 1)]
    assert found.lower == min(outcome.lower for outcome in outcomes)
    assert found.upper == max(outcome.upper for outcome in outcomes)


@given(COUNTS, LEVELS)
def test_an_answer_to_a_missing_verdict_never_widens_the_exact_bounds(
    counts: tuple[int, int, int], level: float
) -> None:
    passed, failed, missing = counts
    assume(missing)
    found = exact(passed, failed, missing, level)
    for answered in (exact(passed + 1, failed, missing - 1, level), exact(passed, failed + 1, missing - 1, level)):
        assert found.lower <= answered.lower
        assert answered.upper <= found.upper


@given(COUNTS, LEVELS)
def test_exact_bounds_of_passes_and_of_failures_mirror_each_other(counts: tuple[int, int, int], level: float) -> None:
    passed, failed, missing = counts
    found, mirrored = exact(passed, failed, missing, level), exact(failed, passed, missing, level)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - found.upper, 1 - found.lower), abs=1e-12)


@given(COUNTS, LEVELS, LEVELS)
def test_a_higher_level_never_narrows_the_exact_bounds(counts: tuple[int, int, int], one: float, other: float) -> None:
    low, high = (exact(*counts, level) for level in sorted((one, other)))
    assert high.lower <= low.lower
    assert low.upper <= high.upper


@pytest.mark.parametrize("n", [1, 2, 7, 12, 30])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_exact_bounds_miss_the_true_rate_no_more_often_than_the_level_says(n: int, level: float) -> None:
    intervals = [exact(passed, n - passed, 0, level) for passed in range(n + 1)]
    for percent in range(1, 100):
        rate = percent / 100
        chances = [float(stats.binom.pmf(passed, n, rate)) for passed in range(n + 1)]
        too_high = sum(chance for chance, i in zip(chances, intervals, strict=True) if i.lower > rate)
        too_low = sum(chance for chance, i in zip(chances, intervals, strict=True) if i.upper < rate)
        assert max(too_high, too_low) <= (1 - level) / 2 + 1e-12


@given(st.integers(1, 500), st.integers(0, 20), LEVELS)
def test_exact_bounds_are_exactly_zero_and_one_at_the_ends(n: int, missing: int, level: float) -> None:
    assert exact(0, n, missing, level).lower == 0
    assert exact(n, 0, missing, level).upper == 1


def test_where_nothing_was_asked_every_rate_remains_possible() -> None:
    assert exact(0, 0, 0, 0.95) == Interval(0, 1, EXACT)


@pytest.mark.parametrize("counts", [(3, 2, 0), (-1, 2, 0), (1, 2, -1), (math.nan, 2, 0)])
def test_counts_that_contradict_each_other_are_refused(counts: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="no counts of one suite"):
        clopper_pearson_missing_bounded(*counts, 0.95)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan])
def test_a_confidence_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="confidence level lies between 0 and 1"):
        exact(1, 1, 0, level)
    with pytest.raises(ValueError, match="confidence level lies between 0 and 1"):
        guarded([(1, 1, 0), (2, 0, 0)], level)


# ------------------------------------------------------------------------------------------------- guarded


@pytest.mark.parametrize("vector", EXPECTED["korn_graubard_guarded"])
def test_guarded_bounds_are_the_right_values(vector: dict[str, list[int]]) -> None:
    pairs = zip(vector["passes"], vector["sizes"], strict=True)
    found = guarded([(passed, size - passed, 0) for passed, size in pairs], vector["confidence_level"])  # type: ignore[arg-type]
    assert found.lower == pytest.approx(vector["lower"], abs=1e-9)
    assert found.upper == pytest.approx(vector["upper"], abs=1e-9)
    assert found.method == GUARDED


def from_the_formula(sizes: list[int], passes: list[int], level: float, *, guard_passes: bool) -> tuple[float, float]:
    """Both bounds as the formula reads, cluster by cluster; the guard's further clusters pass or fail whole."""
    n, n_clusters, rate = sum(sizes), len(sizes), sum(passes) / sum(sizes)
    largest = max(sizes)
    seen = [(1.0, size, passed) for size, passed in zip(sizes, passes, strict=True)]
    unseen = min(max(1.0, largest / 3), -math.log((1 - level) / 2))
    effects = []
    agreeing = sum(size * size for size in sizes) / n
    for clusters, most in ((seen, agreeing), ([*seen, (unseen, largest, largest * guard_passes)], largest)):
        g = sum(number for number, _, _ in clusters)
        total = sum(number * size for number, size, _ in clusters)
        p = sum(number * passed for number, _, passed in clusters) / total
        if p in (0, 1):
            effects.append(most)
            continue
        spread = sum(number * (passed - p * size) ** 2 for number, size, passed in clusters)
        effects.append(min(max(1, g / (g - 1) * spread / total**2 / (p * (1 - p) / total)), most))
    a = 1 - level
    ratio = stats.t.ppf(1 - a / 2, n - 1) / stats.t.ppf(1 - a / 2, n_clusters - 1)
    size = min(n, n / max(effects) * ratio**2)
    lower = stats.beta.ppf(a / 2, rate * size, size - rate * size + 1) if rate > 0 else 0.0
    upper = stats.beta.ppf(1 - a / 2, rate * size + 1, size - rate * size) if rate < 1 else 1.0
    return float(lower), float(upper)


@given(CLUSTERS, LEVELS)
@example([(1, 0, 0), (0, 1, 0)], 0.95)
def test_moments_give_what_the_formula_gives_cluster_by_cluster(
    counts: list[tuple[int, int, int]], level: float
) -> None:
    sizes = [sum(cluster) for cluster in counts]
    lower, _ = from_the_formula(sizes, [passed for passed, _, _ in counts], level, guard_passes=False)
    _, upper = from_the_formula(sizes, [passed + missing for passed, _, missing in counts], level, guard_passes=True)
    found = guarded(counts, level)
    assert found.lower == pytest.approx(lower, abs=1e-9)
    assert found.upper == pytest.approx(upper, abs=1e-9)


@given(CLUSTERS, LEVELS)
def test_guarded_bounds_enclose_every_possible_rate_in_order(counts: list[tuple[int, int, int]], level: float) -> None:
    passed, failed, missing = totals(counts)
    n = passed + failed + missing
    found = guarded(counts, level)
    assert 0 <= found.lower <= passed / n <= (passed + missing) / n <= found.upper <= 1


@given(CLUSTERS, LEVELS)
def test_guarded_bounds_are_never_narrower_than_the_exact_ones(
    counts: list[tuple[int, int, int]], level: float
) -> None:
    found, independent = guarded(counts, level), exact(*totals(counts), level)
    assert found.lower <= independent.lower + 1e-12
    assert found.upper >= independent.upper - 1e-12


@given(st.lists(st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1)]), min_size=2, max_size=50), LEVELS)
def test_clusters_of_one_verdict_give_the_exact_bounds(counts: list[tuple[int, int, int]], level: float) -> None:
    found, independent = guarded(counts, level), exact(*totals(counts), level)
    assert (found.lower, found.upper) == pytest.approx((independent.lower, independent.upper), abs=1e-12)


@given(st.integers(2, 9), st.integers(0, 30), st.integers(0, 30), LEVELS)
def test_verdicts_that_agree_within_their_cluster_count_as_one(size: int, pass_: int, fail: int, level: float) -> None:
    assume(pass_ + fail >= 2)
    found = guarded([(size, 0, 0)] * pass_ + [(0, size, 0)] * fail, level)
    of_clusters = exact(pass_, fail, 0, level)
    assert found.lower <= of_clusters.lower + 1e-12
    assert found.upper >= of_clusters.upper - 1e-12


@given(CLUSTERS.flatmap(lambda counts: st.tuples(st.just(counts), st.permutations(counts))), LEVELS)
def test_guarded_bounds_do_not_depend_on_the_order_of_clusters(
    orders: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]], level: float
) -> None:
    assert guarded(orders[0], level) == guarded(orders[1], level)


def test_the_guard_widens_bounds_where_no_cluster_happened_to_fail_whole() -> None:
    counts = [(9, 1, 0)] * 2 + [(10, 0, 0)] * 28
    assert Clusters.of(counts).low.design_effect(10) == 1
    assert guarded(counts, 0.95).lower < exact(*totals(counts), 0.95).lower - 0.05


def test_a_level_next_to_nothing_still_gives_bounds() -> None:
    found = guarded([(2, 1, 0), (3, 0, 0), (1, 2, 0)], 1e-20)
    assert 0 < found.lower < 2 / 3 < found.upper < 1


@given(CLUSTERS, LEVELS)
def test_guarded_bounds_of_passes_and_of_failures_mirror_each_other(
    counts: list[tuple[int, int, int]], level: float
) -> None:
    found = guarded(counts, level)
    mirrored = guarded([(failed, passed, missing) for passed, failed, missing in counts], level)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - found.upper, 1 - found.lower), abs=1e-12)


@given(CLUSTERS, LEVELS, LEVELS)
def test_a_higher_level_never_narrows_the_guarded_bounds(
    counts: list[tuple[int, int, int]], one: float, other: float
) -> None:
    low, high = (guarded(counts, level) for level in sorted((one, other)))
    assert high.lower <= low.lower + 1e-12
    assert low.upper <= high.upper + 1e-12


@given(CLUSTERS, LEVELS)
def test_guarded_bounds_hold_the_estimate_of_what_was_observed(
    counts: list[tuple[int, int, int]], level: float
) -> None:
    passed, failed, _ = totals(counts)
    assume(passed + failed)
    found = guarded(counts, level)
    assert found.lower <= passed / (passed + failed) <= found.upper


def test_a_failure_may_raise_the_guarded_lower_bound_where_its_cluster_does_not_fail_whole() -> None:
    rest = [(2, 0, 0)] * 19
    assert guarded([(3, 1, 0), *rest], 0.95).lower > guarded([(4, 0, 0), *rest], 0.95).lower


def test_an_outcome_of_missing_verdicts_may_reach_a_little_beyond_the_guarded_bounds() -> None:
    rest = [(2, 0, 0)] * 19
    beyond = guarded([(3, 0, 1), *rest], 0.95).lower - guarded([(4, 0, 0), *rest], 0.95).lower
    assert 0 < beyond < 0.01


@given(st.integers(2, 40), st.integers(1, 9), LEVELS)
def test_guarded_bounds_are_exactly_zero_and_one_at_the_ends(n: int, size: int, level: float) -> None:
    assert guarded([(size, 0, 0)] * n, level).upper == 1
    assert guarded([(0, size, 0)] * n, level).lower == 0


@pytest.mark.parametrize("counts", [[], [(2, 1, 0)], [(2, 1, 0), (0, 0, 0)]])
def test_fewer_than_two_clusters_have_no_bounds(counts: list[tuple[int, int, int]]) -> None:
    assert korn_graubard_guarded(Clusters.of(counts), 0.95) is None


@given(CLUSTERS, st.integers(2, 7), LEVELS)
def test_scaled_moments_are_those_of_as_many_clusters_alike(
    counts: list[tuple[int, int, int]], times: int, level: float
) -> None:
    assert Clusters.of(counts).scaled(times) == Clusters.of(counts * times)
    scaled = korn_graubard_guarded(Clusters.of(counts).scaled(float(times)), level)
    assert scaled == guarded(counts * times, level)


@given(CLUSTERS, st.floats(1, 1e5), st.floats(1, 10), LEVELS)
def test_more_clusters_alike_never_widen_the_guarded_bounds(
    counts: list[tuple[int, int, int]], factor: float, more: float, level: float
) -> None:
    clusters = Clusters.of(counts)
    some = korn_graubard_guarded(clusters.scaled(factor), level)
    many = korn_graubard_guarded(clusters.scaled(factor * more), level)
    assert some is not None
    assert many is not None
    assert many.lower >= some.lower - 1e-12
    assert many.upper <= some.upper + 1e-12


@given(COUNTS, st.floats(1, 1e5), st.floats(1, 10), LEVELS)
def test_more_cases_alike_never_widen_the_exact_bounds(
    counts: tuple[int, int, int], factor: float, more: float, level: float
) -> None:
    passed, failed, missing = counts
    some, many = (
        clopper_pearson_missing_bounded(passed * k, (passed + failed) * k, missing * k, level)
        for k in (factor, factor * more)
    )
    assert many.lower >= some.lower - 1e-12
    assert many.upper <= some.upper + 1e-12


# ------------------------------------------------------------------------------------------------- sizes


def of_sizes(*sizes: int) -> Clusters:
    return Clusters.of([(size, 0, 0) for size in sizes])


@pytest.mark.parametrize(
    ("clusters", "inside"),
    [
        (of_sizes(*[2] * 22, 3, 3), True),
        (of_sizes(*[1] * 22, 3), True),  # 3 of 25 is a share of 0.12
        (of_sizes(*[1] * 21, 3), False),  # 3 of 24 is more
        (of_sizes(*[1] * 20, *[9] * 20), True),  # mean 5, deviation 4: variation 0.8
        (of_sizes(*[1] * 21, *[9] * 20), False),
    ],
)
def test_the_validated_range_of_sizes_includes_its_edges(clusters: Clusters, inside: bool) -> None:
    assert clusters.within_validated_range is inside


def test_no_clusters_have_no_variation_and_no_share() -> None:
    assert (of_sizes().size_variation, of_sizes().largest_share) == (0, 0)
