"""Tool criteria: which tools the trajectory calls, in which order, and how many times."""

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, passed
from oloproof_dagster.project.evaluator_keys import ToolCalls
from oloproof_dagster.records.reasons import VerdictReason


class ToolCallsEvaluator:
    """A truncated recording can still show a failure that no later step would undo; else it is missing."""

    def __init__(self, declared: ToolCalls) -> None:
        self._declared = declared

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """None: every case counts."""
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the right tools were called, in the right order, and not too often."""
        trajectory = evidence.trajectory
        if trajectory is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        called = [step.tool_name or "" for step in trajectory.calls]
        shown = self._shown(called)
        if shown is not None:
            return failed(detail=shown)
        if trajectory.truncated:
            return missing(VerdictReason.TRAJECTORY_TRUNCATED)
        lacking = self._lacking(called)
        return passed() if lacking is None else failed(detail=lacking)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check reads no state."""
        return None

    def _shown(self, called: list[str]) -> str | None:
        """What is wrong already, whatever comes after."""
        forbidden = [tool for tool in called if tool in self._declared.must_not]
        if forbidden:
            return f"called {forbidden[0]}, which it must not"
        bound = self._declared.max_calls
        if bound is not None and len(called) > bound:
            return f"made {len(called)} calls, more than {bound}"
        return None

    def _lacking(self, called: list[str]) -> str | None:
        """What did not happen; only a whole recording can say so."""
        for tool in self._declared.must:
            if tool not in called:
                return f"never called {tool}"
        calls = iter(called)
        for tool in self._declared.in_order:
            if tool not in calls:  # consumes the calls up to this one: a subsequence
                return f"did not call {', '.join(self._declared.in_order)} in this order"
        return None
