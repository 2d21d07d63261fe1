"""The Gate in the terminal: the decisions with their bars, metrics, slices, and what the run reused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.console import ACTIONS, heading, table
from oloproof_dagster.cli.listing import Hanging, plain
from oloproof_dagster.decision.advice import LOOKS
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.wording import counted, interval_text

STATES = {"PASS": "green", "FAIL": "bold red", "INSUFFICIENT_EVIDENCE": "yellow", "MANUAL_REVIEW": "magenta"}


def rate(row: dict[str, Any]) -> str:
    """`23/24` with what is missing, and how many passed because the agent never saw what its transform changed."""
    missing = f" +{row['n_missing']} missing" if row["n_missing"] else ""
    unexposed = f" ({row['n_unexposed']} unexposed)" if row.get("n_unexposed") else ""
    return f"{row['n_passed']}/{row['n_observed']}{missing}{unexposed}"


def interval(row: dict[str, Any]) -> str:
    """`0.857 to 1.000`, rounded outwards, and that it decides nothing where too few clusters stand behind it."""
    text = interval_text(row["lower"], row["upper"]) or "no interval"
    return f"{text} ({row['caution']})" if row.get("caution") else text


def bar(row: dict[str, Any]) -> str:
    """The rule's bar as release.yaml has it."""
    direction = "max_failures" if row["direction"] == "count" else row["direction"]
    return f"{direction} {row['threshold']:g}"


def print_release_run(console: Console, document: dict[str, Any]) -> None:
    """A whole release_run/v1 document, the Gate last, where the eye lands."""
    suite, system, cache = document["suite"], document["system"], document["cache"]
    console.print(
        Text.assemble(
            Text(on_a_terminal(document["project"]), "bold"),
            "  ",
            plain(system["version"]),
            (
                f"   {counted(suite['source_cases'], 'case')}, {suite['cases']} with their transformed copies,"
                f" {counted(suite['clusters'], 'cluster')}",
                "dim",
            ),
        )
    )
    console.print(
        Text(
            f"executed {cache['executions']['miss']} ({cache['executions']['hit']} from evidence),"
            f" replayed {cache['replays']['miss']} ({cache['replays']['hit']} from evidence)",
            style="dim",
        )
    )
    if document["slices"]:
        print_slices(console, document["slices"])
    decided = {row["metric"] for row in document["decisions"]}
    others = [row for row in document["metrics"] if row["metric"] not in decided]
    if others:
        print_metrics(console, others, "Measured, no rule reads it" if document["gate"] else "Measured")
    print_gate(console, document)


def print_gate(console: Console, document: dict[str, Any]) -> None:
    """The decisions, and the Gate in the last line."""
    if document["gate"] is None:
        console.print("There is no release.yaml: this run measured and decided nothing.")
        return
    unexposed = {row["metric"]: row["n_unexposed"] for row in document["metrics"]}
    print_decisions(console, [row | {"n_unexposed": unexposed.get(row["metric"])} for row in document["decisions"]])
    gate = document["gate"]
    reasons = f"  {', '.join(gate['reasons'])}" if gate["reasons"] else ""
    console.print()
    console.print(
        Text.assemble(
            "Gate: ", (gate["action"], ACTIONS[gate["action"]]), reasons, (f"   exit code {gate['exit_code']}", "dim")
        )
    )


def print_part(console: Console, document: dict[str, Any]) -> None:
    """The verdicts of part of a suite: a row a criterion, then what failed or is missing."""
    part, cache = document["part"], document["cache"]
    console.print(
        f"{part['cases']} of {part['of']} cases: executed {cache['executions']['miss']}"
        f" ({cache['executions']['hit']} from evidence), replayed {cache['replays']['miss']}"
        f" ({cache['replays']['hit']} from evidence)"
    )
    heading(console, "Verdicts of this part")
    statuses = ("passed", "failed", "missing", "not_applicable")
    rows = table("criterion", *statuses)
    found = document["verdicts"]
    for criterion in dict.fromkeys(row["criterion"] for row in found):
        counts = Counter(row["status"] for row in found if row["criterion"] == criterion)
        rows.add_row(Text(criterion), *(str(counts[status] or "") for status in statuses))
    console.print(rows)
    for row in found:
        if row["status"] in ("failed", "missing"):
            why = " ".join(filter(None, (row["reason"], row["detail"])))
            console.print(Text.assemble(plain(row["case_id"]), f"  {row['criterion']}: {row['status']}  ", plain(why)))
    console.print("Part of the suite: nothing is decided. `oloproof run` executes the rest.")


def print_decisions(console: Console, decisions: Sequence[dict[str, Any]]) -> None:
    """A row a rule; under the table, why the others did not pass and what would decide the undecided ones."""
    wide = console.width >= 120
    heading(console, "Rules")
    rows = table("rule", "state", "bar", "passed", "interval", *(("criterion", "why") if wide else ()))
    for row in decisions:
        extra = (row["metric"], ", ".join(row["reasons"])) if wide else ()
        bounds = "" if row["direction"] == "count" else interval(row)
        rows.add_row(row["rule_id"], Text(row["state"], STATES[row["state"]]), bar(row), rate(row), bounds, *extra)
    console.print(rows)
    unpassed = [row for row in decisions if row["state"] != "PASS" and (not wide or row["advice"])]
    if unpassed:
        console.print()
    for row in unpassed:
        why = "" if wide else f" {row['metric']}, {', '.join(row['reasons'])}."
        advice = f" {row['advice']}" if row["advice"] else ""
        rule = Text(on_a_terminal(row["rule_id"]), STATES[row["state"]])
        console.print(Hanging(Text.assemble(rule, plain(f":{why}{advice}"))))
    if any(DecisionReason.INTERVAL_OVERLAPS_THRESHOLD in row["reasons"] for row in decisions):
        console.print(Text(LOOKS, "dim"))


def print_metrics(console: Console, metrics: Sequence[dict[str, Any]], title: str) -> None:
    """A row a criterion."""
    heading(console, title)
    rows = table("criterion", "passed", "interval", "excluded")
    for row in metrics:
        rows.add_row(row["metric"], rate(row), interval(row), str(row["n_excluded"] or ""))
    console.print(rows)


def print_slices(console: Console, slices: Sequence[dict[str, Any]]) -> None:
    """The slices in which something failed or is missing, by criterion; the others are counted."""
    heading(console, "Slices (they describe; no rule reads them)")
    shown_rows = [row for row in slices if row["n_passed"] < row["support"]]
    rows = table("slice", "passed", "interval")
    for criterion in dict.fromkeys(row["metric"] for row in shown_rows):
        rows.add_row(Text(on_a_terminal(criterion), "bold"), "", "")
        for row in shown_rows:
            if row["metric"] == criterion:
                rows.add_row(plain(f"  {row['slice']} = {row['value']}"), rate(row), interval(row))
    if shown_rows:
        console.print(rows)
    others = len(slices) - len(shown_rows)
    if others:
        console.print(Text(f"{others} of {len(slices)} slice rates have neither failures nor missing verdicts", "dim"))
