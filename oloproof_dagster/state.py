"""JSON values compared: paths into them, equality, and the rows that say where two of them differ."""

import decimal
from dataclasses import dataclass
from typing import Any, Literal

from oloproof_dagster.digests import integers_of_any_size

Mode = Literal["exact", "subset"]


class Absent:
    """What a path that leads nowhere yields: never equal to anything, and never null."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()

Path = tuple[str, ...]


def parse_path(text: str) -> Path:
    """The parts of a dotted path or, when it starts with `/`, of a JSON Pointer; `$` is the whole value.

    Raises:
        ValueError: an empty part, or a `~` in a pointer that is neither `~0` nor `~1`.

    >>> parse_path("orders.ord-001.items.0"), parse_path("/orders/a.b/x~1y")
    (('orders', 'ord-001', 'items', '0'), ('orders', 'a.b', 'x/y'))
    """
    if text == "$":
        return ()
    if text.startswith("/"):
        parts = text[1:].split("/")
        for part in parts:
            if "~" in part.replace("~0", "").replace("~1", ""):
                raise ValueError(f"{text!r} is no JSON Pointer: write ~0 for ~ and ~1 for /")
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
    parts = text.split(".")
    if not all(parts):
        raise ValueError(f"{text!r} has an empty part; a key that holds a dot is written as a JSON Pointer: /a.b/c")
    return tuple(parts)


def show_path(path: Path) -> str:
    """A path as people write it: dotted where that is unambiguous, else a JSON Pointer; `$` for the whole value."""
    if not path:
        return "$"
    if all(part and "." not in part for part in path) and not path[0].startswith("/") and path != ("$",):
        return ".".join(path)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def lookup(value: Any, path: Path) -> Any:
    """The value at a path, or ABSENT. A part is a key of an object or a position from 0 of a list."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 19:
            position = int(part)
            value = value[position] if position < len(value) and part == str(position) else ABSENT
        else:
            return ABSENT
    return value


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two JSON values are compared: `ignored` paths are left out (`*` stands for any one key or position),
    lists at `unordered` paths are multisets, numbers agree within `tolerance` (decimal text, None: exactly)."""

    mode: Mode = "exact"
    tolerance: decimal.Decimal | None = None
    ignored: tuple[Path, ...] = ()
    unordered: tuple[Path, ...] = ()

    def equal(self, expected: Any, actual: Any, at: Path = ()) -> bool:
        """Whether `actual` is what `expected` says; `at` is where the two stand in the whole value."""
        if self.ignored and _any_matches(self.ignored, at):
            return True
        if isinstance(expected, dict):
            return isinstance(actual, dict) and self._objects(expected, actual, at)
        if isinstance(expected, list):
            if not isinstance(actual, list):
                return False
            if self.unordered and _any_matches(self.unordered, at):
                return self._multisets(expected, actual, at)
            return len(expected) == len(actual) and all(
                self.equal(e, a, (*at, str(i))) for i, (e, a) in enumerate(zip(expected, actual, strict=True))
            )
        return self._scalars(expected, actual)

    def _objects(self, expected: dict[str, Any], actual: dict[str, Any], at: Path) -> bool:
        for key, value in expected.items():
            if key in actual:
                if not self.equal(value, actual[key], (*at, key)):
                    return False
            elif not (self.ignored and _any_matches(self.ignored, (*at, key))):
                return False
        return self.mode == "subset" or all(
            key in expected or (bool(self.ignored) and _any_matches(self.ignored, (*at, key))) for key in actual
        )

    def _multisets(self, expected: list[Any], actual: list[Any], at: Path) -> bool:
        """A one-to-one pairing of the items, found by augmenting paths: with `subset` or a tolerance equality is not
        transitive, so that taking the first partner that fits could miss a pairing that exists."""
        if len(expected) != len(actual):
            return False
        fits = [[j for j, a in enumerate(actual) if self.equal(e, a, (*at, str(j)))] for e in expected]
        partner: dict[int, int] = {}

        def place(i: int, tried: set[int]) -> bool:
            for j in fits[i]:
                if j not in tried:
                    tried.add(j)
                    if j not in partner or place(partner[j], tried):
                        partner[j] = i
                        return True
            return False

        return all(place(i, set()) for i in range(len(expected)))

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


def _any_matches(patterns: tuple[Path, ...], path: Path) -> bool:
    return any(
        len(pattern) == len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=True))
        for pattern in patterns
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """One compared path. `expected` is what was wanted (or was there before); `absent`: the actual side lacks it.

    `expected` is ABSENT where the actual side holds something that nobody expected.
    """

    path: str
    expected: Any
    actual: Any
    matches: bool

    @property
    def absent(self) -> bool:
        return self.actual is ABSENT

    def members(self) -> dict[str, Any]:
        """The row as JSON members; an absent side is null there, `absent` and `unexpected` tell it from a null."""
        row = {
            "path": self.path,
            "expected": None if self.expected is ABSENT else self.expected,
            "actual": None if self.absent else self.actual,
            "absent": self.absent,
            "matches": self.matches,
        }
        return row | {"unexpected": True} if self.expected is ABSENT else row


def compare_at(comparison: Comparison, path: Path, expected: Any, actual: Any) -> tuple[Compared, ...]:
    """The row for one path and, where it fails on objects or lists, a row for each leaf that differs."""
    matches = actual is not ABSENT and comparison.equal(expected, actual, path)
    row = Compared(show_path(path), expected, actual, matches)
    if matches or not (isinstance(expected, dict | list) and isinstance(actual, dict | list)):
        return (row,)
    return (row, *differences(comparison, expected, actual, path))


MOST_DIFFERENCES = 200


def differences(comparison: Comparison, expected: Any, actual: Any, at: Path = ()) -> tuple[Compared, ...]:
    """A row for each leaf at which two unequal values differ, found with DeepDiff; at most MOST_DIFFERENCES."""
    from deepdiff import DeepDiff  # half a second to import, and only a failed comparison needs it

    class Judge:
        """Our own equality at every pair, so that DeepDiff reports what the verdict was decided on."""

        def match(self, level: Any) -> bool:
            return True

        def give_up_diffing(self, level: Any, diff_instance: Any) -> bool:
            path = (*at, *map(str, level.path(output_format="list")))
            if comparison.equal(level.t1, level.t2, path):
                return True
            both = (isinstance(level.t1, dict) and isinstance(level.t2, dict)) or (
                isinstance(level.t1, list)
                and isinstance(level.t2, list)
                and not _any_matches(comparison.unordered, path)
            )
            if not both:
                diff_instance.custom_report_result("differs", level)
            return not both

    diff = DeepDiff(
        expected,
        actual,
        view="tree",
        custom_operators=[Judge()],
        zip_ordered_iterables=True,
        threshold_to_diff_deeper=0,
    )
    rows: list[Compared] = []
    for kind in (
        "differs",
        "dictionary_item_added",
        "dictionary_item_removed",
        "iterable_item_added",
        "iterable_item_removed",
    ):
        for level in diff.get(kind, ()):
            path = (*at, *map(str, level.path(output_format="list")))
            added, removed = kind.endswith("_added"), kind.endswith("_removed")
            if (kind == "dictionary_item_added" and comparison.mode == "subset") or _any_matches(
                comparison.ignored, path
            ):
                continue
            rows.append(
                Compared(show_path(path), ABSENT if added else level.t1, ABSENT if removed else level.t2, False)
            )
    return tuple(sorted(rows, key=lambda row: row.path)[:MOST_DIFFERENCES])
