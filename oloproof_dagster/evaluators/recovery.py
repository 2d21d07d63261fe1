"""Recovery: what the agent did after one of its calls failed. It says what, never why."""

from dataclasses import replace

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.evaluators.case import CaseEvidence, CaseView
from oloproof_dagster.evaluators.custom import PythonEvaluator
from oloproof_dagster.evaluators.divergence import Diverged, Repeats, control_of, state_difference
from oloproof_dagster.evaluators.replay_validity import (
    RESUME,
    Target,
    continuation_of,
    fault_step,
    target,
    why_control_is_discarded,
    why_fault_is_discarded,
)
from oloproof_dagster.evaluators.state import StateMatchesEvaluator
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, not_applicable, passed
from oloproof_dagster.evaluators.volatile import NOTHING_VOLATILE, Volatile
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.paths import ABSENT
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import ReplayRow, StateRow
from oloproof_dagster.records.trajectory import AgentTrajectory, continuation_constraints, from_text


class RecoveryEvaluator:
    """Reads the control replay and the fault replay of the declared call; the first thing that applies decides.

    `states` compares as the suite's first state_matches does; `check` is the evaluator's own python check.
    """

    def __init__(
        self,
        declared: FaultRecovery,
        states: StateMatchesEvaluator,
        check: PythonEvaluator | None = None,
        volatile: Volatile = NOTHING_VOLATILE,
    ) -> None:
        self._declared, self._states, self._check = declared, states, check
        self._comparison = volatile.comparison(declared.ignore_paths, declared.unordered_paths)

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """None: every case counts."""
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """What the agent did in the replay in which the call failed."""
        recording = evidence.trajectory
        if recording is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        aim = target(recording, self._declared)
        if aim is VerdictReason.FAULT_TARGET_NOT_CALLED:
            return not_applicable(VerdictReason.FAULT_TARGET_NOT_CALLED)
        if not isinstance(aim, Target):
            return missing(aim)
        control = evidence.replay(aim.checkpoint, RESUME)
        if control is None:
            return missing(VerdictReason.SYSTEM_VERSION_NOT_LOADED, "no replay is recorded for this version")
        discarded = _ended_badly(control) or self._control(evidence, recording, aim, control)
        if discarded is not None:
            return discarded
        fault = evidence.replay(aim.checkpoint, aim.change)
        if fault is None:
            return missing(VerdictReason.SYSTEM_VERSION_NOT_LOADED, "no replay is recorded for this version")
        if fault.raised_fault and aim.change.delivery == "exception":
            return failed(VerdictReason.ACTED_WRONGLY, f"the fault left the agent as an exception: {fault.error}")
        discarded = _ended_badly(fault)
        if discarded is not None:
            return discarded
        spliced, continuation = _recorded(fault)
        diverged = why_fault_is_discarded(recording, aim, continuation, Repeats.of(self._declared, recording))
        if diverged is not None:
            return _discarded(diverged)
        return self._outcome(evidence, aim, fault, spliced)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check reads no state."""
        return None

    def _control(
        self, evidence: CaseEvidence, recording: AgentTrajectory, aim: Target, control: ReplayRow
    ) -> Verdict | None:
        """Why the control says that this system cannot be replayed from here, None where it can."""
        _, continuation = _recorded(control)
        repeats = Repeats.of(self._declared, recording)
        diverged = why_control_is_discarded(recording, aim.checkpoint, continuation, repeats)
        if diverged is not None:
            return _discarded(diverged)
        if control_of(self._declared, recording) != "calls_and_state":
            return None
        if control.state is None or evidence.state is ABSENT:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        replayed = parse_canonical(control.state)
        diverged = state_difference(*self._comparison.on(evidence.initial_state, evidence.state, replayed))
        return None if diverged is None else _discarded(diverged)

    def _outcome(self, evidence: CaseEvidence, aim: Target, fault: ReplayRow, spliced: AgentTrajectory) -> Verdict:
        assert evidence.trajectory is not None
        broken = next((c for c in continuation_constraints(spliced, fault.prefix_steps) if not c.passed), None)
        if broken is not None:
            detail = f"broke {broken.name}" + (f": {broken.detail}" if broken.detail else "")
            return failed(VerdictReason.ACTED_WRONGLY, detail)
        checked = self._checked(evidence, fault)
        if checked is not None:
            return checked
        after = fault_step(evidence.trajectory, aim, spliced).index
        if any(call.index > after and call.tool_name in self._declared.escalate_tools for call in spliced.calls):
            return passed(VerdictReason.ESCALATED)
        if spliced.truncated:
            return missing(VerdictReason.FAULT_OUTCOME_UNKNOWN, "the replay is truncated")
        if spliced.terminal_status == "success":
            return self._claimed(evidence, fault)
        if spliced.terminal_status == "failure":
            return failed(VerdictReason.ACTED_WRONGLY, "ended in failure")
        return missing(VerdictReason.FAULT_OUTCOME_UNKNOWN)

    def _checked(self, evidence: CaseEvidence, fault: ReplayRow) -> Verdict | None:
        """The verdict of the evaluator's own check where it ends the matter, else None."""
        if self._check is None:
            return None
        found = self._check.on(CaseView(_as_replayed(evidence, fault), evidence))
        if found.status == "missing":
            return found
        return failed(VerdictReason.CHECK_FAILED, found.detail) if found.status == "failed" else None

    def _claimed(self, evidence: CaseEvidence, fault: ReplayRow) -> Verdict:
        """What becomes of an agent that says it succeeded: the state has to show it where `require_state` asks."""
        wanted = self._declared.require_state
        if wanted is None:
            return passed(VerdictReason.RECOVERED)
        state = ABSENT if fault.state is None else parse_canonical(fault.state)
        initial = evidence.initial_state
        if wanted != "expected":
            if initial is not ABSENT and self._states.compare(initial, state, initial).status == "passed":
                return passed(VerdictReason.RECOVERED)
            if wanted == "initial" and initial is ABSENT:
                return missing(VerdictReason.EXPECTED_STATE_UNAVAILABLE, "the case declares no initial state")
        expected = initial if wanted == "initial" else self._states.expected(evidence)
        if expected is ABSENT:
            return missing(VerdictReason.EXPECTED_STATE_UNAVAILABLE)
        exact = wanted != "initial" and self._states.is_patched(evidence)
        found = self._states.compare(expected, state, initial, exact=exact)
        if found.status == "passed":
            return passed(VerdictReason.RECOVERED, compared=found.compared)
        if found.status == "missing":
            return found
        return failed(VerdictReason.CLAIMED_SUCCESS, compared=found.compared)


def _recorded(replay: ReplayRow) -> tuple[AgentTrajectory, AgentTrajectory]:
    """A replay's whole recording, and its continuation alone."""
    assert replay.trajectory is not None, "a replay that went well has a recording"
    spliced = from_text(replay.trajectory)
    return spliced, continuation_of(spliced, replay.prefix_steps)


def _ended_badly(replay: ReplayRow) -> Verdict | None:
    if replay.status == "ok" and replay.trajectory is not None:
        return None
    timed_out = replay.status == "timeout"
    return missing(VerdictReason.REPLAY_TIMEOUT if timed_out else VerdictReason.REPLAY_ERROR, replay.error)


def _discarded(diverged: Diverged) -> Verdict:
    return replace(missing(diverged.reason, diverged.detail), diverged=diverged.members())


def _as_replayed(evidence: CaseEvidence, fault: ReplayRow) -> CaseEvidence:
    """The case as its fault replay left it."""
    assert evidence.execution is not None
    execution = replace(evidence.execution, output=fault.output, trajectory=fault.trajectory)
    state = StateRow(evidence.case.case_id, evidence.trial, execution.execution_key, None, fault.state)
    return CaseEvidence(evidence.case, evidence.trial, execution, state)
