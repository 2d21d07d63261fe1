"""The keys that evidence is recorded under and found again by."""

from dataclasses import dataclass, field
from typing import Any

from oloproof_dagster.digests import canonical_json, canonical_of, digest_of_text, json_object
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.records.trajectory import AgentCheckpoint, checkpoint_text

ENGINE_VERSION = "2"


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
        given = case.given_digest
        if given is None:  # a table of an earlier release
            state = None if case.initial_state is None else canonical_of(case.initial_state)
            given = given_digest(canonical_of(case.input), state)
        return digest_of_text(
            domain,
            json_object(
                **self._members,
                case=canonical_json(case.case_id),
                given=f'"{given}"',
                **members,
            ),
        )


def given_digest(input: str, initial_state: str | None) -> str:
    """What a case gives the system, of canonical texts."""
    return digest_of_text("given/v1", f'{{"initial_state":{initial_state or "null"},"input":{input}}}')


def execution_key(identity: Identity, case: SuiteRow, trial: int) -> str:
    """`execution/v1`: expectations, metadata and groups are not in it, so editing them executes nothing."""
    return identity.key("execution/v1", case, trial=str(trial))


def initial_digest(case: SuiteRow) -> str | None:
    """The digest that environment_state/v1 bears of the state that a case started from."""
    if case.initial_digest is not None or case.initial_state is None:
        return case.initial_digest
    return state_digest(canonical_of(case.initial_state))


def state_digest(initial_state: str) -> str:
    """`scenario.initial_state/v1` of a canonical text."""
    return digest_of_text("scenario.initial_state/v1", initial_state)


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


def replay_key(
    identity: Identity,
    case: SuiteRow,
    trajectory_digest: str,
    checkpoint: AgentCheckpoint,
    change: ReplayChange,
    *,
    trial: int | None = None,
) -> str:
    """`replay/v1`; trials whose recordings are equal share a replay, except where `trial` is given: where a recording
    holds the model's answers, what follows a fault is a draw of its own."""
    members = {} if trial is None else {"trial": str(trial)}
    return identity.key(
        "replay/v1",
        case,
        trajectory=f'"{trajectory_digest}"',
        checkpoint=checkpoint_text(checkpoint),
        change=change.text,
        **members,
    )
