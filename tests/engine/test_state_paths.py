"""State criteria: paths that pick, follow and leave out; what may change; what is volatile everywhere."""

from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.evaluators.volatile import Volatile
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.paths import ABSENT, PathAmbiguous, lookup, matching, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason
from tests.support.evidence import compared, criterion, evidence, judge
from tests.support.projects import write_project

R = VerdictReason
ZOE, MAX = {"id": "b-zoe", "status": "kept", "at": 1}, {"id": "b-max", "status": "kept", "at": 2}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("bookings[id=b-zoe].status", "kept"),
        ("bookings[id=b-zoe]", ZOE),
        ("bookings[id=b.max].at", ABSENT),
        ("bookings[id=nobody].status", ABSENT),
        ("bookings[status=kept].id", PathAmbiguous),
        ("plain[id=b-zoe]", ABSENT),
    ],
)
def test_a_part_picks_the_one_element_that_bears_a_text(path: str, value: Any) -> None:
    state, parsed = {"bookings": [MAX, ZOE], "plain": {"id": "b-zoe"}}, parse_path(path)
    assert show_path(parsed) == path
    if value is PathAmbiguous:
        with pytest.raises(PathAmbiguous, match="2 elements have status 'kept'"):
            lookup(state, parsed)
    else:
        assert lookup(state, parsed) == value


def test_a_key_that_looks_like_a_pick_is_written_as_a_pointer() -> None:
    assert show_path(("a[id=x]", "b")) == "/a[id=x]/b"
    assert lookup({"a[id=x]": {"b": 1}}, parse_path("/a[id=x]/b")) == 1
    assert parse_path("a[0].b") == ("a[0]", "b")


@pytest.mark.parametrize("path", ["a..b]", "a[id=x]..b", ".a[id=x]", "a[id=x]."])
def test_a_path_with_an_empty_part_is_refused_beside_a_pick_too(path: str) -> None:
    with pytest.raises(ValueError, match="has an empty part"):
        parse_path(path)


def test_a_star_follows_every_key_and_position() -> None:
    state = {"o": {"x": [{"n": 1}, {"n": 2}], "y": [{"m": 3}]}}
    assert list(matching(state, parse_path("o.*.*.n"))) == [("o", "x", "0", "n"), ("o", "x", "1", "n")]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ([ZOE, MAX], "passed"),
        ([MAX, ZOE], "passed"),
        ([{**ZOE, "status": "gone"}, MAX], "failed"),
        ([MAX], "failed"),
    ],
)
def test_an_element_is_compared_wherever_it_stands_in_its_list(state: Any, status: str) -> None:
    declared = {"type": "state_unchanged", "paths": ["bookings[id=b-zoe].status"]}
    row = judge(declared, initial={"bookings": [ZOE, MAX]}, state={"bookings": state})
    assert row.status == status
    assert compared(row)[0][0] == "bookings[id=b-zoe].status"


def test_a_pick_of_several_elements_is_missing_and_says_so() -> None:
    state = {"bookings": [ZOE, MAX]}
    row = judge(
        {"type": "state_matches", "paths": ["bookings[status=kept].at"]}, expected={"state": state}, state=state
    )
    assert (row.status, row.reason) == ("missing", R.PATH_AMBIGUOUS.value)
    assert row.detail == "bookings[status=kept].at: 2 elements have status 'kept'"


def test_a_picked_path_is_left_out_wherever_its_element_stands() -> None:
    declared = {"type": "state_unchanged", "except": ["bookings[id=b-zoe].status"]}
    initial = {"bookings": [ZOE, MAX]}
    for booking, status in (({**ZOE, "status": "gone"}, "passed"), ({**ZOE, "at": 7}, "failed")):
        assert judge(declared, initial=initial, state={"bookings": [booking, MAX]}).status == status


GONE = {**ZOE, "status": "gone"}
CANCELLED = {**MAX, "status": "gone"}


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ([ZOE, MAX], [CANCELLED], "failed"),  # a neighbour's element was taken away, and this one took its place
        ([ZOE, MAX], [ZOE], "passed"),  # the element itself was taken away
        ([ZOE, MAX], [CANCELLED, ZOE], "passed"),  # it was moved
        ([ZOE], [ZOE, MAX], "passed"),  # it came into being
        ([ZOE, MAX], [GONE, CANCELLED], "failed"),
        ([MAX, ZOE], [MAX, ZOE, {**ZOE, "id": "b-new"}], "failed"),
    ],
)
def test_an_element_that_may_change_covers_no_other_whatever_place_each_takes(
    before: list[Any], after: list[Any], status: str
) -> None:
    world, left = {"bookings": before}, {"bookings": after}
    declared = {"type": "state_unchanged", "except": ["bookings[id=b-max]"]}
    assert judge(declared, initial=world, state=left).status == status
    by_case = {"type": "state_unchanged", "except": ["nothing"]}
    may_change = {"may_change": ["bookings[id=b-max]"]}
    assert judge(by_case, initial=world, expected=may_change, state=left).status == status


