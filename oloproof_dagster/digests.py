"""JSON texts and digests: the ground that keys, labels and data versions stand on.

What is handed over, stored and shown keeps the order of its keys (`json_in_order`); digests and keys are taken over the
canonical text, whose keys are sorted, so that reordering changes none of them.
"""

import contextlib
import hashlib
import json
import marshal
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from json.scanner import make_scanner
from typing import Any, cast

from oloproof_dagster.errors import NotJSON

MOST_LEVELS = 400
"""How deep a value may be nested. Python's own limit depends on its version and on who reads the value."""


@contextlib.contextmanager
def integers_of_any_size() -> Iterator[None]:
    """Lifts Python's limit on digits while JSON with a very long integer is read or written."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no ASCII escapes.

    Only what JSON holds exactly is accepted: None, booleans, integers of any size, finite floats, text, lists
    and objects with text keys. A tuple, a date, a Decimal or a number as a key is refused, never converted.

    Raises:
        NotJSON: naming the path of the first value that JSON cannot hold.

    >>> canonical_json({"b": 1, "a": [1.0, "ü"]})
    '{"a":[1.0,"ü"],"b":1}'
    """
    return _checked(value, dump)[0]


def json_in_order(value: Any) -> str:
    """The JSON text of a value with the keys of its objects in their own order; else as `canonical_json`.

    Raises:
        NotJSON: naming the path of the first value that JSON cannot hold.

    >>> json_in_order({"b": 1, "a": [1.0, "ü"]})
    '{"b":1,"a":[1.0,"ü"]}'
    """
    return _checked(value, dump_in_order)[0]


def copy_in_order(value: Any) -> tuple[str, Any]:
    """The text that `json_in_order` gives and a deep copy read back from that text."""
    return _checked(value, dump_in_order)


def json_of_json(value: Any) -> str:
    """The JSON text in order of a value whose parts were read from JSON, so that only its depth has to be checked.

    Raises:
        NotJSON: it is nested deeper than JSON is read here.
    """
    text = dump_in_order(value)
    if deeper_than(MOST_LEVELS, value, text):
        raise NotJSON("$", f"is nested more than {MOST_LEVELS} levels deep")
    return text


def canonical_of(text: str) -> str:
    """The canonical text of a JSON text that is in some other order."""
    return dump(parse_canonical(text))


def _checked(value: Any, write: Callable[[Any], str]) -> tuple[str, Any]:
    """A value's text and a deep copy read back from that text.

    Reading back and comparing finds silent conversions (a tuple written as a list, 1 as the key "1") in C speed. An
    object's own `==` is never trusted with that: a value that holds more than Python's own types is walked through.
    """
    try:
        text = write(value)
        text.encode("utf-8")
        if type(value) is str:  # keys are made of texts, many of them, and a text needs no second look
            return text, value
        copy = parse_canonical(text)
        same = copy == value if _is_of_plain_types(value) else _first_not_json(value, "$", ()) is None
        if same and not deeper_than(MOST_LEVELS, copy, text):
            return text, copy
    except (TypeError, ValueError, RecursionError):
        pass  # the walk below says which value it was
    try:
        path, what = _first_not_json(value, "$", ()) or ("$", "cannot be written as JSON")
    except RecursionError:  # a caller deep down has left little room
        path, what = "$", "is nested too deep to be read here"
    raise NotJSON(path, what)


def _is_of_plain_types(value: Any) -> bool:
    """Whether a value that JSON was written of holds none but Python's own types, whose `==` says what it seems to."""
    try:
        marshal.dumps(value)  # which takes no subclasses
    except ValueError:
        return False
    return True


def parse_canonical(text: str) -> Any:
    """The value of a text that canonical_json or json_in_order wrote."""
    try:
        return _scan(text, 0)[0]  # without the looks at white space and marks that json.loads takes at any text
    except ValueError as error:
        if "digits" not in str(error):
            raise
        with integers_of_any_size():
            return json.loads(text)


