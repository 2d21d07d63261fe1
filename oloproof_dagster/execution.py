"""Cases in, executions out: each case and trial once around a sandbox, or answered from what is recorded under its key.

Finished executions go to parts as they come; the rows of both tables leave in the suite's order.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oloproof_dagster.calls import Call, Outcome
from oloproof_dagster.digests import canonical_json, digest_of_text, json_object
from oloproof_dagster.ordered import Ordered, in_order
from oloproof_dagster.parquet import Index
from oloproof_dagster.parts import Parts
from oloproof_dagster.sandboxes import Sandboxes, ask
from oloproof_dagster.suite import Retries
from oloproof_dagster.tables import EXECUTIONS, STATES, ExecutionRow, JSONText, StateRow, SuiteRow

ENGINE_VERSION = "2"

Progress = Callable[[str, int, int], None]
"""Told the stage, how many cases are done, and of how many."""


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Identity:
    """Whose behaviour a piece of evidence is: the system's name, its version and the digest of its code."""

    system: str
    version: str
    code: str
    _members: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members = {name: canonical_json(getattr(self, name)) for name in ("system", "version", "code")}
        object.__setattr__(self, "_members", members)

    def key(self, domain: str, case: SuiteRow, **members: str) -> str:
        """A digest over this identity, the case's id and what it gives the system, and further canonical texts."""
        given = f'{{"initial_state":{case.initial_state or "null"},"input":{case.input}}}'
        return digest_of_text(
            domain,
            json_object(
                **self._members,
                case=canonical_json(case.case_id),
                given=f'"{digest_of_text("given/v1", given)}"',
                **members,
            ),
        )


def execution_key(identity: Identity, case: SuiteRow, trial: int) -> str:
    """`execution/v1`: expectations, metadata and groups are not in it, so editing them executes nothing."""
    return identity.key("execution/v1", case, trial=str(trial))


@dataclass(slots=True)
class Counts:
    """How many rows were answered from evidence (`hit`) and how many were made (`miss`)."""

    hit: int = 0
    miss: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one pass: `n_cases` in the suite, `trials` of each, and whether recorded errors are repeated."""

    n_cases: int
    trials: int = 1
    retry_errors: bool = False
    retries: Retries | None = None
    progress: Progress = silent


Executed = tuple[ExecutionRow, StateRow]
N_FIELDS = 10
"""Of a part: what stands in both rows, once, and what stands in either, without the key."""


class Recorded:
    """What is recorded of a release run's executions: its parts first, then the former tables' rows by key."""

    def __init__(self, parts: Parts, executions: Index[ExecutionRow], states: Index[StateRow]) -> None:
        self._parts, self._executions, self._states = parts, executions, states

    def get(self, key: str) -> Executed | None:
        """The rows recorded under a key."""
        part = self._parts.get(key)
        if part is not None and len(part) == N_FIELDS:
            case_id, trial, initial, state, *rest = part
            execution = EXECUTIONS.row_of([case_id, trial, key, *rest])
            left = STATES.row_of([case_id, trial, key, initial, state])
            if execution is not None and left is not None:  # else it is as good as not recorded
                return execution, left
        # Both tables or neither: a kill between the two replacements must not pair new with old.
        former = self._executions.get(key)
        state_row = self._states.get(key) if former is not None else None
        return None if former is None or state_row is None else (former, state_row)

    def keep(self, execution: ExecutionRow, state: StateRow) -> None:
        """Records an execution before anything is made of it."""
        self._parts.append(
            execution.execution_key,
            (
                execution.case_id,
                execution.trial,
                state.initial,
                state.state,
                execution.status,
                execution.error,
                execution.duration_ms,
                execution.output,
                execution.trajectory,
                execution.retried,
            ),
        )


def execute(
    suite: Iterable[SuiteRow],
    sandboxes: Callable[[], Sandboxes],
    recorded: Recorded,
    *,
    identity: Identity,
    asked: Asked,
    counts: Counts,
) -> Iterator[Executed]:
    """The rows of `trajectories` and `environment_states` in the suite's order; what is not recorded is executed.

    Each execution is recorded as soon as it is finished. `sandboxes` is asked for only when a case has to be
    executed. `counts` is filled on the way.
    """
    rows = Ordered[Executed]()
    for done, case in enumerate(suite):
        asked.progress("executing", done, asked.n_cases)
        for trial in range(asked.trials):
            key = execution_key(identity, case, trial)
            place, found = rows.place(), recorded.get(key)
            if found is not None and (found[0].case_id, found[0].trial) != (case.case_id, trial):
                found = None  # a line that was tampered with
            if found is not None and not (asked.retry_errors and found[0].status != "ok"):
                counts.hit += 1
                counts.errors += found[0].status != "ok"
                place(found)
            else:
                counts.miss += 1
                call = Call(case.case_id, trial, case.cluster, case.input, case.initial_state)
                finish = partial(_finish, case, trial, key, recorded, counts, place)
                ask(sandboxes(), call, asked.retries, finish)
        yield from in_order(rows, sandboxes)
    yield from in_order(rows, sandboxes, to_the_end=True)
    asked.progress("executing", asked.n_cases, asked.n_cases)


def _finish(
    case: SuiteRow,
    trial: int,
    key: str,
    recorded: Recorded,
    counts: Counts,
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
    )
    state = StateRow(case.case_id, trial, key, initial_digest(case), json_text(outcome.state))
    recorded.keep(execution, state)
    counts.errors += outcome.status != "ok"
    place((execution, state))


def initial_digest(case: SuiteRow) -> str | None:
    """The digest that environment_state/v1 bears of the state that a case started from."""
    return None if case.initial_state is None else digest_of_text("scenario.initial_state/v1", case.initial_state)


def json_text(text: str | None) -> JSONText | None:
    """A canonical text as a table's column takes it."""
    return None if text is None else JSONText(text)


def retried_text(errors: tuple[str, ...]) -> JSONText | None:
    """The errors of the attempts before the last one, as a table's column takes them."""
    return JSONText(canonical_json(list(errors))) if errors else None


def facts(identity: Identity, attempt: int) -> dict[str, Any]:
    """What a table of executions or replays says of itself, so that its rows' keys can be computed again."""
    return {
        "system": identity.system,
        "version": identity.version,
        "code": identity.code,
        "attempt": attempt,
        "engine": ENGINE_VERSION,
    }


def identity_of(facts: dict[str, Any]) -> Identity | None:
    """The identity that a stored table was made under, or None where there is no table."""
    return Identity(facts["system"], facts["version"], facts["code"]) if "code" in facts else None
