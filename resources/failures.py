"""How an error that Oloproof raises on purpose reaches Dagster: its sentence is the failure of the step.

Dagster would wrap it in "error occurred while executing op", and show that first.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import dagster as dg

from oloproof_dagster.errors import EvidenceError, OloproofError

Body = TypeVar("Body", bound=Callable[..., Any])


@contextmanager
def as_failure() -> Iterator[None]:
    """Raises `dagster.Failure` in place of an error of ours; what else is raised goes through.

    A retry may help where a store was out of reach or another run was at work, and never against a mistake in a file.
    """
    try:
        yield
    except OloproofError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, EvidenceError)) from None


def failing_plainly(body: Body) -> Body:
    """The same body of a step, a generator or not, whose errors of ours are failures."""

    @functools.wraps(body)
    def step(*args: Any, **kwargs: Any) -> Any:
        with as_failure():
            return body(*args, **kwargs)

    @functools.wraps(body)
    def steps(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with as_failure():
            yield from body(*args, **kwargs)

    return steps if inspect.isgeneratorfunction(body) else step  # type: ignore[return-value]
