"""`python -m benchmarks [--smoke] [--only NAME ...]`: prints a table of figures beside their targets."""

import argparse
from collections.abc import Callable, Iterator

from benchmarks import coverage as simulated
from benchmarks import desk, project
from benchmarks.fixed import fixed_costs
from benchmarks.marginal import marginal_cost
from benchmarks.parallel import parallel_speedup
from benchmarks.whole import runs

Figure = tuple[str, str, str]
"""What was measured, the figure, and what it is to be; no target where it only informs."""


def main() -> None:
    """Measures and prints; a smoke run only shows that everything can be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small size, for CI")
    parser.add_argument("--only", nargs="+", choices=sorted(MEASURES), default=sorted(MEASURES), metavar="NAME")
    chosen = parser.parse_args()
    print(f"{'figure':66} {'measured':>12}  target")
    for name in chosen.only:
        for what, measured, target in MEASURES[name](chosen.smoke):
            print(f"{what:66} {measured:>12}  {target}", flush=True)


def coverage(smoke: bool) -> Iterator[Figure]:
    """The spacing bound's errors in some cells of each group; `python -m benchmarks.coverage` takes all of them."""
    for found in simulated.smoke():
        worst = max(each.worst for each in found)
        yield f"{found[0].cell.group}, errors over promised", f"{worst:.2f}", f"{simulated.LIMIT:g}"


def fixed(smoke: bool) -> Iterator[Figure]:
    """The command line's own time."""
    costs = fixed_costs(repeats=1 if smoke else 7, warm=not smoke)
    yield "oloproof --help, times `import dagster`", f"{costs['--help']:.2f}", "0.35"
    yield "oloproof run on the example, times `import dagster`", f"{costs['run']:.2f}", "3.0"
    for name in ("run again", "inspect", "versions"):
        yield f"oloproof {name} on the example, times `import dagster`", f"{costs[name]:.2f}", ""


def marginal(smoke: bool) -> Iterator[Figure]:
    """The engine's time per case."""
    small, large = (150, 450) if smoke else (3_000, 30_000)
    costs = [marginal_cost(desk.write, n_cases, 1 if n_cases == large else 3) for n_cases in (small, large)]
    for cost in costs:
        per_case = f"({cost.engine / cost.n_cases * 1000:.2f} against {cost.bare / cost.n_cases * 1000:.2f} ms a case)"
        yield f"refund desk, {cost.n_cases} cases, times the bare loop {per_case}", f"{cost.ratio:.2f}", "2.6"
    growth = costs[1].engine / costs[0].engine
    yield f"refund desk, {large} cases, times {small} cases", f"{growth:.2f}", f"{1.1 * large / small:.0f}"
    tiny = marginal_cost(project.write, small, 3)
    yield f"one tool call and 200 bytes a state, {small} cases, times the bare loop", f"{tiny.ratio:.2f}", ""


def whole(smoke: bool) -> Iterator[Figure]:
    """Whole processes: time and memory."""
    small, large = (150, 450) if smoke else (3_000, 30_000)
    found = {n_cases: runs(n_cases) for n_cases in (small, large)}
    for n_cases, (first, second) in found.items():
        yield f"oloproof run, {n_cases} cases, seconds", f"{first.seconds:.1f}", ""
        reused = second.seconds / first.seconds
        yield f"oloproof run again, {n_cases} cases, of the first run's time", f"{reused:.2f}", "0.33"
    for number, name in enumerate(("first", "second")):
        ratio = found[large][number].seconds / found[small][number].seconds
        yield f"the {name} run of {large} cases, times that of {small}", f"{ratio:.2f}", f"{1.1 * large / small:.0f}"
    memory = found[large][0].peak_mb / found[small][0].peak_mb
    yield f"peak memory of {large} cases, times that of {small}", f"{memory:.2f}", "1.5"
    yield f"peak memory of {small} cases, MB", f"{found[small][0].peak_mb:.0f}", ""
    heavy = runs(60 if smoke else 3_000, 1, state_bytes=200_000)[0]
    yield f"peak memory with 200 KB states, {60 if smoke else 3_000} cases, MB", f"{heavy.peak_mb:.0f}", "1000"


def parallel(smoke: bool) -> Iterator[Figure]:
    """Worker processes."""
    speedup = parallel_speedup(40 if smoke else 1_000)
    yield "4 workers, an agent that sleeps 20 ms, times the speed of 1", f"{speedup:.2f}", "3.5"


MEASURES: dict[str, Callable[[bool], Iterator[Figure]]] = {
    "coverage": coverage,
    "fixed": fixed,
    "marginal": marginal,
    "parallel": parallel,
    "whole": whole,
}


if __name__ == "__main__":
    main()
