"""One fault replay as rules: where the fault goes, where its replay starts, and whether the replay tells anything."""

from typing import Any

import pytest

from oloproof_dagster.evaluators.replay_validity import (
    Target,
    fault_step,
    target,
    why_control_is_discarded,
    why_fault_is_discarded,
)
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.faults import FAULT_RESULTS, Fault
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory, splice

ERROR = FAULT_RESULTS["error"]
Words = dict[str, Any]


def call(tool: str, call_id: str | None = None, **arguments: Any) -> Words:
    return {"kind": "tool_call", "tool_name": tool, "call_id": call_id, "arguments": arguments}


def result(tool: str, value: Any, call_id: str | None = None, **more: Any) -> Words:
    return {"kind": "tool_result", "tool_name": tool, "call_id": call_id, "result": value, **more}


def said(text: str = "done") -> Words:
    return {"kind": "final", "result": text}


def walk(*steps: Words, at: tuple[int, ...] = (0,), **more: Any) -> AgentTrajectory:
    """A trajectory of these steps that ended well, with a checkpoint after each of the steps named in `at`."""
    return AgentTrajectory(
        steps=tuple(AgentStep(index=index, **step) for index, step in enumerate(steps, 1)),
        checkpoints=tuple(AgentCheckpoint(checkpoint_id=f"after {n}", step_index=n or None) for n in at),
        **{"terminal_status": "success", **more},
    )


def recovery(tool: str = "pay", fault: Fault = "error", **more: Any) -> FaultRecovery:
    return FaultRecovery(type="fault_recovery", tool=tool, fault=fault, **more)


# Two look-ups and two payments: calls at steps 1, 3, 5 and 7.
LONG = (
    *(call("look", n=1), result("look", "a"), call("pay", cents=1), result("pay", "paid")),
    *(call("look", n=2), result("look", "b"), call("pay", cents=2), result("pay", "paid"), said()),
)


@pytest.mark.parametrize(
    ("recording", "occurrence", "reason"),
    [
        (walk(), 1, VerdictReason.FAULT_TARGET_NOT_CALLED),
        (walk(call("look"), result("look", 1)), 1, VerdictReason.FAULT_TARGET_NOT_CALLED),
        (walk(result("pay", 1)), 1, VerdictReason.FAULT_TARGET_NOT_CALLED),
        (walk(call("pay"), result("pay", 1)), 2, VerdictReason.FAULT_TARGET_NOT_CALLED),
        (walk(call("look"), truncated=True), 1, VerdictReason.TRAJECTORY_TRUNCATED),
        (walk(call("pay"), truncated=True), 2, VerdictReason.TRAJECTORY_TRUNCATED),
        (walk(call("pay"), at=()), 1, VerdictReason.NO_CHECKPOINT_RECORDED),
        (walk(call("pay"), result("pay", 1), at=(1, 2)), 1, VerdictReason.NO_CHECKPOINT_RECORDED),
        (walk(call("look"), call("pay"), at=(2,)), 1, VerdictReason.NO_CHECKPOINT_RECORDED),
    ],
)
def test_a_fault_goes_nowhere_without_the_call_or_a_checkpoint_strictly_before_it(
    recording: AgentTrajectory, occurrence: int, reason: VerdictReason
) -> None:
    assert target(recording, recovery(occurrence=occurrence)) is reason


def aimed(recording: AgentTrajectory, **declared: Any) -> Target:
    found = target(recording, recovery(**declared))
    assert isinstance(found, Target)
    return found


@pytest.mark.parametrize(
    ("at", "occurrence", "index", "checkpoint"),
    [
        ((0,), 1, 3, "after 0"),
        ((0, 2), 1, 3, "after 2"),
        ((2, 0), 1, 3, "after 2"),
        ((0, 1, 2, 3, 4), 1, 3, "after 2"),
        ((0, 2, 4, 6, 8), 2, 7, "after 6"),
        ((0, 2, 4), 2, 7, "after 4"),
        ((0, 7, 8, 9), 2, 7, "after 0"),
    ],
)
def test_the_nth_call_is_faulted_from_the_latest_checkpoint_strictly_before_it(
    at: tuple[int, ...], occurrence: int, index: int, checkpoint: str
) -> None:
    aim = aimed(walk(*LONG, at=at), occurrence=occurrence)
    assert (aim.call.index, aim.checkpoint.checkpoint_id) == (index, checkpoint)
    assert aim.change == ReplayChange("inject_fault", index, "error")


