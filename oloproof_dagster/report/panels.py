"""The case panel: everything recorded of one case, read from the tables and brought together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.evidence.parquet import Index, Stored
from oloproof_dagster.records.keys import Identity, execution_key, identity_of, replay_key
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow
from oloproof_dagster.records.trajectory import digest_without_latency, drawn_trial, from_text

FindTable = Callable[[str], Stored[Any]]


@dataclass(frozen=True)
class CasePanel:
    """One case and trial; `source` is the source case of a derived one."""

    case: SuiteRow
    trial: int
    n_trials: int
    source: SuiteRow | None
    execution: ExecutionRow | None
    state: StateRow | None
    verdicts: tuple[VerdictRow, ...]
    replays: tuple[ReplayRow, ...]

    @property
    def failed(self) -> bool:
        """Whether some verdict failed."""
        return any(row.status == "failed" for row in self.verdicts)


def compared(row: VerdictRow) -> list[dict[str, Any]]:
    """A verdict's compared paths."""
    return parse_canonical(row.compared) if row.compared else []


def case_panels(find: FindTable, *, ids: set[str] | None = None, failures: bool = False) -> Iterator[CasePanel]:
    """The panels of a run in the suite's order: all, some by id, or those with a failed verdict.

    A case shows the execution that its verdicts were reached on: one that was recorded before the case was edited is
    none of its. The tables follow the suite's order too, so each is read once, front to back.
    """
    wanted = _failing(find) if failures else None
    identity, trials = identity_of(find("trajectories").facts()), find("verdicts").facts().get("trials", 1)
    with ExitStack() as open_files:

        def index(name: str, *by: str) -> Index[Any]:
            return open_files.enter_context(closing(Index(find(name), by=by or None)))

        executions, states = index("trajectories"), index("environment_states")
        verdicts, replays = index("verdicts", "case_id", "trial"), index("fault_replays", "case_id")
        source: SuiteRow | None = None
        for case in find("transformed_cases").rows():
            if case.source_case is None:
                source = case
            if ids is not None and case.case_id not in ids:
                continue
            for trial in range(trials):
                if wanted is not None and (case.case_id, trial) not in wanted:
                    continue
                key = execution_key(identity, case, trial) if identity else None
                execution = executions.get(key)
                yield CasePanel(
                    case=case,
                    trial=trial,
                    n_trials=trials,
                    source=source if case.source_case else None,
                    execution=execution,
                    state=states.get(key),
                    verdicts=verdicts.all(case.case_id, trial),
                    replays=_own(identity, case, execution, replays.all(case.case_id)),
                )


def _own(
    identity: Identity | None, case: SuiteRow, execution: ExecutionRow | None, replays: tuple[ReplayRow, ...]
) -> tuple[ReplayRow, ...]:
    """Those of a case's replays that were made from this trial's recording, or from an equal one."""
    if not replays or identity is None or execution is None or execution.trajectory is None:
        return ()
    digest = digest_without_latency(execution.trajectory)
    recording = from_text(execution.trajectory)
    checkpoints = {each.checkpoint_id: each for each in recording.checkpoints}
    trial = drawn_trial(recording, execution.trial)

    def key(row: ReplayRow) -> str | None:
        kind = "inject_fault" if row.fault else "resume"
        change = ReplayChange(kind, row.step_index, row.fault, row.delivery or "result")  # type: ignore[arg-type]
        checkpoint = checkpoints.get(row.checkpoint_id)
        return None if checkpoint is None else replay_key(identity, case, digest, checkpoint, change, trial=trial)

    return tuple(row for row in replays if key(row) == row.replay_key)


def _failing(find: FindTable) -> set[tuple[str, int]]:
    verdicts = find("verdicts").columns("case_id", "trial", "status")
    return {(case_id, trial) for case_id, trial, status in verdicts if status == "failed"}
