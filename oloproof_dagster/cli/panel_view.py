"""The case panel in the terminal: verdicts first, then input and output, compared paths, replays and the recording."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from oloproof_dagster.cli.console import STATUSES, heading, shown, table
from oloproof_dagster.cli.listing import plain
from oloproof_dagster.cli.lookalikes import apart
from oloproof_dagster.cli.replay_view import labelled, print_replay, steps
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.project.evaluator_keys import Declaration
from oloproof_dagster.records.changed_texts import changed_texts
from oloproof_dagster.records.paths import show_path
from oloproof_dagster.records.reasons import meaning_of
from oloproof_dagster.records.tables import VerdictRow
from oloproof_dagster.report.list_changes import Row, aligned
from oloproof_dagster.report.panels import CasePanel, compared
from oloproof_dagster.wording import counted

PATHS_SHOWN, LONGEST_VALUE = 5, 1_000
"""How many compared paths of a verdict, and how many characters of a value, stand in a panel that is not shown in full.
"""


def print_overview(console: Console, panels: Iterable[CasePanel]) -> None:
    """A row a case and trial that has something to look at; the rest is counted."""
    rows = table("  case", "execution", "failed", "missing")
    n_quiet, n_panels, what = 0, 0, "cases"
    for panel in panels:
        n_panels += 1
        what = "executions" if panel.n_trials > 1 else "cases"
        failed = [row.criterion for row in panel.verdicts if row.status == "failed"]
        missing = [row.criterion for row in panel.verdicts if row.status == "missing"]
        if panel.verdicts and not failed and not missing:
            n_quiet += 1
            continue
        status = panel.execution.status if panel.execution else "not recorded"
        rows.add_row(
            Text.assemble("  ", _name(panel)),
            status,
            Text(", ".join(failed), "red"),
            Text(", ".join(missing), "yellow"),
        )
    if n_quiet < n_panels:
        console.print(rows)
    console.print(f"{n_quiet} of {n_panels} {what} have no failed and no missing verdict.")
    console.print("`oloproof inspect --case ID` shows one case, `--failures` every failing one.", style="dim")


def _name(panel: CasePanel) -> Text:
    """A case's id, and its trial where there is more than one."""
    trial = f"  trial {panel.trial}" if panel.n_trials > 1 else ""
    return Text.assemble(plain(panel.case.case_id), (trial, "dim"))


def print_panel(
    console: Console, panel: CasePanel, declared: Mapping[str, Declaration] | None = None, *, full: bool = False
) -> None:
    """One case and trial: verdicts, input and output, compared paths, replays. `full` folds nothing.

    `declared` are the evaluators by criterion: with them lists that differ are shown by what was added or moved.
    """
    console.rule(_name(panel), align="left")
    _print_verdicts(console, panel)
    _print_given(console, panel, full)
    _print_execution(console, panel, full)
    for row in panel.verdicts:
        before = "source" if panel.source and row.criterion.startswith("same_") else "expected"
        found = compared(row)
        leaves = aligned(_leaves(found, row.status), panel, (declared or {}).get(row.criterion))
        if leaves:
            heading(console, row.criterion)
            _print_compared(console, leaves, before, _n_not_kept(found), full=full)
    for replay in panel.replays:
        print_replay(console, panel, replay, full=full)
    if panel.execution is not None and panel.execution.trajectory is not None:
        heading(console, "Recorded")
        console.print(steps("step", panel.execution.trajectory, full=full))
    console.print()


def _print_given(console: Console, panel: CasePanel, full: bool) -> None:
    if panel.source is not None:
        console.print(labelled("source", panel.source.case_id))
        console.print(labelled("", shown(parse_canonical(panel.source.input), _longest(full))))
    console.print(labelled("input", shown(parse_canonical(panel.case.input), _longest(full))))
    for text in _changes_of_the_world(panel, full):
        console.print(labelled("changed", text))


def _changes_of_the_world(panel: CasePanel, full: bool) -> Iterator[str]:
    """Each text of the world that a copy's transform changed, behind where it stands."""
    before, after = panel.source.initial_state if panel.source else None, panel.case.initial_state
    if before is None or after is None or before == after:
        return
    changes = list(changed_texts(parse_canonical(before), parse_canonical(after)))
    first = changes if full else changes[:PATHS_SHOWN]
    yield from (f"{show_path(each.path)}: {shown(each.text, _longest(full))}" for each in first)
    if len(first) < len(changes):
        yield f"+ {len(changes) - len(first)} more (--full shows them)"


