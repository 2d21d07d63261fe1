"""The world right after a reset, held against the case's initial state and against this sandbox's first reset.

Every value of `initial_state` must stand in it. What stands beside those values must be as it was after the first
reset; where it differs, the world may derive it from its initial state, or `reset` may have forgotten it: the first
state, given once more, tells which.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from oloproof_dagster.digests import dump_in_order, parse_canonical
from oloproof_dagster.project.oloproof_yaml import VerifyReset
from oloproof_dagster.records.comparison import Comparison
from oloproof_dagster.records.paths import ABSENT, Path, parse_path, show_path
from oloproof_dagster.records.reset_errors import RIGHT_AFTER

MOST_SHOWN = 5
LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not what it should be; `by` says what asks for the other one."""

    path: Path
    wanted: Any
    found: Any
    by: str

    def __str__(self) -> str:
        found = "is not there" if self.found is ABSENT else f"is {_short(self.found)}"
        wanted = "nothing" if self.wanted is ABSENT else _short(self.wanted)
        return f"{show_path(self.path)} {found} {RIGHT_AFTER}{self.by} {wanted}"


def in_words(differences: list[Difference]) -> str:
    """All of them in one line, the first few in full."""
    more = len(differences) - MOST_SHOWN
    shown = "; ".join(map(str, differences[:MOST_SHOWN]))
    return f"{shown}; and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class World:
    """A sandbox as the check uses it: it is reset to a JSON text and looked at. `seen` copies what a look gave as JSON
    text."""

    reset: Callable[[str], None]
    look: Callable[[], Any]
    seen: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class _First:
    """The first reset of a sandbox: the state that was given, the snapshot, and what stood beside that state in it."""

    given: str
    snapshot: Any
    beside: Any


class ResetCheck:
    """The check of one sandbox, from its first reset on."""

    def __init__(self, declared: VerifyReset) -> None:
        self._subset = Comparison(
            mode="subset",
            ignored=tuple(map(parse_path, declared.ignore_paths)),
            unordered=tuple(map(parse_path, declared.unordered_paths)),
        )
        self._exact = replace(self._subset, mode="exact")
        self._first: _First | None = None
        self._right: tuple[str, str] | None = None

    def differences(self, given: str, world: World) -> list[Difference]:
        """What is wrong with a world that was just reset to `given`; the world is as that reset left it, or was reset
        to `given` again."""
        found = world.look()
        if self._is_just(given, found):
            beside, snapshot = ABSENT, ABSENT
        else:
            text = world.seen(found)
            if self._right == (given, text):
                return []
            wanted, snapshot = parse_canonical(given), parse_canonical(text)
            wrong = self._lacking(wanted, snapshot)
            if wrong:
                return wrong
            beside = self._beside(wanted, snapshot)
            self._right = given, text
        first = self._first
        if first is None:
            self._first = _First(given, parse_canonical(given) if snapshot is ABSENT else snapshot, beside)
            return []
        if self._same_beside(first.beside, beside):
            return []
        self._right = None
        world.reset(first.given)
        again = parse_canonical(world.seen(world.look()))
        if not self._exact.equal(first.snapshot, again):
            return list(differing(self._exact, first.snapshot, again, (), "after this sandbox's first reset it was"))
        world.reset(given)
        return self._lacking(parse_canonical(given), parse_canonical(world.seen(world.look())))

    def _is_just(self, given: str, found: Any) -> bool:
        """Whether a snapshot is the initial state and nothing else: most are, and one writing of it shows that."""
        try:
            return dump_in_order(found) == given
        except (TypeError, ValueError, RecursionError):
            return False

    def _same_beside(self, first: Any, now: Any) -> bool:
        return first is now if ABSENT in (first, now) else self._exact.equal(first, now)

    def _lacking(self, wanted: Any, snapshot: Any) -> list[Difference]:
        """The values of the initial state that the snapshot lacks; the whole, where it is shaped otherwise."""
        if self._subset.equal(wanted, snapshot):
            return []
        by = "initial_state says"
        if not isinstance(snapshot, dict) or not any(key in snapshot for key in wanted):
            return [Difference((), wanted, snapshot, by)]
        return list(differing(self._subset, wanted, snapshot, (), by))

    def _beside(self, wanted: Any, snapshot: Any) -> Any:
        found = self._rest(wanted, snapshot, ())
        return ABSENT if found in ({}, ABSENT) else found

    def _rest(self, wanted: Any, found: Any, at: Path) -> Any:
        """What of a value the wanted one does not name: by key, and in a list by position; ABSENT where that is
        nothing."""
        if self._exact.ignores(at):
            return ABSENT
        if wanted is ABSENT:
            return found
        if isinstance(wanted, dict) and isinstance(found, dict):
            members = [(key, wanted.get(key, ABSENT), value) for key, value in found.items()]
        elif isinstance(wanted, list) and isinstance(found, list):
            if self._exact.is_unordered(at):
                return ABSENT if self._exact.equal(wanted, found, at) else found
            members = [(str(i), w, f) for i, (w, f) in enumerate(zip(wanted, found, strict=False))]
        else:
            return ABSENT
        rests = {key: self._rest(w, f, (*at, key)) for key, w, f in members}
        return {key: rest for key, rest in rests.items() if rest is not ABSENT} or ABSENT


def differing(comparison: Comparison, wanted: Any, found: Any, at: Path, by: str) -> Iterator[Difference]:
    """The places at which two values differ, as far down as objects and ordered lists of one length go."""
    if found is not ABSENT and wanted is not ABSENT and comparison.equal(wanted, found, at):
        return
    if comparison.ignores(at):
        return
    members: list[tuple[str, Any, Any]] = []
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = list(wanted) if comparison.mode == "subset" else [*wanted, *(key for key in found if key not in wanted)]
        members = [(key, wanted.get(key, ABSENT), found.get(key, ABSENT)) for key in keys]
    elif isinstance(wanted, list) and isinstance(found, list):
        in_order = len(wanted) == len(found) and not comparison.is_unordered(at)
        members = [(str(i), w, f) for i, (w, f) in enumerate(zip(wanted, found, strict=False)) if in_order]
    if not members:
        yield Difference(at, wanted, found, by)
    for key, w, f in members:
        yield from differing(comparison, w, f, (*at, key), by)


def _short(value: Any) -> str:
    text = dump_in_order(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."