@pytest.mark.parametrize(
    ("wanted", "left", "status"),
    [
        ([ZOE, MAX], [GONE, CANCELLED], "failed"),  # of the neighbour nothing is left out
        ([ZOE, MAX], [ZOE, CANCELLED], "passed"),
        ([ZOE, MAX], [CANCELLED, ZOE], "failed"),  # their order counts
        ([ZOE, MAX], [ZOE], "failed"),  # that it is there counts
    ],
)
def test_what_is_left_out_inside_an_element_is_left_out_of_no_other(
    wanted: list[Any], left: list[Any], status: str
) -> None:
    declared = {"type": "state_matches", "ignore_paths": ["bookings[id=b-max].status"]}
    initial = {"bookings": [MAX, ZOE]}
    expected, state = {"state": {"bookings": wanted}}, {"bookings": left}
    assert judge(declared, initial=initial, expected=expected, state=state).status == status


@pytest.mark.parametrize("kind", ["state_matches", "state_unchanged"])
def test_a_compared_path_that_the_whole_project_leaves_out_is_refused(kind: str, tmp_path: Path) -> None:
    suite = {"evaluators": [{"type": kind, "paths": ["other", "orders.o"]}], "ignore_paths": ["orders.*"]}
    with pytest.raises(ConfigError, match=r"evaluators.0.paths.1: the path 'orders.o' is compared and ignored at once"):
        load_project(write_project(tmp_path, suite=suite))


def test_a_list_inside_an_element_is_a_multiset_in_no_other() -> None:
    declared = {"type": "state_matches", "unordered_paths": ["l[id=a].q"]}
    initial = {"l": [{"id": "z", "q": [1, 2]}, {"id": "a", "q": [1, 2]}]}
    expected = {"state": {"l": [{"id": "a", "q": [1, 2]}, {"id": "z", "q": [1, 2]}]}}
    for a, z, status in (([2, 1], [1, 2], "passed"), ([1, 2], [2, 1], "failed")):
        state = {"l": [{"id": "a", "q": a}, {"id": "z", "q": z}]}
        assert judge(declared, initial=initial, expected=expected, state=state).status == status


@pytest.mark.parametrize(
    ("path", "left", "status"),
    [
        ("bookings[id=b-max].paid_at", [{**MAX, "paid_at": 1}, ZOE], "passed"),
        ("bookings[id=b-max].paid_at", [MAX, {**ZOE, "paid_at": 1}], "failed"),
        ("bookings[id=b-max].at", [{**MAX, "at": 9}, ZOE], "failed"),  # it was there before
        ("bookings[id=b-new]", [MAX, {"id": "b-new"}, ZOE], "passed"),
        ("bookings[id=b-max]", [{**MAX, "at": 9}, ZOE], "failed"),
    ],
)
def test_what_is_new_is_left_out_of_the_element_that_it_is_new_in(path: str, left: list[Any], status: str) -> None:
    world = {"bookings": [MAX, ZOE]}
    declared = {"type": "state_matches", "ignore_new_paths": [path]}
    assert judge(declared, initial=world, expected={"state": world}, state={"bookings": left}).status == status


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"o": {"x": {"s": 1, "t": 1}, "y": {"s": 2, "t": 2}}}, "passed"),
        ({"o": {"x": {"s": 1, "t": 9}, "y": {"s": 2}}}, "passed"),
        ({"o": {"x": {"s": 1}, "y": {"s": 3}}}, "failed"),
        ({"o": {"x": {"s": 1}}}, "failed"),
        ({"o": {"x": {"s": 1}, "y": {"s": 2}, "z": {"s": 1}}}, "failed"),
    ],
)
def test_a_star_in_paths_compares_every_place_that_one_of_the_two_sides_has(state: Any, status: str) -> None:
    world = {"o": {"x": {"s": 1}, "y": {"s": 2}}}
    assert judge({"type": "state_unchanged", "paths": ["o.*.s"]}, initial=world, state=state).status == status
    declared = {"type": "state_matches", "paths": ["o.*.s"]}
    assert judge(declared, expected={"state": world}, state=state).status == status


WORLD = {"orders": {"a": {"n": 1, "at": 5}, "b": {"n": 2, "at": 6}}, "log": ["x"]}


