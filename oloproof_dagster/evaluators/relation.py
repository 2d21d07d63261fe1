"""Relations: what a derived case has to have in common with its source. A failure shows what changed, never why."""

from collections.abc import Sequence
from typing import Any

from oloproof_dagster.evaluators.call_order import Matched, match
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, by_comparison, missing, not_applicable
from oloproof_dagster.evaluators.volatile import NOTHING_VOLATILE, Volatile
from oloproof_dagster.project.evaluator_keys import MetamorphicRelation
from oloproof_dagster.records.compared import compare_at
from oloproof_dagster.records.comparison import EXACT, json_equal
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory


class RelationEvaluator:
    """Compares outputs, tool calls or states of a pair; the source's side stands as what is expected."""

    def __init__(self, declared: MetamorphicRelation, volatile: Volatile = NOTHING_VOLATILE) -> None:
        self._relation, self._transform = declared.relation, declared.transform
        self._require_action = declared.require_action
        self._field = parse_path(declared.field or "$")
        self._comparison = volatile.comparison(declared.ignore_paths)

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable to source cases, and to copies by another transform."""
        if evidence.case.source_case is None:
            return not_applicable(VerdictReason.NOT_A_METAMORPHIC_PAIR)
        if self._transform is not None and evidence.case.transform != self._transform:
            return not_applicable(VerdictReason.ANOTHER_TRANSFORM)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the copy has in common with its source what the relation names."""
        source = evidence.source
        if source is None or source.execution is None or source.execution.status != "ok":
            return missing(VerdictReason.METAMORPHIC_SOURCE_MISSING)
        if self._require_action and self.noop(evidence):
            return not_applicable(VerdictReason.NO_ACTION_TAKEN)
        if self._relation == "same_actions":
            return self._same_actions(source, evidence)
        if self._relation == "same_state":
            return self._same_state(source, evidence)
        return self._same_output(source, evidence)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """Whether neither side called a tool or changed its world; None where neither was recorded of one of them."""
        if evidence.source is None:
            return None
        sides = (evidence.source, evidence)
        return all(map(self._is_idle, sides)) if all(map(_shows_actions, sides)) else None

    def _is_idle(self, side: CaseEvidence) -> bool:
        if _has_both_states(side):
            comparison, initial, state = self._comparison.on(side.initial_state, side.initial_state, side.state)
            if not comparison.equal(initial, state):
                return False
        # Not read where the state shows that the side acted.
        return side.trajectory is None or not side.trajectory.calls

    def _same_output(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        wanted, found = lookup(source.output, self._field), lookup(derived.output, self._field)
        for who, value in (("the source's", wanted), ("the pair's", found)):
            if value is ABSENT:
                return missing(VerdictReason.NO_OUTPUT_FIELD, f"{who} output lacks {show_path(self._field)}")
        return by_comparison(compare_at(EXACT, self._field, wanted, found))

    def _same_actions(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        if source.trajectory is None or derived.trajectory is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        matched = match(source.trajectory.calls, derived.trajectory.calls)
        wanted, found = _shown(source.trajectory.calls), _shown(_as_paired(matched, derived.trajectory.calls))
        verdict = by_comparison(compare_at(EXACT, (), wanted, found))
        if verdict.status == "failed" and _may_yet_agree(wanted, found, source.trajectory, derived.trajectory):
            return missing(VerdictReason.TRAJECTORY_TRUNCATED, compared=verdict.compared)
        if source.trajectory.truncated or derived.trajectory.truncated:
            return verdict if verdict.status == "failed" else missing(VerdictReason.TRAJECTORY_TRUNCATED)
        return verdict

    def _same_state(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        if source.state_text is None or derived.state_text is None:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        found = derived.state_as_source(source.state)
        comparison, wanted, found = self._comparison.on(derived.initial_state, source.state, found)
        return by_comparison(compare_at(comparison, (), wanted, found))


def _has_both_states(side: CaseEvidence) -> bool:
    return side.state_text is not None and side.case.initial_state is not None


def _shows_actions(side: CaseEvidence) -> bool:
    """Whether something is recorded that shows whether a side acted."""
    return side.trajectory_text is not None or _has_both_states(side)


def _may_yet_agree(wanted: list[Any], found: list[Any], source: AgentTrajectory, derived: AgentTrajectory) -> bool:
    """Whether calls that were cut off could still make two unequal recordings equal."""
    common = min(len(wanted), len(found))
    shorter = source if len(wanted) < len(found) else derived
    return json_equal(wanted[:common], found[:common]) and shorter.truncated


def _as_paired(matched: Matched, calls: Sequence[AgentStep]) -> list[AgentStep]:
    """The copy's calls in the order of the source's, as far as they are the same; then the others as they came."""
    paired = [made for _, made in matched.pairs]
    taken = {made.index for made in paired}
    return [*paired, *(call for call in calls if call.index not in taken)]


def _shown(calls: Sequence[AgentStep]) -> list[dict[str, Any]]:
    return [{"tool": step.tool_name, "arguments": step.arguments} for step in calls]
