"""The two passes over a suite around the sandbox, executions and replays: rows made, and written to staged tables.

Each takes what is recorded of its attempt as answered, and leaves files that nobody reads until they are put in their
place.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from oloproof_dagster.evidence.evidence import Attempt, Evidence, ResumeKind
from oloproof_dagster.evidence.parquet import Index, Staged, Stored, writing
from oloproof_dagster.execution.execute import Counts, PassOptions, RecordedExecutions, execute
from oloproof_dagster.execution.replay import RecordedReplays, Source, replay_all, sources
from oloproof_dagster.execution.sandboxes import Sandboxes
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.keys import Identity, facts, identity_of
from oloproof_dagster.records.tables import TABLES, SuiteRow
from oloproof_dagster.system.interrupts import INTERRUPTS

Holds = Callable[[SuiteRow], bool]
"""Whether a case is one of those that are gone through."""


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
class PassTarget:
    """The attempt that a pass adds evidence to, whose behaviour it records, and by what means: `sandboxes` is called
    when a case has to be run. `place` is where its tables are staged, None: in the evidence."""

    evidence: Evidence
    attempt: Attempt
    identity: Identity
    sandboxes: Callable[[], Sandboxes]
    options: PassOptions
    place: Evidence | None = None

    def index(self, table: str) -> "closing[Index[Any]]":
        """The rows that a table holds of this attempt, by key."""
        stored = self.evidence.table(table, self.attempt.version)
        return closing(Index(stored.of_attempt(self.attempt.number)))


class Pass(Protocol):
    """One way over the suite. `tables` are those that it writes, `verb` is what it did to a row that is new."""

    kind: ResumeKind
    verb: str
    tables: tuple[str, ...]

    @property
    def upstream(self) -> tuple[Stored[Any], ...]:
        """The tables that it reads."""

    @property
    def identity(self) -> Identity | None:
        """Whose behaviour it has to record; None for the system's as it is now."""

    @property
    def n_cases(self) -> int:
        """How many cases it goes through."""

    def facts(self, options: PassOptions) -> Mapping[str, Any]:
        """What is noted in its tables beside the identity and the attempt."""

    def fingerprinted(self, identity: Identity, attempt: int) -> Mapping[str, Any]:
        """What its tables are a function of beside the upstream tables."""

    def is_edited(self, recorded: Mapping[str, Any], identity: Identity) -> bool:
        """Whether what is recorded of the version is another system's by now: it is kept, and a new attempt begins."""

    def warning_of_edit(self, recorded: Mapping[str, Any], identity: Identity) -> str | None:
        """One line where the system was edited under a version that is recorded already."""

    def clusters(self) -> Iterator[str]:
        """The cluster of each case that it goes through."""

    def rows(
        self, target: PassTarget, holds: Holds, counts: Counts
    ) -> AbstractContextManager[Iterator[tuple[Any, ...]]]:
        """The rows of the cases that `holds` selects, one for each table, in the suite's order; fills `counts`."""


class ExecutionPass:
    """Every case and trial executed: `trajectories` and `environment_states`."""

    kind: ResumeKind = "executions"
    verb = "executed"
    tables: tuple[str, ...] = ("trajectories", "environment_states")
    identity: Identity | None = None

    def __init__(self, suite: Stored[SuiteRow]) -> None:
        self.upstream: tuple[Stored[Any], ...] = (suite,)

    @property
    def n_cases(self) -> int:
        """How many cases the suite has, copies included."""
        return len(self.upstream[0])

    def facts(self, options: PassOptions) -> Mapping[str, Any]:
        """How many trials of each case there are, and what the files were that are in no key."""
        files = dict(options.files())
        return {"trials": options.trials, "resets": "counted", **({"files": files} if files else {})}

    def is_edited(self, recorded: Mapping[str, Any], identity: Identity) -> bool:
        """Whether a version is recorded, and of other code."""
        return recorded.get("version") == identity.version and recorded.get("code") != identity.code

    def fingerprinted(self, identity: Identity, attempt: int) -> Mapping[str, Any]:
        """The attempt, and whose behaviour it is."""
        return {"attempt": attempt, "identity": list(facts(identity, attempt).values())}

    def warning_of_edit(self, recorded: Mapping[str, Any], identity: Identity) -> str | None:
        """Old evidence is never an answer for new code: all cases run again, and the version should have been
        bumped."""
        if not self.is_edited(recorded, identity):
            return None
        return (
            f"the system's files changed since version {identity.version!r} was recorded: its cases are"
            " executed again, as a new attempt. Bump system.version in oloproof.yaml to keep releases apart"
        )

    def clusters(self) -> Iterator[str]:
        """The cluster of each case."""
        return (cluster for (cluster,) in self.upstream[0].columns("cluster"))

    @contextmanager
    def rows(self, target: PassTarget, holds: Holds, counts: Counts) -> Iterator[Iterator[tuple[Any, ...]]]:
        """An execution and the state it left, for each case and trial."""
        former = target.evidence.table("trajectories", target.attempt.version)
        noted = former.facts()
        n_unverified = int(noted.get("n_unverified", 0)) if "resets" in noted else len(former)
        with (
            target.evidence.resume_log(target.attempt, self.kind) as log,
            target.index("trajectories") as executions,
            target.index("environment_states") as states,
            _timed(counts),
        ):
            yield execute(
                filter(holds, self.upstream[0].rows()),
                target.sandboxes,
                RecordedExecutions(log, executions, states, n_unverified),
                identity=target.identity,
                options=target.options,
                counts=counts,
            )


