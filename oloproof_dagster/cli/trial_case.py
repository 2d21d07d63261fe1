"""One case of a project, tried once by `check`: executed, its reset looked at, its replays made, what lacks found."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.judgment import criteria
from oloproof_dagster.execution.execute import Counts, PassOptions
from oloproof_dagster.execution.replay import Recording, Source, replay_all
from oloproof_dagster.execution.sandboxes import Sandboxes, submit_with_retries
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.comparison import EXACT
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.reasons import VerdictReason, meaning_of
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.schema import json_text
from oloproof_dagster.records.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow
from oloproof_dagster.records.trajectory import AgentCheckpoint
from oloproof_dagster.system.calls import Call, Outcome
from oloproof_dagster.system.reset_check import Difference, differing
from oloproof_dagster.workers.session import Session

SHOWN_OTHERWISE = {
    VerdictReason.EXECUTION_ERROR,
    VerdictReason.EXECUTION_TIMEOUT,
    VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE,
    VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE,
}
"""Reasons that `check` words by itself: what the system leaves or does not leave, whoever asks for it."""


class NothingRecorded:
    """Replays of which none is recorded and none is kept."""

    def get(self, key: str) -> ReplayRow | None:
        """None: every replay is made."""
        return None

    def keep(self, row: ReplayRow) -> None:
        """Keeps nothing."""


@dataclass(frozen=True, slots=True)
class TrialCase:
    """The sandboxes that a case is tried in, and the case."""

    project: Project
    session: Session
    case: SuiteRow

    @property
    def _sandboxes(self) -> Sandboxes:
        return self.session.sandboxes(self.session.code_digest)

    @property
    def _identity(self) -> Identity:
        return Identity(self.project.suite.system.name, self.project.version, self.session.code_digest)

    @property
    def _call(self) -> Call:
        case = self.case
        return Call(case.case_id, 0, case.cluster, case.input, case.initial_state)

    def only_reset(self) -> Outcome:
        """The world right after a reset, the system uncalled."""
        return self._outcome(replace(self._call, only_reset=True))

    def executed(self) -> Outcome:
        """The case, executed once; again where its error is one that `retries` names."""
        return self._outcome(self._call)

    def replays(self, outcome: Outcome) -> list[ReplayRow]:
        """A control replay and a fault replay for each evaluator that asks for one on this case."""
        if outcome.status != "ok" or outcome.trajectory is None:
            return []
        source = Source(self.case, (Recording(outcome.trajectory, outcome.state, 0),))
        return list(
            replay_all(
                [source],
                lambda: self._sandboxes,
                NothingRecorded(),
                declared=self.project.replayed,
                identity=self._identity,
                options=PassOptions(1, 1, retries=self.project.suite.retries),
                counts=Counts(),
            )
        )

    def lacking(self, outcome: Outcome, replays: list[ReplayRow]) -> Iterator[tuple[str, str]]:
        """For each criterion whose verdict would be missing on this case: its name, and why in words.

        Raises:
            ConfigError: a python check cannot be imported.
        """
        by_key: dict[str | None, ReplayRow] = {row.replay_key: row for row in replays}

        def find(evidence: CaseEvidence, checkpoint: AgentCheckpoint, change: ReplayChange) -> ReplayRow | None:
            return by_key.get(evidence.replay_key(self._identity, checkpoint, change))

        case_id = self.case.case_id
        output, recording = json_text(outcome.output), json_text(outcome.trajectory)
        execution = ExecutionRow(case_id, 0, "", outcome.status, outcome.error, outcome.duration_ms, output, recording)
        evidence = CaseEvidence(
            self.case, 0, execution, StateRow(case_id, 0, "", None, json_text(outcome.state)), None, find
        )
        for criterion in criteria(self.project):
            verdict = criterion.verdict(evidence)
            if verdict.status == "missing" and verdict.reason not in SHOWN_OTHERWISE:
                yield criterion.name, ": ".join(filter(None, (meaning_of(verdict.reason), verdict.detail)))

    def _outcome(self, call: Call) -> Outcome:
        sandboxes, outcomes = self._sandboxes, list[Outcome]()
        submit_with_retries(sandboxes, call, self.project.suite.retries, lambda outcome, _: outcomes.append(outcome))
        while not outcomes:
            sandboxes.wait()
        return outcomes[0]


def changed_by_a_case(before: Outcome, after: Outcome) -> list[Difference]:
    """Where the world right after a reset is another one once a case has run."""
    if before.state is None or after.state is None:
        return []
    first, again = parse_canonical(before.state), parse_canonical(after.state)
    return list(differing(EXACT, first, again, (), "before a case has run it is"))
