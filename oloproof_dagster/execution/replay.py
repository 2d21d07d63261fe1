"""Replays made: for each recorded call that an evaluator lets fail, a control replay and then the fault.

A replay is made once per key. Whatever evaluators ask for it, whatever they make of it, is not in the key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.evaluators.replay_validity import (
    RESUME,
    Target,
    target,
    why_control_is_discarded,
    why_fault_is_discarded,
)
from oloproof_dagster.evidence.parquet import Index
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.execution.execute import Counts, PassOptions
from oloproof_dagster.execution.ordered import Ordered, in_order
from oloproof_dagster.execution.sandboxes import Sandboxes, submit_with_retries
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.keys import Identity, execution_key, replay_key
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.reset_errors import is_reset_error
from oloproof_dagster.records.schema import JSONText, json_text, retried_text
from oloproof_dagster.records.tables import REPLAYS, ExecutionRow, ReplayRow, StateRow, SuiteRow
from oloproof_dagster.records.trajectory import (
    AgentTrajectory,
    checkpoint_in_order,
    digest_without_latency,
    drawn_trial,
    from_text,
    splice,
    valid_text,
)
from oloproof_dagster.system.calls import Call, Outcome, ReplayOf


class KnownReplays(Protocol):
    """Where replays are looked up before they are made, and kept once they are."""

    def get(self, key: str) -> ReplayRow | None:
        """The row under a key, None where the replay is to be made."""

    def keep(self, row: ReplayRow) -> None:
        """Takes a replay as soon as it is made."""


class RecordedReplays:
    """What is recorded of a release run's replays: its parts first, then the former table's rows by key."""

    def __init__(self, parts: ResumeLog, former: Index[ReplayRow]) -> None:
        self._parts, self._former = parts, former

    def get(self, key: str) -> ReplayRow | None:
        """The row recorded under a key."""
        part = self._parts.get(key)
        row = None if part is None else REPLAYS.row_of(part)
        return self._former.get(key) if row is None else row

    def keep(self, row: ReplayRow) -> None:
        """Records a replay before anything is made of it."""
        self._parts.append(row.replay_key, [getattr(row, column) for column in REPLAYS.columns])


class Recording:
    """What one trial of a source case recorded, as replays need it."""

    def __init__(self, text: str, state: str | None, trial: int) -> None:
        self.text, self.state, self.trial = text, state, trial

    @cached_property
    def digest(self) -> str:
        """What replay keys take of the recording."""
        return digest_without_latency(self.text)

    @cached_property
    def trajectory(self) -> AgentTrajectory:
        """The recording as an object."""
        return from_text(self.text)

    @property
    def drawn_trial(self) -> int | None:
        """The trial where what follows a fault is a draw of its own: where the model's answers are recorded."""
        return drawn_trial(self.trajectory, self.trial) if '"answers"' in self.text else None


@dataclass(frozen=True, slots=True)
class Source:
    """A source case with what its trials recorded; of equal recordings the first stands for all."""

    case: SuiteRow
    recordings: tuple[Recording, ...]


def sources(
    suite: Iterable[SuiteRow],
    executions: Index[ExecutionRow],
    states: Index[StateRow],
    identity: Identity,
    trials: int,
) -> Iterator[Source]:
    """The source cases, with the recordings of those executions that went well."""
    for case in suite:
        if case.source_case is not None:
            continue
        found: list[Recording] = []
        for trial in range(trials):
            key = execution_key(identity, case, trial)
            row = executions.get(key)
            if row is not None and row.status == "ok" and row.trajectory is not None:
                state = states.get(key)
                found.append(Recording(row.trajectory, state.state if state else None, trial))
        yield Source(case, _distinct(found))


def _distinct(recordings: list[Recording]) -> tuple[Recording, ...]:
    """The first of each that are equal."""
    if len(recordings) < 2:  # nothing to compare, so no digest is taken
        return tuple(recordings)
    found: dict[tuple[str, int | None], Recording] = {}
    for each in recordings:
        found.setdefault((each.digest, each.drawn_trial), each)
    return tuple(found.values())


def replay_all(
    cases: Iterable[Source],
    sandboxes: Callable[[], Sandboxes],
    recorded: KnownReplays,
    *,
    declared: tuple[FaultRecovery, ...],
    identity: Identity,
    options: PassOptions,
    counts: Counts,
) -> Iterator[ReplayRow]:
    """The rows of `fault_replays`: each control followed by its faults, in the suite's order; what is not recorded is
    replayed, and recorded as soon as it is finished. A control that ended in an error is followed by no fault; what
    else discards one is for each evaluator to say."""
    rows = Ordered[list[ReplayRow]]()
    for done, source in enumerate(cases):
        options.progress("replaying", done, options.n_cases)
        _Replays(source, sandboxes, recorded, identity, options, counts, rows.place()).start(declared)
        yield from (row for ready in in_order(rows, sandboxes) for row in ready)
    yield from (row for ready in in_order(rows, sandboxes, to_the_end=True) for row in ready)
    options.progress("replaying", options.n_cases, options.n_cases)


