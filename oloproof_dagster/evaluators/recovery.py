"""Recovery: what the agent did after one of its calls failed. It says what, never why."""

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.replay_validity import RESUME, Target, fault_step, target
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, not_applicable, passed
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import ReplayRow
from oloproof_dagster.records.trajectory import continuation_constraints, from_text


class RecoveryEvaluator:
    """Reads the control replay and the fault replay of the declared call; the first thing that applies decides."""

    def __init__(self, declared: FaultRecovery) -> None:
        self._declared = declared

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """None: every case counts."""
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """What the agent did in the replay in which the call failed."""
        if evidence.trajectory is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        aim = target(evidence.trajectory, self._declared)
        if aim is VerdictReason.FAULT_TARGET_NOT_CALLED:
            return not_applicable(VerdictReason.FAULT_TARGET_NOT_CALLED)
        if not isinstance(aim, Target):
            return missing(aim)
        control = evidence.replay(aim.checkpoint, RESUME)
        if control is None:
            return missing(VerdictReason.SYSTEM_VERSION_NOT_LOADED, "no replay is recorded for this version")
        if control.discarded is not None:
            return missing(VerdictReason(control.discarded), control.error)
        if self._declared.control == "calls_and_state":
            if control.state_matches is None:
                return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
            if not control.state_matches:
                return missing(VerdictReason.CONTROL_DIVERGED, "the state after the control is not the recorded one")
        fault = evidence.replay(aim.checkpoint, aim.change)
        if fault is None:
            return missing(VerdictReason.SYSTEM_VERSION_NOT_LOADED, "no replay is recorded for this version")
        if fault.discarded is not None:
            return missing(VerdictReason(fault.discarded), fault.error)
        return self._outcome(evidence, aim, fault)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check reads no state."""
        return None

    def _outcome(self, evidence: CaseEvidence, aim: Target, fault: ReplayRow) -> Verdict:
        assert fault.trajectory is not None
        assert evidence.trajectory is not None
        spliced = from_text(fault.trajectory)
        broken = next((c for c in continuation_constraints(spliced, fault.prefix_steps) if not c.passed), None)
        if broken is not None:
            detail = f"broke {broken.name}" + (f": {broken.detail}" if broken.detail else "")
            return failed(VerdictReason.ACTED_WRONGLY, detail)
        after = fault_step(evidence.trajectory, aim, spliced).index
        if any(call.index > after and call.tool_name in self._declared.escalate_tools for call in spliced.calls):
            return passed(VerdictReason.ESCALATED)
        if spliced.truncated:
            return missing(VerdictReason.FAULT_OUTCOME_UNKNOWN, "the replay is truncated")
        if spliced.terminal_status == "success":
            return passed(VerdictReason.RECOVERED)
        if spliced.terminal_status == "failure":
            return failed(VerdictReason.ACTED_WRONGLY, "ended in failure")
        return missing(VerdictReason.FAULT_OUTCOME_UNKNOWN)
