"""Evidence in, verdicts out: every case of the suite under every criterion. Judging again needs no agent."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.criterion import Criterion, build
from oloproof_dagster.evaluators.unseen_paths import UnseenPaths
from oloproof_dagster.evaluators.volatile import Volatile
from oloproof_dagster.evidence.parquet import Index, Stored
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import execution_key, identity_of
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow
from oloproof_dagster.records.trajectory import AgentCheckpoint
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.loading import load_attribute
from oloproof_dagster.system.own_files import OwnFiles

JUDGMENT_VERSION = "3"


def criteria(project: Project) -> tuple[Criterion, ...]:
    """The project's criteria, python checks imported.

    Raises:
        ConfigError: a python check cannot be imported.
    """

    def load_check(name: str) -> tuple[Callable[[Any], Any], Callable[[BaseException], str]]:
        own = OwnFiles.of(project, name)
        own.forget()
        return load_attribute(project, name, "evaluators.callable"), own.describe

    suite = project.suite
    volatile = Volatile(suite.ignore_paths, suite.ignore_new_paths, suite.unordered_paths)
    return tuple(build(project.evaluators, load_check, volatile))


class Judgment:
    """One pass of verdicts over a suite and `trials` executions of each case.

    `n_unreached` counts the executions that are not recorded; `own_word` names the criteria whose recoveries rest on
    the agent's own word, where no recording of the suite holds a constraint.
    """

    def __init__(
        self,
        suite: Stored[SuiteRow],
        executions: Stored[ExecutionRow],
        states: Stored[StateRow],
        replays: Stored[ReplayRow],
        trials: int = 1,
    ) -> None:
        self.n_unreached = 0
        self._own_word: dict[str, None] = {}
        self._constrained = False
        self._suite, self._trials = suite, trials
        self._identity = identity_of(executions.facts())
        # A run killed between two tables leaves them of two attempts.
        attempt = executions.facts().get("attempt")
        self._executions, self._states = Index(executions), Index(states.of_attempt(attempt))
        self._replays = Index(replays.of_attempt(attempt))

    def verdicts(self, criteria: tuple[Criterion, ...], unseen: UnseenPaths | None = None) -> Iterator[VerdictRow]:
        """A row for each case, trial and criterion, in the suite's order; memory holds a case and its source.

        `unseen` takes a look at every case on the way.
        """
        unseen = unseen or UnseenPaths()
        with INTERRUPTS.watched():
            for evidence in self.cases(self._suite.rows()):
                unseen.look(evidence)
                if evidence.execution is None:
                    self.n_unreached += 1
                for criterion in criteria:
                    row = criterion.row(evidence)
                    if row.reason == VerdictReason.RECOVERED and criterion.rests_on_own_word:
                        self._own_word[criterion.name] = None
                        self._constrained |= bool(evidence.trajectory and evidence.trajectory.constraints)
                    yield row

    @property
    def own_word(self) -> list[str]:
        """The criteria whose recoveries nothing but the agent's own ending shows."""
        return [] if self._constrained else list(self._own_word)

    def cases(self, suite: Iterable[SuiteRow]) -> Iterator[CaseEvidence]:
        """What is recorded of each case and trial; a derived case follows its source and knows it, trial by trial."""
        sources: list[CaseEvidence] = []
        for case in suite:
            if case.source_case is None:
                sources = [self._of(case, trial, None) for trial in range(self._trials)]
                yield from sources
            else:
                yield from (self._of(case, source.trial, source) for source in sources)

    def close(self) -> None:
        """Lets the tables go."""
        for index in (self._executions, self._states, self._replays):
            index.close()

    def _of(self, case: SuiteRow, trial: int, source: CaseEvidence | None) -> CaseEvidence:
        if self._identity is None:
            return CaseEvidence(case, trial, None, None, source)
        key = execution_key(self._identity, case, trial)
        return CaseEvidence(case, trial, self._executions.get(key), self._states.get(key), source, self._find_replay)

    def _find_replay(
        self, evidence: CaseEvidence, checkpoint: AgentCheckpoint, change: ReplayChange
    ) -> ReplayRow | None:
        key = None if self._identity is None else evidence.replay_key(self._identity, checkpoint, change)
        return None if key is None else self._replays.get(key)
