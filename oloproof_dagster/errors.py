"""Every error that Oloproof raises on purpose.

    OloproofError
    ├── ConfigError            a file, key or argument that the user wrote; nothing has run
    ├── NotJSON                a value that JSON cannot hold; names the path of the value
    ├── MalformedTrajectory    a recording that is not agent_trajectory/v1
    └── EvidenceError          stored evidence that is absent, torn or not ours

Foreign code (the system, its sandbox, python evaluators) never surfaces here: what it raises becomes a record.
"""

from pathlib import Path


class OloproofError(Exception):
    """The root of the tree above; its message is one line that a person can act on."""


class ConfigError(OloproofError):
    """Something that the user wrote cannot be used. The message reads `FILE:LINE: what is wrong, what to write`."""

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
