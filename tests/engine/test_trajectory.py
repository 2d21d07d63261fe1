"""agent_trajectory/v1: what is refused, what is copied, and how a continuation joins a recording."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oloproof_dagster.digests import canonical_json, canonical_of, sha256
from oloproof_dagster.errors import MalformedTrajectory
from oloproof_dagster.records.trajectory import (
    AgentAnswer,
    AgentCheckpoint,
    AgentConstraintCheck,
    AgentStep,
    AgentTrajectory,
    AgentUsage,
    checkpoint_text,
    continuation_constraints,
    digest_without_latency,
    from_text,
    is_malformed,
    recorded_text,
    splice,
    valid_text,
    why_malformed,
)

unhurried = settings(deadline=None)  # on a busy machine an example may take long

CALL = {"index": 1, "kind": "tool_call", "tool_name": "add", "call_id": "c1", "arguments": {"n": 1}}


def steps(n: int) -> tuple[AgentStep, ...]:
    return tuple(AgentStep(index=index, kind="message", result=f"step {index}") for index in range(1, n + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)


@st.composite
def trajectories(draw: st.DrawFn, prefix: str = "") -> AgentTrajectory:
    """Any well-formed trajectory; ids of checkpoints start with `prefix`."""
    n = draw(st.integers(0, 5))
    made = tuple(
        AgentStep(
            index=index,
            kind=draw(st.sampled_from(["message", "tool_call", "tool_result", "final", "handoff"])),
            tool_name=draw(st.sampled_from(["add", "ask"])),
            call_id=draw(st.none() | st.text(max_size=2)),
            arguments=draw(JSON),
            result=draw(JSON),
            error=draw(st.none() | st.just("no")),
            latency_ms=draw(st.none() | st.floats(0, 9)),
            metadata=draw(st.dictionaries(st.text(max_size=2), JSON, max_size=1)),
        )
        for index in range(1, n + 1)
    )
    place = st.none() | st.integers(1, n) if n else st.none()
    return AgentTrajectory(
        steps=made,
        terminal_status=draw(st.sampled_from(["success", "failure", "unknown"])),
        truncated=draw(st.booleans()),
        step_limit=draw(st.none() | st.integers(0, 9)),
        constraints=tuple(
            AgentConstraintCheck(name=f"k{number}", passed=draw(st.booleans()), step_index=draw(place))
            for number in range(draw(st.integers(0, 3)))
        ),
        checkpoints=tuple(
            AgentCheckpoint(checkpoint_id=f"{prefix}{number}", step_index=draw(place), payload=draw(JSON))
            for number in range(draw(st.integers(0, 3)))
        ),
    )


@unhurried
@given(trajectories())
def test_a_recording_reads_back_as_it_was_recorded(trajectory: AgentTrajectory) -> None:
    assert from_text(recorded_text(trajectory)) == trajectory


@unhurried
@given(trajectories())
def test_a_recording_that_was_read_is_written_as_the_same_text_checked_or_not(trajectory: AgentTrajectory) -> None:
    text = recorded_text(trajectory)
    assert recorded_text(from_text(text)) == text
    assert valid_text(from_text(text)) == text


@unhurried
@given(trajectories())
def test_a_checkpoint_is_written_with_all_its_members(trajectory: AgentTrajectory) -> None:
    for checkpoint in from_text(recorded_text(trajectory)).checkpoints:
        assert checkpoint_text(checkpoint) == canonical_json(checkpoint.model_dump())


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    "value",
    [
        10**5_000,
        -(10**5_000),
        2**64,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        nested(300),
        "\x00\u2028\U0001f680",
        "\ufeff",
    ],
    ids=["long", "negative long", "65 bits", "minus zero", "smallest", "largest", "deep", "odd text", "a mark"],
)
def test_values_at_the_edge_of_what_is_read_come_back_exactly(value: Any) -> None:
    step = AgentStep(index=1, kind="tool_call", tool_name="add", arguments={"v": value})
    text = recorded_text(
        AgentTrajectory(steps=(step,), checkpoints=(AgentCheckpoint(checkpoint_id="c", payload=value),))
    )
    read = from_text(text)
    for back in (read.steps[0].arguments["v"], read.checkpoints[0].payload):
        assert (type(back), canonical_json(back)) == (type(value), canonical_json(value))
    assert valid_text(read) == text


@unhurried
@given(trajectories())
def test_a_recording_can_be_given_as_its_members(trajectory: AgentTrajectory) -> None:
    text = recorded_text(trajectory)
    assert recorded_text(json.loads(text)) == text
    assert recorded_text(trajectory.model_dump(mode="python")) == text


def test_defaults_are_left_out_and_empty_objects_that_say_something_are_kept() -> None:
    step = AgentStep(index=1, kind="tool_call", tool_name="add", arguments={}, result={})
    start = AgentCheckpoint(checkpoint_id="start", payload={})
    text = recorded_text(AgentTrajectory(steps=(step,), checkpoints=(start,), step_limit=0))
    assert json.loads(text) == {
        "steps": [{"index": 1, "kind": "tool_call", "tool_name": "add", "arguments": {}, "result": {}}],
        "terminal_status": "unknown",
        "step_limit": 0,
        "checkpoints": [{"checkpoint_id": "start", "kind": "checkpoint", "payload": {}}],
    }


def test_a_recording_is_a_copy_that_later_changes_do_not_reach() -> None:
    arguments: dict[str, Any] = {"n": [1]}
    payload: dict[str, Any] = {"balance": 0}
    trajectory = AgentTrajectory(
        steps=(AgentStep(index=1, kind="tool_call", tool_name="add", arguments=arguments),),
        checkpoints=(AgentCheckpoint(checkpoint_id="start", payload=payload),),
    )
    text = recorded_text(trajectory)
    arguments["n"].append(2)
    payload["balance"] = 9
    assert from_text(text).steps[0].arguments == {"n": [1]}
    assert from_text(text).checkpoints[0].payload == {"balance": 0}
    assert from_text(text).steps[0].arguments is not from_text(text).steps[0].arguments


class Annotated(AgentStep):
    """A user's own kind of step, with a field that the format does not have."""

    cost: float = 0.5


