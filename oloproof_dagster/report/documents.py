"""The JSON documents that programs read: release_run/v1 and case_panels/v1, made from stored tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.tables import DecisionRow, ReplayRow
from oloproof_dagster.records.trajectory import from_text
from oloproof_dagster.report.panels import CasePanel, compared
from oloproof_dagster.report.runs import Run

COUNTS = ("n_eligible", "n_observed", "n_passed", "n_missing", "n_excluded", "n_clusters")
DECISION = (
    "rule_id",
    "metric",
    "state",
    "reasons",
    "direction",
    "threshold",
    "estimate",
    "lower",
    "upper",
    "method",
    *COUNTS,
    "advice",
    "evidence",
)
METRIC = (
    "metric",
    "estimate",
    "lower",
    "upper",
    "confidence_level",
    "method",
    *COUNTS,
    "missing",
    "excluded",
    "noop_passed",
    "n_unexposed",
)
SLICE = ("slice", "value", "metric", "estimate", "lower", "upper", "n_observed", "n_passed", "n_missing", "support")
_JSON_COLUMNS = {"reasons", "missing", "excluded"}


def release_run(run: Run, cache: dict[str, dict[str, int]]) -> dict[str, Any]:
    """`release_run/v1` of a run whose tables are recorded."""
    project, suite = run.project, run.table("transformed_cases").facts()
    return {
        "schema": "release_run/v1",
        "project": project.suite.project,
        "system": {"name": project.suite.system.name, "version": run.version},
        "suite": {
            "id": project.suite_id,
            "digest": suite["suite_digest"],
            "source_cases": suite["n_source_cases"],
            "cases": suite["n_cases"],
            "clusters": suite["n_clusters"],
        },
        "gate": run.gate,
        "decisions": [_decision(row) for row in run.table("decisions").rows()],
        "metrics": [_members(row, METRIC) | _where_set(row, "caution") for row in run.table("metrics").rows()],
        "slices": [_members(row, SLICE) | _where_set(row, "caution") for row in run.table("slices").rows()],
        "cache": cache,
    }


def panels(run: Run, found: Iterable[CasePanel]) -> dict[str, Any]:
    """`case_panels/v1` of some cases of a run."""
    return {
        "schema": "case_panels/v1",
        "system": {"name": run.project.suite.system.name, "version": run.version},
        "cases": [_panel(panel, run.project.replayed) for panel in found],
    }


COMPARED = ("path", "expected", "actual", "absent", "unexpected", "matches")
_WHERE_THEY_APPLY = ("n_differing", "cut", "expected_digest", "actual_digest")


def _panel(panel: CasePanel, declared: Sequence[FaultRecovery]) -> dict[str, Any]:
    execution = panel.execution
    return {
        "case_id": panel.case.case_id,
        "trial": panel.trial,
        "cluster": panel.case.cluster,
        "source_case": panel.case.source_case,
        "transform": panel.case.transform,
        "execution": execution
        and {"status": execution.status, "error": execution.error, "duration_ms": execution.duration_ms},
        "output": parse_canonical(execution.output) if execution and execution.output is not None else None,
        "verdicts": [
            {
                "criterion": row.criterion,
                "status": row.status,
                "reason": row.reason,
                "compared": [_compared(each) for each in compared(row)],
            }
            for row in panel.verdicts
        ],
        "replays": list(_replays(panel, declared)),
        "trajectory": _recording(execution.trajectory) if execution and execution.trajectory is not None else None,
        "left_tasks": execution.left_tasks or 0 if execution else 0,
        "left_threads": execution.left_threads or 0 if execution else 0,
    }


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    members = {name: row.get(name, False) if name == "unexpected" else row[name] for name in COMPARED}
    return members | {name: row[name] for name in _WHERE_THEY_APPLY if name in row}


def _recording(text: str) -> dict[str, Any]:
    """agent_trajectory/v1 without what only a replay reads."""
    members: dict[str, Any] = parse_canonical(text)
    members.pop("answers", None)
    for checkpoint in members.get("checkpoints", ()):
        checkpoint.pop("payload", None)
    return members


def _replays(panel: CasePanel, declared: Sequence[FaultRecovery]) -> Iterator[dict[str, Any]]:
    """For each evaluator of recovery whose replays are recorded: how control and fault ended, and where they differ."""
    if not panel.replays or panel.execution is None or panel.execution.trajectory is None:
        return
    recording, diverged = from_text(panel.execution.trajectory), {row.criterion: row.diverged for row in panel.verdicts}
    for each in declared:
        call = recording.call(each.tool, each.occurrence)
        checkpoint = None if call is None else recording.checkpoint_before(call.index)
        if call is None or checkpoint is None:
            continue
        made = [row for row in panel.replays if row.checkpoint_id == checkpoint.checkpoint_id]
        control = next((row for row in made if row.kind == "control"), None)
        fault = next((row for row in made if _is_fault(row, each, call.index)), None)
        if control is not None:
            difference = diverged.get(each.name)
            yield {
                "criterion": each.name,
                "control": control.status,
                "fault": None if fault is None else fault.status,
                "diverged": None if difference is None else parse_canonical(difference),
            }


def _is_fault(row: ReplayRow, declared: FaultRecovery, index: int) -> bool:
    aim = (declared.fault, index, declared.delivery)
    return (row.fault, row.step_index, row.delivery or "result") == aim


def _decision(row: DecisionRow) -> dict[str, Any]:
    """A decision's members; a count rule's limit is a whole number."""
    members = _members(row, DECISION)
    return members | {"threshold": int(row.threshold)} if row.direction == "count" else members


def _where_set(row: Any, *names: str) -> dict[str, Any]:
    """Members that stand only in rows that have them."""
    return {name: getattr(row, name) for name in names if getattr(row, name) is not None}


def _members(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    members = {name: getattr(row, name) for name in names}
    return {name: parse_canonical(value) if name in _JSON_COLUMNS else value for name, value in members.items()}
