"""A console for every command: how texts, tables and headings are shown, and the lists of versions and labels.

Everything that an agent or a user wrote is shown as text, never as markup.
"""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oloproof_dagster.cli.channel import to_parent
from oloproof_dagster.digests import integers_of_any_size

ACTIONS = {"ALLOW": "bold green", "WARN": "bold yellow", "BLOCK": "bold red"}
STATUSES = {"passed": "green", "failed": "bold red", "missing": "yellow", "not_applicable": "dim"}


def printer(*, stderr: bool = False) -> Console:
    """A console on stdout, or on stderr; in a child process on the stdout of its parent."""
    parent = to_parent()
    if parent is None or stderr:
        return _Console(stderr=stderr, highlight=False, soft_wrap=False)
    return _Console(file=parent.answers, width=parent.terms.columns, highlight=False, soft_wrap=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the command: the console's own exit code, 1, would read as a FAIL."""
        raise BrokenPipeError


def shown(value: Any, longest: int = 200) -> str:
    """A JSON value as one line of text."""
    with integers_of_any_size():
        text = json.dumps(value, ensure_ascii=False)
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def plain(text: str) -> Text:
    """A text as it is, control characters made visible."""
    return Text("".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text))


def table(*columns: str) -> Table:
    """A table without lines; cells fold where the terminal is narrow, and nothing is cut."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def heading(console: Console, text: str) -> None:
    """Prints a heading with an empty line above it."""
    console.print()
    console.print(Text(text, "bold"))


def print_versions(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Prints the versions evaluated, one a line, with their Gates."""
    listed = table("version", "gate", "exit code", "executed", "former attempts")
    for row in rows:
        gate = row["gate"]
        action = Text(gate["action"], ACTIONS[gate["action"]]) if gate else Text("not decided", "dim")
        name = (
            plain(row["version"]) if not row["current"] else Text.assemble(plain(row["version"]), (" (current)", "dim"))
        )
        listed.add_row(
            name,
            action,
            str(gate["exit_code"]) if gate else "",
            f"{row['executed']}",
            str(row["former_attempts"] or ""),
        )
    console.print(listed)


def print_labels(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Prints what the labels say of each transform, one a line."""
    listed = table("transform", "pairs", "labelled", "kept", "stale", "lower bound", "bar", "")
    for row in rows:
        checked = Text("checked", "green") if row["checked"] else Text("not checked", "yellow")
        minimum = "none declared" if row["minimum"] is None else f"{row['minimum']:g}"
        listed.add_row(
            row["transform"],
            str(row["pairs"]),
            str(row["labelled"]),
            str(row["kept"]),
            str(row["stale"]),
            f"{row['lower']:.3f}",
            minimum,
            checked,
        )
    console.print(listed)
