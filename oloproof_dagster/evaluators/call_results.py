"""Which tool_result belongs to a tool_call, and whether a result is the fault's."""

import json
from typing import Any

from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.faults import FAULT_RESULTS
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory


def result_of(trajectory: AgentTrajectory, call: AgentStep) -> AgentStep | None:
    """The call's tool_result, or None. The result of another tool is never this call's.

    With a call_id: the n-th result of its tool and id, for the n-th call of that tool and id. Without one: of the calls
    made together with it (none of them answered in between) as many results follow; the n-th of its tool is its own.
    """
    if call.call_id:
        calls, results = (
            [s for s in trajectory.steps if s.kind == kind and _same_name(s, call)]
            for kind in ("tool_call", "tool_result")
        )
    else:
        calls, results = _made_together(trajectory, call)
    nth = next(position for position, step in enumerate(calls) if step.index == call.index)
    found = results[nth] if nth < len(results) else None
    return found if found is not None and found.index > call.index else None


def _same_name(step: AgentStep, call: AgentStep) -> bool:
    return step.tool_name == call.tool_name and (step.call_id or None) == (call.call_id or None)


def _made_together(trajectory: AgentTrajectory, call: AgentStep) -> tuple[list[AgentStep], list[AgentStep]]:
    """The calls of this tool without an id in the run of calls around one, and their results in the run of as many
    results right after it."""
    steps = trajectory.steps
    first = last = call.index - 1
    while first and steps[first - 1].kind == "tool_call":
        first -= 1
    while last + 1 < len(steps) and steps[last + 1].kind == "tool_call":
        last += 1
    results = []
    for step in steps[last + 1 : last + 1 + last - first + 1]:
        if step.kind != "tool_result":
            break
        results.append(step)
    return (
        [step for step in steps[first : last + 1] if _same_name(step, call)],
        [step for step in results if _same_name(step, call)],
    )


def is_the_fault(result: AgentStep, change: ReplayChange) -> bool:
    """Whether a call's result is what the fault returns, or under `delivery: exception` bears an error.

    A result that is a text is also read as JSON: frameworks pass texts.
    """
    assert change.fault is not None
    if change.delivery == "exception":
        return result.error is not None or "error" in _as_object(result.result)
    wanted = FAULT_RESULTS[change.fault]
    return json_equal(wanted, result.result) or json_equal(wanted, _as_object(result.result))


def _as_object(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
