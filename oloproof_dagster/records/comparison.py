"""JSON values compared: paths into them, equality, and the rows that say where two of them differ."""

import decimal
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from oloproof_dagster.digests import integers_of_any_size
from oloproof_dagster.records.paths import ABSENT, Path, Pick, by_position, lookup, matching, without

Mode = Literal["exact", "subset"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two JSON values are compared: `ignored` paths are left out (`*` stands for any one key or position),
    lists at `unordered` paths are multisets, numbers agree within `tolerance` (decimal text, None: exactly).

    `ignored_new` paths are left out where `initial`, the state before, has no value at them.

    A member or position that is left out may be there on one side only. In an unordered list positions name nothing:
    only `*` reaches its items.
    """

    mode: Mode = "exact"
    tolerance: decimal.Decimal | None = None
    ignored: tuple[Path, ...] = ()
    unordered: tuple[Path, ...] = ()
    ignored_new: tuple[Path, ...] = ()
    initial: Any = ABSENT

    def on(self, initial: Any, expected: Any, actual: Any) -> "tuple[Comparison, Any, Any]":
        """The comparison of two values that came from an initial state, and the two values as it takes them.

        An element that is left out whole, picked by a member, is taken out of both lists, wherever it stands in each;
        positions in rows count without it. What is left out inside an element, or is a multiset there, is so only
        where both lists have that element at one position: a neighbour that took its place is compared.

        Raises:
            PathAmbiguous: several elements of a list are what a part of a path picks one of.
        """
        if not self.ignored_new and not any(map(_picks, self._patterns())):
            return self, expected, actual
        new = tuple(
            found
            for path in filter(_picks, self.ignored_new)
            for found in {each: None for side in (expected, actual) for each in matching(side, path)}
            if lookup(initial, found) is ABSENT
        )
        ignored = (*self.ignored, *new)
        for path in ignored:
            if path and isinstance(path[-1], Pick):
                initial, expected, actual = (without(side, path) for side in (initial, expected, actual))

        def placed(paths: Iterable[Path]) -> tuple[Path, ...]:
            found: dict[Path, None] = {}
            for path in paths:
                there = set(by_position(actual, path)) if _picks(path) else None
                places = by_position(expected, path)
                found |= dict.fromkeys([path] if there is None else [each for each in places if each in there])
            return tuple(found)

        comparison = replace(
            self,
            ignored=placed(path for path in ignored if not (path and isinstance(path[-1], Pick))),
            unordered=placed(self.unordered),
            ignored_new=tuple(path for path in self.ignored_new if not _picks(path)),
            initial=initial,
        )
        return comparison, expected, actual

    def also_ignoring(self, paths: tuple[Path, ...]) -> "Comparison":
        """The same comparison with further paths left out."""
        return replace(self, ignored=(*self.ignored, *paths)) if paths else self

    def leaves_out(self, path: Path) -> bool:
        """Whether a path, or something that it lies in, is left out."""
        return any(self.ignores(path[:length]) for length in range(len(path) + 1))

    def _patterns(self) -> tuple[Path, ...]:
        return (*self.ignored, *self.unordered, *self.ignored_new)

    def equal(self, expected: Any, actual: Any, at: Path = ()) -> bool:
        """Whether `actual` is what `expected` says; `at` is where the two stand in the whole value."""
        if not (self.ignored or self.unordered or self.ignored_new or self.tolerance is not None):
            return _alike(expected, actual, self.mode == "subset")
        if self.ignores(at):
            return True
        if isinstance(expected, dict):
            return isinstance(actual, dict) and self._objects(expected, actual, at)
        if isinstance(expected, list):
            if not isinstance(actual, list):
                return False
            return (self._multisets if self.is_unordered(at) else self._lists)(expected, actual, at)
        return self._scalars(expected, actual)

    def ignores(self, at: Path) -> bool:
        """Whether what stands at a path is left out."""
        if self.ignored and _any_matches(self.ignored, at):
            return True
        return bool(self.ignored_new) and _any_matches(self.ignored_new, at) and lookup(self.initial, at) is ABSENT

    def is_unordered(self, at: Path) -> bool:
        """Whether a list at a path is a multiset."""
        return bool(self.unordered) and _any_matches(self.unordered, at)

    def _objects(self, expected: dict[str, Any], actual: dict[str, Any], at: Path) -> bool:
        for key, value in expected.items():
            if key in actual:
                if not self.equal(value, actual[key], (*at, key)):
                    return False
            elif not self.ignores((*at, key)):
                return False
        return self.mode == "subset" or all(key in expected or self.ignores((*at, key)) for key in actual)

    def _lists(self, expected: list[Any], actual: list[Any], at: Path) -> bool:
        shorter, longer = sorted((len(expected), len(actual)))
        if not all(self.ignores((*at, str(i))) for i in range(shorter, longer)):
            return False
        return all(self.equal(e, a, (*at, str(i))) for i, (e, a) in enumerate(zip(expected, actual, strict=False)))

    def _multisets(self, expected: list[Any], actual: list[Any], at: Path) -> bool:
        if self.mode == "exact" and self.tolerance is None:
            return self._token(expected, at) == self._token(actual, at)
        item = (*at, "*")
        if self.ignores(item):
            return True
        # With `subset` or a tolerance equality is not transitive, and the first partner that fits may be the wrong one.
        return len(expected) == len(actual) and can_be_paired(
            [[j for j, a in enumerate(actual) if self.equal(e, a, item)] for e in expected]
        )

    def _token(self, value: Any, at: Path) -> Hashable:
        """Something hashable that two values share just when they are equal, exactly and without a tolerance; `()`
        for what is left out. Counting tokens compares multisets without trying every pair."""
        if self.ignores(at):
            return ()
        if isinstance(value, list) and self.is_unordered(at):
            counts = Counter(self._token(each, (*at, "*")) for each in value)
            return list, frozenset(each for each in counts.items() if each[0] != ())
        if isinstance(value, dict | list):
            members = value.items() if isinstance(value, dict) else enumerate(value)
            tokens = ((key, self._token(member, (*at, str(key)))) for key, member in members)
            return type(value), frozenset(each for each in tokens if each[1] != ())
        return isinstance(value, bool), value

    def _scalars(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, bool) or isinstance(actual, bool):
            return expected is actual
        if isinstance(expected, int | float) and isinstance(actual, int | float):
            if self.tolerance is None or expected == actual:
                return bool(expected == actual)
            return _within(expected, actual, self.tolerance)
        return type(expected) is type(actual) and bool(expected == actual)


EXACT = Comparison()


def json_equal(expected: Any, actual: Any) -> bool:
    """Equality of two JSON values: 1 equals 1.0, true equals only true, an absent key is not null."""
    return EXACT.equal(expected, actual)


def decimal_of(number: int | float) -> decimal.Decimal:
    """A number's decimal text as an exact Decimal."""
    with integers_of_any_size():
        return decimal.Decimal(repr(number))


def _within(expected: int | float, actual: int | float, tolerance: decimal.Decimal) -> bool:
    """|expected - actual| <= tolerance without rounding: the context is as wide as the two numbers together."""
    a, b = decimal_of(expected), decimal_of(actual)
    places = max(x.adjusted() for x in (a, b, tolerance)) - min(int(x.as_tuple().exponent) for x in (a, b, tolerance))
    with decimal.localcontext(decimal.Context(prec=max(28, places + 3), Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)):
        return abs(a - b) <= tolerance


def can_be_paired(fits: list[list[int]]) -> bool:
    """Whether every left item can have a right partner of its own, given the right positions that fit each: Kuhn's
    augmenting paths, walked without recursion."""
    left_of: dict[int, int] = {}
    right_of: dict[int, int] = {}
    for start in range(len(fits)):
        reached_from: dict[int, int] = {}
        waiting, free = [start], None
        while waiting and free is None:
            left = waiting.pop()
            for right in fits[left]:
                if right not in reached_from:
                    reached_from[right] = left
                    if right not in left_of:
                        free = right
                        break
                    waiting.append(left_of[right])
        if free is None:
            return False
        while free is not None:  # each item on the way hands its partner on
            left = reached_from[free]
            left_of[free], right_of[left], free = left, free, right_of.get(left)
    return True


def _alike(expected: Any, actual: Any, subset: bool) -> bool:
    """Equality where nothing is left out and no list is a multiset, so that it does not matter where a value stands."""
    if expected is actual:
        return True
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or not (subset or len(expected) == len(actual)):
            return False
        return all(key in actual and _alike(value, actual[key], subset) for key, value in expected.items())
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return False
        return all(_alike(e, a, subset) for e, a in zip(expected, actual, strict=True))
    if isinstance(expected, bool) or isinstance(actual, bool):
        return False  # else they were the same
    return bool(expected == actual)


def _picks(path: Path) -> bool:
    """Whether a path picks an element of a list by a member."""
    return any(isinstance(part, Pick) for part in path)


def _any_matches(patterns: tuple[Path, ...], path: Path) -> bool:
    return any(
        len(pattern) == len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=True))
        for pattern in patterns
    )
