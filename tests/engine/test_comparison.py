"""State: paths into JSON values, their equality, and the rows that say where two of them differ."""

import decimal
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oloproof_dagster.digests import copy_in_order, json_in_order
from oloproof_dagster.records.compared import MOST_DIFFERENCES, Compared, compare_at, differences, value_digest
from oloproof_dagster.records.comparison import EXACT, Comparison, can_be_paired, json_equal
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path, show_path

unhurried = settings(deadline=None)  # on a busy machine an example may take long

# Few and awkward, so that two values drawn apart often have something in common.
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, -2, 2.5, 10**30, 1e30, "", "1", "a", "é", "e\u0301"])
KEYS = st.sampled_from(["a", "b", "c", "a.b", "x/y", "~", "0", "1", "", "$", "*", "__a__", "root", "['a']", 'a"b'])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=10
)
COMPARISONS = st.builds(
    Comparison,
    mode=st.sampled_from(["exact", "subset"]),
    tolerance=st.sampled_from([None, decimal.Decimal(0), decimal.Decimal(1)]),
    ignored=st.lists(st.lists(KEYS, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    unordered=st.lists(st.lists(KEYS, max_size=2).map(tuple), max_size=2).map(tuple),
)


@st.composite
def two_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value and, often, the same value with something in it changed."""
    value = draw(VALUES)
    if draw(st.booleans()):
        return value, draw(VALUES)
    return value, _edited(draw, value)


def _edited(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: member for name, member in value.items() if name != key}
        return draw(st.sampled_from([rest, {**rest, key: _edited(draw, value[key])}, {**value, "new": 1}]))
    if isinstance(value, list) and value:
        at = draw(st.integers(0, len(value) - 1))
        return draw(
            st.sampled_from([value[:at], [*value[:at], _edited(draw, value[at]), *value[at + 1 :]], value[::-1]])
        )
    return draw(VALUES)


def leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every path into a value, with what stands there."""
    yield at, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from leaves(member, (*at, str(key)))


@unhurried
@given(VALUES)
def test_a_value_equals_itself_and_its_copy_through_text(value: Any) -> None:
    assert json_equal(value, value)
    assert json_equal(value, copy_in_order(value)[1])


@unhurried
@given(two_values())
def test_exact_equality_does_not_ask_which_side_is_which(pair: tuple[Any, Any]) -> None:
    assert json_equal(*pair) == json_equal(*reversed(pair))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (10**16, 1e16),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        ([1, [2.0]], [1.0, [2]]),
    ],
)
def test_numbers_compare_by_value_and_keys_have_no_order(one: Any, other: Any) -> None:
    assert json_equal(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (False, 0),
        (True, 1.0),
        (1, "1"),
        ("true", True),
        (None, False),
        (None, ""),
        (None, 0),
        ({}, []),
        ({}, None),
        ([], None),
        ({"a": None}, {}),
        ({"a": 1}, {"a": 1, "b": None}),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        (2**53, 2**53 + 1),
        (10**16 + 1, 1e16),
        (10**400, 1e308),
        ("é", "e\u0301"),
        ("2026-11-30", "2026-11-30T00:00:00"),
        ({"0": 1}, [1]),
    ],
)
def test_values_of_another_kind_or_amount_are_unequal(one: Any, other: Any) -> None:
    assert not json_equal(one, other)


SUBSET = Comparison(mode="subset")


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        ({}, {"a": 1}, True),
        ({"a": {}}, {"a": {"b": 1}, "c": 2}, True),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        ({"a": [{}, {"b": 1}]}, {"a": [{"x": 1}, {"b": 1, "c": 1}], "d": 1}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": 2, "b": 1}, False),
        ([{"a": 1}], [{"a": 1}, {"a": 2}], False),
        ([], [1], False),
        ({}, [], False),
        ({"a": 1}, None, False),
    ],
)
def test_a_subset_asks_for_every_expected_key_at_any_depth_and_for_whole_lists(
    expected: Any, actual: Any, agree: bool
) -> None:
    assert SUBSET.equal(expected, actual) is agree


