"""Recordings and replays in the terminal: steps one below the other, recording and replay side by side."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.console import heading, shown, table
from oloproof_dagster.cli.listing import Hanging, Listing, plain
from oloproof_dagster.records.reasons import meaning_of
from oloproof_dagster.records.tables import ReplayRow
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory, from_text
from oloproof_dagster.report.panels import CasePanel

STEPS_SHOWN = 20
"""How many steps stand at each end of a recording that is not shown in full."""


def labelled(label: str, text: str) -> Table:
    """A text behind its label, the further lines below its first one."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=10, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(label, plain(text))
    return grid


def print_replay(console: Console, panel: CasePanel, replay: ReplayRow, *, full: bool = False) -> None:
    """A fault replay beside its recording, or what a control replay says against this system."""
    if replay.kind == "fault":
        _print_fault(console, panel, replay, full)
    elif replay.discarded:
        what = ("control replay from ", "dim"), plain(replay.checkpoint_id), f": {meaning_of(replay.discarded)}"
        console.print(Text.assemble(*what))
        if replay.error:
            console.print(labelled("", replay.error))
    elif replay.state_matches is False:
        console.print(
            Text(
                f"the state after the control replay from {on_a_terminal(replay.checkpoint_id)} is not the recorded"
                " one: this system does not restore its world as it was",
                "yellow",
            )
        )


def _print_fault(console: Console, panel: CasePanel, replay: ReplayRow, full: bool) -> None:
    """Recording and replay side by side from where the two differ, at the latest from the faulted call on."""
    heading(console, f"Fault {replay.fault} at step {replay.step_index}")
    console.print(Hanging(Text.assemble(("replayed from ", "dim"), plain(replay.checkpoint_id))))
    if replay.discarded:
        console.print(Text(f"discarded: {meaning_of(replay.discarded)}", "yellow"))
        if replay.error:
            console.print(labelled("", replay.error))
    recording = panel.execution.trajectory if panel.execution else None
    if recording is None or replay.trajectory is None:
        return
    start = min(replay.step_index or 1, _first_difference(from_text(recording), from_text(replay.trajectory)))
    sides = [
        steps(title, text, start, full=full)
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


def _first_difference(recorded: AgentTrajectory, replayed: AgentTrajectory) -> int:
    """The index of the first step that is not alike in both."""
    pairs = zip(recorded.steps, replayed.steps, strict=False)
    alike = min(len(recorded.steps), len(replayed.steps))
    return next((a.index for a, b in pairs if _step(a) != _step(b)), alike + 1)


def steps(title: str, text: str, start: int = 1, *, full: bool = False) -> Listing:
    """The steps of a trajectory from an index on, how it ended, and the constraints that it broke."""
    trajectory = from_text(text)
    rows = table("", title, last_folds=True)
    found = trajectory.steps[start - 1 :]
    folded = len(found) - 2 * STEPS_SHOWN if not full else 0
    for position, step in enumerate(found):
        if folded > 0 and position == STEPS_SHOWN:
            rows.add_row("", Text(f"... {folded} more steps (--full shows them)", "dim"))
        if not 0 <= position - STEPS_SHOWN < folded:
            rows.add_row(str(step.index), plain(_step(step, None if full else 200)))
    rows.add_row("", Text(f"ended: {trajectory.terminal_status}", "dim"))
    for check in trajectory.constraints:
        if not check.passed:
            detail = f": {check.detail}" if check.detail else ""
            rows.add_row("", Text(on_a_terminal(f"broke {check.name}{detail}"), "red"))
    return rows


def _step(step: AgentStep, longest: int | None = None) -> str:
    parts = [step.kind, step.tool_name or ""]
    if step.arguments is not None:
        parts.append(shown(step.arguments, longest))
    if step.result is not None:
        parts.append(shown(step.result, longest))
    if step.error is not None:
        parts.append(f"error: {step.error}")
    return " ".join(part for part in parts if part)