NEVER_VALIDATED: Any = ({**CALL, "index": 7},)
WRONG: list[tuple[str, Any, str]] = [
    ("nothing", None, "expected an AgentTrajectory, got NoneType"),
    ("a list of steps", [CALL], "expected an AgentTrajectory, got list"),
    ("one step", AgentStep(index=1, kind="message"), "expected an AgentTrajectory, got AgentStep"),
    ("no steps", {}, "steps"),
    ("an unknown key", {"steps": [], "cost": 1}, "cost"),
    ("an unknown key of a step", {"steps": [{**CALL, "cost": 1}]}, "steps.0.cost"),
    ("indexes from 0", {"steps": [{**CALL, "index": 0}]}, "steps.0.index"),
    ("indexes from 2", {"steps": [{**CALL, "index": 2}]}, "step 1 has index 2"),
    ("a gap", {"steps": [CALL, {**CALL, "index": 3}]}, "step 2 has index 3"),
    ("an index of text", {"steps": [{**CALL, "index": "1"}]}, "steps.0.index"),
    ("an index that is true", {"steps": [{**CALL, "index": True}]}, "steps.0.index"),
    ("an unknown kind", {"steps": [{**CALL, "kind": "thought"}]}, "steps.0.kind"),
    ("a call of no tool", {"steps": [{"index": 1, "kind": "tool_call"}]}, "step 1 is a tool_call without tool_name"),
    ("a result of no tool", {"steps": [{"index": 1, "kind": "tool_result"}]}, "step 1 is a tool_result"),
    ("an unknown status", {"steps": [], "terminal_status": "done"}, "terminal_status"),
    ("truncated as text", {"steps": [], "truncated": "no"}, "truncated"),
    ("passed as text", {"steps": [], "constraints": [{"name": "k", "passed": "yes"}]}, "constraints.0.passed"),
    (
        "a constraint beyond the steps",
        {"steps": [CALL], "constraints": [{"name": "k", "passed": True, "step_index": 2}]},
        "constraint 'k' names step 2 of 1",
    ),
    (
        "a checkpoint beyond the steps",
        {"steps": [], "checkpoints": [{"checkpoint_id": "x", "step_index": 1}]},
        "checkpoint 'x' names step 1 of 0",
    ),
    (
        "two checkpoints of one id",
        {"steps": [], "checkpoints": [{"checkpoint_id": "x"}, {"checkpoint_id": "x"}]},
        "two checkpoints have the id 'x'",
    ),
    ("arguments that are a tuple", {"steps": [{**CALL, "arguments": (1,)}]}, r"\$.steps.0.arguments is of type tuple"),
    ("a result that is not a number", {"steps": [{**CALL, "result": float("nan")}]}, r"\$.steps.0.result is nan"),
    ("a latency without end", {"steps": [{**CALL, "latency_ms": float("inf")}]}, r"\$.steps.0.latency_ms is inf"),
    ("metadata under a number", {"steps": [{**CALL, "metadata": {1: 2}}]}, "metadata"),
    (
        "a payload that is a set",
        {"steps": [], "checkpoints": [{"checkpoint_id": "x", "payload": {"a": {1}}}]},
        r"\$.checkpoints.0.payload.a is of type set",
    ),
    (
        "steps put in past validation",
        AgentTrajectory(steps=steps(2)).model_copy(update={"steps": steps(3)[1:]}),
        "step 1 has index 2",
    ),
    ("steps never validated", AgentTrajectory.model_construct(steps=NEVER_VALIDATED), "step 1 has index 7"),
    ("a kind of step that is not the format's", AgentTrajectory(steps=(Annotated(index=1, kind="message"),)), "cost"),
]


