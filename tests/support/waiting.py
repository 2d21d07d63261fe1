"""What tests wait for: a condition, as long as it takes on a busy machine, and never a fixed time."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
"""How long a test waits for what a quiet machine does in a second. Only what hangs is waited for so long."""


def until(is_true: Callable[[], object], *, why: Callable[[], object] = str, pause: float = 0.01) -> None:
    """Returns once a condition holds; fails, with what `why` gives, where patience ends before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"waited in vain: {why()}"
        time.sleep(pause)
