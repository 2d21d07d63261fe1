"""One pass of a stage over the suite: rows read, made and written to staged tables a batch at a time.

Each pass takes what is recorded of its attempt as answered, and leaves files that nobody reads until they are put
in their place.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.collector import seldom_collected
from oloproof_dagster.evidence.evidence import Attempt, Evidence
from oloproof_dagster.evidence.parquet import Index, Staged, Stored, writing
from oloproof_dagster.execution.execute import Asked, Counts, Executed, RecordedExecutions, execute
from oloproof_dagster.execution.replay import RecordedReplays, Source, replay_all, sources
from oloproof_dagster.execution.sandboxes import Sandboxes
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.keys import Identity, facts, identity_of
from oloproof_dagster.records.tables import EXECUTIONS, REPLAYS, STATES, ReplayRow, SuiteRow
from oloproof_dagster.system.interrupts import INTERRUPTS


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a suite that is spread over several steps: shard `index` (from 0) of `of`.

    A cluster is in one shard whole, whatever stands around it in the suite.
    """

    index: int
    of: int

    def holds(self, case: SuiteRow) -> bool:
        """Whether a case's cluster is in this shard."""
        return shard_of(case.cluster, self.of) == self.index


def shard_of(cluster: str, of: int) -> int:
    """The index of the shard that a cluster is in."""
    return int.from_bytes(hashlib.sha256(cluster.encode()).digest()[:8]) % of


@dataclass(frozen=True, slots=True)
class Pass:
    """Whose evidence a pass adds to, and by what means: `sandboxes` is asked for when a case has to be run."""

    evidence: Evidence
    attempt: Attempt
    identity: Identity
    sandboxes: Callable[[], Sandboxes]
    asked: Asked

    def execute(self, suite: Stored[SuiteRow], *prints: str) -> tuple[Staged, Staged, Counts]:
        """Stages `trajectories` and `environment_states`, side by side; `prints` are noted in them."""
        counts = Counts()
        with ExitStack() as opened:
            executions = opened.enter_context(writing(self._staging("trajectories"), EXECUTIONS))
            states = opened.enter_context(writing(self._staging("environment_states"), STATES))
            with self._executing(suite.rows(), counts) as rows:
                for executed, state in rows:
                    executions.add(executed)
                    states.add(state)
            noted = [
                {**self._facts(counts), "trials": self.asked.trials, "fingerprint": each} for each in prints or ("", "")
            ]
            return executions.finish(noted[0]), states.finish(noted[1]), counts

    def execute_shard(self, suite: Stored[SuiteRow], shard: Shard) -> Counts:
        """Executes one shard's cases; what they leave is in the parts, from which `execute` takes it."""
        counts = Counts()
        with self._executing(filter(shard.holds, suite.rows()), counts) as rows:
            deque(rows, maxlen=0)
        return counts

    def replay(
        self, recordings: "Recordings", declared: tuple[FaultRecovery, ...], fingerprint: str = ""
    ) -> tuple[Staged, Counts]:
        """Stages `fault_replays`; `fingerprint` is noted in it."""
        counts = Counts()
        with writing(self._staging("fault_replays"), REPLAYS) as replays:
            with self._replaying(recordings, lambda case: True, declared, counts) as rows:
                for row in rows:
                    replays.add(row)
            return replays.finish({**self._facts(counts), "fingerprint": fingerprint}), counts

    def replay_shard(self, recordings: "Recordings", declared: tuple[FaultRecovery, ...], shard: Shard) -> Counts:
        """Replays one shard's cases; what they leave is in the parts, from which `replay` takes it."""
        counts = Counts()
        with self._replaying(recordings, shard.holds, declared, counts) as rows:
            deque(rows, maxlen=0)
        return counts

    @contextmanager
    def _executing(self, suite: Iterable[SuiteRow], counts: Counts) -> Iterator[Iterator[Executed]]:
        with (
            self.evidence.parts(self.attempt, "executions") as parts,
            self._index("trajectories") as executions,
            self._index("environment_states") as states,
            self._at_work(counts),
        ):
            recorded = RecordedExecutions(parts, executions, states)
            yield execute(suite, self.sandboxes, recorded, identity=self.identity, asked=self.asked, counts=counts)

    @contextmanager
    def _replaying(
        self,
        recordings: "Recordings",
        holds: Callable[[SuiteRow], bool],
        declared: tuple[FaultRecovery, ...],
        counts: Counts,
    ) -> Iterator[Iterator[ReplayRow]]:
        with (
            self.evidence.parts(self.attempt, "replays") as parts,
            self._index("fault_replays") as former,
            closing(recordings.sources(holds)) as sources,
            self._at_work(counts),
        ):
            yield replay_all(
                sources,
                self.sandboxes,
                RecordedReplays(parts, former),
                declared=declared,
                identity=self.identity,
                asked=self.asked,
                counts=counts,
            )

    @contextmanager
    def _at_work(self, counts: Counts) -> Iterator[None]:
        start = time.perf_counter()
        with INTERRUPTS.watched(), seldom_collected():
            yield
        counts.seconds = time.perf_counter() - start

    def _facts(self, counts: Counts) -> dict[str, Any]:
        return {**facts(self.identity, self.attempt.number), "n_errors": counts.errors}

    def _index(self, table: str) -> "closing[Index[Any]]":
        stored = self.evidence.table(table, self.attempt.version)
        return closing(Index(stored.of_attempt(self.attempt.number)))

    def _staging(self, table: str) -> Any:
        return self.evidence.staging(table, self.attempt.version)


class Recordings:
    """The source cases that can be replayed, as the tables have them.

    `identity` is the one that the cases were executed under, so that a replay never joins other code's recording.
    """

    def __init__(self, suite: Stored[Any], executions: Stored[Any], states: Stored[Any]) -> None:
        self.upstream = (suite, executions, states)
        self.identity = identity_of(executions.facts())
        self.trials = int(executions.facts().get("trials", 1))
        self.n_cases = int(suite.facts().get("n_source_cases", 0))

    def sources(self, holds: Callable[[SuiteRow], bool]) -> Generator[Source, None, None]:
        """Those sources that `holds` says yes to, one by one; closing it lets the tables go."""
        suite, executions, states = self.upstream
        if self.identity is None:
            return
        with closing(Index(executions)) as executed, closing(Index(states)) as left:
            rows = filter(holds, suite.rows())
            yield from sources(rows, executed, left, self.identity, self.trials)
