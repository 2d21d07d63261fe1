"""Python's collector of unreachable cycles, kept out of the way of work that makes millions of small records."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_again() -> None:
    """Has Python collect where the command line put it off, but never search what is imported by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Lets Python look for unreachable cycles rarely, and not among the libraries: rows are freed without it.

    A pass makes millions of small records that refer to nothing in return; looking through all that dagster has
    loaded, over and over, takes a tenth of its time.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not frozen:  # the command line has done it for the whole process
        gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
