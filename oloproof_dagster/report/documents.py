"""The JSON documents that programs read: release_run/v1 and case_panels/v1, made from stored tables."""

from collections.abc import Iterable
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.records.tables import DecisionRow
from oloproof_dagster.report.panels import CasePanel
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
        "metrics": [
            _members(row, METRIC) | _where_set(row, "noop_passed", "caution") for row in run.table("metrics").rows()
        ],
        "slices": [_members(row, SLICE) | _where_set(row, "caution") for row in run.table("slices").rows()],
        "cache": cache,
    }


def panels(run: Run, found: Iterable[CasePanel]) -> dict[str, Any]:
    """`case_panels/v1` of some cases of a run."""
    return {
        "schema": "case_panels/v1",
        "system": {"name": run.project.suite.system.name, "version": run.version},
        "cases": [panel.members() for panel in found],
    }


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
