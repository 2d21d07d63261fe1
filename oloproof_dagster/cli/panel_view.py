"""The case panel in the terminal: input and output, verdicts, compared paths, recording and replay side by side."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.console import STATUSES, heading, shown, table
from oloproof_dagster.cli.listing import Hanging, Listing, plain
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import ReplayRow, VerdictRow
from oloproof_dagster.records.trajectory import AgentStep, from_text
from oloproof_dagster.report.panels import CasePanel, compared

MEANINGS = {reason.value: reason.meaning for reason in VerdictReason}


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


def print_panel(console: Console, panel: CasePanel) -> None:
    """One case and trial, whole."""
    case, execution = panel.case, panel.execution
    console.rule(_name(panel), align="left")
    if panel.source is not None:
        console.print(_labelled("source", panel.source.case_id))
        console.print(_labelled("", shown(parse_canonical(panel.source.input), 1000)))
    console.print(_labelled("input", shown(parse_canonical(case.input), 1000)))
    if execution is None:
        console.print(
            Text(
                "this version has no recorded execution of this case as it is now; `oloproof run` executes it", "yellow"
            )
        )
    else:
        status = STATUSES["passed" if execution.status == "ok" else "failed"]
        console.print(
            Text.assemble(
                ("execution ", "dim"), (execution.status, status), (f"  {execution.duration_ms:.1f} ms", "dim")
            )
        )
        if execution.error:
            console.print(_labelled("", execution.error))
        for error in parse_canonical(execution.retried) if execution.retried else ():
            console.print(_labelled("retried", error))
        if execution.output is not None:
            console.print(_labelled("output", shown(parse_canonical(execution.output), 1000)))
        if execution.trajectory is not None:
            heading(console, "Recorded")
            console.print(_steps("step", execution.trajectory, 1))
    _print_verdicts(console, panel)
    for replay in panel.replays:
        if replay.kind == "fault":
            _print_replay(console, panel, replay)
        elif replay.discarded:
            console.print(
                Text.assemble(
                    ("control replay from ", "dim"), plain(replay.checkpoint_id), f": {MEANINGS[replay.discarded]}"
                )
            )
            if replay.error:
                console.print(_labelled("", replay.error))
        elif replay.state_matches is False:
            console.print(
                Text(
                    f"the state after the control replay from {on_a_terminal(replay.checkpoint_id)} is not the recorded"
                    " one: this system does not restore its world as it was",
                    "yellow",
                )
            )
    console.print()


def _labelled(label: str, text: str) -> Table:
    """A text behind its label, the further lines below its first one."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=10, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(label, plain(text))
    return grid


def _print_verdicts(console: Console, panel: CasePanel) -> None:
    rows = table("criterion", "verdict", "why")
    error = panel.execution.error if panel.execution else None
    for row in panel.verdicts:
        if row.status == "not_applicable" and row.reason in _NOT_WORTH_A_ROW:
            continue
        why = [MEANINGS.get(row.reason or "", row.reason or ""), "" if row.detail == error else row.detail or ""]
        if row.status == "failed" and not any(why):
            differing = [each["path"] for each in compared(row) if not each["matches"]]
            why = [", ".join(path for path in differing if path != "$" or len(differing) == 1) + " differs"]
        rows.add_row(row.criterion, Text(row.status, STATUSES[row.status]), plain(": ".join(filter(None, why))))
    console.print()
    console.print(rows)
    for row in panel.verdicts:
        _print_compared(console, row, "source" if panel.source and row.criterion.startswith("same_") else "expected")


_NOT_WORTH_A_ROW = {"metamorphic_copy", "not_a_metamorphic_pair", "another_transform"}


def _print_compared(console: Console, verdict: VerdictRow, before: str) -> None:
    """The compared paths; of a whole value that differs, its differing leaves stand for it."""
    found = compared(verdict)
    leaves = [row for row in found if row["path"] != "$"]
    if not leaves and verdict.status != "passed":
        leaves = found
    if not leaves:
        return
    heading(console, verdict.criterion)
    rows = table("  path", before, "actual", "")
    for row in leaves:
        expected = Text("(not there)", "dim") if row.get("unexpected") else Text(shown(row["expected"]))
        actual = Text("(absent)", "dim") if row["absent"] else Text("" if row["matches"] else shown(row["actual"]))
        same = Text("same", "green") if row["matches"] else Text("differs", "red")
        rows.add_row(plain(f"  {row['path']}"), expected, actual, same)
    console.print(rows)


def _print_replay(console: Console, panel: CasePanel, replay: ReplayRow) -> None:
    """Recording and replay side by side from the faulted call on."""
    heading(console, f"Fault {replay.fault} at step {replay.step_index}")
    console.print(Hanging(Text.assemble(("replayed from ", "dim"), plain(replay.checkpoint_id))))
    if replay.discarded:
        console.print(Text(f"discarded: {MEANINGS[replay.discarded]}", "yellow"))
        if replay.error:
            console.print(_labelled("", replay.error))
    recording = panel.execution.trajectory if panel.execution else None
    if recording is None or replay.trajectory is None:
        return
    sides = [
        _steps(title, text, replay.step_index or 1)
        for title, text in (("recorded", recording), ("replayed", replay.trajectory))
    ]
    if console.width >= 120:
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in sides:
            grid.add_column(ratio=1)
        grid.add_row(*sides)
        console.print(grid)
    else:
        for side in sides:
            console.print(side)


def _steps(title: str, text: str, start: int) -> Listing:
    """The steps of a trajectory from an index on, how it ended, and the constraints that it broke."""
    trajectory = from_text(text)
    rows = table("", title, last_folds=True)
    for step in trajectory.steps[start - 1 :]:
        rows.add_row(str(step.index), plain(_step(step)))
    rows.add_row("", Text(f"ended: {trajectory.terminal_status}", "dim"))
    for check in trajectory.constraints:
        if not check.passed:
            rows.add_row(
                "", Text(on_a_terminal(f"broke {check.name}" + (f": {check.detail}" if check.detail else "")), "red")
            )
    return rows


def _step(step: AgentStep) -> str:
    parts = [step.kind, step.tool_name or ""]
    if step.arguments is not None:
        parts.append(shown(step.arguments))
    if step.result is not None:
        parts.append(shown(step.result))
    if step.error is not None:
        parts.append(f"error: {step.error}")
    return " ".join(part for part in parts if part)
