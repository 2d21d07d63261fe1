"""The grid of `coverage`: which simulated suites, in groups that stand as rows of its table.

Rates below 0.5 are not listed apart: the bounds of a rate and of its failures mirror each other, so that the upper
bound at 0.99 errs as the lower one at 0.01. Groups of `cells` hold what lies within the validated range, those of
`cells_outside` what lies beyond it or beyond what any method could know.
"""

from collections.abc import Iterator
from itertools import count, groupby, islice, takewhile

import numpy as np

from benchmarks.coverage_worlds import Cell, Kind, Model, within_validated_range

COUNTS = (20, 30, 50, 100, 300)
RATES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
MIXES: tuple[tuple[tuple[int, float], ...], ...] = (
    ((1, 0.5), (2, 0.5)),
    ((4, 0.5), (6, 0.5)),
    ((1, 0.7), (3, 0.3)),
    ((1, 0.7), (2, 0.2), (5, 0.1)),
    ((2, 0.5), (10, 0.5)),
    ((3, 0.5), (20, 0.5)),
    ((5, 0.9), (20, 0.1)),
    ((1, 0.95), (5, 0.05)),
)
"""Unequal sizes, each with the share of the clusters that have it."""
GAPS = ((1, 0.95), (1, 0.9), (1, 0.5), (0.98, 0.9), (0.9, 0.7), (0.7, 0.3))
"""Rates of the clusters at one end of the sizes and at the other."""
ALIKE: tuple[tuple[Model, float], ...] = (
    ("beta-binomial", 0),
    ("beta-binomial", 0.2),
    ("beta-binomial", 0.6),
    ("whole", 0.2),
    ("whole", 0.4),
    ("whole", 0.7),
    ("whole", 1),
)
FEW_ALIKE: tuple[tuple[Model, float], ...] = (
    ("beta-binomial", 0),
    ("beta-binomial", 0.2),
    ("whole", 0.4),
    ("whole", 1),
)
ENOUGH = 5
"""Where sizes are drawn: so many clusters of every size are expected, or the suite may hold none of the worst."""


def cells() -> Iterator[Cell]:
    """The grid within the validated range, group by group."""
    for cell in (*_equal(), *_unequal(), *_tied(), *_drawn(enough=True), *_missing(), *_levels()):
        if cell.drawn or cell.within_validated_range:
            yield cell


def cells_outside() -> Iterator[Cell]:
    """What lies outside of the range, or of what any method could know, to show why."""
    for n_clusters in (10, 15):
        for size in (3, 10):
            for rate in RATES:
                for model, correlation in ALIKE:
                    yield Cell("10 or 15 clusters", (Kind(size, n_clusters, rate),), model, correlation)
    for n_clusters in (20, 100):
        for large in (n_clusters // 2, 2 * n_clusters):
            for rate in RATES:
                for model, correlation in FEW_ALIKE:
                    kinds = Kind(2, n_clusters - 1, rate), Kind(large, 1, rate)
                    yield Cell("one cluster far larger", kinds, model, correlation)
    yield from _drawn(enough=False)


def smoke_cells() -> Iterator[Cell]:
    """Some cells of every group within the range."""
    for _, group in groupby(cells(), key=lambda cell: cell.group):
        yield from islice(group, 35, None, 70)


def _equal() -> Iterator[Cell]:
    groups: tuple[tuple[str, Model, tuple[int, ...], tuple[float, ...]], ...] = (
        ("equal sizes, beta-binomial", "beta-binomial", (2, 3, 5, 10, 20), (0, 0.05, 0.2, 0.5, 0.8, 1)),
        ("equal sizes, whole clusters", "whole", (2, 3, 5, 10, 20), (0.05, 0.2, 0.4, 0.6, 0.8)),
        ("50 or 100 verdicts each, whole clusters", "whole", (50, 100), (0.1, 0.3, 0.5)),
    )
    for group, model, sizes, correlations in groups:
        for size in sizes:
            for n_clusters in (*COUNTS, 1000):
                for rate in RATES:
                    for correlation in correlations:
                        yield Cell(group, (Kind(size, n_clusters, rate),), model, correlation)


def _counts(mix: tuple[tuple[int, float], ...], n_clusters: int) -> tuple[tuple[int, int], ...]:
    """Sizes and how many clusters have each, at least one; the most frequent size takes what rounding leaves."""
    counts = {size: max(1, round(share * n_clusters)) for size, share in mix}
    most = max(counts, key=lambda size: counts[size])
    counts[most] += n_clusters - sum(counts.values())
    return tuple(counts.items())


def _one_large(n_clusters: int) -> tuple[tuple[int, int], ...]:
    """Clusters of two verdicts and one that is as large as the validated range lets it be."""
    *_, largest = takewhile(within_validated_range, (((2, n_clusters - 1), (size, 1)) for size in count(3)))
    return largest


def _designs() -> Iterator[tuple[tuple[int, int], ...]]:
    for n_clusters in COUNTS:
        yield _one_large(n_clusters)
        for mix in MIXES:
            yield _counts(mix, n_clusters)


def _unequal() -> Iterator[Cell]:
    for design in _designs():
        for rate in (0.5, 0.8, 0.9, 0.95, 0.99):
            for model, correlation in ALIKE:
                kinds = tuple(Kind(size, number, rate) for size, number in design)
                yield Cell("unequal sizes, one rate", kinds, model, correlation)


def _tied() -> Iterator[Cell]:
    for group, turned in (("larger clusters pass less", False), ("larger clusters pass more", True)):
        for design in _designs():
            for gap in GAPS:
                for model, correlation in FEW_ALIKE:
                    yield Cell(group, _by_size(design, gap[::-1] if turned else gap), model, correlation)


def _by_size(design: tuple[tuple[int, float], ...], gap: tuple[float, float]) -> tuple[Kind, ...]:
    """Clusters whose rate goes in even steps from that of the smallest to that of the largest."""
    steps = np.linspace(*gap, len(design))
    return tuple(Kind(size, number, round(float(rate), 6)) for (size, number), rate in zip(design, steps, strict=True))


def _drawn(*, enough: bool) -> Iterator[Cell]:
    group = "sizes drawn, each frequent" if enough else "sizes drawn, the large rare"
    for n_clusters in COUNTS:
        for mix in MIXES:
            if (min(share for _, share in mix) * n_clusters >= ENOUGH) == enough:
                design = tuple((size, share * n_clusters) for size, share in mix)
                for gap in (*GAPS, (1, 0), (0.9, 0.9), *((high, low) for low, high in GAPS)):
                    for model, correlation in FEW_ALIKE[1::2]:
                        yield Cell(group, _by_size(design, gap), model, correlation, drawn=True)


def _missing() -> Iterator[Cell]:
    for n_clusters in (20, 50, 300):
        for rate in (0.5, 0.8, 0.95):
            for missing in ((0.02, 0.02), (0.1, 0.1), (0.2, 0.0), (0.0, 0.1)):
                for model, correlation in FEW_ALIKE[1:3]:
                    kinds = (Kind(3, n_clusters, rate),)
                    yield Cell("missing verdicts", kinds, model, correlation, missing=missing)


def _levels() -> Iterator[Cell]:
    for level in (0.9, 0.99):
        for size in (3, 10):
            for n_clusters in (20, 100, 300):
                for rate in RATES:
                    for model, correlation in FEW_ALIKE:
                        kinds = (Kind(size, n_clusters, rate),)
                        yield Cell(f"level {level:g}", kinds, model, correlation, level=level)
