"""Paths into JSON values: how one is read, shown, and followed to the value that it names."""

from typing import Any


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
