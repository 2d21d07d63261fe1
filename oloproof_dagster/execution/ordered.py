"""Results in the order in which places were taken, whatever order they come in."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from oloproof_dagster.execution.sandboxes import Sandboxes

Result = TypeVar("Result")

AHEAD = 64
"""How many cases, for each sandbox, may be waited for or finished out of order: clusters that stay on one sandbox must
not leave the others without work."""


class Ordered(Generic[Result]):
    """A queue of places that are filled in any order and emptied from the front."""

    def __init__(self) -> None:
        self._places: deque[list[Result]] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def place(self) -> Callable[[Result], None]:
        """The next place; what is returned fills it."""
        here: list[Result] = []
        self._places.append(here)
        return here.append

    def ready(self) -> Iterator[Result]:
        """The results at the front, up to the first that is still waited for."""
        while self._places and self._places[0]:
            yield self._places.popleft()[0]


def in_order(
    rows: Ordered[Result], sandboxes: Callable[[], Sandboxes], *, to_the_end: bool = False
) -> Iterator[Result]:
    """The results at the front; waits for more where too many places are open, or `to_the_end` for all of them.

    Asks for the sandboxes only where some must be at work.
    """
    yield from rows.ready()
    while rows and (to_the_end or _is_far_ahead(len(rows), sandboxes)):
        sandboxes().wait()
        yield from rows.ready()


def _is_far_ahead(n_open: int, sandboxes: Callable[[], Sandboxes]) -> bool:
    """Whether so many places that wait to be filled, or to be emptied in order, are enough."""
    return n_open > AHEAD and n_open > AHEAD * sandboxes().workers
