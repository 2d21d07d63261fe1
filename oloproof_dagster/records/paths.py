"""Paths into JSON values: how one is read, shown, and followed to the value that it names."""

import re
from collections.abc import Iterator
from typing import Any


class Absent:
    """What a path that leads nowhere yields: never equal to anything, and never null."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


Path = tuple[str, ...]


class Pick(str):
    """A part such as `[id=b-zoe]`: the one element of a list whose member `key` is the text `value`."""

    __slots__ = ("key", "value")
    key: str
    value: str

    def __new__(cls, key: str, value: str) -> "Pick":
        """The part that picks by a member and its text."""
        part = super().__new__(cls, f"[{key}={value}]")
        part.key, part.value = key, value
        return part


class PathAmbiguous(ValueError):
    """Several elements of a list are what a path picks one of."""


_PICKS = re.compile(r"(?P<name>[^\[\]]*)(?P<picks>(\[[^\[\]=]+=[^\[\]]*\])+)")
_DOTS = re.compile(r"\.(?![^\[\]]*\])")


def parse_path(text: str) -> Path:
    """The parts of a dotted path or, when it starts with `/`, of a JSON Pointer; `$` is the whole value.

    `list[key=text]` picks the one element of a list whose `key` is that text.

    Raises:
        ValueError: an empty part, or a `~` in a pointer that is neither `~0` nor `~1`.

    >>> parse_path("orders.ord-001.items.0"), parse_path("/orders/a.b/x~1y")
    (('orders', 'ord-001', 'items', '0'), ('orders', 'a.b', 'x/y'))
    >>> parse_path("bookings[id=b.zoe].status")
    ('bookings', '[id=b.zoe]', 'status')
    """
    if text == "$":
        return ()
    if text.startswith("/"):
        parts = text[1:].split("/")
        for part in parts:
            if "~" in part.replace("~0", "").replace("~1", ""):
                raise ValueError(f"{text!r} is no JSON Pointer: write ~0 for ~ and ~1 for /")
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
    steps = tuple(step for part in _DOTS.split(text) for step in _steps(part))
    if not all(steps):
        raise ValueError(f"{text!r} has an empty part; a key that holds a dot is written as a JSON Pointer: /a.b/c")
    return steps


def _steps(part: str) -> Iterator[str]:
    found = _PICKS.fullmatch(part)
    if found is None:
        yield from part.split(".")
        return
    if found["name"]:
        yield found["name"]
    for pick in found["picks"][1:-1].split("]["):
        key, _, value = pick.partition("=")
        yield Pick(key, value)


def show_path(path: Path) -> str:
    """A path as people write it: dotted where that is unambiguous, else a JSON Pointer; `$` for the whole value."""
    if not path:
        return "$"
    dotted = "".join(part if isinstance(part, Pick) else f".{part}" for part in path).removeprefix(".")
    if any(isinstance(part, Pick) for part in path):
        return dotted
    plain = all(part and "." not in part and not _PICKS.fullmatch(part) for part in path)
    if plain and not path[0].startswith("/") and path != ("$",):
        return dotted
    return pointer(path)


def pointer(path: Path) -> str:
    """A path as a JSON Pointer (RFC 6901); empty for the whole value."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def lookup(value: Any, path: Path) -> Any:
    """The value at a path, or ABSENT. A part is a key of an object, a position from 0 of a list, or a Pick.

    Raises:
        PathAmbiguous: several elements of a list are what a part picks one of.
    """
    for part in path:
        if isinstance(part, Pick):
            position = _picked(value, part, path)
            value = ABSENT if position is None else value[position]
        elif isinstance(value, dict):
            value = value.get(part, ABSENT)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 19:
            position = int(part)
            value = value[position] if position < len(value) and part == str(position) else ABSENT
        else:
            return ABSENT
    return value


def matching(value: Any, path: Path) -> Iterator[Path]:
    """The paths to what stands at a path in which `*` is any key or position; a path without one is itself.

    Only paths that lead somewhere: none where a `*` finds nothing.
    """
    if "*" not in path:
        if lookup(value, path) is not ABSENT:
            yield path
        return
    at = path.index("*")
    inside = lookup(value, path[:at])
    keys: list[str] = []
    if isinstance(inside, dict):
        keys = list(inside)
    elif isinstance(inside, list):
        keys = [str(position) for position in range(len(inside))]
    for key in keys:
        for rest in matching(inside[key] if isinstance(inside, dict) else inside[int(key)], path[at + 1 :]):
            yield (*path[:at], key, *rest)


def places(value: Any, path: Path) -> Iterator[Path]:
    """As `matching`, with each Pick in a path replaced by the position that it names.

    Raises:
        PathAmbiguous: several elements of a list are what a part picks one of.
    """
    for found in matching(value, path):
        yield from by_position(value, found)


def by_position(value: Any, path: Path) -> Iterator[Path]:
    """A pattern with each Pick replaced by the position that it names in a value; none where it names nothing."""
    at = next((at for at, part in enumerate(path) if isinstance(part, Pick)), None)
    if at is None:
        yield path
        return
    for before in matching(value, path[:at]):
        pick = path[at]
        assert isinstance(pick, Pick)
        position = _picked(lookup(value, before), pick, path)
        if position is not None:
            yield from by_position(value, (*before, str(position), *path[at + 1 :]))


def without(value: Any, path: Path) -> Any:
    """A value without the elements of lists that a path picks by its last part; what is untouched is not copied.

    Raises:
        PathAmbiguous: several elements of a list are what a part picks one of.
    """
    part, rest = path[0], path[1:]
    if isinstance(part, Pick):
        at = _picked(value, part, path)
        keys: list[Any] = [] if at is None else [at]
        if keys and not rest:
            return [each for position, each in enumerate(value) if position != at]
    elif isinstance(value, dict):
        keys = list(value) if part == "*" else [part] if part in value else []
    elif isinstance(value, list):
        found = range(len(value)) if part == "*" else (i for i in range(len(value)) if str(i) == part)
        keys = list(found)
    else:
        keys = []
    changed = {key: new for key in keys if rest and (new := without(value[key], rest)) is not value[key]}
    if not changed:
        return value
    if isinstance(value, dict):
        return value | changed
    return [changed.get(position, each) for position, each in enumerate(value)]


def _picked(value: Any, pick: Pick, path: Path) -> int | None:
    if not isinstance(value, list):
        return None
    found = [i for i, each in enumerate(value) if isinstance(each, dict) and each.get(pick.key) == pick.value]
    if len(found) > 1:
        raise PathAmbiguous(f"{show_path(path)}: {len(found)} elements have {pick.key} {pick.value!r}")
    return found[0] if found else None
