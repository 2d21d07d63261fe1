"""The grid of `coverage`: which simulated suites, in groups that stand as rows of its table.

Rates below 0.5 are not listed apart: the bounds of a rate and of its failures mirror each other, so that the upper
bound at 0.99 errs as the lower one at 0.01.
"""

from collections.abc import Iterator
from itertools import groupby, islice, product

import numpy as np

from benchmarks.coverage_worlds import Cell, Kind, Model

COUNTS = (20, 30, 50, 100, 150)
RATES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
Mix = tuple[tuple[int, float], ...]
MIXES: dict[str, Mix] = {
    "1|2": ((1, 0.5), (2, 0.5)),
    "1|3": ((1, 0.5), (3, 0.5)),
    "1|5": ((1, 0.5), (5, 0.5)),
    "1 to 5": tuple((size, 0.2) for size in range(1, 6)),
    "geometric": tuple((size, 0.5 ** min(size, 7)) for size in range(1, 9)),
    "lognormal": ((1, 0.3), (2, 0.2), (3, 0.15), (5, 0.14), (8, 0.1), (13, 0.06), (22, 0.035), (40, 0.015)),
    "one in ten of 10": ((1, 0.9), (10, 0.1)),
}
"""Sizes of clusters, each with the share of the clusters that have it."""
GAPS = ((1, 0.9), (1, 0.5), (0.98, 0.9), (0.9, 0.7), (0.7, 0.3))
"""Rates of the clusters at one end of the sizes and at the other."""
ALIKE: tuple[tuple[Model, float], ...] = (
    ("beta-binomial", 0),
    ("beta-binomial", 0.2),
    ("beta-binomial", 0.6),
    ("whole", 0.2),
    ("whole", 0.5),
    ("whole", 1),
)
FEW_ALIKE: tuple[tuple[Model, float], ...] = (
    ("beta-binomial", 0),
    ("beta-binomial", 0.3),
    ("whole", 0.5),
    ("whole", 1),
)


ABSENT = "sizes drawn, the large often absent"
"""What no method can know, and the limit does not hold for: a rate that goes with a size that many suites lack."""


def cells() -> Iterator[Cell]:
    """The grid, group by group."""
    yield from _equal()
    yield from _unequal("sizes as stated, one rate", drawn=False)
    yield from _unequal("sizes drawn, one rate", drawn=True)
    yield from _large_among_single()
    yield from _tied()
    yield from _missing()
    yield from _levels()


def smoke_cells() -> Iterator[Cell]:
    """Some cells of every group."""
    for _, group in groupby(cells(), key=lambda cell: cell.group):
        yield from islice(group, 7, None, 90)


def _equal() -> Iterator[Cell]:
    for size in (2, 3, 5, 10):
        for n_clusters in COUNTS:
            for rate in RATES:
                for model, correlation in ALIKE:
                    yield Cell("equal sizes", (Kind(size, n_clusters, rate),), model, correlation)


def _unequal(group: str, *, drawn: bool) -> Iterator[Cell]:
    for mix in MIXES.values():
        for n_clusters in (20, 50, 150):
            for rate in RATES:
                for model, correlation in FEW_ALIKE:
                    kinds = tuple(Kind(size, number, rate) for size, number in _counts(mix, n_clusters, drawn=drawn))
                    yield Cell(group, kinds, model, correlation, drawn=drawn)


def _large_among_single() -> Iterator[Cell]:
    for large in ((20, 1), (8, 2)):
        for n_clusters in (20, 50, 150):
            for rate in RATES:
                for gap in ((rate, rate), (1.0, rate), (rate, 1.0)):
                    for model, correlation in FEW_ALIKE[::2]:
                        kinds = Kind(1, n_clusters - large[1], gap[0]), Kind(*large, gap[1])
                        yield Cell("few large among single ones", kinds, model, correlation)


def _tied() -> Iterator[Cell]:
    directions = ("larger clusters pass less", False), ("larger clusters pass more", True)
    for absent in (False, True):
        for group, turned in directions:
            for mix, n_clusters in product(MIXES.values(), (20, 50, 150)):
                design = _counts(mix, n_clusters, drawn=True)
                if _often_absent(design) == absent:
                    for gap, (model, correlation) in product(GAPS, FEW_ALIKE[1:3]):
                        kinds = _by_size(design, gap[::-1] if turned else gap)
                        yield Cell(ABSENT if absent else group, kinds, model, correlation, drawn=True)


def _often_absent(design: tuple[tuple[int, float], ...]) -> bool:
    """Whether one suite in eighty or more has no cluster of a size that holds a quarter of the verdicts."""
    n_clusters = sum(count for _, count in design)
    verdicts = sum(size * count for size, count in design)
    return any(
        size * count >= verdicts / 4 and (1 - count / n_clusters) ** n_clusters > 1 / 80 for size, count in design
    )


def _missing() -> Iterator[Cell]:
    for n_clusters in (20, 50, 150):
        for rate in (0.5, 0.8, 0.95):
            for missing in ((0.02, 0.02), (0.1, 0.1), (0.2, 0.0), (0.0, 0.1)):
                for model, correlation in FEW_ALIKE[1:3]:
                    kinds = (Kind(3, n_clusters, rate),)
                    yield Cell("missing verdicts", kinds, model, correlation, missing=missing)


def _levels() -> Iterator[Cell]:
    for level in (0.9, 0.99):
        for size in (3, 10):
            for n_clusters in (20, 100):
                for rate in RATES:
                    for model, correlation in FEW_ALIKE:
                        kinds = (Kind(size, n_clusters, rate),)
                        yield Cell(f"level {level:g}", kinds, model, correlation, level=level)


def _counts(mix: Mix, n_clusters: int, *, drawn: bool) -> tuple[tuple[int, float], ...]:
    """Sizes and how many clusters have each: to be expected, or at least one, the rest going to the most frequent."""
    if drawn:
        total = sum(share for _, share in mix)
        return tuple((size, share / total * n_clusters) for size, share in mix)
    counts = {size: max(1, round(share * n_clusters)) for size, share in mix}
    most = max(counts, key=lambda size: counts[size])
    counts[most] += n_clusters - sum(counts.values())
    return tuple(counts.items())


def _by_size(design: tuple[tuple[int, float], ...], gap: tuple[float, float]) -> tuple[Kind, ...]:
    """Clusters whose rate goes in even steps from that of the smallest to that of the largest."""
    steps = np.linspace(*gap, len(design))
    return tuple(Kind(size, number, round(float(rate), 6)) for (size, number), rate in zip(design, steps, strict=True))
