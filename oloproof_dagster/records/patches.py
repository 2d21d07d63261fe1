"""JSON values changed by a patch: an object is a JSON Merge Patch (RFC 7396), a list a JSON Patch (RFC 6902).

Nothing is changed in place; what a patch does not touch is shared by both values, and keys keep their order.
"""

from typing import Any

from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.paths import ABSENT, Path, lookup, parse_path

_MEMBERS = {
    "add": ("value",),
    "replace": ("value",),
    "test": ("value",),
    "remove": (),
    "move": ("from",),
    "copy": ("from",),
}


def patched(value: Any, patch: Any) -> Any:
    """The value under a patch of either kind.

    Raises:
        ValueError: an operation that is none, or that leads nowhere, naming it by its position from 0.

    >>> patched({"a": 1, "log": ["x"]}, {"a": None, "b": {"c": 2}})
    {'log': ['x'], 'b': {'c': 2}}
    >>> patched({"a": 1, "log": ["x"]}, [{"op": "add", "path": "/log/-", "value": "y"}])
    {'a': 1, 'log': ['x', 'y']}
    """
    if isinstance(patch, dict):
        return _merged(value, patch)
    if not isinstance(patch, list):
        raise ValueError("must be an object (JSON Merge Patch) or a list of operations (JSON Patch)")
    for position, operation in enumerate(patch):
        try:
            value = _operated(value, operation)
        except ValueError as error:
            raise ValueError(f"operation {position}: {error}") from None
    return value


def state_patch(expected: Any, field: Path) -> Any:
    """A case's `expected.state_patch`, where it takes the place of the field that is compared with; else ABSENT."""
    return lookup(expected, ("state_patch",)) if field == ("state",) else ABSENT


def expected_state(expected: Any, field: Path, initial: Any) -> Any:
    """The state that a case expects, or ABSENT: the declared one, or its initial one with the case's patch."""
    patch = state_patch(expected, field)
    return lookup(expected, field) if patch is ABSENT or initial is ABSENT else patched(initial, patch)


def replaced(value: Any, path: Path, new: Any) -> Any:
    """The value with another one in place of what stands at a path.

    Raises:
        ValueError: the path leads nowhere.
    """
    if not path:
        return new
    key, copy = _key(value, path[0]), value.copy()
    copy[key] = replaced(value[key], path[1:], new)
    return copy


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change)
    return merged


def _operated(value: Any, operation: Any) -> Any:
    op = operation.get("op") if isinstance(operation, dict) else None
    if not isinstance(op, str) or op not in _MEMBERS:
        raise ValueError(f"must be an object whose `op` is one of {', '.join(_MEMBERS)}")
    for member in ("path", *_MEMBERS[op]):
        if member not in operation:
            raise ValueError(f"{op} needs `{member}`")
    path = _pointer(operation["path"])
    if op in ("move", "copy"):
        start = _pointer(operation["from"])
        if op == "move" and path[: len(start)] == start and path != start:
            raise ValueError("move would put a value inside itself")
        moved = _at(value, start)
        return _added(value if op == "copy" else _removed(value, start), path, moved)
    if op == "add":
        return _added(value, path, operation["value"])
    found = _at(value, path)
    if op == "test" and not json_equal(operation["value"], found):
        raise ValueError(f"{operation['path']} is not what `test` says")
    if op == "remove":
        return _removed(value, path)
    return value if op == "test" else replaced(value, path, operation["value"])


def _pointer(text: Any) -> Path:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise ValueError(f"{text!r} is no JSON Pointer; write one such as /orders/0/status")
    return parse_path(text) if text else ()


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[_key(value, part)]
    return value


def _key(value: Any, part: str, *, beyond: bool = False) -> Any:
    """The key or position that a part of a pointer is in a value; `beyond`: also the position after the last."""
    if isinstance(value, dict) and (part in value or beyond):
        return part
    if isinstance(value, list):
        if beyond and part == "-":
            return len(value)
        if part.isascii() and part.isdigit() and str(int(part)) == part and int(part) < len(value) + beyond:
            return int(part)
    raise ValueError(f"there is no {part!r} where the path leads")


def _added(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    if len(path) > 1:
        key = _key(value, path[0])
        return replaced(value, path[:1], _added(value[key], path[1:], new))
    key, copy = _key(value, path[0], beyond=True), value.copy()
    if isinstance(copy, list):
        copy.insert(key, new)
    else:
        copy[key] = new
    return copy


def _removed(value: Any, path: Path) -> Any:
    if not path:
        raise ValueError("the whole value cannot be removed")
    key, copy = _key(value, path[0]), value.copy()
    if len(path) > 1:
        copy[key] = _removed(value[key], path[1:])
    else:
        del copy[key]
    return copy
