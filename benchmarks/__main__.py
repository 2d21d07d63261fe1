"""`python -m benchmarks [--smoke]`: prints a table of ratios."""

import argparse

from benchmarks.fixed import fixed_costs
from benchmarks.marginal import marginal_costs


def main() -> None:
    """Measures and prints; a smoke run only shows that everything can be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small size, for CI")
    smoke = parser.parse_args().smoke
    fixed = fixed_costs(repeats=1 if smoke else 7)
    print(f"oloproof --help    {fixed['--help']:5.2f} times `import dagster`")
    print(f"oloproof run       {fixed['run']:5.2f} times `import dagster` (the example, 72 cases, 24 replays)")
    for n_cases in (200,) if smoke else (3_000, 30_000):
        cost = marginal_costs(n_cases)
        print(
            f"{n_cases:6} cases       {cost['ratio']:5.2f} times a bare loop"
            f" ({cost['engine'] / n_cases * 1000:.2f} ms against {cost['bare'] / n_cases * 1000:.2f} ms a case)"
        )


if __name__ == "__main__":
    main()
