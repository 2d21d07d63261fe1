"""Evidence in, verdicts out: every case of the suite under every criterion. Judging again needs no agent."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from oloproof_dagster.evaluators import Criterion, build
from oloproof_dagster.evaluators.evidence import CaseEvidence
from oloproof_dagster.execution import Identity, execution_key, identity_of
from oloproof_dagster.loading import load_attribute
from oloproof_dagster.own_files import OwnFiles
from oloproof_dagster.parquet import Index, Stored
from oloproof_dagster.project import Project
from oloproof_dagster.replay import replay_key
from oloproof_dagster.system import ReplayChange
from oloproof_dagster.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow
from oloproof_dagster.trajectory import AgentCheckpoint

JUDGMENT_VERSION = "1"


def criteria(project: Project) -> tuple[Criterion, ...]:
    """The project's criteria, python checks imported.

    Raises:
        ConfigError: a python check cannot be imported.
    """

    def load_check(name: str) -> tuple[Callable[[Any], Any], Callable[[BaseException], str]]:
        own = OwnFiles.of(project, name)
        own.forget()
        return load_attribute(project, name, "evaluators.callable"), own.describe

    return tuple(build(project.evaluators, load_check))


class Judgment:
    """One pass of verdicts over a suite; `n_unreached` counts the cases without a recorded execution."""

    def __init__(
        self,
        suite: Stored[SuiteRow],
        executions: Stored[ExecutionRow],
        states: Stored[StateRow],
        replays: Stored[ReplayRow],
    ) -> None:
        self.n_unreached = 0
        self._suite = suite
        self._identity = identity_of(executions.facts())
        # A run killed between two tables leaves them of two attempts.
        attempt = executions.facts().get("attempt")
        self._executions, self._states = Index(executions), Index(states.of_attempt(attempt))
        self._replays = Index(replays.of_attempt(attempt))

    def verdicts(self, criteria: tuple[Criterion, ...]) -> Iterator[VerdictRow]:
        """A row for each case and criterion, in the suite's order; memory holds a case and its source."""
        for evidence in self.cases(self._suite.rows()):
            if evidence.execution is None:
                self.n_unreached += 1
            for criterion in criteria:
                yield criterion.row(evidence)

    def cases(self, suite: Iterable[SuiteRow]) -> Iterator[CaseEvidence]:
        """What is recorded of each case; a derived case follows its source and knows it."""
        source: CaseEvidence | None = None
        for case in suite:
            is_source = case.source_case is None
            evidence = self._of(case, None if is_source else source)
            if is_source:
                source = evidence
            yield evidence

    def close(self) -> None:
        for index in (self._executions, self._states, self._replays):
            index.close()

    def _of(self, case: SuiteRow, source: CaseEvidence | None) -> CaseEvidence:
        if self._identity is None:
            return CaseEvidence(case, None, None, source)
        key = execution_key(self._identity, case, 0)
        return CaseEvidence(
            case, self._executions.get(key), self._states.get(key), source, self._replay(self._identity)
        )

    def _replay(self, identity: Identity) -> Callable[[CaseEvidence, AgentCheckpoint, ReplayChange], ReplayRow | None]:
        def find(evidence: CaseEvidence, checkpoint: AgentCheckpoint, change: ReplayChange) -> ReplayRow | None:
            recorded = evidence.trajectory_digest
            if recorded is None:
                return None
            return self._replays.get(replay_key(identity, evidence.case, recorded, checkpoint, change))

        return find
