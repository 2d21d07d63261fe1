"""How far a run is: reported to nobody, unless a caller in this process listens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, int, int], None]
"""Takes the stage, how many cases are done, and of how many."""


def silent(stage: str, done: int, total: int) -> None:
    """Reports to nobody."""


_listener: ContextVar[Progress] = ContextVar("oloproof_progress", default=silent)


def current_progress() -> Progress:
    """The listener of this thread; does nothing where nobody listens."""
    return _listener.get()


@contextmanager
def listening(listener: Progress) -> Iterator[None]:
    """Reports everything that runs inside, in this thread, to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
