"""One fault replay as rules: where the fault goes, where its replay starts, and whether the replay tells anything."""

from typing import Any

import pytest

from oloproof_dagster.evaluators.divergence import Diverged, Repeats, control_of
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
from oloproof_dagster.records.trajectory import AgentAnswer, AgentCheckpoint, AgentStep, AgentTrajectory, splice

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
    found = why_control_is_discarded(recording, recording.checkpoints[0], walk(*steps, **more))
    return found and found.reason


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
    found = why_fault_is_discarded(recording, aimed(recording, **declared), walk(*steps))
    return found and found.reason


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


@pytest.mark.parametrize("call_id", [None, "", "one for all"])
@pytest.mark.parametrize(
    ("seen_by_get", "seen_by_pay", "kept"), [(1, ERROR, True), (ERROR, "paid", False), (ERROR, ERROR, True)]
)
def test_of_parallel_calls_with_equal_or_no_ids_a_result_is_its_own_tools(
    call_id: str | None, seen_by_get: Any, seen_by_pay: Any, kept: bool
) -> None:
    calls = (call("get", call_id), call("pay", call_id))
    recording = walk(*calls, result("get", 1, call_id), result("pay", "paid", call_id))
    steps = (*calls, result("get", seen_by_get, call_id), result("pay", seen_by_pay, call_id))
    assert fault(recording, *steps) is (None if kept else VerdictReason.REPLAY_DID_NOT_INJECT)
    aim = aimed(recording)
    if kept:
        assert fault_step(recording, aim, splice(recording, aim.checkpoint, walk(*steps))).index == 4


@pytest.mark.parametrize("call_id", [None, "c"])
@pytest.mark.parametrize(("occurrence", "faulted"), [(1, 0), (2, 1), (1, 1), (2, 0)])
def test_of_equal_calls_made_together_the_nth_result_is_the_nth_calls(
    call_id: str | None, occurrence: int, faulted: int
) -> None:
    calls = (call("pay", call_id, n=1), call("pay", call_id, n=1))
    recording = walk(*calls, result("pay", "a", call_id), result("pay", "b", call_id))
    results = [result("pay", ERROR if at == faulted else "ok", call_id) for at in (0, 1)]
    found = fault(recording, *calls, *results, occurrence=occurrence)
    assert found is (None if occurrence == faulted + 1 else VerdictReason.REPLAY_DID_NOT_INJECT)


@pytest.mark.parametrize(
    ("seen", "kept"), [('{"error": "internal error"}', True), ('{"error":"timeout"}', False), ("error", False)]
)
def test_a_result_that_is_the_fault_as_json_text_is_the_fault(seen: str, kept: bool) -> None:
    recording = walk(call("pay", "c"), result("pay", "paid", "c"))
    found = fault(recording, call("pay", "c"), result("pay", seen, "c"))
    assert found is (None if kept else VerdictReason.REPLAY_DID_NOT_INJECT)


def why(recording: AgentTrajectory, *steps: Words, **declared: Any) -> Diverged:
    found = why_fault_is_discarded(recording, aimed(recording, **declared), walk(*steps))
    assert found is not None
    return found


def test_a_fault_that_was_not_injected_says_whether_the_call_or_its_result_is_another() -> None:
    other_call = why(FROM_2, call("refund", cents=1), result("refund", ERROR))
    assert other_call.detail == (
        "at step 3 the call is {'tool': 'refund', 'arguments': {'cents': 1}},"
        " not {'tool': 'pay', 'arguments': {'cents': 1}}"
    )
    other_result = why(FROM_2, call("pay", cents=1), result("pay", "paid"))
    assert other_result.detail == "at step 4 the result is 'paid', not {'error': 'internal error'}"
    assert other_result.members() == {"at_step": 4, "what": "result", "recorded": ERROR, "replayed": "paid"}
    assert why(FROM_2).detail == "at step 3 the call is missing, not {'tool': 'pay', 'arguments': {'cents': 1}}"


def test_under_delivery_exception_the_faulted_result_bears_an_error() -> None:
    recording = walk(call("pay", "c"), result("pay", "paid", "c"))
    raised = result("pay", None, "c", error="internal error")
    assert fault(recording, call("pay", "c"), raised, delivery="exception") is None
    not_raised = fault(recording, call("pay", "c"), result("pay", "paid", "c"), delivery="exception")
    assert not_raised is VerdictReason.REPLAY_DID_NOT_INJECT


def in_turn(turn: int, *steps: Words) -> tuple[Words, ...]:
    return tuple({**step, "turn": turn} for step in steps)


def test_calls_of_one_turn_have_no_order_in_a_replay() -> None:
    one, other = call("look", "a", n=1), call("look", "b", n=2)
    recording = walk(*in_turn(1, one, other), result("look", 1, "a"), result("look", 2, "b"))
    swapped = (*in_turn(1, other, one), result("look", 2, "b"), result("look", 1, "a"))
    assert control(recording, *swapped) is None
    assert control(recording, other, one) is VerdictReason.CONTROL_DIVERGED
    asked = (*in_turn(1, one, call("pay", "p"), other), result("pay", "paid", "p"))
    paid = (*in_turn(1, call("pay", "p"), one), result("pay", ERROR, "p"))
    assert fault(walk(*asked), *paid) is None
    assert fault(walk(*asked), *in_turn(1, call("pay", "p")), result("pay", ERROR, "p")) is (
        VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT
    )


def test_under_calls_and_results_a_replay_repeats_the_results_too_but_for_ignored_paths() -> None:
    recording = walk(
        call("look", "a"), result("look", {"paid": 1, "at": 7}, "a"), call("pay", "p"), result("pay", 1, "p")
    )
    again = walk(call("look", "a"), result("look", {"paid": 0, "at": 9}, "a"), call("pay", "p"), result("pay", 1, "p"))
    strict = Repeats.of(recovery(control="calls_and_results"), recording)
    found = why_control_is_discarded(recording, recording.checkpoints[0], again, strict)
    assert found is not None
    assert (found.reason, found.what, found.at_step, found.path) == (VerdictReason.CONTROL_DIVERGED, "result", 2, "at")
    for ignored, path in ((["look.at"], "paid"), (["look.at", "look.paid"], None), (["look"], None), (["*.*"], None)):
        declared = recovery(control="calls_and_results", ignore_results=tuple(ignored))
        repeats = Repeats.of(declared, recording)
        found = why_control_is_discarded(recording, recording.checkpoints[0], again, repeats)
        assert (found and found.path) == path
    faulted = walk(*(step.model_dump(exclude={"index"}) for step in again.steps[:3]), result("pay", ERROR, "p"))
    before = why_fault_is_discarded(recording, aimed(recording), faulted, strict)
    assert before is not None
    assert before.reason is VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT
    assert why_fault_is_discarded(recording, aimed(recording), faulted) is None


def test_where_the_models_answers_are_recorded_results_are_compared_by_default() -> None:
    plain, played = walk(*LONG), walk(*LONG, answers=(AgentAnswer(turn=1, answer="pay"),))
    assert [control_of(recovery(), each) for each in (plain, played)] == ["calls", "calls_and_results"]
    assert control_of(recovery(control="calls"), played) == "calls"


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