def test_of_several_checkpoints_at_one_step_the_one_recorded_last_is_taken() -> None:
    recording = walk(*LONG).model_copy(
        update={"checkpoints": tuple(AgentCheckpoint(checkpoint_id=name, step_index=2) for name in ("b", "a"))}
    )
    assert aimed(recording).checkpoint.checkpoint_id == "a"


def test_a_truncated_recording_that_shows_the_call_can_be_replayed() -> None:
    assert aimed(walk(*LONG[:4], truncated=True)).call.index == 3


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("error", {"error": "internal error"}),
        ("timeout", {"error": "timeout"}),
        ("malformed", {"raw": '{"status": '}),
    ],
)
def test_what_the_agent_sees_of_each_fault_is_fixed_and_a_copy(fault: Fault, seen: dict[str, str]) -> None:
    change = aimed(walk(*LONG), fault=fault).change
    assert change.fault_result == seen
    assert change.fault_result is not None
    change.fault_result.clear()
    assert change.fault_result == seen
    assert ReplayChange().fault_result is None


FROM_2 = walk(*LONG, at=(2,))


def control(recording: AgentTrajectory, *steps: Words, **more: Any) -> VerdictReason | None:
    return why_control_is_discarded(recording, recording.checkpoints[0], walk(*steps, **more))


@pytest.mark.parametrize(
    ("steps", "more"),
    [
        (LONG[2:], {}),
        (LONG[2:], {"truncated": True}),
        ((call("pay", "other-id", cents=1), result("pay", "at 12:01", "other-id"), *LONG[4:]), {}),
        ((call("pay", cents=1.0), said("thinking"), *LONG[3:]), {}),
        ((LONG[2], LONG[4], LONG[6]), {}),
    ],
)
def test_a_control_that_ends_as_recorded_after_the_same_calls_is_kept(steps: tuple[Words, ...], more: Any) -> None:
    assert control(FROM_2, *steps, **more) is None


@pytest.mark.parametrize(
    ("steps", "more"),
    [
        (LONG[2:], {"terminal_status": "failure"}),
        (LONG[2:], {"terminal_status": "unknown"}),
        (LONG[4:], {}),
        (LONG[2:6], {}),
        ((), {}),
        ((*LONG[2:], call("pay", cents=1)), {}),
        ((call("pay", cents=9), *LONG[3:]), {}),
        ((call("pay", cents=True), *LONG[3:]), {}),
        ((call("refund", cents=1), *LONG[3:]), {}),
        ((LONG[4], LONG[5], LONG[2], LONG[3], *LONG[6:]), {}),
        (LONG[:-1], {}),
    ],
)
def test_a_control_with_another_ending_or_other_calls_diverged(steps: tuple[Words, ...], more: Any) -> None:
    assert control(FROM_2, *steps, **more) is VerdictReason.CONTROL_DIVERGED


def test_a_control_that_returns_the_whole_recording_echoed_it_unless_it_started_at_the_start() -> None:
    assert control(FROM_2, *LONG) is VerdictReason.REPLAY_ECHOED
    timed = [{**step, "latency_ms": 7.0} for step in LONG]
    assert control(FROM_2, *timed) is VerdictReason.REPLAY_ECHOED
    assert control(walk(*LONG, at=(0,)), *LONG) is None


def test_calls_before_the_checkpoint_are_not_asked_of_a_control() -> None:
    recording = walk(*LONG, at=(6,))
    assert control(recording, *LONG[6:]) is None
    assert control(recording, *LONG[4:]) is VerdictReason.CONTROL_DIVERGED


def fault(recording: AgentTrajectory, *steps: Words, **declared: Any) -> VerdictReason | None:
    return why_fault_is_discarded(recording, aimed(recording, **declared), walk(*steps))


# Faulting the second payment from after step 2: one payment and one look-up come before it.
BEFORE = (call("pay", cents=1), result("pay", "paid"), call("look", n=2), result("look", "b"))
SECOND = call("pay", cents=2)


@pytest.mark.parametrize(
    "steps",
    [
        (*BEFORE, SECOND, result("pay", ERROR)),
        (*BEFORE, SECOND, result("pay", dict(ERROR)), call("look", n=3), result("look", 1), said()),
        (BEFORE[0], BEFORE[2], said("no results were kept"), SECOND, result("pay", ERROR)),
    ],
)
def test_a_fault_that_reached_the_agent_in_its_place_is_kept(steps: tuple[Words, ...]) -> None:
    assert fault(FROM_2, *steps, occurrence=2) is None


