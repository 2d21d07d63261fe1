"""Markdown for asset pages. Everything that an agent or a user wrote is escaped: it is shown, never rendered."""

from collections.abc import Iterable, Sequence
from typing import Any

from oloproof_dagster.as_data import in_markdown
from oloproof_dagster.digests import json_in_order

LONGEST_CELL = 120


def cell(value: Any) -> str:
    """A JSON value as text for a cell, cut where it is long."""
    text = json_in_order(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    lines += ["| " + " | ".join(map(in_markdown, row)) + " |" for row in rows]
    return "\n".join(lines)
