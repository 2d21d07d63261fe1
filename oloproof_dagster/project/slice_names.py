"""Slices as oloproof.yaml names them, and the value under which a case joins one.

Membership comes from the case's metadata and its own recording, never from a verdict.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oloproof_dagster.digests import canonical_json
from oloproof_dagster.records.trajectory import AgentTrajectory

Kind = Literal["metadata", "tool_calls", "trajectory_length", "first_tool"]

UNRECORDED = "unrecorded"
"""The value of a length slice that a case joins whose recording is missing or ends too early."""

_BOUNDED = re.compile(r"(tool_calls|trajectory_length):([0-9]+(?:,[0-9]+)*)")
_LIKE_JSON = re.compile(r"""true|false|-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|".*\"""", re.DOTALL)
_WHAT_TO_WRITE = (
    "write metadata.<key>, first_tool, tool_calls:<bounds> or trajectory_length:<bounds>, with ascending positive"
    " integers as bounds, such as tool_calls:1,2"
)


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice: `text` as declared, `key` of metadata, `bounds` ascending and positive for the two lengths."""

    text: str
    kind: Kind
    key: str = ""
    bounds: tuple[int, ...] = ()

    def value_of(self, metadata: Mapping[str, Any], trajectory: AgentTrajectory | None) -> str | None:
        """The value under which a case joins this slice, None where it joins under none.

        Lengths fall in disjoint ranges (bounds 1,2: `le_1` for 0 and 1, `le_2` for 2, `gt_2` above); the length of a
        missing or truncated recording is `unrecorded`. Metadata that is absent or null names nothing, text
        names itself, and numbers and booleans are named by their JSON text (1 and 1.0 are one value); so is a text
        that would be taken for one of these.

        Raises:
            ValueError: the metadata is an object or a list.
        """
        if self.kind == "metadata":
            return _named(self.text, metadata.get(self.key))
        if self.kind == "first_tool":
            return trajectory.calls[0].tool_name if trajectory and trajectory.calls else None
        if trajectory is None or trajectory.truncated:
            return UNRECORDED
        length = len(trajectory.calls if self.kind == "tool_calls" else trajectory.steps)
        return next((f"le_{bound}" for bound in self.bounds if length <= bound), f"gt_{self.bounds[-1]}")

    def rank(self, value: str) -> tuple[int, str]:
        """The place of a value among this slice's values: ranges ascend, all else goes after them by its text."""
        ranges = [*(f"le_{bound}" for bound in self.bounds), *(f"gt_{bound}" for bound in self.bounds[-1:])]
        return (ranges.index(value) if value in ranges else len(ranges), value)


def parse_slice(text: str) -> Slice:
    """The slice that a line of oloproof.yaml names. Everything after `metadata.` is the key, dots included.

    Raises:
        ValueError: saying what to write.

    >>> parse_slice("tool_calls:1,2").bounds
    (1, 2)
    """
    if text == "first_tool":
        return Slice(text, "first_tool")
    if text.startswith("metadata.") and len(text) > len("metadata."):
        return Slice(text, "metadata", key=text.removeprefix("metadata."))
    match = _BOUNDED.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no slice; {_WHAT_TO_WRITE}")
    bounds = tuple(int(number) for number in match[2].split(","))
    ascending = all(low < high for low, high in zip((0, *bounds), bounds, strict=False))
    if not ascending or ",".join(map(str, bounds)) != match[2]:
        raise ValueError(f"the bounds of {text!r} are not ascending positive integers; {_WHAT_TO_WRITE}")
    return Slice(text, "tool_calls" if match[1] == "tool_calls" else "trajectory_length", bounds=bounds)


def _named(text: str, value: Any) -> str | None:
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise ValueError(f"{text} is {kind}; a slice is named by text, a number or a boolean")
    if isinstance(value, str):
        return canonical_json(value) if _LIKE_JSON.fullmatch(value) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else canonical_json(value)
