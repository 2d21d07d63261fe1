"""The guarded interval for many simulated suites at once: the formula of `intervals`, over arrays.

`coverage` simulates millions of suites, which is too many for one call each. What is computed here is held against
`korn_graubard_guarded` itself: `disagreement` says how far the two are apart on some of the suites.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, stdtrit

from oloproof_dagster import intervals

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """`intervals.Moments` of many suites, one element each."""

    n_clusters: Array
    n: Array
    squares: Array
    passed: Array
    passed_squares: Array
    products: Array

    def with_cluster(self, size: Array, passed: Array) -> Self:
        """The moments with one cluster more in every suite."""
        return type(self)(
            self.n_clusters + 1,
            self.n + size,
            self.squares + size * size,
            self.passed + passed,
            self.passed_squares + passed * passed,
            self.products + passed * size,
        )

    @property
    def design_effect(self) -> Array:
        """As `intervals.Moments.design_effect`."""
        ceiling = np.maximum(1, self.squares / self.n)
        mixed = self.n * self.passed * (self.n - self.passed)
        spread = (
            self.n * self.n * self.passed_squares
            - 2 * self.n * self.passed * self.products
            + self.passed * self.passed * self.squares
        )
        inflated = self.n_clusters / (self.n_clusters - 1) * spread / np.where(mixed > 0, mixed, 1)
        return np.where(mixed > 0, np.minimum(np.maximum(1, inflated), ceiling), ceiling)

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
    def within_validated_range(self) -> NDArray[np.bool_]:
        """To which suites the product gives bounds."""
        low = self.low
        variation = np.sqrt(np.maximum(0, low.n_clusters * low.squares / low.n**2 - 1))
        share = self.largest / low.n
        return (variation <= intervals.LARGEST_SIZE_VARIATION) & (share <= intervals.LARGEST_CLUSTER_SHARE)

    def only(self, chosen: NDArray[np.bool_]) -> Self:
        """The chosen suites."""
        low, high = (Moments(*(getattr(each, name)[chosen] for name in MOMENTS)) for each in (self.low, self.high))
        return type(self)(low, high, self.largest[chosen])

    def of(self, suite: int) -> intervals.Clusters:
        """One suite's, as the product takes them."""
        return intervals.Clusters(self.low.of(suite), self.high.of(suite), int(self.largest[suite]))


def bounds(suites: Suites, level: float, *, guard: bool = True) -> tuple[Array, Array]:
    """Lower and upper bounds as `intervals.korn_graubard_guarded` gives them, or the same without the guard."""
    tail = (1 - level) / 2
    low, high, largest = suites.low, suites.high, suites.largest
    few, many = stdtrit(low.n_clusters - 1, tail), stdtrit(low.n - 1, tail)
    independent = low.n * np.minimum(1, (many / few) ** 2)
    for_lower, for_upper = low.design_effect, high.design_effect
    if guard:
        for_lower = np.maximum(for_lower, low.with_cluster(largest, 0 * largest).design_effect)
        for_upper = np.maximum(for_upper, high.with_cluster(largest, largest).design_effect)
    for_lower, for_upper = independent / for_lower, independent / for_upper
    passed = low.passed / low.n * for_lower
    failed = (high.n - high.passed) / high.n * for_upper
    some_passed, some_failed = passed > 0, failed > 0
    lower = betaincinv(np.where(some_passed, passed, 1), for_lower - passed + 1, tail)
    upper = betainccinv(for_upper - failed + 1, np.where(some_failed, failed, 1), tail)
    return np.where(some_passed, lower, 0.0), np.where(some_failed, upper, 1.0)


def disagreement(suites: Suites, level: float, *, n_suites: int) -> float:
    """How far the first `n_suites` bounds lie at most from those of the product, which computes them one by one."""
    lower, upper = bounds(suites, level)
    worst = 0.0
    for suite in range(min(n_suites, len(lower))):
        clusters = suites.of(suite)
        found = intervals.korn_graubard_guarded(clusters, level)
        assert found is not None  # every simulated suite has two clusters or more
        assert clusters.within_validated_range == suites.within_validated_range[suite]
        worst = max(worst, abs(found.lower - lower[suite]), abs(found.upper - upper[suite]))
    return worst
