"""The simulation of the spacing bound: what it draws and whose bounds it counts. The benchmarks simulate."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage_bounds import disagreement, errors
from benchmarks.coverage_cells import cells, smoke_cells
from benchmarks.coverage_worlds import Cell, Kind, Model, draw, passes

UNEQUAL = Cell("", (Kind(1, 12, 0.95), Kind(4, 8, 0.8)), "whole", 0.5)
MISSING = Cell("", (Kind(3, 20, 0.9),), "beta-binomial", 0.3, missing=(0.1, 0.3))
DRAWN = Cell("", (Kind(2, 15, 0.9), Kind(5, 15, 0.7)), "beta-binomial", 0.3, drawn=True)
SURE = Cell("", (Kind(2, 20, 1), Kind(3, 5, 1)), "beta-binomial", 0)
HOPELESS = Cell("", (Kind(2, 20, 0), Kind(3, 5, 0)), "beta-binomial", 0)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("cell", [UNEQUAL, MISSING, DRAWN, SURE, HOPELESS])
@pytest.mark.parametrize("rate", [0.7, 0.8, 0.95])
def test_many_suites_err_as_the_products_bounds_do(cell: Cell, rate: float) -> None:
    counts, ways = draw(cell, 40, rng())
    assert disagreement(counts, ways, rate, 0.8) == 0


def test_errors_are_counted_on_both_sides() -> None:
    counts, ways = draw(UNEQUAL, 2_000, rng())
    at_the_rate, below, above = (errors(counts, ways, rate, 0.8) for rate in (UNEQUAL.rate, 0.5, 0.99))
    assert all(flags.mean() < 0.12 for flags in at_the_rate)
    assert below[0].mean() > 0.9 > below[1].mean() == 0
    assert above[1].mean() > 0.9 > above[0].mean() == 0


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
    counts, ways = draw(cell, 20_000, rng())
    size, low, _ = counts.sum(axis=0) @ ways
    assert low / size == pytest.approx(cell.rate, abs=0.003)
    assert set(counts.sum(axis=1)) == {cell.n_clusters}


def test_missing_verdicts_count_failed_in_the_lower_passes_and_passed_in_the_upper() -> None:
    counts, ways = draw(MISSING, 20_000, rng())
    size, low, high = counts.sum(axis=0) @ ways
    assert low / size == pytest.approx(0.9 * 0.9, abs=0.003)
    assert high / size == pytest.approx(0.9 + 0.1 * 0.3, abs=0.003)
