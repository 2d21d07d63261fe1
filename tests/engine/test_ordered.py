"""Results leave in the order in which they were asked for, whatever order they come in."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.execution.ordered import Ordered


@given(st.data())
def test_whatever_order_places_are_taken_and_filled_in_results_leave_as_they_were_asked_for(data: Any) -> None:
    rows, n_asked = Ordered[int](), 0
    waiting: dict[int, Callable[[int], None]] = {}
    left: list[int] = []
    for _ in range(data.draw(st.integers(0, 40))):
        if waiting and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(waiting)))
            waiting.pop(number)(number)
        else:
            waiting[n_asked] = rows.place()
            n_asked += 1
        if data.draw(st.booleans()):
            left.extend(rows.ready())
        assert left == list(range(len(left)))
        assert not waiting or len(left) <= min(waiting)
        assert len(rows) == n_asked - len(left)
    for number in data.draw(st.permutations(sorted(waiting))):
        waiting[number](number)
    left.extend(rows.ready())
    assert left == list(range(n_asked))
    assert len(rows) == 0


@given(st.permutations(range(6)))
def test_all_that_is_ready_leaves_at_once(order: list[int]) -> None:
    rows, left, filled = Ordered[int](), 0, set[int]()
    places = [rows.place() for _ in order]
    for number in order:
        places[number](number)
        filled.add(number)
        left += len(list(rows.ready()))
        assert left == next((each for each in range(6) if each not in filled), 6)


def test_nothing_is_a_result_too() -> None:
    rows = Ordered[None]()
    rows.place()(None)
    assert list(rows.ready()) == [None]
    assert list(rows.ready()) == []


def test_a_result_that_comes_while_others_leave_leaves_with_them() -> None:
    rows = Ordered[int]()
    first, second = rows.place(), rows.place()
    first(1)
    leaving = rows.ready()
    assert next(leaving) == 1
    second(2)
    assert list(leaving) == [2]
