"""Replays made: for each recorded call that an evaluator lets fail, a control replay and then the fault.

A replay is made once per key. Whatever evaluators ask for it, whatever they make of it, is not in the key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from oloproof_dagster.declarations import FaultRecovery
from oloproof_dagster.digests import canonical_json, parse_canonical
from oloproof_dagster.evidence import Parts
from oloproof_dagster.execution import Counts, Identity, Progress, execution_key, silent
from oloproof_dagster.fault import RESUME, Target, target, why_control_is_discarded, why_fault_is_discarded
from oloproof_dagster.parquet import Index
from oloproof_dagster.reasons import VerdictReason
from oloproof_dagster.sandbox import ReplayOutcome, Sandbox
from oloproof_dagster.state import json_equal
from oloproof_dagster.system import ReplayChange
from oloproof_dagster.tables import ExecutionRow, JSONText, ReplayRow, StateRow, SuiteRow
from oloproof_dagster.trajectory import (
    AgentCheckpoint,
    AgentTrajectory,
    digest_without_latency,
    from_text,
    recorded_text,
    splice,
)


def replay_key(
    identity: Identity, case: SuiteRow, trajectory_digest: str, checkpoint: AgentCheckpoint, change: ReplayChange
) -> str:
    """`replay/v1`; trials whose recordings are equal share a replay."""
    return identity.key(
        "replay/v1",
        case,
        trajectory=canonical_json(trajectory_digest),
        checkpoint=canonical_json(checkpoint.model_dump()),
        change=canonical_json(change.members()),
    )


class Recorded:
    """What is recorded of a release run's replays: its parts first, then the former table's rows by key."""

    def __init__(self, parts: Parts, former: Index[ReplayRow]) -> None:
        self._parts, self._former = parts, former

    def get(self, key: str) -> ReplayRow | None:
        part = self._parts.get(key)
        if part is not None:
            return ReplayRow(**{name: part[name] for name in ReplayRow.__dataclass_fields__})
        return self._former.get(key)

    def keep(self, row: ReplayRow) -> None:
        self._parts.append(row.replay_key, asdict(row))


class Source:
    """A source case with its recording, as replays need it."""

    def __init__(self, case: SuiteRow, recording: str, state: str | None) -> None:
        self.case, self.state = case, state
        self.trajectory = from_text(recording)
        self.digest = digest_without_latency(recording)

    def key(self, identity: Identity, checkpoint: AgentCheckpoint, change: ReplayChange) -> str:
        return replay_key(identity, self.case, self.digest, checkpoint, change)

    def targets(self, declared: Iterable[FaultRecovery]) -> list[Target]:
        """The distinct faults that the evaluators ask for and that this recording has a call and a checkpoint for."""
        found: list[Target] = []
        for each in declared:
            aim = target(self.trajectory, each)
            if isinstance(aim, Target) and aim not in found:
                found.append(aim)
        return found


def sources(
    suite: Iterable[SuiteRow], executions: Index[ExecutionRow], states: Index[StateRow], identity: Identity
) -> Iterator[Source]:
    """The source cases whose execution went well and recorded a trajectory."""
    for case in suite:
        if case.source_case is not None:
            continue
        key = execution_key(identity, case, 0)
        row, state = executions.get(key), states.get(key)
        if row is not None and row.status == "ok" and row.trajectory is not None:
            yield Source(case, row.trajectory, state.state if state else None)


def replay_all(
    cases: Iterable[Source],
    sandbox: Callable[[], Sandbox],
    recorded: Recorded,
    *,
    declared: tuple[FaultRecovery, ...],
    identity: Identity,
    n_cases: int,
    retry_errors: bool = False,
    progress: Progress = silent,
) -> Counts:
    """Makes the replays that are not recorded yet, keeping each before the next begins."""
    maker = _Maker(sandbox, recorded, identity, retry_errors)
    for done, source in enumerate(cases):
        progress("replaying", done, n_cases)
        for aim in source.targets(declared):
            control = maker.replay(source, aim, RESUME)
            if control.discarded is None:
                maker.replay(source, aim, aim.change)
    progress("replaying", n_cases, n_cases)
    return maker.counts


@dataclass(slots=True)
class _Maker:
    """Answers each replay from evidence or makes it; one that several faults share is counted once."""

    sandbox: Callable[[], Sandbox]
    recorded: Recorded
    identity: Identity
    retry_errors: bool
    counts: Counts = field(default_factory=Counts)
    seen: set[str] = field(default_factory=set)

    def replay(self, source: Source, aim: Target, change: ReplayChange) -> ReplayRow:
        key = source.key(self.identity, aim.checkpoint, change)
        row = self.recorded.get(key)
        if key in self.seen and row is not None:
            return row
        self.seen.add(key)
        if row is None or (self.retry_errors and row.status != "ok"):
            outcome = self.sandbox().replay(source.case, 0, source.trajectory, aim.checkpoint, change)
            row = _row(source, aim, change, key, outcome)
            self.recorded.keep(row)
            self.counts.miss += 1
        else:
            self.counts.hit += 1
        self.counts.errors += row.status != "ok"
        return row


def _row(source: Source, aim: Target, change: ReplayChange, key: str, outcome: ReplayOutcome) -> ReplayRow:
    is_control = change.kind == "resume"
    discarded: VerdictReason | None
    spliced: AgentTrajectory | None = None
    if outcome.continuation is None:
        discarded = VerdictReason.REPLAY_TIMEOUT if outcome.status == "timeout" else VerdictReason.REPLAY_ERROR
    else:
        spliced = splice(source.trajectory, aim.checkpoint, outcome.continuation)
        discarded = (
            why_control_is_discarded(source.trajectory, aim.checkpoint, outcome.continuation)
            if is_control
            else why_fault_is_discarded(source.trajectory, aim, outcome.continuation)
        )
    return ReplayRow(
        case_id=source.case.case_id,
        replay_key=key,
        kind="control" if is_control else "fault",
        checkpoint_id=aim.checkpoint.checkpoint_id,
        prefix_steps=aim.checkpoint.step_index or 0,
        fault=change.fault,
        step_index=change.step_index,
        status=outcome.status,
        discarded=discarded.value if discarded else None,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        trajectory=JSONText(recorded_text(spliced)) if spliced else None,
        state=JSONText(outcome.state) if outcome.state is not None else None,
        state_matches=_matches(source.state, outcome.state) if is_control else None,
    )


def _matches(recorded: str | None, replayed: str | None) -> bool | None:
    """Whether a control's state equals the recorded one; None where one of the two was not recorded."""
    if recorded is None or replayed is None:
        return None
    return recorded == replayed or json_equal(parse_canonical(recorded), parse_canonical(replayed))


def replays(
    cases: Iterable[Source], recorded: Recorded, *, declared: tuple[FaultRecovery, ...], identity: Identity
) -> Iterator[ReplayRow]:
    """The rows of `fault_replays`: each control followed by its faults, in the suite's order."""
    for source in cases:
        seen: set[str] = set()
        for aim in source.targets(declared):
            for change in (RESUME, aim.change):
                key = source.key(identity, aim.checkpoint, change)
                row = None if key in seen else recorded.get(key)
                seen.add(key)
                if row is not None:
                    yield row
