"""agent_trajectory/v1: what an agent did, step by step, and how a replay's continuation joins a recording.

Imports digests and errors only. `system` hands these records out, `replay` splices them, `evaluators` read them.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from oloproof_dagster.digests import canonical_of, copy_in_order, dump, dump_in_order, parse_canonical, sha256
from oloproof_dagster.errors import MalformedTrajectory, NotJSON

StepKind = Literal["message", "tool_call", "tool_result", "observation", "decision", "final", "handoff"]
TerminalStatus = Literal["success", "failure", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentStep(_Record):
    """One thing that the agent did or saw. `index` counts from 1 without gaps; `latency_ms` is in milliseconds.

    `turn` numbers the model's answers: calls of one turn were asked for together and have no order among themselves.
    An empty `call_id` is none.
    """

    index: int = Field(ge=1, strict=True)
    kind: StepKind
    tool_name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    result: Any = None
    error: str | None = None
    latency_ms: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: str | None = None
    to_agent: str | None = None
    turn: int | None = Field(default=None, ge=0, strict=True)


class AgentConstraintCheck(_Record):
    """A rule that the agent's own harness checked, at a step or (step_index None) over the whole run."""

    name: str
    passed: bool = Field(strict=True)
    detail: str | None = None
    step_index: int | None = Field(default=None, ge=1, strict=True)


class AgentCheckpoint(_Record):
    """A point that a replay can start from: after the step `step_index`, or the start where that is None."""

    checkpoint_id: str
    kind: Literal["tool_result", "tool_arguments", "checkpoint"] = "checkpoint"
    step_index: int | None = Field(default=None, ge=1, strict=True)
    description: str | None = None
    payload: Any = None


class AgentAnswer(_Record):
    """One answer of the model's: its turn, the agent that asked, the digest of the request, and the answer as JSON."""

    turn: int = Field(ge=0, strict=True)
    agent: str | None = None
    request: str | None = None
    answer: Any = None


class AgentUsage(_Record):
    """What a case cost: requests to the model, tokens that went in and came out; null where nothing is known."""

    requests: int | None = Field(default=None, ge=0, strict=True)
    input_tokens: int | None = Field(default=None, ge=0, strict=True)
    output_tokens: int | None = Field(default=None, ge=0, strict=True)


class AgentTrajectory(_Record):
    """A whole recording, or (returned by `replay`) a continuation with its steps numbered from 1 again.

    `truncated` says that steps are missing at the end: what did not happen in it may have happened all the same.
    `answers` and `usage` are kept beside the recording and are no part of its digest.
    """

    steps: tuple[AgentStep, ...]
    terminal_status: TerminalStatus = "unknown"
    truncated: bool = Field(default=False, strict=True)
    step_limit: int | None = Field(default=None, strict=True)
    constraints: tuple[AgentConstraintCheck, ...] = ()
    checkpoints: tuple[AgentCheckpoint, ...] = ()
    answers: tuple[AgentAnswer, ...] = ()
    usage: AgentUsage | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "AgentTrajectory":
        for position, step in enumerate(self.steps, 1):
            if step.index != position:
                raise ValueError(f"step {position} has index {step.index}; number the steps 1, 2, 3 without gaps")
            if step.kind in ("tool_call", "tool_result") and not step.tool_name:
                raise ValueError(f"step {position} is a {step.kind} without tool_name")
        seen: set[str] = set()
        for checkpoint in self.checkpoints:
            if checkpoint.checkpoint_id in seen:
                raise ValueError(f"two checkpoints have the id {checkpoint.checkpoint_id!r}; ids are unique")
            seen.add(checkpoint.checkpoint_id)
        placed: list[tuple[str, int | None]] = [(f"constraint {c.name!r}", c.step_index) for c in self.constraints]
        placed += [(f"checkpoint {c.checkpoint_id!r}", c.step_index) for c in self.checkpoints]
        for what, index in placed:
            if index is not None and index > len(self.steps):
                raise ValueError(f"{what} names step {index} of {len(self.steps)}")
        return self

    @property
    def calls(self) -> tuple[AgentStep, ...]:
        """The tool calls, in order."""
        return tuple(step for step in self.steps if step.kind == "tool_call")

    def call(self, tool: str, occurrence: int) -> AgentStep | None:
        """The call of a tool that is its `occurrence`-th, from 1; None where there are fewer."""
        calls = [step for step in self.calls if step.tool_name == tool]
        return calls[occurrence - 1] if len(calls) >= occurrence else None

    def checkpoint_before(self, index: int) -> AgentCheckpoint | None:
        """The latest checkpoint strictly before a step; of several at one step, the one recorded last."""
        before = [checkpoint for checkpoint in self.checkpoints if (checkpoint.step_index or 0) < index]
        return max(reversed(before), key=lambda checkpoint: checkpoint.step_index or 0, default=None)


_MODELS = {"AgentTrajectory", "AgentStep", "AgentConstraintCheck", "AgentCheckpoint", "AgentAnswer", "AgentUsage"}


def is_malformed(error: BaseException) -> bool:
    """Whether an exception that left the agent says that it built a malformed trajectory."""
    return isinstance(error, MalformedTrajectory) or (isinstance(error, ValidationError) and error.title in _MODELS)


def why_malformed(error: BaseException) -> str:
    """One line on a malformed trajectory: where in it, and what is wrong."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    message = str(first.get("ctx", {}).get("error", first["msg"]))
    return f"{error.title}{'.' + place if place else ''}: {message}"


def drawn_trial(recording: AgentTrajectory, trial: int) -> int | None:
    """The trial where what follows a fault is a draw of its own, as the model's answers are recorded; else None."""
    return trial if recording.answers else None