@unhurried
@given(two_values())
def test_what_is_exactly_equal_is_a_subset_and_two_subsets_of_each_other_are_equal(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert json_equal(one, other) == (SUBSET.equal(one, other) and SUBSET.equal(other, one))


@pytest.mark.parametrize(
    ("expected", "actual", "tolerance", "agree"),
    [
        (0.1, 0.4, "0.3", True),
        (0.1, 0.4, "0.29", False),
        (0.1, 0.4, "0.2999999999999999999999", False),
        (1, 1.0, "0", True),
        (1, 2.5, "1.5", True),
        (100, 100.01, "0.01", True),
        (100, 100.02, "0.01", False),
        (2**53, 2**53 + 1, "0", False),
        (2**53, 2**53 + 1, "1", True),
        (10**30, 10**30 + 2, "1", False),
        (10**400, 10**400 + 1, "1", True),
        (10**400, 10**400 + 2, "1", False),
        (10**400, 1e308, "1", False),
        (1e308, -1e308, "1e308", False),
        (1e308, -1e308, "2e308", True),
        (5e-324, 0, "5e-324", True),
        (5e-324, 0, "4e-324", False),
        (10**40, 1e-40, "1", False),
        (True, 1, "1", False),
        (True, False, "5", False),
        (1, "1", "1", False),
        (0, None, "1", False),
        ({"a": [1, {"b": 2}]}, {"a": [1.5, {"b": 2.5}]}, "0.5", True),
    ],
)
def test_a_tolerance_is_computed_on_decimal_text_and_never_rounds(
    expected: Any, actual: Any, tolerance: str, agree: bool
) -> None:
    comparison = Comparison(tolerance=decimal.Decimal(tolerance))
    assert comparison.equal(expected, actual) is agree
    assert comparison.equal(actual, expected) is agree


def test_a_tolerance_takes_integers_beyond_the_digits_that_python_writes() -> None:
    within_one = Comparison(tolerance=decimal.Decimal(1))
    assert within_one.equal(10**5000, 10**5000 + 1)
    assert not within_one.equal(10**5000, 10**5000 + 2)


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@unhurried
@given(NUMBERS, NUMBERS, st.decimals(min_value=0, allow_nan=False, allow_infinity=False))
def test_a_tolerance_agrees_with_exact_rational_arithmetic(
    expected: float, actual: float, tolerance: decimal.Decimal
) -> None:
    from fractions import Fraction

    within = abs(Fraction(repr(expected)) - Fraction(repr(actual))) <= Fraction(tolerance)
    assert Comparison(tolerance=tolerance).equal(expected, actual) == (within or expected == actual)


@pytest.mark.parametrize(
    ("ignored", "expected", "actual", "agree"),
    [
        ("a", {"a": 1, "b": 2}, {"a": 9, "b": 2}, True),
        ("a", {"a": 1, "b": 2}, {"b": 2}, True),
        ("a", {"b": 2}, {"a": 1, "b": 2}, True),
        ("a", {"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ("orders.*.at", {"orders": {"x": {"at": 1}, "y": {"at": 2}}}, {"orders": {"x": {"at": 3}, "y": {}}}, True),
        ("orders.*.at", {"orders": {"x": {"at": 1}}}, {"orders": {"x": {"at": 1}, "y": {"at": 2}}}, False),
        ("log.*.id", {"log": [{"id": 1, "v": 1}]}, {"log": [{"id": 7, "v": 1}]}, True),
        ("log.*.id", {"log": [{"id": 1}]}, {"log": [{"id": 1}, {"id": 2}]}, False),
        ("log.*", {"log": [1, 2]}, {"log": [3]}, True),
        ("log.1", {"log": [1]}, {"log": [1, 2]}, True),
        ("log.0", {"log": [1]}, {"log": [1, 2]}, False),
        ("log.*", {"log": [1]}, {"log": {"0": 1}}, False),
        ("*", {"a": 1}, {"b": 2}, True),
        ("*.a", {"a": 1}, {"a": 2}, False),
        ("/x.y/*", {"x.y": {"k": 1}}, {"x.y": {"k": 2}}, True),
        ("/*", {"*": 1, "k": 1}, {"*": 2, "k": 2}, True),
    ],
)
def test_ignored_paths_are_left_out_on_both_sides(ignored: str, expected: Any, actual: Any, agree: bool) -> None:
    assert Comparison(ignored=(parse_path(ignored),)).equal(expected, actual) is agree


NOWHERE = ("no key of any value",)


@unhurried
@given(two_values(), st.sampled_from([EXACT, SUBSET]))
def test_a_path_that_is_nowhere_changes_no_comparison(pair: tuple[Any, Any], how: Comparison) -> None:
    for beside in (replace(how, ignored=(NOWHERE,)), replace(how, unordered=(NOWHERE,))):
        assert how.equal(*pair) == beside.equal(*pair)
        assert compare_at(how, (), *pair) == compare_at(beside, (), *pair)


@unhurried
@given(VALUES, VALUES)
def test_whatever_stands_at_an_ignored_path_makes_no_difference(one: Any, other: Any) -> None:
    comparison = Comparison(ignored=(("k", "*", "v"),))
    for wrap in (lambda value: {"k": {"x": {"v": value}}}, lambda value: {"k": [{"v": value}, {"v": 1}]}):
        assert comparison.equal(wrap(one), wrap(other))


UNORDERED = Comparison(unordered=(("tags",), ("rows", "*", "tags")))


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        ({"tags": [1, 1, 2]}, {"tags": [2, 1, 1]}, True),
        ({"tags": [1, 1, 2]}, {"tags": [1, 2, 2]}, False),
        ({"tags": [1, True]}, {"tags": [True, 1.0]}, True),
        ({"tags": [1, True]}, {"tags": [1, 1]}, False),
        ({"tags": [{"a": [1, 2]}, {"a": [2, 1]}]}, {"tags": [{"a": [2, 1]}, {"a": [1, 2]}]}, True),
        ({"tags": [{"a": [1, 2]}]}, {"tags": [{"a": [2, 1]}]}, False),
        ({"tags": [[], {}]}, {"tags": [{}, []]}, True),
        ({"tags": [[], []]}, {"tags": [{}, []]}, False),
        ({"tags": [1]}, {"tags": {"0": 1}}, False),
        ({"rows": [{"tags": [1, 2]}]}, {"rows": [{"tags": [2, 1]}]}, True),
        ({"rows": [1, 2]}, {"rows": [2, 1]}, False),
    ],
)
def test_unordered_lists_are_multisets_and_lists_beside_and_inside_them_are_not(
    expected: Any, actual: Any, agree: bool
) -> None:
    assert UNORDERED.equal(expected, actual) is agree


LISTS = st.lists(VALUES, max_size=5)


@unhurried
@given(LISTS, st.randoms(use_true_random=False))
def test_an_unordered_list_equals_itself_in_any_order(items: list[Any], random: Any) -> None:
    shuffled = random.sample(items, len(items))
    for comparison in (Comparison(unordered=((),)), Comparison(unordered=((),), mode="subset")):
        assert comparison.equal(items, shuffled)


@unhurried
@given(LISTS, LISTS, COMPARISONS)
def test_unordered_lists_agree_just_when_some_order_of_one_agrees_with_the_other(
    expected: list[Any], actual: list[Any], comparison: Comparison
) -> None:
    """Against the plain definition: try every order. Patterns reach the items through `*` alone."""
    ignored = tuple(("*", *path[1:]) for path in comparison.ignored if len(path) > 1)
    by_item = Comparison(comparison.mode, comparison.tolerance, ignored, ())
    unordered = Comparison(comparison.mode, comparison.tolerance, ignored, ((),))
    some_order = len(expected) == len(actual) and any(
        by_item.equal(expected, list(order)) for order in itertools.permutations(actual)
    )
    assert unordered.equal(expected, actual) == some_order


def test_pairing_moves_earlier_partners_on_when_only_that_leaves_one_for_each() -> None:
    near = Comparison(tolerance=decimal.Decimal(1), unordered=((),))
    assert near.equal([1, 2, 3, 4], [2, 3, 4, 5])
    assert not near.equal([1, 2, 3, 4], [2, 3, 4, 6])


def test_a_partner_is_found_at_the_end_of_a_chain_longer_than_recursion_goes() -> None:
    """Each left item holds the right one that the item after it needs, and the last is looked for first."""
    n = 5_000
    chain = [[i - 1, i] for i in range(n - 1, 0, -1)]
    assert can_be_paired([*chain, [0]])
    assert not can_be_paired([*chain, [0], [0]])


def test_a_long_unordered_list_is_counted_and_not_tried_pair_by_pair() -> None:
    items = [{"id": number, "tags": ["a", number % 7]} for number in range(5_000)]
    comparison = Comparison(unordered=(("items",),), ignored=(("items", "*", "at"),))
    assert comparison.equal({"items": items}, {"items": [{**item, "at": 1} for item in reversed(items)]})
    assert not comparison.equal({"items": items}, {"items": [*items[1:], items[1]]})


PATHS = st.lists(KEYS | st.text(max_size=4), max_size=4).map(tuple)


@unhurried
@given(PATHS)
def test_a_path_that_is_shown_reads_back_as_the_same_path(path: tuple[str, ...]) -> None:
    assert parse_path(show_path(path)) == path


@unhurried
@given(VALUES)
def test_every_place_in_a_value_is_found_by_the_path_that_is_shown_for_it(value: Any) -> None:
    for path, found in leaves(value):
        assert lookup(value, parse_path(show_path(path))) is found


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$", ()),
        ("a", ("a",)),
        ("orders.ord-001.items.0.qty", ("orders", "ord-001", "items", "0", "qty")),
        ("/orders/a.b/qty", ("orders", "a.b", "qty")),
        ("/a~1b/c~0d/~01", ("a/b", "c~d", "~1")),
        ("/", ("",)),
        ("/a/", ("a", "")),
        ("/$", ("$",)),
        ("a/b", ("a/b",)),
    ],
)
def test_paths_are_dotted_or_json_pointers(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "/a~", "/a~2", "/~x"])
def test_a_path_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON Pointer"):
        parse_path(text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("list.0", "first"),
        ("list.1", None),
        ("list.2", ABSENT),
        ("list.-1", ABSENT),
        ("list.00", ABSENT),
        ("list.x", ABSENT),
        ("list.¹", ABSENT),
        ("list." + "9" * 30, ABSENT),
        ("object.0", "key of digits"),
        ("object.00", "another key"),
        ("null", None),
        ("null.x", ABSENT),
        ("text.0", ABSENT),
        ("absent", ABSENT),
    ],
)
def test_a_part_is_a_key_of_an_object_or_a_position_of_a_list(path: str, found: Any) -> None:
    value = {
        "list": ["first", None],
        "object": {"0": "key of digits", "00": "another key"},
        "null": None,
        "text": "abc",
    }
    assert lookup(value, parse_path(path)) is found


