"""Every error that Oloproof raises on purpose.

    OloproofError
    ├── ConfigError            a file, key or argument that the user wrote; nothing has run
    ├── NotJSON                a value that JSON cannot hold; names the path of the value
    ├── MalformedTrajectory    a recording that is not agent_trajectory/v1
    └── EvidenceError          stored evidence that is absent, torn or not ours

Foreign code (the system, its sandbox, python evaluators) never surfaces here: what it raises becomes a record.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

LONGEST_MESSAGE = 1000


class OloproofError(Exception):
    """The root of the tree above; its message is one line that a person can act on."""


class ConfigError(OloproofError):
    """Something that the user wrote cannot be used. The message reads `FILE:LINE: what is wrong, what to write`.

    It is one line whatever the user wrote: line breaks become spaces, other control characters escapes, and of a very
    long message the beginning and the end are kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))

    @classmethod
    def at(cls, path: Path | str, line: int | None, message: str) -> "ConfigError":
        """The error with its place in front; `line` counts from 1, None where no single line is to blame."""
        place = f"{path}:{line}" if line else f"{path}"
        return cls(f"{place}: {message}")


class NotJSON(OloproofError):
    """A value that JSON cannot hold exactly; `path` is where it stands (`$.orders.a`), `what` says what it is."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{path} {what}")


class MalformedTrajectory(OloproofError):
    """What was recorded is not agent_trajectory/v1; it costs that case and no other."""


class EvidenceError(OloproofError):
    """Evidence that was asked for is not stored, or cannot be read or written."""


def writing_to(place: object) -> AbstractContextManager[None]:
    """Says where evidence could not be written, and why: no space, no permission."""
    return _as_evidence_error(f"cannot write evidence to {place}")


def reading_from(place: object) -> AbstractContextManager[None]:
    """Says where evidence could not be read, and why."""
    return _as_evidence_error(f"cannot read evidence at {place}")


@contextmanager
def _as_evidence_error(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EvidenceError(f"{what}: {error.strerror or error}") from None


def _one_line(text: str) -> str:
    text = re.sub(r"\s*[\r\n]\s*", " ", text).strip()
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[: LONGEST_MESSAGE - 300]} ... {text[-290:]}"
    return text
