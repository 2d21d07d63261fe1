"""A console for every command: how texts, tables and headings are shown, and the lists of versions and labels.

Everything that an agent or a user wrote is shown as text, never as markup.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.channel import to_parent
from oloproof_dagster.cli.listing import Hanging, Listing, plain
from oloproof_dagster.digests import integers_of_any_size
from oloproof_dagster.evidence.past_decisions import PastDecision
from oloproof_dagster.wording import outwards

ACTIONS = {"ALLOW": "bold green", "WARN": "bold yellow", "BLOCK": "bold red"}
STATUSES = {"passed": "green", "failed": "bold red", "missing": "yellow", "not_applicable": "dim"}


def printer(*, stderr: bool = False) -> Console:
    """A console on stdout, or on stderr; in a child process on the stdout of its parent."""
    as_it_is: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": False}
    parent = to_parent()
    if parent is None:
        return _Console(stderr=stderr, **as_it_is)
    return _Console(file=sys.stderr if stderr else parent.answers, width=parent.terms.columns, **as_it_is)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the command: the console's own exit code, 1, would read as a FAIL."""
        raise BrokenPipeError


def shown(value: Any, longest: int | None = 200) -> str:
    """A JSON value as one line of text, cut after `longest` characters."""
    with integers_of_any_size():
        text = json.dumps(value, ensure_ascii=False)
    text = on_a_terminal(text)
    return text if longest is None or len(text) <= longest else text[: longest - 3] + "..."


def table(*columns: str, last_folds: bool = False) -> Listing:
    """Rows that are lines of a table, or several lines each where the terminal is narrow; nothing is cut."""
    return Listing(*columns, last_folds=last_folds)


def heading(console: Console, text: str) -> None:
    """Prints a heading with an empty line above it."""
    console.print()
    console.print(Hanging(Text(on_a_terminal(text), "bold")))


def print_versions(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Prints the versions evaluated, one a line, with their Gates; an unfinished run is shown as far as it is."""
    listed = table("version", "gate", "exit code", "suite", "executed", "former attempts")
    for row in rows:
        gate, current = row["gate"], Text(" (current)", "dim") if row["current"] else Text()
        unfinished = "" if row["complete"] else f" of {row['to_execute']}, attempt {row['attempt']} not finished"
        listed.add_row(
            Text.assemble(plain(row["version"]), current),
            Text(gate["action"], ACTIONS[gate["action"]]) if gate else Text("not decided", "dim"),
            str(gate["exit_code"]) if gate else "",
            short(row["suite"]),
            f"{row['executed']}{unfinished}",
            str(row["former_attempts"] or ""),
        )
    console.print(listed)


def print_history(console: Console, decisions: Sequence[PastDecision]) -> None:
    """Prints the decisions that were made of a version, one a line, with what they were made on."""
    listed = table("decided", "run", "gate", "exit", "suite", "policy", "labels", "code")
    for each in decisions:
        listed.add_row(
            each.at.removesuffix("+00:00") + "Z",
            each.run[:8],
            Text(each.action, ACTIONS.get(each.action, "")),
            str(each.exit_code),
            *map(short, (each.suite, each.policy, each.labels, each.code)),
        )
    console.print(listed)


def short(digest: str | None) -> str:
    """The first eight digits of a digest, as people compare them."""
    return (digest or "").removeprefix("sha256:")[:8]


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
            outwards(row["lower"], "lower"),
            minimum,
            checked,
        )
    console.print(listed)