@unhurried
@given(two_values(), COMPARISONS)
def test_a_difference_row_exists_just_when_two_values_are_unequal(pair: tuple[Any, Any], how: Comparison) -> None:
    assert bool(differences(how, *pair)) == (not how.equal(*pair))


@unhurried
@given(two_values(), COMPARISONS)
def test_the_first_row_is_the_whole_and_the_others_are_leaves_as_they_stand_on_either_side(
    pair: tuple[Any, Any], how: Comparison
) -> None:
    first, *rest = compare_at(how, (), *pair)
    assert (first.path, first.matches) == ("$", how.equal(*pair))
    assert not (first.matches and rest)
    for row in rest:
        path = parse_path(row.path)
        assert not row.matches
        assert row.path != "$"
        assert row.expected is lookup(pair[0], path)
        assert row.actual is lookup(pair[1], path)
        both = (row.expected, row.actual)
        assert not all(isinstance(side, dict) for side in both)
        assert not all(isinstance(side, list) for side in both) or how.is_unordered(path)


@unhurried
@given(two_values())
def test_the_rows_name_every_difference_as_leaving_them_out_makes_the_values_equal(pair: tuple[Any, Any]) -> None:
    rows = differences(EXACT, *pair)
    assert Comparison(ignored=tuple(parse_path(row.path) for row in rows)).equal(*pair)


