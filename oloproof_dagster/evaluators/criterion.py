"""From declarations to evaluators, and the order in which a verdict is reached: eligibility, execution, evaluator."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from oloproof_dagster.digests import json_in_order
from oloproof_dagster.errors import NotJSON
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.custom import PythonEvaluator
from oloproof_dagster.evaluators.outcome import OutcomeEvaluator
from oloproof_dagster.evaluators.recovery import RecoveryEvaluator
from oloproof_dagster.evaluators.relation import RelationEvaluator
from oloproof_dagster.evaluators.state import StateMatchesEvaluator, StateUnchangedEvaluator
from oloproof_dagster.evaluators.tools import ToolCallsEvaluator
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, not_applicable
from oloproof_dagster.project.evaluator_keys import (
    Contains,
    Declaration,
    ExactMatch,
    FaultRecovery,
    MetamorphicRelation,
    PythonCheck,
    StateMatches,
    StateUnchanged,
    ToolCalls,
)
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import JSONText, VerdictRow


class Evaluator(Protocol):
    """A check of one criterion; every method is a pure function of the evidence."""

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """A not_applicable verdict where the case does not count, else None."""

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """The verdict on an eligible case whose execution went well."""

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """Whether the initial state already satisfies an eligible case's check; None: the check reads no state."""


LoadCheck = Callable[[str], tuple[Callable[[Any], Any], Callable[[BaseException], str]]]
"""Finds a python check by `module:function`, with what describes an exception of it."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """An evaluator under the name of what it measures."""

    name: str
    evaluator: Evaluator
    errors_fail: bool
    reads_pairs: bool

    def verdict(self, evidence: CaseEvidence) -> Verdict:
        """Eligibility first, then the execution's status, then the evaluator."""
        if evidence.case.source_case is not None and not self.reads_pairs:
            return not_applicable(VerdictReason.METAMORPHIC_COPY)
        try:
            return self._verdict(evidence)
        except RecursionError:  # a value nested some hundred levels deep costs its own verdict
            return _too_deep()

    def row(self, evidence: CaseEvidence) -> VerdictRow:
        """The verdict as a row of the verdicts table."""
        verdict = self.verdict(evidence)
        try:
            compared, noop = _text(verdict), self._noop(verdict, evidence)
        except (NotJSON, RecursionError):  # deeper by the few levels that a row puts around a value
            verdict, compared, noop = _too_deep(), None, None
        return VerdictRow(
            case_id=evidence.case.case_id,
            trial=evidence.trial,
            criterion=self.name,
            status=verdict.status,
            reason=verdict.reason,
            detail=verdict.detail,
            compared=compared,
            noop=noop,
        )

    def _verdict(self, evidence: CaseEvidence) -> Verdict:
        verdict = self.evaluator.eligibility(evidence)
        if verdict is not None:
            return verdict
        execution = evidence.execution
        if execution is None:
            return missing(VerdictReason.SYSTEM_VERSION_NOT_LOADED)
        if execution.status != "ok":
            reason = VerdictReason.EXECUTION_TIMEOUT if execution.status == "timeout" else VerdictReason.EXECUTION_ERROR
            detail = execution.error
            return failed(reason, detail) if self.errors_fail else missing(reason, detail)
        return self.evaluator.judge(evidence)

    def _noop(self, verdict: Verdict, evidence: CaseEvidence) -> bool | None:
        return None if verdict.status == "not_applicable" else self.evaluator.noop(evidence)


def _text(verdict: Verdict) -> JSONText | None:
    compared = [row.members() for row in verdict.compared]
    return JSONText(json_in_order(compared)) if compared else None


def _too_deep() -> Verdict:
    return missing(VerdictReason.EVALUATOR_ERROR, "the values are nested too deep to be compared")


def build(declarations: tuple[Declaration, ...], load_check: LoadCheck) -> Iterator[Criterion]:
    """The criteria that declarations ask for, in their order."""
    for declared in declarations:
        yield Criterion(
            declared.name,
            _evaluator(declared, load_check),
            declared.on_execution_error == "fail",
            isinstance(declared, MetamorphicRelation),
        )


def _evaluator(declared: Declaration, load_check: LoadCheck) -> Evaluator:
    match declared:
        case ExactMatch() | Contains():
            return OutcomeEvaluator(declared)
        case StateMatches():
            return StateMatchesEvaluator(declared)
        case StateUnchanged():
            return StateUnchangedEvaluator(declared)
        case ToolCalls():
            return ToolCallsEvaluator(declared)
        case FaultRecovery():
            return RecoveryEvaluator(declared)
        case MetamorphicRelation():
            return RelationEvaluator(declared)
        case PythonCheck():
            return PythonEvaluator(*load_check(declared.callable))
    raise AssertionError(f"no evaluator for {type(declared).__name__}")
