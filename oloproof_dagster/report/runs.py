"""A recorded release run, read: its tables as pandas frames, its cases as panels. Nothing is evaluated here."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.project.evaluator_keys import StateUnchanged
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.project.reviews import read_reviews, unused_lines
from oloproof_dagster.report.panels import CasePanel, case_panels
from oloproof_dagster.wording import counted, own_word, unread_criteria, unseen_paths

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """The release run of one system version: the attempt in force (`attempt` None) or a former one."""

    def __init__(self, project: Project, version: str, attempt: int | None, evidence: Evidence) -> None:
        self.project, self.version, self.attempt, self.evidence = project, version, attempt, evidence

    @property
    def verdicts(self) -> "pd.DataFrame":
        """One row a case, trial and criterion; `compared` is JSON text."""
        return self.table("verdicts").frame()

    @property
    def metrics(self) -> "pd.DataFrame":
        """One row a criterion; rates and bounds in [0, 1]."""
        return self.table("metrics").frame()

    @property
    def slices(self) -> "pd.DataFrame":
        """One row a slice value and criterion."""
        return self.table("slices").frame()

    @property
    def decisions(self) -> "pd.DataFrame":
        """One row a rule; `reasons` is JSON text."""
        return self.table("decisions").frame()

    @cached_property
    def gate(self) -> dict[str, Any] | None:
        """`action`, `exit_code` and `reasons`; None where there was no release.yaml to decide by."""
        row = next(iter(self.table("gate").rows()), None)
        if row is not None and (row.action == "BLOCK") != (row.exit_code != 0):
            raise EvidenceError(f"{self.table('gate').path} is damaged; delete it and run again")
        return row and {"action": row.action, "exit_code": row.exit_code, "reasons": parse_canonical(row.reasons)}

    def table(self, name: str) -> Stored[Any]:
        """Any table of the run, read a batch at a time."""
        return self.evidence.table(name, self.version, self.attempt)

    def unfinished(self) -> str | None:
        """One line where nothing is judged yet: the run was interrupted, or broke."""
        if self.table("verdicts").exists:
            return None
        attempt = self.evidence.attempt(self.version)
        n_executed = len(self.table("trajectories"))
        if attempt is not None and not attempt.complete:
            with self.evidence.resume_log(attempt, "executions") as parts:
                n_executed = max(n_executed, len(parts))
        n_asked = len(self.table("transformed_cases")) * self.project.suite.trials
        return (
            f"the run of version {self.version!r} did not finish: {n_executed} of {n_asked} executions are made and no"
            " verdict is reached; `oloproof run` goes on"
        )

    def case(self, case_id: str, trial: int = 0) -> CasePanel:
        """Everything recorded of one trial of one case.

        Raises:
            EvidenceError: no such case is in the recorded suite, or it has fewer trials.
        """
        found = self.trials_of(case_id)
        if not 0 <= trial < len(found):
            raise EvidenceError(f"case {case_id!r} has {counted(len(found), 'trial')}, from 0 on; there is no {trial}")
        return found[trial]

    def trials_of(self, case_id: str) -> tuple[CasePanel, ...]:
        """Everything recorded of one case, trial by trial.

        Raises:
            EvidenceError: no such case is in the recorded suite.
        """
        found = tuple(case_panels(self.table, ids={case_id}))
        if not found:
            raise EvidenceError(
                f"no case {case_id!r} is recorded for version {self.version!r}; `oloproof inspect` lists the cases"
            )
        return found


def errors_line(run: Run, *, retried: bool) -> str | None:
    """One line on executions and replays that ended in an error, with the first one's text; None where none did."""
    parts = []
    first = ""
    for what, name in (("executions", "trajectories"), ("replays", "fault_replays")):
        table = run.table(name)
        more = ("raised_fault",) if name == "fault_replays" else ()  # that is what the agent did, and no error
        errors = [
            (case_id, error)
            for case_id, error, *fault in table.columns("case_id", "error", *more)
            if error and not any(fault)
        ]
        if errors:
            parts.append(f"{len(errors)} of {len(table)} {what} ended in an error")
            first = first or "case {!r}: {}".format(*errors[0])
    if not parts:
        return None
    again = "" if retried else "; recorded errors are used again, `oloproof run --retry-errors` repeats them"
    return f"{' and '.join(parts)}, the first: {' '.join(first.split())[:300]}{again}"


def own_word_line(run: Run) -> str | None:
    """One line where recoveries rest on nothing but the agent's own ending; None where they do not."""
    criteria = run.table("verdicts").facts().get("own_word")
    return own_word(criteria) if criteria else None


def noop_line(run: Run) -> str | None:
    """One line on the criteria that an agent which does nothing passes more than half as often as this one; None where
    there are none.

    state_unchanged is left out: to do nothing is what it asks for.
    """
    asks_for_it = {each.name for each in run.project.evaluators if isinstance(each, StateUnchanged)}
    idle = [
        f"{row.metric} (it {row.noop_passed}, this agent {row.n_passed})"
        for row in run.table("metrics").rows()
        if row.metric not in asks_for_it and (row.noop_passed or 0) * 2 > row.n_passed > 0
    ]
    if not idle:
        return None
    line = f"an agent that does nothing passes more than half as often as this one: {', '.join(idle)}"
    return f"{line}; add cases in which something has to be done"


def suite_lines(run: Run) -> Iterator[str]:
    """One line on criteria that no rule reads, and one on paths that no case has."""
    if run.project.unread:
        yield unread_criteria(run.project.unread)
    unseen = run.table("verdicts").facts().get("unseen_paths")
    if unseen:
        yield unseen_paths(unseen)


def review_lines(run: Run) -> Iterator[str]:
    """One line for each of people's reviews that decides nothing now."""
    policy = run.project.policy
    if policy is not None:
        left = [rule.id for rule in policy.rules if rule.requires_manual_review]
        yield from unused_lines(read_reviews(run.project), run.table("decisions").rows(), left)


def load_run(project: Project | Path | str, version: str | None = None, attempt: int | None = None) -> Run:
    """The recorded run of a version (default: the one that the project declares now), or of a former attempt at it.

    Raises:
        ConfigError: the project's files cannot be used.
        EvidenceError: nothing is recorded for the version, or no such attempt is kept.
    """
    loaded = project if isinstance(project, Project) else load_project(project)
    version = version or loaded.version
    evidence = evidence_of(loaded)
    in_force = evidence.attempt(version)
    former = None if in_force is not None and in_force.number == attempt else attempt
    run = Run(loaded, version, former, evidence)
    if not run.table("transformed_cases").exists:
        recorded = ", ".join(map(repr, evidence.versions())) or "none"
        what = f"attempt {attempt} of version {version!r}" if attempt else f"version {version!r}"
        raise EvidenceError(f"nothing is recorded for {what}; recorded versions: {recorded}")
    return run