def rows_of(how: Comparison, expected: Any, actual: Any) -> dict[str, tuple[Any, Any]]:
    return {row.path: (row.expected, row.actual) for row in compare_at(how, (), expected, actual)[1:]}


@pytest.mark.parametrize(
    ("how", "expected", "actual", "rows"),
    [
        (EXACT, {"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}, {"b.c": (2, 3)}),
        (EXACT, {"a": None}, {}, {"a": (None, ABSENT)}),
        (EXACT, {}, {"a": None}, {"a": (ABSENT, None)}),
        (EXACT, {"a": [1, 2]}, {"a": [1]}, {"a.1": (2, ABSENT)}),
        (EXACT, {"a": [1]}, {"a": [1, 2, 3]}, {"a.1": (ABSENT, 2), "a.2": (ABSENT, 3)}),
        (EXACT, {"a": [1]}, {"a": {"0": 1}}, {"a": ([1], {"0": 1})}),
        (EXACT, {"__v": 1}, {"__v": 2}, {"__v": (1, 2)}),
        (EXACT, {"a.b": 1}, {"a.b": True}, {"/a.b": (1, True)}),
        (SUBSET, {"a": 1}, {"a": 2, "b": 3}, {"a": (1, 2)}),
        (UNORDERED, {"tags": [1, 2], "a": 1}, {"tags": [2, 2], "a": 1}, {"tags": ([1, 2], [2, 2])}),
        (Comparison(ignored=(("a",),)), {"a": 1, "b": 1}, {"a": 2, "b": 2}, {"b": (1, 2)}),
        (EXACT, {"a": 1}, [1], {}),
        (EXACT, {"a": 1}, None, {}),
    ],
)
def test_rows_show_a_leaf_each_with_what_one_side_lacks_as_absent(
    how: Comparison, expected: Any, actual: Any, rows: dict[str, tuple[Any, Any]]
) -> None:
    assert rows_of(how, expected, actual) == rows


def test_a_path_that_the_actual_side_lacks_is_one_row_absent_and_never_null() -> None:
    (row,) = compare_at(EXACT, ("a",), None, ABSENT)
    assert row.members() == {"path": "a", "expected": None, "actual": None, "absent": True, "matches": False}
    (row,) = compare_at(EXACT, ("a",), None, None)
    assert row.members() == {"path": "a", "expected": None, "actual": None, "absent": False, "matches": True}


def test_a_whole_value_whose_leaves_follow_holds_their_number_in_place_of_itself() -> None:
    expected, actual = {str(n): n for n in range(60)}, {str(n): -1 for n in range(60)}
    first, *leaves = compare_at(EXACT, (), expected, actual)
    members = {"path": "$", "expected": None, "actual": None, "absent": False, "matches": False, "n_differing": 60}
    assert first.members() == members
    assert len(leaves) == 50
    at_a_path, *_ = compare_at(EXACT, ("orders",), {"a": 1}, {"a": 2})
    assert (at_a_path.members()["expected"], at_a_path.members()["n_differing"]) == ({"a": 1}, 1)


@given(VALUES, VALUES)
def test_a_long_value_is_its_first_2000_characters_beside_its_digest(expected: Any, actual: Any) -> None:
    long = {"z": expected, "pad": "x" * 2_000, "a": actual}
    row = Compared("world", long, actual, False).members()
    assert row["cut"]
    assert row["expected"] == json_in_order(long)[:2_000]
    assert row["expected_digest"] == value_digest(dict(reversed(long.items())))
    assert row["actual"] == actual
    assert "actual_digest" not in row


def test_what_nobody_expected_is_told_from_an_expected_null() -> None:
    unexpected = Compared("a", ABSENT, None, False).members()
    assert unexpected["unexpected"] is True
    assert "unexpected" not in Compared("a", None, 1, False).members()
    assert json.loads(json.dumps(unexpected)) == unexpected


def test_differences_are_shown_up_to_a_number_and_the_whole_still_fails() -> None:
    expected, actual = list(range(1_000)), list(range(1, 1_001))
    first, *rest = compare_at(EXACT, (), expected, actual)
    assert not first.matches
    assert len(rest) == MOST_DIFFERENCES
