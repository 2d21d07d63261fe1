"""The guarded interval for many simulated suites at once: the formula of `intervals`, over arrays.

`coverage` simulates millions of suites, which is too many for one call each. What is computed here is held against
`korn_graubard_guarded` itself: `disagreement` says how far the two are apart on some of the suites.
"""

import math
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betainccinv, betaincinv, stdtrit

from oloproof_dagster.decision import intervals

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Moments(intervals.Moments):
    """`intervals.Moments` of many suites: every number is an array with one element each."""

    def design_effect(self, most: Array) -> Array:
        """As `intervals.Moments.design_effect`."""
        mixed = self.n * self.passed * (self.n - self.passed)
        spread = (
            self.n * self.n * self.passed_squares
            - 2 * self.n * self.passed * self.products
            + self.passed * self.passed * self.squares
        )
        inflated = self.n_clusters / (self.n_clusters - 1) * spread / np.where(mixed > 0, mixed, 1)
        return np.asarray(np.maximum(1, np.where(mixed > 0, np.minimum(inflated, most), most)))

    def of(self, suite: int) -> intervals.Moments:
        """One suite's, as the product takes them."""
        return intervals.Moments(*(int(getattr(self, name)[suite]) for name in MOMENTS))


MOMENTS = tuple(field.name for field in fields(intervals.Moments))


@dataclass(frozen=True, slots=True)
class Suites:
    """`intervals.Clusters` of many suites: `low` counts missing verdicts failed, `high` passed."""

    low: Moments
    high: Moments
    largest: Array

    @property
    def within_validated_range(self) -> Flags:
        """To which suites the product gives bounds."""
        low = self.low
        variation = np.sqrt(np.maximum(0, low.n_clusters * low.squares / low.n**2 - 1))
        share = self.largest / low.n
        return (variation <= intervals.LARGEST_SIZE_VARIATION) & (share <= intervals.LARGEST_CLUSTER_SHARE)

    def only(self, chosen: Flags | slice) -> Self:
        """The chosen suites."""
        low, high = (Moments(*(getattr(each, name)[chosen] for name in MOMENTS)) for each in (self.low, self.high))
        return type(self)(low, high, self.largest[chosen])

    def of(self, suite: int) -> intervals.Clusters:
        """One suite's, as the product takes them."""
        return intervals.Clusters(self.low.of(suite), self.high.of(suite), int(self.largest[suite]))


def bounds(suites: Suites, level: float, *, guard: bool = True) -> tuple[Array, Array]:
    """Lower and upper bounds as `intervals.korn_graubard_guarded` gives them, or the same without the guard."""
    tail = (1 - level) / 2
    (passed, others), (failed, rest) = _shapes(suites, level, guard=guard)
    lower = betaincinv(np.where(passed > 0, passed, 1), others, tail)
    upper = betainccinv(rest, np.where(failed > 0, failed, 1), tail)
    return np.where(passed > 0, lower, 0.0), np.where(failed > 0, upper, 1.0)


def errors(suites: Suites, rate: float, level: float, *, guard: bool = True) -> tuple[Flags, Flags]:
    """Which lower bounds lie above a rate, and which upper bounds below it.

    A bound lies beyond the rate where the beta distribution has less than the tail on its far side: that is a fifth of
    the work of computing the bound.
    """
    tail = (1 - level) / 2
    (passed, others), (failed, rest) = _shapes(suites, level, guard=guard)
    too_high = betainc(np.where(passed > 0, passed, 1), others, rate) < tail
    too_low = betainc(np.where(failed > 0, failed, 1), rest, 1 - rate) < tail
    return too_high & (passed > 0), too_low & (failed > 0)


def _shapes(suites: Suites, level: float, *, guard: bool) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The parameters of both bounds' beta distributions: passes and the rest plus 1, failures and the rest plus 1."""
    low, high, largest = suites.low, suites.high, suites.largest
    few, many = (_quantiles(degrees, level) for degrees in (low.n_clusters - 1, low.n - 1))
    independent = low.n * np.minimum(1, (many / few) ** 2)
    for_lower, for_upper = (each.design_effect(each.squares / each.n) for each in (low, high))
    if guard:
        unseen = np.minimum(np.maximum(1, largest / 3), -math.log((1 - level) / 2))
        failing, passing = low.with_clusters(unseen, largest, 0 * largest), high.with_clusters(unseen, largest, largest)
        for_lower = np.maximum(for_lower, failing.design_effect(largest))
        for_upper = np.maximum(for_upper, passing.design_effect(largest))
    for_lower, for_upper = independent / for_lower, independent / for_upper
    passed = low.passed / low.n * for_lower
    failed = (high.n - high.passed) / high.n * for_upper
    return (passed, for_lower - passed + 1), (failed, for_upper - failed + 1)


def _quantiles(degrees: Array, level: float) -> Array:
    """Student's; few numbers of degrees occur, many times each."""
    distinct, places = np.unique(degrees, return_inverse=True)
    return np.asarray(stdtrit(distinct, (1 - level) / 2)[places])


def disagreement(suites: Suites, level: float) -> float:
    """How far the bounds lie at most from those of the product, which computes them one by one."""
    lower, upper = bounds(suites, level)
    worst = 0.0
    for suite in range(len(lower)):
        clusters = suites.of(suite)
        found = intervals.korn_graubard_guarded(clusters, level)
        assert found is not None  # every simulated suite has two clusters or more
        assert clusters.within_validated_range == suites.within_validated_range[suite]
        worst = max(worst, abs(found.lower - lower[suite]), abs(found.upper - upper[suite]))
    return worst
