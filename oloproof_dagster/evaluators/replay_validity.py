"""The recordings of a fault replay, as rules: which call fails, where the replay starts, and whether it can be judged.

Pure functions over recordings; `replay` makes the replays, `evaluators.recovery` reads them.
"""

from dataclasses import dataclass

from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.faults import FAULT_RESULTS
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory

RESUME = ReplayChange()


@dataclass(frozen=True, slots=True)
class Target:
    """The call that is to fail and the checkpoint that its replay starts from."""

    call: AgentStep
    checkpoint: AgentCheckpoint
    change: ReplayChange


def target(recording: AgentTrajectory, declared: FaultRecovery) -> Target | VerdictReason:
    """Where a fault goes in a recording, or the reason why it goes nowhere.

    The checkpoint is the latest one strictly before the call; of several at one step, the one recorded last.
    """
    calls = [step for step in recording.calls if step.tool_name == declared.tool]
    if len(calls) < declared.occurrence:
        if recording.truncated:
            return VerdictReason.TRAJECTORY_TRUNCATED
        return VerdictReason.FAULT_TARGET_NOT_CALLED
    call = calls[declared.occurrence - 1]
    before = [checkpoint for checkpoint in recording.checkpoints if (checkpoint.step_index or 0) < call.index]
    if not before:
        return VerdictReason.NO_CHECKPOINT_RECORDED
    latest = max(checkpoint.step_index or 0 for checkpoint in before)
    checkpoint = [each for each in before if (each.step_index or 0) == latest][-1]
    return Target(call, checkpoint, ReplayChange("inject_fault", call.index, declared.fault))


def why_control_is_discarded(
    recording: AgentTrajectory, checkpoint: AgentCheckpoint, continuation: AgentTrajectory
) -> VerdictReason | None:
    """Why a control replay shows that this system cannot be replayed from here, or None where it can."""
    prefix = checkpoint.step_index or 0
    if prefix and _same_steps(continuation.steps, recording.steps):
        return VerdictReason.REPLAY_ECHOED
    recorded = [step for step in recording.calls if step.index > prefix]
    if continuation.terminal_status != recording.terminal_status or not _same_calls(recorded, continuation.calls):
        return VerdictReason.CONTROL_DIVERGED
    return None


def why_fault_is_discarded(
    recording: AgentTrajectory, aim: Target, continuation: AgentTrajectory
) -> VerdictReason | None:
    """Why a fault replay says nothing about this fault, or None where the fault reached the agent."""
    prefix = aim.checkpoint.step_index or 0
    before = [step for step in recording.calls if prefix < step.index < aim.call.index]
    made = continuation.calls
    if not _same_calls(before, made[: len(before)]):
        return VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT
    if len(made) == len(before) or not _same_calls([aim.call], made[len(before) : len(before) + 1]):
        return VerdictReason.REPLAY_DID_NOT_INJECT
    result = _result_of(continuation, made[len(before)])
    assert aim.change.fault is not None
    if result is None or not json_equal(FAULT_RESULTS[aim.change.fault], result.result):
        return VerdictReason.REPLAY_DID_NOT_INJECT
    return None


def fault_step(recording: AgentTrajectory, aim: Target, spliced: AgentTrajectory) -> AgentStep:
    """The step at which the agent saw the fault, in a spliced fault replay that was not discarded: the faulted
    call's result. Calls made in parallel before it came back are no answer to it."""
    prefix = aim.checkpoint.step_index or 0
    n_before = sum(prefix < step.index < aim.call.index for step in recording.calls)
    result = _result_of(spliced, [step for step in spliced.calls if step.index > prefix][n_before])
    assert result is not None, "a replay without the fault's result is discarded"
    return result


def _result_of(trajectory: AgentTrajectory, call: AgentStep) -> AgentStep | None:
    """The call's tool_result: the one with its call_id; without ids the next step, when it is that tool's result."""
    after = trajectory.steps[call.index :]
    if call.call_id is not None:
        return next((s for s in after if s.kind == "tool_result" and s.call_id == call.call_id), None)
    if after and after[0].kind == "tool_result" and after[0].tool_name == call.tool_name:
        return after[0]
    return None


def _same_calls(recorded: list[AgentStep], made: tuple[AgentStep, ...]) -> bool:
    """The same tools with the same arguments in the same order; results may differ: a clock, an id."""
    return len(recorded) == len(made) and all(
        a.tool_name == b.tool_name and json_equal(a.arguments, b.arguments) for a, b in zip(recorded, made, strict=True)
    )


def _same_steps(made: tuple[AgentStep, ...], recorded: tuple[AgentStep, ...]) -> bool:
    return len(made) == len(recorded) and all(
        a.model_copy(update={"latency_ms": None}) == b.model_copy(update={"latency_ms": None})
        for a, b in zip(made, recorded, strict=True)
    )
