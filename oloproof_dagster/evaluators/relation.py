"""Relations: what a derived case has to have in common with its source. A failure shows what changed, never why."""

from typing import Any

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, by_comparison, missing, not_applicable
from oloproof_dagster.project.evaluator_keys import MetamorphicRelation
from oloproof_dagster.records.comparison import Comparison, compare_at, json_equal
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentTrajectory


class RelationEvaluator:
    """Compares outputs, tool calls or states of a pair; the source's side stands as what is expected."""

    def __init__(self, declared: MetamorphicRelation) -> None:
        self._relation, self._transform = declared.relation, declared.transform
        self._field = parse_path(declared.field or "$")
        self._comparison = Comparison(ignored=tuple(parse_path(path) for path in declared.ignore_paths))

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
        if self._relation == "same_actions":
            return self._same_actions(source, evidence)
        if self._relation == "same_state":
            return self._same_state(source, evidence)
        return self._same_output(source, evidence)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check compares two cases."""
        return None

    def _same_output(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        wanted, found = lookup(source.output, self._field), lookup(derived.output, self._field)
        for who, value in (("the source's", wanted), ("the pair's", found)):
            if value is ABSENT:
                return missing(VerdictReason.NO_OUTPUT_FIELD, f"{who} output lacks {show_path(self._field)}")
        return by_comparison(compare_at(self._comparison, self._field, wanted, found))

    def _same_actions(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        if source.trajectory is None or derived.trajectory is None:
            return missing(VerdictReason.AGENT_TRAJECTORY_UNAVAILABLE)
        wanted, found = _calls(source), _calls(derived)
        verdict = by_comparison(compare_at(self._comparison, (), wanted, found))
        if verdict.status == "failed" and _may_yet_agree(wanted, found, source.trajectory, derived.trajectory):
            return missing(VerdictReason.TRAJECTORY_TRUNCATED, compared=verdict.compared)
        if source.trajectory.truncated or derived.trajectory.truncated:
            return verdict if verdict.status == "failed" else missing(VerdictReason.TRAJECTORY_TRUNCATED)
        return verdict

    def _same_state(self, source: CaseEvidence, derived: CaseEvidence) -> Verdict:
        if source.state_text is None or derived.state_text is None:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        return by_comparison(compare_at(self._comparison, (), source.state, derived.state))


def _may_yet_agree(wanted: list[Any], found: list[Any], source: AgentTrajectory, derived: AgentTrajectory) -> bool:
    """Whether calls that were cut off could still make two unequal recordings equal."""
    common = min(len(wanted), len(found))
    shorter = source if len(wanted) < len(found) else derived
    return json_equal(wanted[:common], found[:common]) and shorter.truncated


def _calls(evidence: CaseEvidence) -> list[dict[str, Any]]:
    assert evidence.trajectory is not None
    return [{"tool": step.tool_name, "arguments": step.arguments} for step in evidence.trajectory.calls]
