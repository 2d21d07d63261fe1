"""The pipe by which the child process of a command reports to its parent: progress, the answer, the outcome.

One JSON object a line. The user's code runs in the child and knows neither the pipe nor the parent's stdout.
"""

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, TextIO, cast

SECONDS_BETWEEN = 0.1
"""How long a stage's progress is left unreported after it was reported."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a parent gives its child: the descriptors to write to and to read from, and how its stdout shows text.

    `lifeline` is at its end when the parent is gone; whatever comes there before is its wish that the run stops.
    """

    report: int
    lifeline: int
    shows_progress: bool
    is_terminal: bool
    columns: int
    encoding: str

    def text(self) -> str:
        """As one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "Terms":
        """The inverse of `text`."""
        return cls(**json.loads(text))


class ToParent:
    """The writing end of the pipe."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.answers = cast(TextIO, AnswerStream(self, terms))
        self._lock, self._reported = threading.Lock(), dict[str, float]()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Reports how far a stage is, a few times a second."""
        now = time.monotonic()
        if done == total or now - self._reported.get(stage, 0) > SECONDS_BETWEEN:
            self._reported[stage] = now
            self._send(progress=[stage, done, total])

    def answer(self, text: str) -> None:
        """Adds to what the parent will print on stdout."""
        self._send(answer=text)

    def outcome(self, code: int, seconds: float) -> None:
        """Reports the exit code; the process ends within so many seconds, or is ended."""
        self._send(outcome=[code, seconds])

    def _send(self, **message: Any) -> None:
        left = memoryview((json.dumps(message) + "\n").encode())
        with self._lock:
            while left:
                left = left[os.write(self.terms.report, left) :]


class AnswerStream(io.TextIOBase):
    """A stand-in for the parent's stdout."""

    def __init__(self, to_parent: ToParent, terms: Terms) -> None:
        self._to_parent, self._terms = to_parent, terms

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the parent's stdout."""
        return self._terms.encoding

    def isatty(self) -> bool:
        """Whether the parent's stdout is a terminal."""
        return self._terms.is_terminal

    def writable(self) -> bool:
        """True: text can be written."""
        return True

    def write(self, text: str) -> int:
        """Adds to the answer; gives the number of characters."""
        self._to_parent.answer(text)
        return len(text)


_current: ContextVar[ToParent | None] = ContextVar("oloproof_to_parent", default=None)


def to_parent() -> ToParent | None:
    """The pipe to this process's parent; None where a command runs in one process."""
    return _current.get()


@contextmanager
def reporting_to(parent: ToParent) -> Iterator[None]:
    """Has a command answer its parent instead of this process's stdout."""
    token = _current.set(parent)
    try:
        yield
    finally:
        _current.reset(token)
