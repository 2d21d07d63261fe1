"""How often the spacing bound is wrong: suites whose true rate is known, simulated and counted.

`python -m benchmarks.coverage` prints the table of docs/statistics.md, `--smoke` some cells of each group with fewer
suites, `--cells drawn` the groups whose name holds that word. The cells are listed in `coverage_cells`.

A one-sided error is a lower bound above the true rate or an upper bound below it; either is promised in no more than
(1 - level) / 2 of the suites. A cell that comes near that is simulated again, with other random numbers and many times
as many suites, and that figure counts: the largest of many noisy figures would be too large.
"""

import argparse
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.coverage_bounds import disagreement, errors
from benchmarks.coverage_cells import ABSENT, cells, smoke_cells
from benchmarks.coverage_worlds import Cell, draw

SUITES = 2_000
SMOKE_SUITES = 1_000
AGAIN = 20_000
AT_ONCE = 4_000
CLOSE, LIMIT = 0.9, 1.2
"""Errors over the promised one: simulated again; a defect. Where 0.025 is promised 0.0225 and 0.030."""
COLUMNS = ("simulated suites", "cells", "promised", "worst lower", "worst upper", "over 1.2")
CHECKED = 1
"""Suites of each cell whose bounds the product computes too, one by one."""


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of a cell's suites whose bounds err."""

    cell: Cell
    lower: float
    upper: float

    @property
    def worst(self) -> float:
        """The larger one-sided error over the promised one."""
        return max(self.lower, self.upper) / self.cell.promised


def simulate(cell: Cell, n_suites: int, *seed: int) -> Found:
    """What `n_suites` suites of a cell show.

    Raises:
        ArithmeticError: a bound errs otherwise than that of `oloproof_dagster.decision.spacing`.
    """
    rng = np.random.default_rng(seed)
    wrong = np.zeros(2)
    for start in range(0, n_suites, AT_ONCE):
        counts, ways = draw(cell, min(AT_ONCE, n_suites - start), rng)
        if start == 0 and disagreement(counts[:CHECKED], ways, cell.rate, cell.level):
            raise ArithmeticError(f"{cell}: bounds computed here err otherwise than those of the product")
        # Where nearly all pass many suites are alike.
        distinct, times = np.unique(counts, axis=0, return_counts=True)
        wrong += [times @ flags for flags in errors(distinct, ways, cell.rate, cell.level)]
    lower, upper = (wrong / n_suites).tolist()
    return Found(cell, lower, upper)


def groups(grid: Iterable[Cell], word: str, n_suites: int, again: int) -> Iterator[list[Found]]:
    """The groups whose name holds `word`, simulated; cells near the promised error, and the worst, with more suites.

    A cell's random numbers follow from its place in the grid, whatever else is simulated.
    """
    chosen = ((number, cell) for number, cell in enumerate(grid) if word in cell.group)
    for _, group in groupby(chosen, key=lambda numbered: numbered[1].group):
        found = {number: simulate(cell, n_suites, number, 1) for number, cell in group}
        worst = max(found, key=lambda number: found[number].worst)
        near = {number for number, each in found.items() if each.worst > CLOSE} | {worst}
        for number in near if again > n_suites else ():
            found[number] = simulate(found[number].cell, again, number, 2)
        yield list(found.values())


def smoke() -> Iterator[list[Found]]:
    """Some cells of every group, simulated with few suites.

    Raises:
        ArithmeticError: a cell errs more often than the limit by more than noise; or as `simulate` has it.
    """
    for found in groups(smoke_cells(), "", SMOKE_SUITES, 0):
        for each in found if found[0].cell.group != ABSENT else ():
            limit = LIMIT * each.cell.promised
            noise = 4 * math.sqrt(limit * (1 - limit) / SMOKE_SUITES)
            if not max(each.lower, each.upper) <= limit + noise:
                raise ArithmeticError(
                    f"{each.cell.group}: {each.cell}: a bound is wrong in {max(each.lower, each.upper):.4f} of the "
                    f"suites, more often than {limit:.4f}"
                )
        yield found


def row(found: list[Found]) -> str:
    """A group as a row of the Markdown table."""
    figures = (
        found[0].cell.group,
        f"{len(found):,}",
        f"{found[0].cell.promised:g}",
        f"{max(each.lower for each in found):.3f}",
        f"{max(each.upper for each in found):.3f}",
        f"{sum(each.worst > LIMIT for each in found)}",
    )
    return f"| {' | '.join(figures)} |"


def main() -> None:
    """Simulates and prints; a smoke run takes a few cells and suites and shows that everything can be simulated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=main.__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few cells of each group, in seconds")
    parser.add_argument("--cells", default="", metavar="WORD", help="only groups whose name holds this word")
    given = parser.parse_args()
    n_suites, again = (SMOKE_SUITES, 0) if given.smoke else (SUITES, AGAIN)
    print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    seen: list[Found] = []
    for found in groups(smoke_cells() if given.smoke else cells(), given.cells, n_suites, again):
        print(row(found), flush=True)
        seen += found
    print("\nThe worst cells, lower and upper error:")
    for each in sorted(seen, key=lambda each: -each.worst)[:8]:
        print(f"{each.lower:.4f} {each.upper:.4f}  {each.cell.group}: {each.cell}")


if __name__ == "__main__":
    main()
