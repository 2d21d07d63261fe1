"""A project looked over before its first run: everything loaded, one case run, and a sentence for what is lacking."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from oloproof_dagster.cli.trial_case import TrialCase, changed_by_a_case
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.replay_validity import target
from oloproof_dagster.evaluators.unseen_paths import UnseenPaths
from oloproof_dagster.execution.reset_advice import advice
from oloproof_dagster.project.evaluator_keys import MetamorphicRelation, StateMatches, StateUnchanged
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.records.trajectory import from_text
from oloproof_dagster.suite.cases import ReadNotes, read_cases
from oloproof_dagster.suite.labels import validities
from oloproof_dagster.suite.preflight import check_files, readable_by_all
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.system.calls import Outcome
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.reset_check import in_words
from oloproof_dagster.wording import counted, own_word, unread_criteria, unseen_paths
from oloproof_dagster.workers.session import Session


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: in order, worth knowing, or in the way of a run."""

    kind: Literal["ok", "note", "problem"]
    text: str


def check_project(project: Project) -> Iterator[Finding]:
    """What there is to say of a project; runs its first case once and evaluates nothing.

    Raises:
        ConfigError: what a run would refuse before its first case.
    """
    check_files(project)
    count, notes = SuiteCount(), ReadNotes()
    pairs, unseen, first = [], UnseenPaths.of(project, in_dataset=True), None
    for row in count.counting(expand(project, readable_by_all(project, read_cases(project, notes)), notes)):
        first = first or row
        pairs.append((row.transform, row.case_id, row.pair_digest))
        unseen.look(CaseEvidence(row, 0, None, None))
    assert first is not None, "a dataset without a case is refused"
    facts = count.facts()
    yield Finding(
        "ok",
        f"{counted(facts['n_source_cases'], 'case')}, {facts['n_cases']} with their transformed copies,"
        f" {counted(facts['n_clusters'], 'cluster')}",
    )
    yield from (Finding("note", warning) for warning in notes.warnings)
    if unseen.names:
        yield Finding("problem", unseen_paths(unseen.names))
    yield from _about_the_policy(project, facts["clustered"], facts["n_clusters"])
    for validity in validities(project, iter(pairs)):
        yield (
            Finding("ok", f"transform {validity.transform}: {validity.kept} of {validity.pairs} pairs kept")
            if validity.checked
            else Finding("note", validity.advice)
        )
    with closing(Session(project)) as session:
        session.prepare()
        if project.suite.store is not None:
            evidence_of(project).versions()
            yield Finding("ok", f"{project.suite.store} can be read")
        yield Finding("ok", f"{project.suite.system.callable} is loaded")
        with INTERRUPTS.watched():  # an agent's own KeyboardInterrupt is its case's error
            yield from _one_case(project, session, first)


def _about_the_policy(project: Project, clustered: bool, n_clusters: int) -> Iterator[Finding]:
    policy = project.policy
    if policy is None:
        yield Finding("note", "there is no release.yaml: a run will measure and decide nothing")
        return
    yield Finding("ok", counted(len(policy.rules), "rule"))
    if project.unread:
        yield Finding("note", unread_criteria(project.unread))
    if clustered and not policy.allow_approximate_methods:
        yield Finding(
            "note",
            "the suite is clustered and release.yaml does not set allow_approximate_methods: interval"
            " rules over clusters of several verdicts will be MANUAL_REVIEW",
        )
    if clustered and n_clusters < policy.min_clusters:
        yield Finding(
            "note",
            f"{n_clusters} clusters, fewer than min_clusters {policy.min_clusters}: interval rules"
            " will be INSUFFICIENT_EVIDENCE; a clustered suite wants at least 20 source cases",
        )


def _one_case(project: Project, session: Session, case: SuiteRow) -> Iterator[Finding]:
    tried = TrialCase(project, session, case)
    before = tried.only_reset()
    outcome = tried.executed()
    if outcome.status != "ok":
        yield Finding("problem", f"case {case.case_id!r} ended in an error: {outcome.error}")
    else:
        yield Finding("ok", f"case {case.case_id!r} ran in {outcome.duration_ms:.1f} ms")
    if session.is_stateful and case.initial_state is not None and not outcome.unreset:
        yield from _about_the_reset(before, tried.only_reset(), project.suite.sandbox.verify_reset is not None)
    elif outcome.unreset:
        yield Finding("note", advice(outcome.unreset))
    yield from _lacking(project, session, outcome, case.initial_state is not None)
    replays = tried.replays(outcome)
    for kind in ("control", "fault"):
        n = sum(row.kind == kind for row in replays)
        if n:
            yield Finding("ok", f"{counted(n, f'{kind} replay')} made")
    for name, why in tried.lacking(outcome, replays):
        yield Finding("problem", f"{name} will be missing on case {case.case_id!r}: {why}")


def _about_the_reset(before: Outcome, after: Outcome, verified: bool) -> Iterator[Finding]:
    """Whether a reset leaves the same world before a case and after it; `verified`: the sandbox looked itself."""
    wrong = [] if verified else changed_by_a_case(before, after)
    if after.unreset:
        yield Finding("problem", f"once a case has run, {after.error}")
        yield Finding("note", advice(after.unreset))
    elif wrong:
        yield Finding("problem", f"once a case has run, reset: {in_words(wrong)}")
    elif after.state is not None:
        yield Finding("ok", "reset leaves the same world before a case and after it")


def _lacking(project: Project, session: Session, outcome: Outcome, has_initial_state: bool) -> Iterator[Finding]:
    """What evaluators will not find."""
    wants_state = [
        each.name
        for each in project.evaluators
        if isinstance(each, StateMatches | StateUnchanged)
        or (isinstance(each, MetamorphicRelation) and each.relation == "same_state")
    ]
    wants_trajectory = [each.name for each in project.evaluators if each.reads_trajectory]
    if outcome.state is not None:
        yield Finding("ok", "a state was recorded after the case")
    elif wants_state:
        why = (
            "the system has no reset(state) and snapshot()"
            if not session.is_stateful
            else "the cases declare no initial_state"
            if not has_initial_state
            else "the case failed before"
        )
        yield Finding("problem", f"no state was recorded ({why}), and {', '.join(wants_state)} will be missing")
    if outcome.trajectory is None:
        if wants_trajectory or project.suite.system.records:
            yield Finding(
                "problem",
                "no trajectory was recorded, and"
                f" {', '.join(wants_trajectory) or 'system.records'} need one: call"
                " oloproof_dagster.current_case().agent_trajectory(...) in the system",
            )
        return
    trajectory = from_text(outcome.trajectory)
    yield Finding(
        "ok",
        f"a trajectory of {counted(len(trajectory.steps), 'step')} and"
        f" {counted(len(trajectory.checkpoints), 'checkpoint')} was recorded",
    )
    for declared in project.replayed:
        aim = target(trajectory, declared)
        if aim is VerdictReason.FAULT_TARGET_NOT_CALLED:
            yield Finding("note", f"{declared.name}: on this case {aim.meaning}")
    own = [declared.name for declared in project.replayed if declared.rests_on_own_word]
    if own and not trajectory.constraints:
        yield Finding("note", own_word(own))