@pytest.mark.parametrize(("trajectory", "message"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_a_malformed_trajectory_is_refused_and_the_place_is_named(trajectory: Any, message: str) -> None:
    with pytest.raises(MalformedTrajectory, match=message) as raised:
        recorded_text(trajectory)
    assert "\n" not in str(raised.value)
    assert is_malformed(raised.value)


def test_an_error_from_building_a_trajectory_tells_what_and_where_in_one_line() -> None:
    with pytest.raises(ValidationError) as raised:
        AgentTrajectory(steps=(AgentStep(index=3, kind="message"),))
    assert is_malformed(raised.value)
    assert why_malformed(raised.value) == ("AgentTrajectory: step 1 has index 3; number the steps 1, 2, 3 without gaps")
    with pytest.raises(ValidationError) as raised:
        AgentStep(index=1, kind="thought")
    assert why_malformed(raised.value).startswith("AgentStep.kind: ")


def test_other_errors_of_the_agent_are_not_taken_for_a_malformed_trajectory() -> None:
    from pydantic import BaseModel

    class Refund(BaseModel):
        cents: int

    with pytest.raises(ValidationError) as raised:
        Refund(cents="many")
    assert not is_malformed(raised.value)
    assert not is_malformed(ValueError("no"))


def test_records_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AgentTrajectory(steps=()).truncated = True  # type: ignore[misc]


def timed(latency_ms: float | None, **changed: Any) -> str:
    step = AgentStep(**{**CALL, "latency_ms": latency_ms, **changed})
    return digest_without_latency(recorded_text(AgentTrajectory(steps=(step,))))


@unhurried
@given(trajectories())
def test_a_recording_has_the_digest_of_the_same_one_without_latencies(trajectory: AgentTrajectory) -> None:
    untimed = tuple(step.model_copy(update={"latency_ms": None}) for step in trajectory.steps)
    without = recorded_text(trajectory.model_copy(update={"steps": untimed}))
    assert (
        digest_without_latency(recorded_text(trajectory))
        == digest_without_latency(without)
        == sha256(canonical_of(without))
    )


def test_the_digest_of_a_recording_leaves_latencies_out_and_nothing_else() -> None:
    assert timed(1.5) == timed(200.0) == timed(None)
    assert (
        timed(None, arguments={"latency_ms": 1})
        != timed(None, arguments={"latency_ms": 2})
        != timed(None, arguments={})
    )
    assert len({timed(1.5), timed(1.5, call_id="c2"), timed(1.5, arguments={"n": 1.0}), timed(1.5, result=0)}) == 4


@st.composite
def cuts(draw: st.DrawFn) -> tuple[AgentTrajectory, AgentCheckpoint]:
    """A recording and one of its checkpoints."""
    recording = draw(trajectories().filter(lambda trajectory: trajectory.checkpoints))
    return recording, draw(st.sampled_from(recording.checkpoints))


@unhurried
@given(cuts(), trajectories(prefix="continued "))
def test_a_splice_keeps_the_prefix_and_appends_the_continuation_renumbered(
    cut: tuple[AgentTrajectory, AgentCheckpoint], continuation: AgentTrajectory
) -> None:
    recording, checkpoint = cut
    n = checkpoint.step_index or 0
    spliced = splice(recording, checkpoint, continuation)
    assert [step.index for step in spliced.steps] == list(range(1, n + len(continuation.steps) + 1))
    assert spliced.steps[:n] == recording.steps[:n]
    assert [step.model_copy(update={"index": step.index - n}) for step in spliced.steps[n:]] == list(continuation.steps)
    assert (spliced.terminal_status, spliced.truncated) == (continuation.terminal_status, continuation.truncated)
    assert from_text(recorded_text(spliced)) == spliced


@unhurried
@given(cuts(), trajectories(prefix="continued "))
def test_constraints_and_checkpoints_of_a_continuation_move_with_its_steps(
    cut: tuple[AgentTrajectory, AgentCheckpoint], continuation: AgentTrajectory
) -> None:
    recording, checkpoint = cut
    n = checkpoint.step_index or 0
    spliced = splice(recording, checkpoint, continuation)
    moved = list(continuation_constraints(spliced, n))
    assert [(c.name, c.passed, c.step_index and c.step_index - n) for c in moved] == [
        (c.name, c.passed, c.step_index) for c in continuation.constraints
    ]
    kept = [c for c in spliced.constraints if c not in moved]
    assert kept == [c for c in recording.constraints if c.step_index is not None and c.step_index <= n]
    later = [c for c in spliced.checkpoints if c.checkpoint_id.startswith("continued ")]
    assert [(c.step_index or 0) - n for c in later] == [c.step_index or 0 for c in continuation.checkpoints]
    assert [c for c in spliced.checkpoints if c not in later] == [
        c for c in recording.checkpoints if (c.step_index or 0) <= n
    ]


def tail(recording: AgentTrajectory, n: int) -> AgentTrajectory:
    """What a perfect replay returns from the checkpoint after step n on: the rest of the recording, from 1 again."""

    def moved(record: Any) -> Any:
        return record if record.step_index is None else record.model_copy(update={"step_index": record.step_index - n})

    return recording.model_copy(
        update={
            "steps": tuple(step.model_copy(update={"index": step.index - n}) for step in recording.steps[n:]),
            "constraints": tuple(moved(c) for c in recording.constraints if c.step_index is None or c.step_index > n),
            "checkpoints": tuple(moved(c) for c in recording.checkpoints if (c.step_index or 0) > n),
        }
    )


@unhurried
@given(cuts())
def test_a_recording_spliced_with_its_own_tail_is_the_recording(cut: tuple[AgentTrajectory, AgentCheckpoint]) -> None:
    recording, checkpoint = cut
    n = checkpoint.step_index or 0
    spliced = splice(recording, checkpoint, tail(recording, n))
    for name in ("steps", "terminal_status", "truncated", "step_limit"):
        assert getattr(spliced, name) == getattr(recording, name)
    for name in ("constraints", "checkpoints"):  # those of the prefix come first
        assert sorted(map(repr, getattr(spliced, name))) == sorted(map(repr, getattr(recording, name)))


def test_a_constraint_over_the_whole_recording_judged_another_ending_and_is_left_out() -> None:
    recording = AgentTrajectory(
        steps=steps(2),
        constraints=(AgentConstraintCheck(name="whole", passed=False),),
        checkpoints=(AgentCheckpoint(checkpoint_id="x", step_index=1),),
    )
    whole = AgentConstraintCheck(name="whole", passed=True)
    continuation = AgentTrajectory(steps=steps(1), constraints=(whole,))
    assert splice(recording, recording.checkpoints[0], continuation).constraints == (whole,)


def test_a_checkpoint_id_that_the_prefix_has_already_stays_the_prefixs() -> None:
    recording = AgentTrajectory(steps=steps(2), checkpoints=(AgentCheckpoint(checkpoint_id="x", step_index=1),))
    continuation = AgentTrajectory(
        steps=steps(2), checkpoints=tuple(AgentCheckpoint(checkpoint_id=i, step_index=2) for i in ("x", "y"))
    )
    spliced = splice(recording, recording.checkpoints[0], continuation)
    assert [(c.checkpoint_id, c.step_index) for c in spliced.checkpoints] == [("x", 1), ("y", 3)]


def test_turns_answers_and_usage_are_written_only_where_they_are_and_answers_and_usage_are_in_no_digest() -> None:
    plain = AgentTrajectory(steps=(AgentStep(index=1, kind="final", result={"answers": 1, "usage": 2}),))
    text = recorded_text(plain)
    written = json.loads(text)
    assert not {"turn", "answers", "usage"} & {*written, *written["steps"][0]}
    assert digest_without_latency(text) == sha256(text)
    costly = plain.model_copy(
        update={
            "answers": (AgentAnswer(turn=1, agent="desk", request="sha256:0", answer={"text": "hi"}),),
            "usage": AgentUsage(requests=1, input_tokens=20),
        }
    )
    assert digest_without_latency(recorded_text(costly)) == digest_without_latency(text)
    assert from_text(recorded_text(costly)) == costly
    turned = plain.model_copy(update={"steps": (plain.steps[0].model_copy(update={"turn": 1}),)})
    assert digest_without_latency(recorded_text(turned)) != digest_without_latency(text)
