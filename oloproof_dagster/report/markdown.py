"""Markdown for asset pages. Everything that an agent or a user wrote is escaped: it is shown, never rendered."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from oloproof_dagster.digests import canonical_json

LONGEST_CELL = 120


def cell(value: Any) -> str:
    """A JSON value as text for a cell, cut where it is long."""
    text = canonical_json(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def escaped(text: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line."""
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~:@])", r"\\\1", text)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    lines += ["| " + " | ".join(escaped(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)
