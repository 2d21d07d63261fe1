"""Tells a history that can no longer be written from other errors of its storage."""

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa

REASONS = ("disk is full", "disk I/O", "readonly", "read-only")


class HistoryLost(BaseException):
    """The history cannot be written any more. Dagster prints every Exception that it meets there before it raises it,
    and tries again; of this one it lets go."""


@contextlib.contextmanager
def losses_raised() -> Iterator[None]:
    """Raises HistoryLost in place of what SQLAlchemy makes of a full, failing or read-only disk."""
    try:
        yield
    except sa.exc.OperationalError as error:
        if any(reason in str(error.orig) for reason in REASONS):
            raise HistoryLost(str(error.orig)) from error
        raise