class ReplayPass:
    """Every recorded call that an evaluator lets fail, replayed: `fault_replays`.

    `identity` is the one that the cases were executed under, so that a replay never joins other code's recording.
    """

    kind: ResumeKind = "replays"
    verb = "replayed"
    tables: tuple[str, ...] = ("fault_replays",)

    def __init__(self, upstream: tuple[Stored[Any], ...], declared: tuple[FaultRecovery, ...]) -> None:
        self.upstream = upstream  # suite, executions, states
        self.identity = identity_of(upstream[1].facts())
        self._declared = declared

    @property
    def n_cases(self) -> int:
        """How many source cases the suite has."""
        return int(self.upstream[0].facts().get("n_source_cases", 0))

    def facts(self, options: PassOptions) -> Mapping[str, Any]:
        """Nothing more."""
        return {}

    def fingerprinted(self, identity: Identity, attempt: int) -> Mapping[str, Any]:
        """Whose behaviour was recorded, and in which attempt."""
        return {"of": list(facts(identity, attempt).values())}

    def warning_of_edit(self, recorded: Mapping[str, Any], identity: Identity) -> str | None:
        """Nothing: the executions gave it."""
        return None

    def is_edited(self, recorded: Mapping[str, Any], identity: Identity) -> bool:
        """Never: its identity is the recording's."""
        return False

    def clusters(self) -> Iterator[str]:
        """The cluster of each source case."""
        columns = self.upstream[0].columns("cluster", "source_case")
        return (cluster for cluster, source_case in columns if source_case is None)

    @contextmanager
    def rows(self, target: PassTarget, holds: Holds, counts: Counts) -> Iterator[Iterator[tuple[Any, ...]]]:
        """A row for each replay, alone in its tuple."""
        with (
            target.evidence.resume_log(target.attempt, self.kind) as log,
            target.index("fault_replays") as former,
            closing(self._sources(holds)) as cases,
            _timed(counts),
        ):
            replays = replay_all(
                cases,
                target.sandboxes,
                RecordedReplays(log, former),
                declared=self._declared,
                identity=target.identity,
                options=target.options,
                counts=counts,
            )
            yield ((row,) for row in replays)

    def _sources(self, holds: Holds) -> Generator[Source, None, None]:
        """The source cases, with what their trials recorded; closing it lets the tables go."""
        suite, executions, states = self.upstream
        if self.identity is None:
            return
        with closing(Index(executions)) as executed, closing(Index(states)) as left:
            trials = int(executions.facts().get("trials", 1))
            yield from sources(filter(holds, suite.rows()), executed, left, self.identity, trials)


def run_shard(work: Pass, target: PassTarget, shard: Shard) -> Counts:
    """Does one shard of a pass; what comes of it is in the resume log, from which `write_tables` takes it."""
    counts = Counts()
    with work.rows(target, shard.holds, counts) as rows:
        deque(rows, maxlen=0)
    return counts


def write_tables(
    work: Pass, target: PassTarget, fingerprints: tuple[str, ...] | None = None
) -> tuple[tuple[Staged, ...], Counts]:
    """Stages the tables of a whole pass, side by side; a fingerprint is noted in each."""
    counts, place = Counts(), target.place or target.evidence
    with ExitStack() as opened:
        writers = [
            opened.enter_context(writing(place.staging(table, target.attempt.version), TABLES[table]))
            for table in work.tables
        ]
        with work.rows(target, lambda case: True, counts) as rows:
            for made in rows:
                for writer, row in zip(writers, made, strict=True):
                    writer.add(row)
        noted = {
            **facts(target.identity, target.attempt.number),
            "n_errors": counts.errors,
            **{name: n for name in ("n_unreset", "n_unverified") if (n := getattr(counts, name))},
            **work.facts(target.options),
        }
        bearing = zip(writers, fingerprints or ("",) * len(writers), strict=True)
        return tuple(writer.finish({**noted, "fingerprint": each}) for writer, each in bearing), counts


@contextmanager
def _timed(counts: Counts) -> Iterator[None]:
    start = time.perf_counter()
    with INTERRUPTS.watched():
        yield
    counts.seconds = time.perf_counter() - start