def _print_execution(console: Console, panel: CasePanel, full: bool) -> None:
    execution = panel.execution
    if execution is None:
        nothing = "this version has no recorded execution of this case as it is now; `oloproof run` executes it"
        console.print(Text(nothing, "yellow"))
        return
    status = STATUSES["passed" if execution.status == "ok" else "failed"]
    console.print(
        Text.assemble(("execution ", "dim"), (execution.status, status), (f"  {execution.duration_ms:.1f} ms", "dim"))
    )
    if execution.error:
        console.print(labelled("", execution.error))
    for error in parse_canonical(execution.retried) if execution.retried else ():
        console.print(labelled("retried", error))
    counts = (execution.left_tasks, "task"), (execution.left_threads, "thread")
    left = [counted(n, what) for n, what in counts if n]
    if left:
        console.print(labelled("left", " and ".join(left) + " running"))
    if execution.output is not None:
        console.print(labelled("output", shown(parse_canonical(execution.output), _longest(full))))


def _longest(full: bool) -> int | None:
    return None if full else LONGEST_VALUE


def _print_verdicts(console: Console, panel: CasePanel) -> None:
    rows = table("criterion", "verdict", "why")
    error = panel.execution.error if panel.execution else None
    for row in panel.verdicts:
        if row.status == "not_applicable" and row.reason in _NOT_WORTH_A_ROW:
            continue
        why = [meaning_of(row.reason), "" if row.detail == error else row.detail or ""]
        if row.status == "failed" and not any(why):
            why = [_differing(row)]
        if row.exposed is False:
            why.append("no tool's result held what the transform changed")
        rows.add_row(row.criterion, Text(row.status, STATUSES[row.status]), plain(": ".join(filter(None, why))))
    console.print(rows)
    console.print()


_NOT_WORTH_A_ROW = {"metamorphic_copy", "not_a_metamorphic_pair", "another_transform"}


def _differing(row: VerdictRow) -> str:
    """The paths that differ, the first of them by name."""
    found = compared(row)
    paths = [each["path"] for each in found if not each["matches"]]
    named = [path for path in paths if path != "$" or len(paths) == 1]
    n_more = max(found[0].get("n_differing") or 0 if found else 0, len(named)) - PATHS_SHOWN
    more = f" and {n_more} more" if n_more > 0 else ""
    return ", ".join(named[:PATHS_SHOWN]) + more + " differs"


def _leaves(found: list[dict[str, Any]], status: str) -> list[Row]:
    """The compared paths; of a whole value that differs, its differing leaves stand for it."""
    leaves: list[Row] = [row for row in found if row["path"] != "$"]
    return [*found] if not leaves and status != "passed" else leaves


def _n_not_kept(found: list[dict[str, Any]]) -> int:
    """How many differing leaves of a whole value were counted and not kept."""
    return max(0, (found[0].get("n_differing") or 0) - (len(found) - 1))


def _print_compared(console: Console, leaves: list[Row], before: str, n_not_kept: int, *, full: bool) -> None:
    rows = table("  path", before, "actual", "")
    printed = leaves if full else sorted(leaves, key=lambda row: row["matches"])[:PATHS_SHOWN]
    for row in printed:
        expected, actual = _sides(row, full)
        same = Text("same", "green") if row["matches"] else Text(row.get("change", "differs"), "red")
        hides_actual = row["matches"] or row.get("change", "").startswith("moved")
        rows.add_row(plain(f"  {row['path']}"), expected, Text() if hides_actual else actual, same)
    console.print(rows)
    n_more = len(leaves) - len(printed)
    if n_more > 0:
        console.print(Text(f"  + {n_more + n_not_kept} more (--full shows them)", "dim"))
    elif n_not_kept > 0:
        console.print(Text(f"  + {n_not_kept} more, which are not kept", "dim"))


def _sides(row: Row, full: bool) -> tuple[Text, Text]:
    """A compared value as it was expected and as it is; two that look alike and differ from where they do."""
    whole = (_text(row, "expected"), _text(row, "actual"))
    expected, actual = (_cut(row, side, text, full) for side, text in zip(("expected", "actual"), whole, strict=True))
    if not (row.get("unexpected") or row["absent"] or row["matches"]):
        expected, actual = apart(*whole, (expected, actual)) or (expected, actual)
    return (
        Text("(absent)", "dim") if row.get("unexpected") else plain(expected),
        Text("(absent)", "dim") if row["absent"] else plain(actual),
    )


def _text(row: Row, side: str) -> str:
    """A compared value as JSON text; of one that was cut when it was recorded, its beginning."""
    return str(row[side]) if f"{side}_digest" in row else shown(row[side], None)


def _cut(row: Row, side: str, text: str, full: bool) -> str:
    longest = len(text) if full else LONGEST_VALUE // 5
    goes_on = len(text) > longest or f"{side}_digest" in row
    return text[:longest] + "..." if goes_on else text
