"""A person's Ctrl-C: a real signal to this process. Only the signal tells it from an exception that an agent raises."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONG_SECONDS = 30.0
"""How long what waits for a signal sleeps; a test that sleeps for all of it has failed."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also in a process that was started to ignore it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def ctrl_c() -> None:
    """Interrupts this process and waits until it is told."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(LONG_SECONDS)


@contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """Interrupts this process from another thread, so many seconds from now unless the block has ended."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
