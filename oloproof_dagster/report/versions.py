"""The versions that are recorded, as rows: what was executed, on which suite, and how it was decided."""

from typing import Any

from oloproof_dagster.evidence.evidence import Attempt, Evidence
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project
from oloproof_dagster.report.runs import Run


def recorded_versions(project: Project) -> list[dict[str, Any]]:
    """A row a version, by when it was last worked on; one whose run did not finish is shown as it is."""
    evidence = evidence_of(project)
    found = ((version, evidence.attempt(version)) for version in evidence.versions())
    return [_row(project, evidence, attempt) for _, attempt in found if attempt is not None]


def _row(project: Project, evidence: Evidence, attempt: Attempt) -> dict[str, Any]:
    suite = evidence.table("transformed_cases", attempt.version)
    return {
        "version": attempt.version,
        "current": attempt.version == project.version,
        "gate": Run(project, attempt.version, None, evidence).gate,
        "suite": suite.facts().get("suite_digest"),
        "attempt": attempt.number,
        "complete": attempt.complete,
        "executed": _n_executed(evidence, attempt),
        "to_execute": len(suite) * project.suite.trials,
        "former_attempts": len(evidence.former_attempts(attempt.version)),
    }


def _n_executed(evidence: Evidence, attempt: Attempt) -> int:
    """How many executions of the attempt in force are recorded, in its table or in what it can be resumed from."""
    facts, n_rows = evidence.table("trajectories", attempt.version).facts_and_length()
    in_table = n_rows if facts.get("attempt", attempt.number) == attempt.number else 0
    if attempt.complete:
        return in_table
    with evidence.resume_log(attempt, "executions") as log:
        return max(in_table, len(log))