@pytest.mark.parametrize(
    "steps",
    [
        (),
        BEFORE[:2],
        (call("pay", cents=9), *BEFORE[1:], SECOND, result("pay", ERROR)),
        (*BEFORE[2:], *BEFORE[:2], SECOND, result("pay", ERROR)),
        (call("look", n=7), *BEFORE, SECOND, result("pay", ERROR)),
        LONG,
    ],
)
def test_other_calls_before_the_faulted_one_are_a_divergence(steps: tuple[Words, ...]) -> None:
    assert fault(FROM_2, *steps, occurrence=2) is VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT


@pytest.mark.parametrize(
    "steps",
    [
        BEFORE,
        (*BEFORE, call("pay", cents=3), result("pay", ERROR)),
        (*BEFORE, call("refund", cents=2), result("refund", ERROR)),
        (*BEFORE, SECOND),
        (*BEFORE, SECOND, result("pay", "paid")),
        (*BEFORE, SECOND, result("pay", {**ERROR, "hint": "a test"})),
        (*BEFORE, SECOND, result("pay", None, error="internal error")),
        (*BEFORE, SECOND, result("pay", FAULT_RESULTS["timeout"])),
        (*BEFORE, SECOND, result("look", ERROR)),
        (*BEFORE, SECOND, said(), result("pay", ERROR)),
    ],
)
def test_without_the_faulted_call_and_the_faults_result_right_after_it_nothing_was_injected(
    steps: tuple[Words, ...],
) -> None:
    assert fault(FROM_2, *steps, occurrence=2) is VerdictReason.REPLAY_DID_NOT_INJECT


TWO_AT_ONCE = walk(
    *(call("look", "c1"), call("pay", "c2"), call("pay", "c3")),
    *(result("look", 1, "c1"), result("pay", "paid", "c2"), result("pay", "paid", "c3"), said()),
)


@pytest.mark.parametrize(
    ("results", "occurrence", "kept"),
    [
        ((result("look", 1, "c1"), result("pay", ERROR, "c2"), result("pay", "paid", "c3")), 1, True),
        ((result("pay", "paid", "c3"), result("look", 1, "c1"), result("pay", ERROR, "c2")), 1, True),
        ((result("look", 1, "c1"), result("pay", "paid", "c2"), result("pay", ERROR, "c3")), 2, True),
        ((result("look", 1, "c1"), result("pay", "paid", "c2"), result("pay", ERROR, "c3")), 1, False),
        ((result("pay", ERROR, None), result("look", 1, "c1")), 1, False),
        ((result("look", ERROR, "c1"), result("pay", "paid", "c2"), result("pay", "paid", "c3")), 1, False),
    ],
)
def test_of_calls_made_in_parallel_only_the_named_one_is_faulted_and_its_id_finds_its_result(
    results: tuple[Words, ...], occurrence: int, kept: bool
) -> None:
    steps = (call("look", "c1"), call("pay", "c2"), call("pay", "c3"), *results)
    found = fault(TWO_AT_ONCE, *steps, occurrence=occurrence)
    assert found is (None if kept else VerdictReason.REPLAY_DID_NOT_INJECT)


def test_without_ids_the_result_of_calls_made_in_parallel_cannot_be_told() -> None:
    recording = walk(call("look"), call("pay"), result("look", 1), result("pay", "paid"))
    steps = (call("look"), call("pay"), result("look", 1), result("pay", ERROR))
    assert fault(recording, *steps) is VerdictReason.REPLAY_DID_NOT_INJECT


def test_the_fault_stands_where_its_result_came_back() -> None:
    aim = aimed(TWO_AT_ONCE, occurrence=1)
    continuation = walk(
        *(call("look", "c1"), call("pay", "c2"), call("pay", "c3"), result("look", 1, "c1")),
        *(result("pay", ERROR, "c2"), result("pay", "paid", "c3"), said()),
    )
    spliced = splice(TWO_AT_ONCE, aim.checkpoint, continuation)
    assert fault_step(TWO_AT_ONCE, aim, spliced).index == 5


def test_the_fault_is_found_behind_a_prefix_and_the_calls_before_it() -> None:
    aim = aimed(FROM_2, occurrence=2)
    spliced = splice(FROM_2, aim.checkpoint, walk(*BEFORE, SECOND, result("pay", ERROR), said()))
    assert fault_step(FROM_2, aim, spliced).index == 8
