"""Canonical JSON and digests: what labels and keys made elsewhere, or years ago, are compared with."""

import datetime
import decimal
import enum
import json
import math
import sys
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.digests import (
    MOST_LEVELS,
    canonical_json,
    canonical_of,
    copy_in_order,
    digest,
    digest_of_text,
    dump,
    integers_of_any_size,
    json_in_order,
    json_object,
    parse_canonical,
    sha256,
)
from oloproof_dagster.errors import NotJSON
from oloproof_dagster.records.comparison import json_equal
from tests.support import VECTORS

EXPECTED = json.loads((VECTORS / "digests.json").read_text(encoding="utf-8"))

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@pytest.mark.parametrize("vector", EXPECTED["canonical_json"], ids=lambda vector: vector["utf8"])
def test_canonical_json_and_its_digest_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    assert canonical_json(vector["value"]) == vector["utf8"]
    assert digest(vector["digest_domain"], vector["value"]) == vector["digest"]
    assert digest_of_text(vector["digest_domain"], vector["utf8"]) == vector["digest"]


@given(VALUES)
def test_a_value_read_back_from_its_canonical_text_is_the_same_value(value: Any) -> None:
    text = canonical_json(value)
    read = parse_canonical(text)
    assert json_equal(read, value)
    assert canonical_json(read) == text


@given(VALUES)
def test_the_canonical_text_is_the_one_that_json_writes_with_sorted_keys_and_no_spaces(value: Any) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_json(value) == dump(value) == text


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(member) for key, member in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_order_in_which_keys_were_written_changes_nothing(value: Any) -> None:
    assert canonical_json(reordered(value)) == canonical_json(value)


@given(st.lists(SCALARS, min_size=2))
def test_the_order_of_a_list_is_part_of_it(items: list[Any]) -> None:
    texts = [canonical_json(item) for item in items]
    assert (canonical_json(items) == canonical_json(items[::-1])) == (texts == texts[::-1])


@given(VALUES, VALUES)
def test_two_values_have_one_digest_only_if_they_have_one_text(one: Any, other: Any) -> None:
    assert (digest("d", one) == digest("d", other)) == (canonical_json(one) == canonical_json(other))


def test_true_1_and_1_0_are_three_values_and_so_are_null_and_an_absent_key() -> None:
    texts = [canonical_json(value) for value in (True, 1, 1.0, "1", None, {}, {"a": None}, [], [None])]
    assert len(set(texts)) == len(texts)


def test_a_digest_belongs_to_its_domain() -> None:
    assert digest("case/v1", {}) != digest("case/v2", {})
    assert digest("a", "x") == "sha256:" + sha256('a\0"x"').removeprefix("sha256:")


@given(st.dictionaries(TEXT, VALUES))
def test_an_object_put_together_from_texts_is_the_canonical_text_of_the_whole(value: dict[str, Any]) -> None:
    plain = {key: member for key, member in value.items() if json.dumps(key) == f'"{key}"'}
    assert json_object(**{key: canonical_json(member) for key, member in plain.items()}) == canonical_json(plain)


@given(VALUES)
def test_a_text_in_order_keeps_the_order_of_keys_and_has_the_canonical_text_of_the_value(value: Any) -> None:
    text = json_in_order(value)
    assert json.dumps(parse_canonical(text)) == json.dumps(value)
    assert canonical_of(text) == canonical_json(value)


