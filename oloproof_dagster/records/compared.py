"""The compared paths of a verdict: a row for each, and the leaves at which two values differ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from oloproof_dagster.digests import dump, dump_in_order, sha256
from oloproof_dagster.records.comparison import Comparison
from oloproof_dagster.records.paths import ABSENT, Path, show_path

MOST_CHARACTERS = 2_000
"""How much JSON of a value stands in a row; the whole value stands in a table of its own."""

MOST_DIFFERENCES = 50
"""How many differing leaves follow a row; `n_differing` counts all."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One compared path. `expected` is what was wanted (or was there before); `absent`: the actual side lacks it.

    `expected` is ABSENT where the actual side holds something that nobody expected. `n_differing` counts the leaves
    that differ, where the row is followed by the first of them.
    """

    path: str
    expected: Any
    actual: Any
    matches: bool
    n_differing: int | None = None

    @property
    def absent(self) -> bool:
        """Whether the actual value is not there."""
        return self.actual is ABSENT

    def members(self) -> dict[str, Any]:
        """The row as JSON members.

        An absent side is null, and marked `absent` or `unexpected`. A value of more than MOST_CHARACTERS of JSON is
        that text, cut, beside its digest. A whole value whose differing leaves follow is left out.
        """
        stood_for = self.path == "$" and self.n_differing is not None
        sides = {"expected": self.expected, "actual": self.actual}
        shown = {name: None if stood_for or side is ABSENT else side for name, side in sides.items()}
        row = {"path": self.path, **shown, "absent": self.absent, "matches": self.matches}
        if self.expected is ABSENT:
            row["unexpected"] = True
        if self.n_differing is not None:
            row["n_differing"] = self.n_differing
        for name, side in shown.items():
            if isinstance(side, str | dict | list) and len(text := dump_in_order(side)) > MOST_CHARACTERS:
                row |= {name: text[:MOST_CHARACTERS], "cut": True, f"{name}_digest": value_digest(side)}
        return row


def value_digest(value: Any) -> str:
    """The digest that stands beside a value that was cut: sha256 of its canonical text."""
    return sha256(dump(value))


def compare_at(comparison: Comparison, path: Path, expected: Any, actual: Any) -> tuple[Compared, ...]:
    """The row for one path and, where it fails on two objects or two lists, rows for the first leaves that differ."""
    matches = actual is not ABSENT and comparison.equal(expected, actual, path)
    row = Compared(show_path(path), expected, actual, matches)
    if matches or not _has_leaves(comparison, expected, actual, path):
        return (row,)
    try:
        leaves = differences(comparison, expected, actual, path)
    except RecursionError:  # too deep to be walked; that the two differ stands all the same
        return (row,)
    return (replace(row, n_differing=len(leaves)), *leaves[:MOST_DIFFERENCES])


def _has_leaves(comparison: Comparison, expected: Any, actual: Any, at: Path) -> bool:
    """Whether a difference between two values lies further down: in two objects or two ordered lists."""
    if isinstance(expected, dict):
        return isinstance(actual, dict)
    return isinstance(expected, list) and isinstance(actual, list) and not comparison.is_unordered(at)


def differences(comparison: Comparison, expected: Any, actual: Any, at: Path = ()) -> tuple[Compared, ...]:
    """A row for each leaf at which two values differ, by path; none where they are equal."""
    rows: list[Compared] = []
    _differ(comparison, expected, actual, at, rows)
    return tuple(sorted(rows, key=lambda row: row.path))


def _differ(comparison: Comparison, expected: Any, actual: Any, at: Path, rows: list[Compared]) -> None:
    if expected is ABSENT or actual is ABSENT:
        if not comparison.ignores(at):
            rows.append(Compared(show_path(at), expected, actual, False))
    elif not _has_leaves(comparison, expected, actual, at):
        if not comparison.equal(expected, actual, at):
            rows.append(Compared(show_path(at), expected, actual, False))
    elif not comparison.ignores(at):
        for key, e, a in _members(comparison, expected, actual):
            _differ(comparison, e, a, (*at, key), rows)


def _members(comparison: Comparison, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    """The members of two objects or two lists side by side, ABSENT where one of the two has none."""
    if isinstance(expected, list):
        pairs = zip_longest(expected, actual, fillvalue=ABSENT)
        yield from ((str(position), e, a) for position, (e, a) in enumerate(pairs))
        return
    yield from ((key, e, actual.get(key, ABSENT)) for key, e in expected.items())
    if comparison.mode != "subset":
        yield from ((key, ABSENT, a) for key, a in actual.items() if key not in expected)
