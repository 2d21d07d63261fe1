"""The spacing bound of a rate whose verdicts come in clusters of any sizes; Clopper and Pearson's is its special case.

Imports numpy, and of this package the `Interval` of the exact method: distinct clusters with their counts go in, bounds
come out. `lower_bound` takes any bounded numerator, so that a mean other than a rate is bounded by the same method.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from oloproof_dagster.decision.intervals import SPACING, Interval, tail_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Cluster = tuple[int, int, int]
"""The eligible verdicts of one cluster: passed, failed, missing."""

PASSED, FAILED = 0, 1
"""Places in a Cluster."""

NODES = 32
"""Gauss-Legendre nodes of one panel of the integral."""
LAST = -35.0
"""The integral ends where the logarithm of the characteristic function's modulus falls below this."""
RESOLVED = 1e-12
"""A chance below this is not told from 0, and a bound is found to this."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Clusters alike: the numerator and the size of each."""

    numerator: float
    size: float


def spacing_bound(clusters: Mapping[Cluster, float], confidence_level: float) -> Interval | None:
    """The interval of a rate over clusters, given as how many there are of each kind; None with fewer than two.

    The lower bound is the a/2-quantile of (sum D_i passed_i) / (sum D_i size_i + D_0 M), a being 1 - level, under flat
    Dirichlet weights D: one for each cluster, and D_0 for a cluster of the largest size M that was not seen and fails
    whole. The upper bound is 1 - the lower bound of the failures. Missing verdicts count as failures in the lower
    bound and as passes in the upper; both bounds are monotone in every verdict, so that this is the worst case.

    Assumes independent clusters. Clusters of one verdict, or equal ones that pass or fail whole, have Clopper and
    Pearson's bounds, which hold their level at every n. That the level is held for any clusters is a conjecture: proved
    for numerators of two values, and no counter-example was found (docs/statistics.md counts). With two clusters the
    bounds are wide, and right. Counts may be real; a cluster without an eligible verdict is none.

    Gaffke (2005): Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
    variable. Mathematical Methods of Statistics 14, 451-467. Learned-Miller, Thomas (2019): A new confidence interval
    for the mean of a bounded random variable. arXiv:1905.06208. Phan, Thomas, Learned-Miller (2021): Towards practical
    mean bounds for small samples. arXiv:2106.03163.

    Raises:
        ValueError: the level is not in (0, 1).

    >>> pairs, one_more = {(2, 0, 0): 24}, {(1, 0, 0): 23, (2, 0, 0): 1}
    >>> [round(spacing_bound(each, 0.95).lower, 4) for each in (pairs, one_more)]
    [0.8575, 0.7577]
    """
    tail = tail_of(confidence_level)
    passes, failures = kinds(clusters, PASSED), kinds(clusters, FAILED)
    if sum(passes.values()) < 2:
        return None
    return Interval(lower=lower_bound(passes, tail), upper=1 - lower_bound(failures, tail), method=SPACING)


def kinds(clusters: Mapping[Cluster, float], counted: int) -> dict[Kind, float]:
    """Clusters by what is counted in them, `PASSED` or `FAILED`, and their size; how many there are of each.

    In one order, whatever the order of the clusters, so that sums are the same to the last digit.
    """
    found: dict[Kind, float] = {}
    for cluster, count in sorted(clusters.items()):
        if count and sum(cluster):
            kind = Kind(cluster[counted], sum(cluster))
            found[kind] = found.get(kind, 0) + count
    return found


def lower_bound(clusters: Mapping[Kind, float], tail: float, *, least: float = 0.0, most: float = 1.0) -> float:
    """The lower bound of the sum of numerators over the sum of sizes, wrong with chance `tail` at most, to 1e-12.

    `clusters` maps kinds to how many there are, at least one; each numerator lies between `least` and `most` times its
    size, sizes are above 0. Where every numerator is the least that it can be, the bound is exactly `least`.
    """
    if tail <= RESOLVED or all(kind.numerator <= least * kind.size for kind in clusters):
        return least
    chance = _chances(clusters, least)
    return _root(lambda ratio: chance(ratio) - tail, least, most, -tail, 1 - tail)


def reaches(clusters: Mapping[Kind, float], tail: float, ratio: float) -> bool:
    """Whether the lower bound of a rate reaches a ratio: a tenth of the work of computing the bound."""
    if ratio <= 0:
        return True
    return any(kind.numerator > 0 for kind in clusters) and _chances(clusters, 0.0)(ratio) <= tail


