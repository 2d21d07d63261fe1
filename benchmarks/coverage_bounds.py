"""In which of many simulated suites the spacing bound errs: the chances of `spacing`, over a matrix of suites.

A lower bound lies above the true rate where the rate itself has less than the tail below it under the bound's weights:
that is one integral a suite instead of the ten that a bound takes, and all suites of a cell have theirs in one. What is
computed here is held against `spacing_bound` itself: `disagreement` says of some suites whether the two differ.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oloproof_dagster.decision.spacing import LAST, NODES, spacing_bound

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_NODES, _SHARES = np.polynomial.legendre.leggauss(NODES)


def errors(counts: Counts, ways: Array, rate: float, level: float) -> tuple[Flags, Flags]:
    """Which suites have a lower bound above a rate, and which an upper bound below it.

    `counts` holds a row a suite: how many of its clusters came out each way; a way is (size, passes with missing
    verdicts failed, passes with missing verdicts passed).
    """
    size, low, high = ways.T
    tail = (1 - level) / 2
    largest = np.where(counts > 0, size, 0).max(axis=1)
    too_high, too_low = np.zeros(len(counts), np.bool_), np.zeros(len(counts), np.bool_)
    for most in np.unique(largest):
        rows = largest == most
        for flags, counted, bar in ((too_high, low, rate), (too_low, size - high, 1 - rate)):
            weights = np.append(counted - bar * size, -bar * most)
            found = counts[rows].astype(np.float64)
            seen = found @ counted > 0  # a suite in which nothing is counted has the bound 0
            flags[rows] = seen & (chances(weights, np.column_stack([found, np.ones(len(found))])) < tail)
    return too_high, too_low


def chances(weights: Array, counts: Array) -> Array:
    """As `spacing.chance_of_at_most_zero`, for each row of counts; panels are as narrow as the quickest row asks."""
    live = weights != 0
    weights, counts = weights[live], counts[:, live]
    mean, deviation = counts @ weights, np.sqrt(counts @ weights**2)
    width = first = math.pi / float(np.maximum(np.abs(mean), deviation).max())
    integrals, start, modulus = np.zeros(len(counts)), 0.0, 0.0
    while modulus >= LAST:
        at = start + width * (_NODES + 1) / 2
        turned = np.outer(at, weights)
        waves = np.exp(-0.5 * np.log1p(turned**2) @ counts.T) * np.sin(np.arctan(turned) @ counts.T)
        integrals += width / 2 * (_SHARES / at) @ waves
        start += width
        squares = (start * weights) ** 2
        modulus = float((counts @ np.log1p(squares)).min()) / -2
        speed = float(np.abs(counts @ (weights / (1 + squares))).max())
        longest = max(first, start / 2)
        width = min(math.pi / speed, longest) if speed else longest
    return np.asarray(0.5 - integrals / math.pi)


def disagreement(counts: Counts, ways: Array, rate: float, level: float) -> int:
    """In how many of the suites the product's bounds err otherwise than computed here."""
    found = zip(*errors(counts, ways, rate, level), strict=True)
    return sum(each != _of_the_product(row, ways, rate, level) for row, each in zip(counts, found, strict=True))


def _of_the_product(row: Any, ways: Array, rate: float, level: float) -> tuple[bool, bool]:
    clusters: dict[tuple[int, int, int], int] = {}
    for (size, low, high), count in zip(ways.astype(int).tolist(), row.tolist(), strict=True):
        cluster = (low, size - high, high - low)
        clusters[cluster] = clusters.get(cluster, 0) + count
    interval = spacing_bound(clusters, level)
    assert interval is not None
    return interval.lower > rate, interval.upper < rate
