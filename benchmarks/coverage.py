"""How often the guarded interval is wrong: suites whose true rate is known, simulated and counted.

`python -m benchmarks.coverage` prints the tables of docs/statistics.md (a quarter of an hour on one core), `--smoke`
some cells of each group with fewer suites, `--cells drawn` the groups whose name holds that word. The cells are listed
in `coverage_cells`.

A one-sided error is a lower bound above the true rate or an upper bound below it; either is promised in no more than
(1 - level) / 2 of the suites. A cell that comes near that is simulated again, with other random numbers and ten times
as many suites, and that figure counts: the largest of many noisy figures would be too large.
"""

import argparse
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.coverage_bootstrap import comparison
from benchmarks.coverage_bounds import bounds, disagreement, errors
from benchmarks.coverage_cells import cells, cells_outside, smoke_cells
from benchmarks.coverage_worlds import Cell, draw

SUITES = 20_000
SMOKE_SUITES = 5_000
AGAIN = 200_000
CLOSE, NOTED, LIMIT = 1.1, 1.2, 1.32
"""Errors over the promised one: simulated again; counted; a defect. Where 0.025 is promised 0.0275, 0.030, 0.033."""
COLUMNS = ("simulated suites", "cells", "promised", "lower", "upper", "over 1.2", "over 1.32", "width", "no guard")
CHECKED, MEASURED = 10, 1_000
"""Suites of each cell whose bounds the product computes too, one by one; and whose widths are averaged."""


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of a cell's suites whose bounds err, and mean widths; `plain` ones are without the guard."""

    cell: Cell
    lower: float
    upper: float
    plain_lower: float
    plain_upper: float
    width: float
    plain_width: float

    @property
    def worst(self) -> float:
        """The larger one-sided error over the promised one."""
        return max(self.lower, self.upper) / self.cell.promised


def simulate(cell: Cell, n_suites: int, *seed: int) -> Found:
    """What `n_suites` suites of a cell show; the widths are means of the first MEASURED.

    Raises:
        ArithmeticError: the bounds are not those of `oloproof_dagster.decision.intervals`.
    """
    rng = np.random.default_rng(seed)
    n_shown, wrong, widths = 0, np.zeros(4), [0.0, 0.0]
    for start in range(0, n_suites, SUITES):
        suites = draw(cell, min(SUITES, n_suites - start), rng)
        if cell.drawn:
            suites = suites.only(suites.within_validated_range)
        if start == 0:
            apart = disagreement(suites.only(slice(CHECKED)), cell.level)
            if not apart <= 1e-12:
                raise ArithmeticError(f"{cell}: bounds computed here differ by {apart:.1g} from those of the product")
            for number, guard in enumerate((True, False)):
                lower, upper = bounds(suites.only(slice(MEASURED)), cell.level, guard=guard)
                widths[number] = float((upper - lower).mean())
        n_shown += len(suites.largest)
        both = (errors(suites, cell.rate, cell.level, guard=guard) for guard in (True, False))
        wrong += [flags.sum() for pair in both for flags in pair]
    return Found(cell, *(float(each) for each in (*wrong / n_shown, *widths)))


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
    """Some cells of every group of the grid within the validated range, simulated with few suites.

    Raises:
        ArithmeticError: a cell errs more often than the limit by more than noise; or as `simulate` has it.
    """
    for found in groups(smoke_cells(), "", SMOKE_SUITES, 0):
        for each in found:
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
    promised = found[0].cell.promised
    figures = (
        found[0].cell.group,
        f"{len(found):,}",
        f"{promised:g}",
        f"{max(each.lower for each in found):.3f}",
        f"{max(each.upper for each in found):.3f}",
        f"{sum(each.worst > NOTED for each in found)}",
        f"{sum(each.worst > LIMIT for each in found)}",
        f"{np.mean([each.width for each in found]):.3f}",
        f"{max(max(each.plain_lower, each.plain_upper) for each in found):.3f}",
    )
    return f"| {' | '.join(figures)} |"


def main() -> None:
    """Simulates and prints; a smoke run takes a few cells and suites and shows that everything can be simulated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=main.__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few cells of each group, in seconds")
    parser.add_argument("--cells", default="", metavar="WORD", help="only groups whose name holds this word")
    given = parser.parse_args()
    n_suites, again = (SMOKE_SUITES, 0) if given.smoke else (SUITES, AGAIN)
    for grid in (smoke_cells(),) if given.smoke else (cells(), cells_outside()):
        print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
        seen: list[Found] = []
        for found in groups(grid, given.cells, n_suites, again):
            print(row(found), flush=True)
            seen += found
        print("\nThe worst cells, lower and upper error:")
        for each in sorted(seen, key=lambda each: -each.worst)[:8]:
            print(f"{each.lower:.4f} {each.upper:.4f}  {each.cell.group}: {each.cell}")
        print()
    if given.cells in "bootstrap":
        for line in comparison(n_suites=50 if given.smoke else 5_000, n_drawn=199 if given.smoke else 999):
            print(line, flush=True)


if __name__ == "__main__":
    main()