@dataclass(slots=True)
class _Replays:
    """The replays of one source case; `place` takes their rows once all of them are there."""

    source: Source
    sandboxes: Callable[[], Sandboxes]
    recorded: KnownReplays
    identity: Identity
    options: PassOptions
    counts: Counts
    place: Callable[[list[ReplayRow]], None]
    rows: dict[str, ReplayRow | None] = field(default_factory=dict)
    n_waiting: int = 1

    def start(self, declared: tuple[FaultRecovery, ...]) -> None:
        for recording in self.source.recordings:
            for aims in _by_checkpoint(recording, declared):
                self._control(recording, aims)
        self._one_less()

    def _control(self, recording: Recording, aims: list[Target]) -> None:
        key = self._key(recording, aims[0], RESUME)
        self.rows[key] = None
        faults = {self._key(recording, aim, aim.change): aim for aim in aims}
        self.rows |= dict.fromkeys(faults)

        def then(row: ReplayRow) -> None:
            if row.status == "ok":
                for fault_key, aim in faults.items():
                    self._make(recording, aim, aim.change, fault_key, lambda row: None)

        self._make(recording, aims[0], RESUME, key, then)

    def _key(self, recording: Recording, aim: Target, change: ReplayChange) -> str:
        where = (self.identity, self.source.case, recording.digest, aim.checkpoint)
        return replay_key(*where, change, trial=recording.drawn_trial)

    def _make(
        self, recording: Recording, aim: Target, change: ReplayChange, key: str, then: Callable[[ReplayRow], None]
    ) -> None:
        found = self.recorded.get(key)
        self.n_waiting += 1

        def known(row: ReplayRow) -> None:
            self.rows[key] = row
            self.counts.errors += _is_error(row)
            self.counts.n_unreset += is_reset_error(row.error)
            then(row)
            self._one_less()

        def finished(outcome: Outcome, errors: tuple[str, ...]) -> None:
            row = _row(self.source.case, recording, aim, change, key, outcome, errors)
            self.recorded.keep(row)
            known(row)

        if found is not None and self.options.takes("error" if _is_error(found) else "ok", found.error):
            self.counts.hit += 1
            known(found)
        else:
            self.counts.miss += 1
            case = self.source.case
            replay = ReplayOf(recording.text, checkpoint_in_order(aim.checkpoint), change)
            call = Call(case.case_id, recording.trial, case.cluster, case.input, case.initial_state, replay)
            submit_with_retries(self.sandboxes(), call, self.options.retries, finished)

    def _one_less(self) -> None:
        self.n_waiting -= 1
        if not self.n_waiting:
            self.place([row for row in self.rows.values() if row is not None])


def _is_error(row: ReplayRow) -> bool:
    """Whether a replay went wrong; that the fault itself left the agent is what it was made to see."""
    return row.status != "ok" and not row.raised_fault


def _by_checkpoint(recording: Recording, declared: Iterable[FaultRecovery]) -> Iterable[list[Target]]:
    """The distinct faults that the evaluators ask for and that a recording has a call and a checkpoint for, those
    that start from one checkpoint together."""
    found: dict[str, list[Target]] = {}
    for each in declared:
        aim = target(recording.trajectory, each)
        if isinstance(aim, Target) and aim not in found.setdefault(aim.checkpoint.checkpoint_id, []):
            found[aim.checkpoint.checkpoint_id].append(aim)
    return found.values()


def _row(
    case: SuiteRow,
    recording: Recording,
    aim: Target,
    change: ReplayChange,
    key: str,
    outcome: Outcome,
    errors: tuple[str, ...],
) -> ReplayRow:
    is_control = change.kind == "resume"
    discarded: VerdictReason | None
    spliced: AgentTrajectory | None = None
    if outcome.trajectory is None:
        discarded = VerdictReason.REPLAY_TIMEOUT if outcome.status == "timeout" else VerdictReason.REPLAY_ERROR
    else:
        continuation = from_text(outcome.trajectory)
        spliced = splice(recording.trajectory, aim.checkpoint, continuation)
        diverged = (
            why_control_is_discarded(recording.trajectory, aim.checkpoint, continuation)
            if is_control
            else why_fault_is_discarded(recording.trajectory, aim, continuation)
        )
        discarded = diverged.reason if diverged else None
    return ReplayRow(
        case_id=case.case_id,
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
        trajectory=JSONText(valid_text(spliced)) if spliced else None,
        state=json_text(outcome.state),
        state_matches=_matches(recording.state, outcome.state) if is_control else None,
        retried=retried_text(errors),
        delivery=None if change.delivery == "result" else change.delivery,
        output=json_text(outcome.output),
        trial=recording.drawn_trial,
        raised_fault=True if outcome.raised_fault else None,
    )


def _matches(recorded: str | None, replayed: str | None) -> bool | None:
    """Whether a control's state equals the recorded one; None where one of the two was not recorded."""
    if recorded is None or replayed is None:
        return None
    return recorded == replayed or json_equal(parse_canonical(recorded), parse_canonical(replayed))
