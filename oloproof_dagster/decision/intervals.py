"""Two-sided intervals for a rate, exact where verdicts are independent and guarded where they come in clusters.

Imports scipy and nothing of this package: counts go in, bounds come out. `metrics` and `slices` count, `advice`
scales the same counts, `gate` reads the bounds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

STATISTICS_VERSION = "3"
"""Changes whenever some bound computed here changes."""

EXACT = "clopper_pearson_missing_bounded@1"
GUARDED = "korn_graubard_guarded@1"

FEWEST_CLUSTERS = 20
LARGEST_SIZE_VARIATION = 0.8
LARGEST_CLUSTER_SHARE = 0.12
"""The guarded method was validated by simulation from that many clusters on, with sizes up to that far apart."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a rate, 0 <= lower <= upper <= 1, and the name of the method that gave them."""

    lower: float
    upper: float
    method: str


def clopper_pearson_missing_bounded(
    passed: float, observed: float, missing: float, confidence_level: float
) -> Interval:
    """The exact interval of a rate whose missing verdicts may have come out either way.

    The lower bound is Clopper and Pearson's for `passed` of observed + missing (every missing verdict failed), the
    upper one theirs for passed + missing of the same (every missing verdict passed). Assumes independent verdicts;
    the level is then held at every n, down to one verdict, and exceeded at most. Where nothing passed the lower
    bound is exactly 0, where nothing failed the upper one exactly 1; where nothing was asked, all of [0, 1] remains.
    Counts may be real: `advice` scales them.

    Clopper, Pearson (1934): The use of confidence or fiducial limits illustrated in the case of the binomial.
    Biometrika 26, 404-413. Worst-case bounds of missing outcomes: Horowitz, Manski (2000), JASA 95, 77-84.

    Raises:
        ValueError: a count is negative, `passed` exceeds `observed`, or the level is not in (0, 1).

    >>> interval = clopper_pearson_missing_bounded(16, 20, 4, 0.95)
    >>> round(interval.lower, 4), round(interval.upper, 4)
    (0.4468, 0.9526)
    """
    tail = _tail(confidence_level)
    if not (0 <= passed <= observed and missing >= 0):
        raise ValueError(f"{passed} passed of {observed} observed and {missing} missing are no counts of one suite")
    eligible = observed + missing
    failed = observed - passed
    return Interval(
        lower=_lower(passed, eligible, tail),
        upper=_upper(failed, eligible, tail),
        method=EXACT,
    )


@dataclass(frozen=True, slots=True)
class Moments:
    """What the design effect of a rate needs of its clusters: how many, and sums over them.

    With m the eligible verdicts of a cluster and x its passes: `n` is the sum of m, `squares` of m*m, `passed` of
    x, `passed_squares` of x*x and `products` of x*m. Counted clusters give integers, and their sums are exact.
    """

    n_clusters: float
    n: float
    squares: float
    passed: float
    passed_squares: float
    products: float

    def with_clusters(self, number: float, size: float, passed: float) -> Self:
        """The moments with `number` clusters more, each of `size` verdicts of which `passed` passed."""
        return type(self)(
            self.n_clusters + number,
            self.n + number * size,
            self.squares + number * size * size,
            self.passed + number * passed,
            self.passed_squares + number * passed * passed,
            self.products + number * passed * size,
        )

    def scaled(self, factor: float) -> Self:
        """The moments of `factor` times as many clusters alike."""
        return type(self)(
            self.n_clusters * factor,
            self.n * factor,
            self.squares * factor,
            self.passed * factor,
            self.passed_squares * factor,
            self.products * factor,
        )

    def design_effect(self, most: float) -> float:
        """How many times the clusters inflate the variance of the rate, in [1, `most`].

        G/(G-1) * sum((x - p*m)^2) / n^2 over p(1-p)/n. A rate of 0 or 1 shows no variance and takes the upper end.
        """
        failed = self.n - self.passed
        if not self.passed or not failed:
            return max(1.0, most)
        spread = (
            self.n * self.n * self.passed_squares
            - 2 * self.n * self.passed * self.products
            + self.passed * self.passed * self.squares
        )
        inflated = self.n_clusters / (self.n_clusters - 1) * spread / (self.n * self.passed * failed)
        return max(1.0, min(inflated, most))


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of one rate, twice: `low` counts every missing verdict failed, `high` passed.

    `largest` is the eligible verdicts of the largest cluster.
    """

    low: Moments
    high: Moments
    largest: float

    @classmethod
    def of(cls, counts: Iterable[tuple[int, int, int]]) -> Self:
        """The moments of clusters given as (passed, failed, missing); one without an eligible verdict is no cluster.

        >>> clusters = Clusters.of([(2, 0, 0), (1, 0, 1), (0, 0, 0)])
        >>> clusters.low.n_clusters, clusters.low.n, clusters.low.passed, clusters.high.passed
        (2, 4, 3, 4)
        """
        low = high = Moments(0, 0, 0, 0, 0, 0)
        largest = 0
        for passed, failed, missing in counts:
            size = passed + failed + missing
            if size:
                low, high = low.with_clusters(1, size, passed), high.with_clusters(1, size, passed + missing)
                largest = max(largest, size)
        return cls(low, high, largest)

    def scaled(self, factor: float) -> Self:
        """`factor` times as many clusters alike; `factor` is any positive number, the largest cluster stays."""
        return type(self)(self.low.scaled(factor), self.high.scaled(factor), self.largest)

    @property
    def size_variation(self) -> float:
        """The coefficient of variation (population) of the cluster sizes; 0 where all are equal or there are none."""
        if not self.low.n:
            return 0.0
        return math.sqrt(max(0.0, self.low.n_clusters * self.low.squares / self.low.n**2 - 1))

    @property
    def largest_share(self) -> float:
        """The largest cluster's share of the eligible verdicts, in [0, 1]; 0 where there are none."""
        return self.largest / self.low.n if self.low.n else 0.0

    @property
    def within_validated_range(self) -> bool:
        """Whether the guarded method was validated for clusters that differ in size as these do (edges included)."""
        return self.size_variation <= LARGEST_SIZE_VARIATION and self.largest_share <= LARGEST_CLUSTER_SHARE


