"""The simulation of the guarded interval: what it draws and whose bounds it counts. The benchmarks simulate."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_bootstrap import bootstrap
from benchmarks.coverage_bounds import bounds, disagreement, errors
from benchmarks.coverage_cells import cells, smoke_cells
from benchmarks.coverage_worlds import Cell, Kind, Model, draw, drawn_clusters, passes

UNEQUAL = Cell("", (Kind(1, 12, 0.95), Kind(4, 8, 0.8)), "whole", 0.5)
MISSING = Cell("", (Kind(3, 20, 0.9),), "beta-binomial", 0.3, missing=(0.1, 0.3))
DRAWN = Cell("", (Kind(2, 15, 0.9), Kind(5, 15, 0.7)), "beta-binomial", 0.3, drawn=True)
SURE = Cell("", (Kind(2, 20, 1), Kind(3, 5, 1)), "beta-binomial", 0)
HOPELESS = Cell("", (Kind(2, 20, 0), Kind(3, 5, 0)), "beta-binomial", 0)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("cell", [UNEQUAL, MISSING, DRAWN, SURE, HOPELESS])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_bounds_of_many_suites_are_those_of_the_product(cell: Cell, level: float) -> None:
    assert disagreement(draw(cell, 200, rng()), level) <= 1e-12


@pytest.mark.parametrize("cell", [UNEQUAL, MISSING, DRAWN, SURE, HOPELESS])
@pytest.mark.parametrize("guard", [True, False])
def test_errors_are_counted_where_a_bound_lies_beyond_the_rate(cell: Cell, guard: bool) -> None:
    suites = draw(cell, 2_000, rng())
    lower, upper = bounds(suites, 0.8, guard=guard)
    for rate in (cell.rate, 0.75, 0.9):
        too_high, too_low = errors(suites, rate, 0.8, guard=guard)
        assert (too_high == (lower > rate)).all()
        assert (too_low == (upper < rate)).all()


def test_every_group_of_the_grid_is_simulated_in_a_smoke_run() -> None:
    assert {cell.group for cell in smoke_cells()} == {cell.group for cell in cells()}


@pytest.mark.parametrize("correlation", [0.05, 0.5, 0.9])
def test_passes_of_a_cluster_come_as_the_models_say(correlation: float) -> None:
    a, b = 0.8 * (1 - correlation) / correlation, 0.2 * (1 - correlation) / correlation
    x = np.arange(8)
    assert passes(7, 0.8, "beta-binomial", correlation) == pytest.approx(stats.betabinom.pmf(x, 7, a, b))
    whole = (1 - correlation) * stats.binom.pmf(x, 7, 0.8)
    whole[[0, 7]] += 0.2 * correlation, 0.8 * correlation
    assert passes(7, 0.8, "whole", correlation) == pytest.approx(whole)


@pytest.mark.parametrize("model", ["beta-binomial", "whole"])
def test_verdicts_of_a_cluster_have_the_stated_correlation(model: Model) -> None:
    chances = passes(6, 0.7, model, 0.3)
    x = np.arange(7)
    mean = chances @ x
    variance = chances @ (x - mean) ** 2
    assert mean == pytest.approx(6 * 0.7)
    assert variance == pytest.approx(6 * 0.7 * 0.3 * (1 + 5 * 0.3))


def test_the_true_rate_is_weighted_by_verdicts() -> None:
    assert UNEQUAL.rate == pytest.approx((12 * 0.95 + 32 * 0.8) / 44)


@pytest.mark.parametrize("cell", [UNEQUAL, DRAWN])
def test_drawn_suites_have_the_true_rate_on_average(cell: Cell) -> None:
    low = draw(cell, 20_000, rng()).low
    assert low.passed.sum() / low.n.sum() == pytest.approx(cell.rate, abs=0.003)
    assert set(low.n_clusters) == {cell.n_clusters}


def test_missing_verdicts_count_failed_in_the_lower_sums_and_passed_in_the_upper() -> None:
    suites = draw(MISSING, 20_000, rng())
    n = suites.low.n.sum()
    assert suites.low.passed.sum() / n == pytest.approx(0.9 * 0.9, abs=0.003)
    assert suites.high.passed.sum() / n == pytest.approx(0.9 + 0.1 * 0.3, abs=0.003)


def test_the_bootstrap_of_verdicts_that_all_agree_is_one_rate() -> None:
    counts, ways = drawn_clusters(SURE, 1, rng())
    assert bootstrap(counts[0], ways, 0.95, 99, rng()) == (1, 1)
