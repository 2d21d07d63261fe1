"""Cases in, executions out: each case once around the sandbox, answered from recorded evidence where its key is known.

Finished executions go to parts as they come; `fold` turns parts and former rows into the tables, in the suite's order.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from oloproof_dagster.digests import canonical_json, digest_of_text, json_object
from oloproof_dagster.evidence import Parts
from oloproof_dagster.parquet import Index
from oloproof_dagster.sandbox import Sandbox
from oloproof_dagster.tables import ExecutionRow, JSONText, StateRow, SuiteRow

ENGINE_VERSION = "1"

Progress = Callable[[str, int, int], None]
"""Told the stage, how many cases are done, and of how many."""


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose behaviour a piece of evidence is: the system's name, its version and the digest of its code."""

    system: str
    version: str
    code: str

    def key(self, domain: str, case: SuiteRow, **members: str) -> str:
        """A digest over this identity, the case's id and what it gives the system, and further canonical texts."""
        given = {"input": case.input, "initial_state": case.initial_state or "null"}
        return digest_of_text(
            domain,
            json_object(
                system=canonical_json(self.system),
                version=canonical_json(self.version),
                code=canonical_json(self.code),
                case=canonical_json(case.case_id),
                given=canonical_json(digest_of_text("given/v1", json_object(**given))),
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


class Recorded:
    """What is recorded of a release run's executions: its parts first, then the former tables' rows by key."""

    def __init__(self, parts: Parts, executions: Index[ExecutionRow], states: Index[StateRow]) -> None:
        self._parts, self._executions, self._states = parts, executions, states

    def status(self, key: str) -> str | None:
        """The recorded status under a key, or None where nothing is recorded."""
        row = self.execution(key) if key in self._parts or (key,) in self._executions else None
        return row.status if row else None

    def execution(self, key: str) -> ExecutionRow | None:
        part = self._parts.get(key)
        if part is not None:
            return ExecutionRow(**{name: part[name] for name in ExecutionRow.__dataclass_fields__})
        # Both tables or neither: a kill between the two replacements must not pair new with old.
        return self._executions.get(key) if (key,) in self._states else None

    def state(self, key: str) -> StateRow | None:
        part = self._parts.get(key)
        if part is not None:
            return StateRow(**{name: part[name] for name in StateRow.__dataclass_fields__})
        return self._states.get(key) if (key,) in self._executions else None

    def keep(self, execution: ExecutionRow, state: StateRow) -> None:
        self._parts.append(execution.execution_key, asdict(execution) | asdict(state))


def execute(
    suite: Iterable[SuiteRow],
    sandbox: Callable[[], Sandbox],
    recorded: Recorded,
    *,
    identity: Identity,
    n_cases: int,
    retry_errors: bool = False,
    progress: Progress = silent,
) -> Counts:
    """Executes what is not recorded yet, a case at a time, keeping each before the next begins.

    `sandbox` is asked for only when a case has to be executed. With `retry_errors` recorded errors and timeouts are
    executed again.
    """
    counts = Counts()
    for done, case in enumerate(suite):
        progress("executing", done, n_cases)
        key = execution_key(identity, case, 0)
        status = recorded.status(key)
        if status is not None and not (retry_errors and status != "ok"):
            counts.hit += 1
        else:
            counts.miss += 1
            status = _execute_one(sandbox(), case, key, recorded)
        counts.errors += status != "ok"
    progress("executing", n_cases, n_cases)
    return counts


def _execute_one(sandbox: Sandbox, case: SuiteRow, key: str, recorded: Recorded) -> str:
    outcome = sandbox.execute(case)
    recorded.keep(
        ExecutionRow(
            case.case_id,
            0,
            key,
            outcome.status,
            outcome.error,
            outcome.duration_ms,
            _text(outcome.output),
            _text(outcome.trajectory),
        ),
        StateRow(case.case_id, 0, key, outcome.initial, _text(outcome.state)),
    )
    return outcome.status


def _text(text: str | None) -> JSONText | None:
    return None if text is None else JSONText(text)


def executions(suite: Iterable[SuiteRow], recorded: Recorded, identity: Identity) -> Iterator[ExecutionRow]:
    """The rows of `trajectories`, in the suite's order; a case without a record has no row."""
    for case in suite:
        row = recorded.execution(execution_key(identity, case, 0))
        if row is not None:
            yield row


def states(suite: Iterable[SuiteRow], recorded: Recorded, identity: Identity) -> Iterator[StateRow]:
    """The rows of `environment_states`, in the suite's order."""
    for case in suite:
        row = recorded.state(execution_key(identity, case, 0))
        if row is not None:
            yield row


def facts(identity: Identity, attempt: int) -> dict[str, Any]:
    """What a table of executions or replays says of itself, so that its rows' keys can be computed again."""
    return {**asdict(identity), "attempt": attempt, "engine": ENGINE_VERSION}


def identity_of(facts: dict[str, Any]) -> Identity | None:
    """The identity that a stored table was made under, or None where there is no table."""
    return Identity(facts["system"], facts["version"], facts["code"]) if "code" in facts else None
