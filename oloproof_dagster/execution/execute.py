"""Cases in, executions out: each case and trial once around a sandbox, or answered from what is recorded under its key.

Finished executions go to parts as they come; the rows of both tables leave in the suite's order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from oloproof_dagster.evidence.parquet import Index
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.execution.first_errors import FirstErrors, stopped
from oloproof_dagster.execution.left_running import LeftRunning
from oloproof_dagster.execution.ordered import Ordered, in_order
from oloproof_dagster.execution.progress import Progress, silent
from oloproof_dagster.execution.reset_advice import ResetErrors
from oloproof_dagster.execution.sandboxes import Sandboxes, submit_with_retries
from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.records.keys import Identity, execution_key, initial_digest
from oloproof_dagster.records.reset_errors import is_reset_error
from oloproof_dagster.records.schema import json_text, retried_text
from oloproof_dagster.records.tables import EXECUTIONS, STATES, ExecutionRow, StateRow, SuiteRow
from oloproof_dagster.system.calls import Call, Outcome


@dataclass(slots=True)
class Counts:
    """How many rows were answered from evidence (`hit`) and how many were made (`miss`).

    `n_unreset` counts the errors of resets among all of them, `resets` those that were made,
    `n_unverified` the executions whose reset nobody verified, and
    `left` what the executions that were made left running.
    """

    hit: int = 0
    miss: int = 0
    errors: int = 0
    seconds: float = 0.0
    n_unreset: int = 0
    n_unverified: int = 0
    resets: ResetErrors = field(default_factory=ResetErrors)
    left: LeftRunning = field(default_factory=LeftRunning)

    def lines(self, n_sandboxes: int) -> Iterator[str]:
        """What is to be said once of the executions that were made."""
        advice = self.resets.advice(self.miss, n_sandboxes)
        if advice is not None:
            yield advice
        yield from self.left.lines()


@dataclass(frozen=True, slots=True)
class PassOptions:
    """How one pass goes: `n_cases` in the suite, `trials` of each, and whether recorded errors are repeated.

    `collects`: what is recorded is taken as it is, errors of resets too, as another step made it for this pass.
    `verifies` says that resets are verified. `files` is asked, once the rows are through, for what is noted in the
    tables of files that are in no key.
    """

    n_cases: int
    trials: int = 1
    retry_errors: bool = False
    retries: Retries | None = None
    progress: Progress = silent
    files: Callable[[], Mapping[str, str]] = dict
    collects: bool = False
    verifies: bool = True

    def takes(self, status: str, error: str | None) -> bool:
        """Whether a recorded row is an answer. A reset that went wrong says nothing of the agent."""
        return self.collects or not (is_reset_error(error) or (self.retry_errors and status != "ok"))


Executed = tuple[ExecutionRow, StateRow]
_OTHERS = EXECUTIONS.columns[3:]
_REQUIRED = len(_OTHERS) - len(EXECUTIONS.optional)
"""A part is the case, the trial, both members of the state row, and the execution's other columns in their order, the
optional ones at its end only as far as they are not null."""


class RecordedExecutions:
    """What is recorded of a release run's executions: its parts first, then the former tables' rows by key."""

    def __init__(
        self, parts: ResumeLog, executions: Index[ExecutionRow], states: Index[StateRow], n_unverified: int = 0
    ) -> None:
        self._parts, self._executions, self._states = parts, executions, states
        self.n_unverified = n_unverified

    def is_of_the_former_tables(self, key: str) -> bool:
        """Whether what is recorded under a key is in no part; of `n_unverified` such rows no reset was verified."""
        return key not in self._parts

    def get(self, key: str) -> Executed | None:
        """The rows recorded under a key."""
        part = self._parts.get(key)
        if part is not None and len(part) >= 4 + _REQUIRED:
            case_id, trial, initial, state, *rest = part
            nulls = [None] * (len(_OTHERS) - len(rest))
            execution = EXECUTIONS.row_of([case_id, trial, key, *rest, *nulls])
            left = STATES.row_of([case_id, trial, key, initial, state])
            if execution is not None and left is not None:  # else it is as good as not recorded
                return execution, left
        # Both tables or neither: a kill between the two replacements must not pair new with old.
        former = self._executions.get(key)
        state_row = self._states.get(key) if former is not None else None
        return None if former is None or state_row is None else (former, state_row)

    def forget(self, key: str) -> None:
        """Makes what was kept under a key as good as not recorded."""
        self._parts.append(key, ())

    def keep(self, execution: ExecutionRow, state: StateRow) -> None:
        """Records an execution before anything is made of it."""
        rest = [getattr(execution, column) for column in _OTHERS]
        while len(rest) > _REQUIRED + 1 and rest[-1] is None:
            rest.pop()
        self._parts.append(
            execution.execution_key, (execution.case_id, execution.trial, state.initial, state.state, *rest)
        )


def execute(
    suite: Iterable[SuiteRow],
    sandboxes: Callable[[], Sandboxes],
    recorded: RecordedExecutions,
    *,
    identity: Identity,
    options: PassOptions,
    counts: Counts,
) -> Iterator[Executed]:
    """The rows of `trajectories` and `environment_states` in the suite's order; what is not recorded is executed.

    Each execution is recorded as soon as it is finished. `sandboxes` is called only when a case has to be
    executed. `counts` is filled on the way.

    Raises:
        ConfigError: the first executions all ended in the same error; none of them is recorded.
    """
    rows, first = Ordered[Executed](), FirstErrors()
    for done, case in enumerate(suite):
        options.progress("executing", done, options.n_cases)
        for trial in range(options.trials):
            key = execution_key(identity, case, trial)
            place, found = rows.place(), recorded.get(key)
            if found is not None and (found[0].case_id, found[0].trial) != (case.case_id, trial):
                found = None  # a line that was tampered with
            if found is not None and options.takes(found[0].status, found[0].error):
                counts.hit += 1
                counts.errors += found[0].status != "ok"
                counts.n_unreset += is_reset_error(found[0].error)
                if found[1].initial is not None and recorded.is_of_the_former_tables(key):
                    counts.n_unverified = min(counts.n_unverified + 1, recorded.n_unverified)
                place(found)
            else:
                counts.miss += 1
                call = Call(case.case_id, trial, case.cluster, case.input, case.initial_state)
                finish = partial(_finish, case, trial, key, recorded, counts, first, place)
                submit_with_retries(sandboxes(), call, options.retries, finish)
        yield from in_order(rows, sandboxes)
    yield from in_order(rows, sandboxes, to_the_end=True)
    if not options.verifies:
        counts.n_unverified += counts.miss
    options.progress("executing", options.n_cases, options.n_cases)


def _finish(
    case: SuiteRow,
    trial: int,
    key: str,
    recorded: RecordedExecutions,
    counts: Counts,
    first: FirstErrors,
    place: Callable[[Executed], None],
    outcome: Outcome,
    errors: tuple[str, ...],
) -> None:
    execution = ExecutionRow(
        case_id=case.case_id,
        trial=trial,
        execution_key=key,
        status=outcome.status,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        output=json_text(outcome.output),
        trajectory=json_text(outcome.trajectory),
        retried=retried_text(errors),
        left_tasks=outcome.left.tasks or None,
        left_threads=outcome.left.threads or None,
    )
    state = StateRow(case.case_id, trial, key, initial_digest(case), json_text(outcome.state))
    recorded.keep(execution, state)
    counts.left.note(outcome.left)
    counts.errors += outcome.status != "ok"
    if is_reset_error(outcome.error):
        counts.n_unreset += 1
        counts.resets.note(outcome.unreset)
    if alike := first.note(key, None if outcome.status == "ok" else outcome.error or outcome.status):
        for each in alike:
            recorded.forget(each)
        raise stopped(outcome.error, outcome.unreset)
    place((execution, state))