def _chances(clusters: Mapping[Kind, float], least: float) -> Callable[[float], float]:
    """The chance of a ratio of at most so much, under the weights of `spacing_bound`."""
    import numpy as np

    largest = max(kind.size for kind in clusters)
    all_kinds = (*clusters, Kind(least * largest, largest))
    numerators, sizes = np.array([[kind.numerator, kind.size] for kind in all_kinds], dtype=np.float64).T
    counts = np.array([*clusters.values(), 1.0], dtype=np.float64)
    return lambda ratio: chance_of_at_most_zero(numerators - ratio * sizes, counts)


def chance_of_at_most_zero(weights: "Array", counts: "Array") -> float:
    """The chance that a sum of `weights`, each times a gamma variable whose shape is its count, is at most 0.

    By the inversion of Gil-Pelaez (1951), Biometrika 38, 481-482, integrated in panels. A panel is no wider than half a
    turn of the phase at its start. The error is about 1e-14, whatever the counts.
    """
    import numpy as np

    live = weights != 0
    weights, counts = weights[live], counts[live]
    if not (weights > 0).any():
        return 1.0
    if not (weights < 0).any():
        return 0.0
    mean, deviation = float(counts @ weights), math.sqrt(float(counts @ weights**2))
    if _negligible(weights if mean > 0 else -weights, counts, abs(mean) / deviation**2):
        return 0.0 if mean > 0 else 1.0
    nodes, shares = _panel()
    start, integral = 0.0, 0.0
    width = first = math.pi / max(abs(mean), deviation)
    modulus = 0.0
    while modulus >= LAST:
        at = start + width * nodes
        turned = np.outer(at, weights)
        phases = np.arctan(turned) @ counts
        moduli = np.log1p(np.square(turned, out=turned), out=turned) @ counts / -2
        integral += width * float(shares @ (np.exp(moduli) * np.sin(phases) / at))
        start += width
        squares = (start * weights) ** 2
        modulus = float(np.log1p(squares) @ counts) / -2
        speed = abs(float((counts * weights / (1 + squares)).sum()))
        longest = max(first, start / 2)
        width = min(math.pi / speed, longest) if speed else longest
    return 0.5 - integral / math.pi


def _negligible(weights: "Array", counts: "Array", tilt: float) -> bool:
    """Whether Chernoff's bound leaves a sum of positive mean next to no chance to be at most 0.

    Any tilt short of the smallest weight's pole gives a bound; where it is that small, the integral, which would need
    many panels, is not taken.
    """
    import numpy as np

    tilt = min(tilt, 0.5 / -float(weights.min()))
    return float(np.log1p(tilt * weights) @ counts) > -LAST


@cache
def _panel() -> tuple[Any, Any]:
    """Nodes within a panel of width 1, and their weights."""
    import numpy as np

    nodes, shares = np.polynomial.legendre.leggauss(NODES)
    return (nodes + 1) / 2, shares / 2


def _root(function: Callable[[float], float], low: float, high: float, at_low: float, at_high: float) -> float:
    """Where a rising function crosses 0 between `low` and `high`, to RESOLVED.

    Chandrupatla (1997): bisection, with inverse quadratic interpolation where that is safe; about ten evaluations.
    """
    new, new_value, old, old_value = high, at_high, low, at_low
    earlier, earlier_value = old, old_value
    step = 0.5
    while True:
        point = new + step * (old - new)
        value = function(point)
        if (value > 0) == (new_value > 0):
            earlier, earlier_value = new, new_value
        else:
            earlier, earlier_value, old, old_value = old, old_value, new, new_value
        new, new_value = point, value
        best = new if abs(new_value) < abs(old_value) else old
        smallest = RESOLVED / 2 / abs(old - new) if old != new else 1.0
        if value == 0 or smallest > 0.5:
            return best
        across = (new - old) / (earlier - old)
        share = (new_value - old_value) / (earlier_value - old_value)
        if 1 - math.sqrt(1 - across) < share < math.sqrt(across):
            step = new_value / (old_value - new_value) * earlier_value / (old_value - earlier_value) + (
                (earlier - new) / (old - new) * new_value / (earlier_value - new_value)
            ) * (old_value / (earlier_value - old_value))
        else:
            step = 0.5
        step = min(max(step, smallest), 1 - smallest)
