"""The exact bounds: right values, and the levels that they hold."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from oloproof_dagster.decision.intervals import EXACT, Interval, clopper_pearson_missing_bounded
from tests.support import VECTORS

EXPECTED = json.loads((VECTORS / "intervals.json").read_text())
LEVELS = st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999])
COUNTS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 30))


def exact(passed: int, failed: int, missing: int, level: float) -> Interval:
    return clopper_pearson_missing_bounded(passed, passed + failed, missing, level)


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
