"""Results in the order in which they were asked for, whatever order they come in."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Result = TypeVar("Result")


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