def changed(**orders: Any) -> Any:
    return {**WORLD, "orders": {**WORLD["orders"], **orders}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("excepted", "may_change", "state", "status"),
    [
        (["orders.a"], None, changed(a={"n": 9}), "passed"),
        (["orders.a"], None, changed(b={"n": 9}), "failed"),
        (["orders.*.at"], None, changed(b={"n": 2, "at": 7}), "passed"),
        (["orders.a"], ["orders.b"], changed(b={"n": 9}), "passed"),
        (["orders.a"], ["orders.b.n"], changed(b={"n": 9, "at": 6}), "passed"),
        (["orders.a"], ["orders.b.n"], changed(b={"n": 9, "at": 7}), "failed"),
        (["orders.a"], ["log"], {**WORLD, "log": []}, "passed"),
        (["orders.a"], None, {**WORLD, "new": 1}, "failed"),
        (["orders.a"], ["new"], {**WORLD, "new": 1}, "passed"),
    ],
)
def test_everything_but_what_may_change_is_unchanged(
    excepted: list[str], may_change: Any, state: Any, status: str
) -> None:
    expected = None if may_change is None else {"may_change": may_change}
    row = judge({"type": "state_unchanged", "except": excepted}, initial=WORLD, state=state, expected=expected)
    assert (row.status, row.noop) == (status, True)


def test_what_a_case_lets_change_is_taken_out_of_the_paths() -> None:
    declared = {"type": "state_unchanged", "paths": ["orders.b.n", "log"]}
    state = {**changed(b={"n": 9}), "log": ["x"]}
    assert judge(declared, initial=WORLD, state=state).status == "failed"
    for path in ("orders.b.n", "orders.b", "orders"):
        assert judge(declared, initial=WORLD, state=state, expected={"may_change": [path]}).status == "passed"


def test_damage_that_a_state_shows_is_failed_also_where_the_execution_errored() -> None:
    for declared in ({"paths": ["orders.b"]}, {"except": ["orders.a"]}):
        protects = {"type": "state_unchanged", **declared}
        row = judge(protects, initial=WORLD, state=changed(b={"n": 0}), status="error")
        assert (row.status, row.reason) == ("failed", R.EXECUTION_ERROR.value)
        assert any(not matches for *_, matches in compared(row))
        assert judge(protects, initial=WORLD, state=changed(a={"n": 0}), status="error").status == "missing"
        assert judge(protects, initial=WORLD, status="error").status == "missing"


NEW = Volatile(ignore_new_paths=("orders.*.at",))


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (changed(c={"n": 3, "at": 99}), "passed"),
        (changed(c={"n": 3}), "passed"),
        (changed(c={"n": 4, "at": 99}), "failed"),
        ({**changed(c={"n": 3, "at": 1}, a={"n": 1, "at": 0})}, "failed"),
    ],
)
def test_what_is_new_is_left_out_and_tampering_with_what_was_there_is_not(state: Any, status: str) -> None:
    case = evidence(initial=WORLD, state=state, expected={"state": changed(c={"n": 3, "at": 7})})
    assert criterion({"type": "state_matches"}, volatile=NEW).row(case).status == status
    assert judge({"type": "state_matches", "ignore_new_paths": ["orders.*.at"]}, case).status == status


def test_what_is_volatile_at_the_top_is_so_for_every_evaluator() -> None:
    volatile = Volatile(ignore_paths=("orders.*.at",), unordered_paths=("log",))
    before, after = {**WORLD, "log": ["x", "y"]}, {**changed(b={"n": 2, "at": 0}), "log": ["y", "x"]}
    case = evidence(initial=before, state=after, expected={"state": before})
    for declared in (
        {"type": "state_matches"},
        {"type": "state_matches", "paths": ["orders", "log"]},
        {"type": "state_unchanged", "paths": ["$"]},
        {"type": "state_unchanged", "except": ["nothing"]},
    ):
        assert criterion(declared, volatile=volatile).row(case).status == "passed"
        assert criterion(declared).row(case).status == "failed"
    pair = evidence(state=after, source=evidence(state=before))
    relation = {"type": "metamorphic_relation", "relation": "same_state"}
    assert criterion(relation, volatile=volatile).row(pair).status == "passed"
    assert criterion(relation).row(pair).status == "failed"


@pytest.mark.parametrize(
    ("evaluator", "more", "told"),
    [
        ({"paths": ["a"], "except": ["b"]}, {}, "exactly one of paths and except, found both"),
        ({}, {}, "exactly one of paths and except, found neither"),
        ({"except": ["$"]}, {}, "`$` leaves nothing to compare"),
        ({"paths": ["a.b"]}, {"ignore_paths": ["a.b"]}, "is compared and ignored at once, by 'a.b'"),
        ({"paths": ["a.b"]}, {"ignore_paths": ["a", "a"]}, "stands twice"),
    ],
)
def test_paths_that_leave_nothing_to_compare_are_refused(
    tmp_path: Path, evaluator: dict[str, Any], more: dict[str, Any], told: str
) -> None:
    suite = {"evaluators": [{"type": "state_unchanged", **evaluator}], **more}
    with pytest.raises(ConfigError, match=told.replace("$", r"\$")):
        load_project(write_project(tmp_path, suite=suite))
