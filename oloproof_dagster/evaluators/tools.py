"""Tool criteria: which tools the trajectory calls, in which order, and how many times."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from oloproof_dagster.evaluators.call_order import by_turn
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.expected_calls import lacking, shown_wrong
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, not_applicable, passed
from oloproof_dagster.project.evaluator_keys import ToolCalls
from oloproof_dagster.records.paths import ABSENT, lookup
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentStep

Turns = Sequence[Counter[str]]


class ToolCallsEvaluator:
    """A truncated recording can still show a failure that no later step would undo; else it is missing."""

    def __init__(self, declared: ToolCalls) -> None:
        self._declared = declared

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where expected calls are to be compared and the case has none."""
        if self._declared.expected_calls is not None and _expected(evidence) is ABSENT:
            return not_applicable(VerdictReason.NO_EXPECTED)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the right tools were called, in the right order, and not too often."""
        trajectory = evidence.trajectory
        if trajectory is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        calls, expected = trajectory.calls, _expected(evidence)
        turns = [Counter(step.tool_name or "" for step in group) for group in by_turn(calls)]
        shown = self._shown(calls, turns, expected)
        if shown is not None:
            return failed(detail=shown)
        if trajectory.truncated:
            return missing(VerdictReason.TRAJECTORY_TRUNCATED)
        absent = self._lacking(calls, turns, expected)
        return passed() if absent is None else failed(detail=absent)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check reads no state."""
        return None

    def _shown(self, calls: Sequence[AgentStep], turns: Turns, expected: Any) -> str | None:
        """What is wrong already, whatever comes after."""
        declared, counts = self._declared, Counter(step.tool_name or "" for step in calls)
        forbidden = [tool for tool in counts if tool in declared.must_not]
        if forbidden:
            return f"called {forbidden[0]}, which it must not"
        if declared.max_calls is not None and len(calls) > declared.max_calls:
            return f"made {len(calls)} calls, more than {declared.max_calls}"
        for tool, bounds in declared.calls.items():
            if bounds.max is not None and counts[tool] > bounds.max:
                return f"called {tool} {counts[tool]} times, more than {bounds.max}"
        for first, then in declared.before:
            if not _each_has_its_own(turns, first, then):
                return f"called {then} without a {first} of its own before it"
        return shown_wrong(declared.expected_calls, expected, calls) if declared.expected_calls else None

    def _lacking(self, calls: Sequence[AgentStep], turns: Turns, expected: Any) -> str | None:
        """What did not happen; only a whole recording can say so."""
        declared, counts = self._declared, Counter(step.tool_name or "" for step in calls)
        for tool in declared.must:
            if not counts[tool]:
                return f"never called {tool}"
        for tool, bounds in declared.calls.items():
            if bounds.min is not None and counts[tool] < bounds.min:
                return f"called {tool} {counts[tool]} times, fewer than {bounds.min}"
        if not _subsequence(turns, declared.in_order):
            return f"did not call {', '.join(declared.in_order)} in this order"
        return lacking(declared.expected_calls, expected, calls) if declared.expected_calls else None


def _expected(evidence: CaseEvidence) -> Any:
    return lookup(evidence.expected, ("tool_calls",))


def _subsequence(turns: Turns, wanted: Sequence[str]) -> bool:
    """Whether tools were called in this order, others between; the calls of one turn may stand in any."""
    position = 0
    for turn in turns:
        left = Counter(turn)
        while position < len(wanted) and left[wanted[position]]:
            left[wanted[position]] -= 1
            position += 1
    return position == len(wanted)


def _each_has_its_own(turns: Turns, first: str, then: str) -> bool:
    """Whether each call of `then` has one of `first` in an earlier turn, after the previous `then`."""
    waiting = 0
    for turn in turns:
        if turn[then] > waiting:
            return False
        waiting = turn[first] + (0 if turn[then] else waiting)
    return True
