"""Who is told how far a run is: nobody, unless a caller in this process listens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oloproof_dagster.execution import Progress, silent

_listener: ContextVar[Progress] = ContextVar("oloproof_progress", default=silent)


def current_progress() -> Progress:
    """What to tell; does nothing where nobody listens."""
    return _listener.get()


@contextmanager
def listening(listener: Progress) -> Iterator[None]:
    """Tells a listener of everything that runs inside, in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
