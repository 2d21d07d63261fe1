"""Lists that differ, as people see it: an element that was added, removed or moved is one change, not as many as there
are elements behind it.

DeepDiff aligns the two lists; the verdict was decided by position, and this changes nothing of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from oloproof_dagster.digests import dump, parse_canonical
from oloproof_dagster.project.evaluator_keys import Declaration, StateMatches, StateUnchanged
from oloproof_dagster.records.patches import expected_state
from oloproof_dagster.records.paths import ABSENT, Path, lookup, parse_path, show_path
from oloproof_dagster.report.panels import CasePanel

Row = Mapping[str, Any]
"""A compared path as `compared` gives it; of an aligned list with `change`: added, removed, moved or changed."""


def aligned(rows: list[Row], panel: CasePanel, declared: Declaration | None) -> list[Row]:
    """A verdict's differing leaves, those of a list aligned where that takes fewer rows."""
    sides = _sides(panel, declared)
    if sides is None:
        return rows
    groups: dict[Path | None, list[Row]] = {}
    for row in rows:
        groups.setdefault(None if row["matches"] else _list_above(parse_path(row["path"]), *sides), []).append(row)
    found: list[Row] = []
    for path, group in groups.items():
        changes = list(_changes(path, *(lookup(side, path) for side in sides))) if path is not None else group
        found += changes if len(changes) < len(group) else group
    return found


def _sides(panel: CasePanel, declared: Declaration | None) -> tuple[Any, Any] | None:
    """What a state was compared with, and the state; None where a verdict is of something else."""
    if panel.state is None or panel.state.state is None:
        return None
    initial = ABSENT if panel.case.initial_state is None else parse_canonical(panel.case.initial_state)
    expected: Any = ABSENT
    if isinstance(declared, StateUnchanged):
        expected = initial
    elif isinstance(declared, StateMatches):
        expected = expected_state(parse_canonical(panel.case.expected), parse_path(declared.expected_field), initial)
    return None if expected is ABSENT else (expected, parse_canonical(panel.state.state))


def _list_above(path: Path, expected: Any, actual: Any) -> Path | None:
    """The outermost list on the way to a leaf, where both sides have one."""
    for length in range(len(path)):
        sides = [lookup(side, path[:length]) for side in (expected, actual)]
        if all(isinstance(side, list) for side in sides):
            return path[:length]
    return None


def _changes(path: Path, expected: list[Any], actual: list[Any]) -> Iterator[Row]:
    from deepdiff import DeepDiff  # a third of a second to import, and only a list that differs needs it

    diff = DeepDiff([dump(each) for each in expected], [dump(each) for each in actual], view="tree")
    removed = {level.path(output_format="list")[0]: level.t1 for level in diff.get("iterable_item_removed", ())}
    added = {level.path(output_format="list")[0]: level.t2 for level in diff.get("iterable_item_added", ())}
    for level in diff.get("values_changed", ()):
        yield _row(path, level.path(output_format="list")[0], level.t1, level.t2, "changed")
    for position, text in sorted(removed.items()):
        to = next((at for at, other in added.items() if other == text), None)
        if to is None:
            yield _row(path, position, text, None, "removed")
        else:
            del added[to]
            yield _row(path, position, text, text, f"moved to {to}")
    for position, text in sorted(added.items()):
        yield _row(path, position, None, text, "added")


def _row(path: Path, position: int, expected: str | None, actual: str | None, change: str) -> Row:
    return {
        "path": show_path((*path, str(position))),
        "expected": None if expected is None else parse_canonical(expected),
        "actual": None if actual is None else parse_canonical(actual),
        "absent": actual is None,
        "unexpected": expected is None,
        "matches": False,
        "change": change,
    }