def test_the_copy_shares_nothing_with_the_value() -> None:
    value = {"orders": [{"id": 1}]}
    text, copy = copy_in_order(value)
    value["orders"][0]["id"] = 2
    assert copy == {"orders": [{"id": 1}]}
    assert text == '{"orders":[{"id":1}]}'


Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Liar(dict[Any, Any]):
    """Equal to everything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def circular() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


NOT_JSON: dict[str, tuple[Any, str]] = {
    "a tuple": ((1, 2), "is of type tuple, which is not JSON"),
    "a named tuple": (Point(1, 2), "is of type Point, which is not JSON"),
    "a set": ({1}, "is of type set, which is not JSON"),
    "a date": (datetime.date(2026, 11, 30), "is of type date, which is not JSON"),
    "a time": (datetime.datetime(2026, 11, 30), "is of type datetime, which is not JSON"),
    "a Decimal": (decimal.Decimal("0.1"), "is of type Decimal, which is not JSON"),
    "bytes": (b"x", "is of type bytes, which is not JSON"),
    "a deque": (deque([1]), "is of type deque, which is not JSON"),
    "an enum": (Colour.RED, "is of type Colour, which is not JSON"),
    "an object": (object(), "is of type object, which is not JSON"),
    "a complex number": (1j, "is of type complex, which is not JSON"),
    "NaN": (math.nan, "is nan, which JSON has no number for"),
    "infinity": (-math.inf, "is -inf, which JSON has no number for"),
    "half a surrogate pair": ("\ud800", "holds half of a surrogate pair, which UTF-8 cannot write"),
    "a number as key": ({1: "a"}, "has the key 1 of type int; keys of a JSON object are text"),
    "true as key": ({True: "a"}, "has the key True of type bool; keys of a JSON object are text"),
    "null as key": ({None: "a"}, "has the key None of type NoneType; keys of a JSON object are text"),
    "a tuple as key": ({("a", 1): 1}, "has the key ('a', 1) of type tuple; keys of a JSON object are text"),
    "half a surrogate pair in a key": (
        {"\ud800": 1},
        "has the key '\\ud800', which holds half of a surrogate pair, which UTF-8 cannot write",
    ),
    "an object whose == is its own": (Liar({1: "a"}), "is of type Liar, whose == is its own; give a plain dict"),
    "keys of two types": ({"a": 1, 2: 1}, "has the key 2 of type int; keys of a JSON object are text"),
}


@pytest.mark.parametrize(("value", "what"), NOT_JSON.values(), ids=NOT_JSON)
def test_what_json_cannot_hold_is_refused_with_the_path_of_the_value(value: Any, what: str) -> None:
    with pytest.raises(NotJSON) as caught:
        canonical_json({"fine": [1], "orders": [0, {"a": value}]})
    assert (caught.value.path, caught.value.what) == ("$.orders.1.a", what)
    assert str(caught.value) == f"$.orders.1.a {what}"


@pytest.mark.parametrize(("value", "what"), NOT_JSON.values(), ids=NOT_JSON)
def test_a_value_that_is_itself_not_json_stands_at_the_root(value: Any, what: str) -> None:
    with pytest.raises(NotJSON) as caught:
        digest("d", value)
    assert (caught.value.path, caught.value.what) == ("$", what)


def test_a_value_inside_itself_is_refused_with_its_path() -> None:
    with pytest.raises(NotJSON) as caught:
        canonical_json({"a": circular()})
    assert str(caught.value) == "$.a.1.again contains itself"


def test_one_object_in_two_places_is_no_circle() -> None:
    shared = {"id": 1}
    assert canonical_json([shared, shared]) == '[{"id":1},{"id":1}]'


def test_subclasses_that_json_writes_as_the_values_they_are_stay_those_values() -> None:
    class Status(enum.StrEnum):
        OK = "ok"

    class Size(enum.IntEnum):
        BIG = 3

    assert (
        canonical_json([OrderedDict(b=1, a=2), Counter("aa"), Status.OK, Size.BIG]) == '[{"a":2,"b":1},{"a":2},"ok",3]'
    )


@pytest.mark.parametrize("levels", [1, 50, MOST_LEVELS])
def test_nested_values_are_kept(levels: int) -> None:
    assert canonical_json(nested(levels)) == "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 5_000, 100_000])
def test_a_value_nested_too_deep_is_refused_whatever_python_could_read(levels: int) -> None:
    with pytest.raises(NotJSON, match="is nested more than 400 levels deep"):
        canonical_json(nested(levels))


def test_wide_values_are_not_deep_ones() -> None:
    value = [[{"a": [n]}] for n in range(1000)]
    assert parse_canonical(canonical_json(value)) == value


def test_a_refusal_needs_no_room_that_a_deep_caller_has_used_up() -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            canonical_json(nested(1_000))

    with pytest.raises(NotJSON, match="nested"):
        deep(sys.getrecursionlimit() - 200)


@pytest.fixture
def big() -> Iterator[int]:
    """An integer of 5000 digits, more than Python reads and writes by default."""
    with integers_of_any_size():
        yield int("7" * 5000)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_of_5000_digits_is_kept_exactly(big: int, sign: int) -> None:
    text = canonical_json({"n": sign * big})
    assert text == '{"n":' + "-" * (sign < 0) + "7" * 5000 + "}"
    assert parse_canonical(text) == {"n": sign * big}
    assert digest("d", big) != digest("d", big + 1)


def test_the_limit_on_digits_is_python_s_own_again_after_a_long_integer_was_read() -> None:
    before = sys.get_int_max_str_digits()
    assert before > 0
    parse_canonical(canonical_json([10**4999]))
    with pytest.raises(KeyError), integers_of_any_size():
        raise KeyError
    assert sys.get_int_max_str_digits() == before


@given(st.integers(min_value=4200, max_value=6000), st.integers(min_value=0, max_value=9))
def test_integers_around_python_s_limit_survive(digits: int, last: int) -> None:
    value = 10**digits + last
    assert parse_canonical(canonical_json(value)) == value
