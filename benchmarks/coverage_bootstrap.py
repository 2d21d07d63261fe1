"""The guarded interval beside a studentized cluster bootstrap: errors and widths in a few cells.

The bootstrap draws as many clusters from a suite's own, with replacement, and takes the quantiles of (drawn rate -
rate) / standard error, from the variance that the guarded interval starts with. It has nothing to draw from where all
verdicts agree: its interval is then that one rate.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.coverage_bounds import Array, Moments, bounds
from benchmarks.coverage_worlds import Cell, Counts, Kind, drawn_clusters, summed

CELLS = tuple(
    Cell("bootstrap", (Kind(5, n_clusters, rate),), "beta-binomial", 0.3)
    for n_clusters in (20, 100)
    for rate in (0.5, 0.9, 0.98)
)


def comparison(*, n_suites: int, n_drawn: int) -> Iterator[str]:
    """A Markdown table of both methods' one-sided errors and mean widths, `n_drawn` bootstrap samples of each suite."""
    yield "| clusters of 5 | rate | guarded: lower error | upper | width | bootstrap: lower error | upper | width |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for number, cell in enumerate(CELLS):
        rng = np.random.default_rng((number, 3))
        counts, ways = drawn_clusters(cell, n_suites, rng)
        pairs = [
            bounds(summed(counts, ways), cell.level),
            tuple(np.array([bootstrap(row, ways, cell.level, n_drawn, rng) for row in counts]).T),
        ]
        figures = (
            f"{(lower > cell.rate).mean():.3f} | {(upper < cell.rate).mean():.3f} | {(upper - lower).mean():.3f}"
            for lower, upper in pairs
        )
        yield f"| {cell.n_clusters} | {cell.rate:g} | {' | '.join(figures)} |"


def bootstrap(counts: Counts, ways: Array, level: float, n_drawn: int, rng: np.random.Generator) -> tuple[float, float]:
    """The bounds of one suite, given as how many of its clusters came out each way; kept within [0, 1]."""
    suite = summed(counts[None], ways).low
    rate = suite.passed[0] / suite.n[0]
    again = summed(rng.multinomial(int(counts.sum()), counts / counts.sum(), n_drawn), ways).low
    errors = standard_error(again)
    apart = again.passed / again.n - rate
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(apart == 0, 0, apart / errors)  # a sample without spread lies infinitely many errors away
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    error = standard_error(suite)[0]
    if not error:
        return rate, rate
    return max(0.0, rate - high * error), min(1.0, rate - low * error)


def standard_error(moments: Moments) -> Array:
    """The root of G/(G-1) * sum((x - p*m)^2) / n^2."""
    rate = moments.passed / moments.n
    spread = np.maximum(0, moments.passed_squares - 2 * rate * moments.products + rate**2 * moments.squares)
    return np.asarray(np.sqrt(moments.n_clusters / (moments.n_clusters - 1) * spread) / moments.n)
