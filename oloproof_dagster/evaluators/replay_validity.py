"""The recordings of a fault replay, as rules: which call fails, where the replay starts, and whether it can be judged.

Pure functions over recordings; `replay` makes the replays, `evaluators.recovery` reads them.
"""

from dataclasses import dataclass
from typing import Any

from oloproof_dagster.evaluators.call_order import Matched, match, pair
from oloproof_dagster.evaluators.call_results import is_the_fault, result_of
from oloproof_dagster.evaluators.divergence import CALLS, Diverged, Repeats, seen
from oloproof_dagster.project.evaluator_keys import FaultRecovery
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
    """Where a fault goes in a recording, or the reason why it goes nowhere."""
    call = recording.call(declared.tool, declared.occurrence)
    if call is None:
        if recording.truncated:
            return VerdictReason.TRAJECTORY_TRUNCATED
        return VerdictReason.FAULT_TARGET_NOT_CALLED
    checkpoint = recording.checkpoint_before(call.index)
    if checkpoint is None:
        return VerdictReason.NO_CHECKPOINT_RECORDED
    return Target(call, checkpoint, ReplayChange("inject_fault", call.index, declared.fault, declared.delivery))


def why_control_is_discarded(
    recording: AgentTrajectory, checkpoint: AgentCheckpoint, continuation: AgentTrajectory, repeats: Repeats = CALLS
) -> Diverged | None:
    """Why a control replay shows that this system cannot be replayed from here, or None where it can."""
    prefix = checkpoint.step_index or 0
    if prefix and _same_steps(continuation.steps, recording.steps):
        return Diverged(VerdictReason.REPLAY_ECHOED)
    found = match([step for step in recording.calls if step.index > prefix], continuation.calls)
    if not found.same:
        return _other_call(VerdictReason.CONTROL_DIVERGED, found, prefix)
    if continuation.terminal_status != recording.terminal_status:
        sides = (recording.terminal_status, continuation.terminal_status)
        return Diverged(VerdictReason.CONTROL_DIVERGED, "status", None, *sides)
    return repeats.difference(found.pairs, recording, continuation)


def why_fault_is_discarded(
    recording: AgentTrajectory, aim: Target, continuation: AgentTrajectory, repeats: Repeats = CALLS
) -> Diverged | None:
    """Why a fault replay says nothing about this fault, or None where the fault reached the agent."""
    prefix = aim.checkpoint.step_index or 0
    before = _before(recording, aim, continuation)
    if not before.same:
        return _other_call(VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT, before, prefix)
    changed = repeats.difference(before.pairs, recording, continuation)
    if changed is not None:
        return Diverged(
            VerdictReason.REPLAY_DIVERGED_BEFORE_FAULT,
            *(changed.what, changed.at_step, changed.recorded, changed.replayed, changed.path),
        )
    made = _faulted(aim, before, continuation)
    if isinstance(made, Matched):
        return _other_call(VerdictReason.REPLAY_DID_NOT_INJECT, made, prefix)
    result = result_of(continuation, made)
    if result is not None and is_the_fault(result, aim.change):
        return None
    assert aim.change.fault is not None
    at = (made if result is None else result).index + prefix
    wanted = FAULT_RESULTS[aim.change.fault]
    return Diverged(VerdictReason.REPLAY_DID_NOT_INJECT, "result", at, wanted, seen(result))


def fault_step(recording: AgentTrajectory, aim: Target, spliced: AgentTrajectory) -> AgentStep:
    """The step at which the agent saw the fault, in a spliced fault replay that was not discarded: the faulted
    call's result. Calls made in parallel before it came back are no answer to it."""
    prefix = aim.checkpoint.step_index or 0
    continuation = continuation_of(spliced, prefix)
    made = _faulted(aim, _before(recording, aim, continuation), continuation)
    assert isinstance(made, AgentStep), "a replay without the faulted call is discarded"
    result = result_of(continuation, made)
    assert result is not None, "a replay without the fault's result is discarded"
    return spliced.steps[prefix + result.index - 1]


def continuation_of(spliced: AgentTrajectory, prefix: int) -> AgentTrajectory:
    """The continuation that was spliced onto a recording's first `prefix` steps, as it was returned."""
    if not prefix:
        return spliced
    steps = tuple(step.model_copy(update={"index": step.index - prefix}) for step in spliced.steps[prefix:])
    return AgentTrajectory(steps=steps, terminal_status=spliced.terminal_status, truncated=spliced.truncated)


def _before(recording: AgentTrajectory, aim: Target, continuation: AgentTrajectory) -> Matched:
    """The calls before the faulted one; those that its own model answer asks for may stand in any order."""
    prefix = aim.checkpoint.step_index or 0
    recorded = [step for step in recording.calls if prefix < step.index < aim.call.index]
    earlier = [step for step in recorded if aim.call.turn is None or step.turn != aim.call.turn]
    beside = recorded[len(earlier) :]
    made = list(continuation.calls)
    found = match(earlier, made[: len(earlier)])
    if not found.same or not beside:
        return found
    there = _one_turn(made[len(earlier) :]) or made[len(earlier) : len(earlier) + len(beside)]
    pairs, lacking, left = pair(beside, there, free=there[:1] != [] and there[0].turn is not None)
    if lacking:
        return Matched(found.pairs, False, lacking[0], left[0] if left else None)
    return Matched((*found.pairs, *pairs), True)


def _faulted(aim: Target, before: Matched, continuation: AgentTrajectory) -> AgentStep | Matched:
    """The faulted call as it was made again, or what was made in its place."""
    taken = {made.index for _, made in before.pairs}
    left = [call for call in continuation.calls if call.index not in taken]
    candidates = _one_turn(left) if aim.call.turn is not None else []
    pairs, _, others = pair([aim.call], candidates or left[:1], free=True)
    return pairs[0][1] if pairs else Matched(before.pairs, False, aim.call, others[0] if others else None)


def _one_turn(calls: list[AgentStep]) -> list[AgentStep]:
    """The first calls that are of one turn; none where the first has no turn."""
    turn = calls[0].turn if calls else None
    n = 0
    while turn is not None and n < len(calls) and calls[n].turn == turn:
        n += 1
    return calls[:n]


def _other_call(reason: VerdictReason, found: Matched, prefix: int) -> Diverged:
    recorded, made = found.recorded, found.made
    at = recorded.index if recorded is not None else made.index + prefix if made is not None else None
    return Diverged(reason, "call", at, _shown(recorded), _shown(made))


def _shown(call: AgentStep | None) -> Any:
    return None if call is None else {"tool": call.tool_name, "arguments": call.arguments}


def _same_steps(made: tuple[AgentStep, ...], recorded: tuple[AgentStep, ...]) -> bool:
    return len(made) == len(recorded) and all(
        a.model_copy(update={"latency_ms": None}) == b.model_copy(update={"latency_ms": None})
        for a, b in zip(made, recorded, strict=True)
    )
