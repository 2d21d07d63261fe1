"""One way in which the world may be, and suites drawn from it: sizes, rates, and how verdicts of a cluster go together.

`coverage_cells` lists the cells, `coverage` counts in how many of their suites a bound is wrong. The true rate of a
cell is case-weighted: expected passes over expected verdicts.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betaln, gammaln

from benchmarks.coverage_bounds import Array, Counts

Model = Literal["beta-binomial", "whole"]
"""How verdicts of one cluster are correlated: every cluster has a rate of its own, from a beta distribution; or some
clusters pass or fail as a whole and the verdicts of the others are independent."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Clusters of one size: how many (where sizes are drawn, how many to expect), and the rate of their verdicts."""

    size: int
    count: float
    rate: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Suites of `kinds` of clusters.

    `correlation` is that of two verdicts of one cluster, in [0, 1]. `missing` holds the chances that a pass and that
    a failure goes unseen. With `drawn` sizes come by chance too.
    """

    group: str
    kinds: tuple[Kind, ...]
    model: Model
    correlation: float
    level: float = 0.95
    missing: tuple[float, float] = (0.0, 0.0)
    drawn: bool = False

    @property
    def n_clusters(self) -> int:
        """The clusters of a suite."""
        return round(sum(kind.count for kind in self.kinds))

    @property
    def rate(self) -> float:
        """The true rate."""
        passes = sum(kind.count * kind.size * kind.rate for kind in self.kinds)
        return passes / sum(kind.count * kind.size for kind in self.kinds)

    @property
    def promised(self) -> float:
        """The one-sided error that the level promises."""
        return (1 - self.level) / 2

    def __str__(self) -> str:
        kinds = " + ".join(f"{kind.count:g} of {kind.size} passing {kind.rate:g}" for kind in self.kinds)
        return f"{kinds}, {self.model} {self.correlation:g}"


def passes(size: int, rate: float, model: Model, correlation: float) -> Array:
    """The chances of 0, 1, ... `size` passes in a cluster.

    >>> passes(2, 0.5, "whole", 0.5).round(3).tolist()
    [0.375, 0.25, 0.375]
    """
    whole = np.zeros(size + 1)
    whole[0] += 1 - rate
    whole[-1] += rate
    if rate in (0, 1) or correlation == 1 or size == 0:
        return whole
    x = np.arange(size + 1)
    ways = gammaln(size + 1) - gammaln(x + 1) - gammaln(size - x + 1)
    if model == "beta-binomial" and correlation:
        a, b = rate / correlation - rate, (1 - rate) / correlation - (1 - rate)
        chances = np.exp(ways + betaln(x + a, size - x + b) - betaln(a, b))
    else:
        apart = np.exp(ways + x * math.log(rate) + (size - x) * math.log1p(-rate))
        chances = correlation * whole + (1 - correlation) * apart
    return np.asarray(chances / chances.sum(), dtype=np.float64)


def draw(cell: Cell, n_suites: int, rng: np.random.Generator) -> tuple[Counts, Array]:
    """Suites of a cell: how many of their clusters came out each way, and the ways.

    A way is (size, passes with missing verdicts failed, passes with missing verdicts passed).
    """
    ways, chances = zip(*(_outcomes(kind, cell) for kind in cell.kinds), strict=True)
    if cell.drawn:
        expected = np.concatenate([kind.count * each for kind, each in zip(cell.kinds, chances, strict=True)])
        counts = rng.multinomial(cell.n_clusters, expected / expected.sum(), n_suites)
    else:
        of_kinds = zip(cell.kinds, chances, strict=True)
        counts = np.concatenate([rng.multinomial(round(kind.count), each, n_suites) for kind, each in of_kinds], axis=1)
    return counts, np.concatenate(ways)


def _outcomes(kind: Kind, cell: Cell) -> tuple[Array, Array]:
    """The ways in which a cluster of a kind may come out, and their chances."""
    chances = passes(kind.size, kind.rate, cell.model, cell.correlation)
    lost_pass, lost_failure = cell.missing
    ways, weights = [], []
    for passed, chance in enumerate(chances):
        unseen_passes = passes(passed, lost_pass, "beta-binomial", 0)
        unseen_failures = passes(kind.size - passed, lost_failure, "beta-binomial", 0)
        for some, chance_of_some in enumerate(unseen_passes):
            for others, chance_of_others in enumerate(unseen_failures):
                weight = chance * chance_of_some * chance_of_others
                if weight:
                    ways.append((kind.size, passed - some, passed + others))
                    weights.append(weight)
    return np.array(ways, dtype=np.float64), np.array(weights)