def recorded_text(trajectory: Any) -> str:
    """The JSON text of a trajectory in its own order: a copy that no later change of its arguments reaches.

    Accepts an AgentTrajectory or a mapping of its keys.

    Raises:
        MalformedTrajectory: it is neither, breaks the format, or holds a value that is not JSON.
    """
    try:
        if not isinstance(trajectory, AgentTrajectory):
            if not isinstance(trajectory, dict):
                raise MalformedTrajectory(f"expected an AgentTrajectory, got {type(trajectory).__name__}")
            trajectory = AgentTrajectory.model_validate(trajectory)
        text, copy = copy_in_order(_members(trajectory))
        AgentTrajectory.model_validate(copy)  # model_copy, model_construct and subclasses go past validation
        return text
    except ValidationError as error:
        raise MalformedTrajectory(why_malformed(error)) from None
    except NotJSON as error:
        raise MalformedTrajectory(str(error)) from None


def valid_text(trajectory: AgentTrajectory) -> str:
    """The JSON text of a trajectory whose values were read from JSON, so that nothing in it has to be checked."""
    return dump_in_order(_members(trajectory))


def checkpoint_text(checkpoint: AgentCheckpoint) -> str:
    """The canonical text of a checkpoint whose payload was read from JSON, as replay keys take it."""
    return dump(dict(checkpoint.__dict__))


def checkpoint_in_order(checkpoint: AgentCheckpoint) -> str:
    """The same checkpoint's text as it is handed over, keys in their order."""
    return dump_in_order(dict(checkpoint.__dict__))


def from_text(text: str) -> AgentTrajectory:
    """A fresh copy of the trajectory that `recorded_text` wrote."""
    try:
        return AgentTrajectory.model_validate_json(text)
    except ValidationError:  # also of what pydantic's own parser does not read: very long integers, very deep values
        return AgentTrajectory.model_validate(parse_canonical(text))


_BESIDE_THE_DIGEST = ('"latency_ms"', '"answers"', '"usage"')


def digest_without_latency(text: str) -> str:
    """The digest of a recording that leaves latencies, the model's answers and usage out: two recordings of one
    behaviour share it."""
    if not any(name in text for name in _BESIDE_THE_DIGEST):
        return sha256(canonical_of(text))
    members = parse_canonical(text)
    members.pop("answers", None)
    members.pop("usage", None)
    for step in members["steps"]:
        step.pop("latency_ms", None)
    return sha256(dump(members))


def _members(trajectory: AgentTrajectory) -> dict[str, Any]:
    """Plain members, defaults left out; values are taken as they are, so that copy_in_order can judge them."""
    members: dict[str, Any] = {
        "steps": [_given(step) for step in trajectory.steps],
        "terminal_status": trajectory.terminal_status,
    }
    if trajectory.truncated is not False:
        members["truncated"] = trajectory.truncated
    if trajectory.step_limit is not None:
        members["step_limit"] = trajectory.step_limit
    for name in ("constraints", "checkpoints", "answers"):
        if getattr(trajectory, name):
            members[name] = [_given(record) for record in getattr(trajectory, name)]
    if trajectory.usage is not None:
        members["usage"] = _given(trajectory.usage)
    return members


def _given(record: Any) -> Any:
    """A record's members that say something. A payload, arguments or a result of {} say something."""
    if not isinstance(record, _Record):
        return record
    return {
        name: value
        for name, value in record.__dict__.items()
        if value is not None and not (name == "metadata" and value == {})
    }


def splice(recording: AgentTrajectory, checkpoint: AgentCheckpoint, continuation: AgentTrajectory) -> AgentTrajectory:
    """The recording up to and including the checkpoint's step, then the continuation, renumbered.

    Constraints and checkpoints of the prefix stay where they name a step of it; those of the continuation move by
    the prefix's length, and a checkpoint at its start comes to stand after the prefix. A constraint over the whole
    recording (no step) is left out: it judged another ending. Answers and usage are the continuation's.
    """
    length = checkpoint.step_index or 0
    steps = recording.steps[:length] + tuple(
        step.model_copy(update={"index": step.index + length}) for step in continuation.steps
    )
    kept = tuple(c for c in recording.checkpoints if (c.step_index or 0) <= length)
    taken = {c.checkpoint_id for c in kept}
    return AgentTrajectory(
        steps=steps,
        terminal_status=continuation.terminal_status,
        truncated=continuation.truncated,
        step_limit=recording.step_limit if continuation.step_limit is None else continuation.step_limit,
        constraints=tuple(c for c in recording.constraints if c.step_index is not None and c.step_index <= length)
        + tuple(c if c.step_index is None else _moved(c, length) for c in continuation.constraints),
        checkpoints=kept + tuple(_moved(c, length) for c in continuation.checkpoints if c.checkpoint_id not in taken),
        answers=continuation.answers,
        usage=continuation.usage,
    )


def continuation_constraints(spliced: AgentTrajectory, prefix_steps: int) -> Iterator[AgentConstraintCheck]:
    """The constraints that the continuation recorded, of a trajectory that `splice` made."""
    return (c for c in spliced.constraints if c.step_index is None or c.step_index > prefix_steps)


def _moved(record: Any, length: int) -> Any:
    return record.model_copy(update={"step_index": (record.step_index or 0) + length or None})