def korn_graubard_guarded(clusters: Clusters, confidence_level: float) -> Interval | None:
    """The interval of a rate whose verdicts come in clusters, or None with fewer than two clusters.

    Clopper and Pearson's bounds at the effective sample size n / d * (t(n-1) / t(G-1))^2 of the case-weighted rate,
    d being its design effect, at most sum(m^2)/n, which is that of clusters whose verdicts all agree. Sampled clusters
    understate d where the rate is near 0 or 1 and few happened to fail (or pass) whole, so each bound takes the larger
    d of the data and of the data with some more clusters of the largest size, all failing for the lower bound, all
    passing for the upper; that d is at most the largest size. These are a third of the largest size, at least one, and
    at most the -log(a/2) that may be expected and yet all stay out of the data with chance a/2, a being 1 - level.
    Missing verdicts count as failures in the lower bound and as passes in the upper.

    Assumes independent clusters; approximate, deterministic. Validated by simulation from FEWEST_CLUSTERS clusters
    on, with sizes within `Clusters.within_validated_range`; with fewer clusters the bounds only describe.
    At a rate of 0 or 1 the outer bound is exactly 0 or 1.

    Unlike the exact bounds these are not monotone in the passes: failures spread over the clusters show that verdicts
    of one cluster do not stand and fall together, which may raise the lower bound. For the same reason some outcome
    of the missing verdicts may reach a little beyond the interval (by 0.0103 at most in a search from 20 clusters on).

    Korn, Graubard (1998): Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data. Survey Methodology 24, 193-201. The guard is this project's own.

    Raises:
        ValueError: the level is not in (0, 1).

    >>> interval = korn_graubard_guarded(Clusters.of([(2, 0, 0)] * 24), 0.95)
    >>> round(interval.lower, 4), interval.upper
    (0.85, 1.0)
    """
    tail = _tail(confidence_level)
    low, high, largest = clusters.low, clusters.high, clusters.largest
    if low.n_clusters < 2:
        return None
    from scipy.special import stdtrit

    few, many = (float(stdtrit(degrees, tail)) for degrees in (low.n_clusters - 1, low.n - 1))
    independent = low.n * min(1.0, (many / few) ** 2 if few else 1.0)
    unseen = min(max(1.0, largest / 3), -math.log(tail))
    failing, passing = low.with_clusters(unseen, largest, 0), high.with_clusters(unseen, largest, largest)
    for_lower = independent / max(low.design_effect(low.squares / low.n), failing.design_effect(largest))
    for_upper = independent / max(high.design_effect(high.squares / high.n), passing.design_effect(largest))
    passed = low.passed / low.n * for_lower
    failed = (high.n - high.passed) / high.n * for_upper
    return Interval(
        lower=_lower(passed, for_lower, tail),
        upper=_upper(failed, for_upper, tail),
        method=GUARDED,
    )


# scipy is imported where a bound is asked for: reading or reusing a run's tables asks for none.


def _lower(passed: float, n: float, tail: float) -> float:
    """Clopper and Pearson's lower bound."""
    from scipy.special import betaincinv

    return float(betaincinv(passed, n - passed + 1, tail)) if passed else 0.0


def _upper(failed: float, n: float, tail: float) -> float:
    """Clopper and Pearson's upper bound."""
    from scipy.special import betainccinv

    return float(betainccinv(n - failed + 1, failed, tail)) if failed else 1.0


def _tail(confidence_level: float) -> float:
    if not 0 < confidence_level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, both excluded; found {confidence_level}")
    return (1 - confidence_level) / 2