def deeper_than(levels: int, value: Any, text: str) -> bool:
    """Whether lists and objects stand in one another to more than so many levels; `text` is the value's JSON text."""
    if text.count("[") + text.count("{") <= levels:
        return False
    level = [value]
    for _ in range(levels):
        members = ((each.values() if isinstance(each, dict) else each) for each in level)
        level = [member for each in members for member in each if isinstance(member, dict | list)]
        if not level:
            return False
    return True


def sha256(text: str) -> str:
    """`sha256:` and the hex digest of the text's UTF-8 bytes."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def digest_of_text(domain: str, canonical: str) -> str:
    """The digest, within a domain, of a value whose canonical text is at hand."""
    return "sha256:" + hashlib.sha256(f"{domain}\0{canonical}".encode()).hexdigest()


def digest(domain: str, value: Any) -> str:
    """The digest of a value within a domain, `sha256:<64 hex digits>`.

    Raises:
        NotJSON: when the value is not JSON.
    """
    return digest_of_text(domain, canonical_json(value))


def json_object(**members: str) -> str:
    """The canonical text of an object whose members' canonical texts are given: no value is parsed again."""
    return "{" + ",".join(f'"{key}":{members[key]}' for key in sorted(members)) + "}"


def dump(value: Any) -> str:
    """The canonical text of a value that is known to be JSON; `canonical_json` checks it first."""
    return _written(_encode, value)


def dump_in_order(value: Any) -> str:
    """The same with the keys of its objects in their own order; `json_in_order` checks it first."""
    return _written(_encode_in_order, value)


def _written(encode: Callable[[Any], str], value: Any) -> str:
    try:
        return encode(value)
    except ValueError as error:
        if "digits" not in str(error):
            raise
        with integers_of_any_size():
            return encode(value)


def _encoder(*, sort_keys: bool) -> Callable[[Any], str]:
    """One encoder for all values: json.dumps makes one for each, which takes longer than to write a small value."""
    make = getattr(json.encoder, "c_make_encoder", None)
    plain = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if make is None:  # an interpreter without the module in C
        return plain.encode
    text = json.encoder.encode_basestring
    # No look-out for values that contain themselves: those end in a RecursionError.
    chunks = make(None, plain.default, text, None, ":", ",", sort_keys, False, False)
    return lambda value: text(value) if type(value) is str else "".join(chunks(value, 0))


_encode, _encode_in_order = _encoder(sort_keys=True), _encoder(sort_keys=False)
_scan = make_scanner(cast(Any, json.JSONDecoder()))


_HONEST = (dict.__eq__, list.__eq__, OrderedDict.__eq__, Counter.__eq__)
HALF_PAIR = "holds half of a surrogate pair, which UTF-8 cannot write"


def _is_utf8(text: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        text.encode("utf-8")
        return True
    return False


def _first_not_json(value: Any, path: str, above: tuple[int, ...]) -> tuple[str, str] | None:
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        finite = value == value and value not in (float("inf"), float("-inf"))
        return None if finite else (path, f"is {value}, which JSON has no number for")
    if isinstance(value, str):
        return None if _is_utf8(value) else (path, HALF_PAIR)
    if not isinstance(value, dict | list):
        return path, f"is of type {type(value).__name__}, which is not JSON"
    if type(value).__eq__ not in _HONEST:
        base = "dict" if isinstance(value, dict) else "list"
        return path, f"is of type {type(value).__name__}, whose == is its own; give a plain {base}"
    if id(value) in above:
        return path, "contains itself"
    if len(above) >= MOST_LEVELS:
        return path[:80] + "...", f"is nested more than {MOST_LEVELS} levels deep"
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in items:
        if isinstance(value, dict) and not isinstance(key, str):
            return path, f"has the key {key!r} of type {type(key).__name__}; keys of a JSON object are text"
        if isinstance(key, str) and not _is_utf8(key):
            return path, f"has the key {key!r}, which {HALF_PAIR}"
        found = _first_not_json(member, f"{path}.{key}", (*above, id(value)))
        if found:
            return found
    return None
