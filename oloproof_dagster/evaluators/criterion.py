"""From declarations to evaluators, and the order in which a verdict is reached: eligibility, execution, evaluator."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from oloproof_dagster.digests import json_of_json
from oloproof_dagster.errors import NotJSON
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.custom import PythonEvaluator
from oloproof_dagster.evaluators.outcome import OutcomeEvaluator
from oloproof_dagster.evaluators.recovery import RecoveryEvaluator
from oloproof_dagster.evaluators.relation import RelationEvaluator
from oloproof_dagster.evaluators.state import StateMatchesEvaluator, StateUnchangedEvaluator
from oloproof_dagster.evaluators.tools import ToolCallsEvaluator
from oloproof_dagster.evaluators.verdict import Verdict, failed, missing, not_applicable
from oloproof_dagster.evaluators.volatile import NOTHING_VOLATILE, Volatile
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
from oloproof_dagster.records.paths import PathAmbiguous
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import VerdictRow


class Evaluator(Protocol):
    """A check of one criterion; every method is a pure function of the evidence."""

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """A not_applicable verdict where the case does not count, else None."""

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """The verdict on an eligible case whose execution went well."""

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """Whether an agent that does nothing would pass, or (relations) did nothing; None: the check does not say."""


LoadCheck = Callable[[str], tuple[Callable[[Any], Any], Callable[[BaseException], str]]]
"""Finds a python check by `module:function`, with what describes an exception of it."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """An evaluator under the name of what it measures."""

    name: str
    evaluator: Evaluator
    declared: Declaration

    @property
    def reads_pairs(self) -> bool:
        """Whether it compares a copy with its source."""
        return isinstance(self.declared, MetamorphicRelation)

    @property
    def rests_on_own_word(self) -> bool:
        """Whether a recovery that it passes is checked by nothing but constraints of the recording."""
        return isinstance(self.declared, FaultRecovery) and self.declared.rests_on_own_word

    def verdict(self, evidence: CaseEvidence) -> Verdict:
        """Eligibility first, then the execution's status, then the evaluator."""
        if not self.reads_pairs and not self.declared.judges(evidence.case.transform):
            left_out = self.declared.cases == "sources"  # then it is a copy, which is compared with its source
            return not_applicable(VerdictReason.METAMORPHIC_COPY if left_out else VerdictReason.CASE_NOT_SELECTED)
        try:
            return self._verdict(evidence)
        except PathAmbiguous as error:
            return missing(VerdictReason.PATH_AMBIGUOUS, str(error))
        except RecursionError:  # a value nested some hundred levels deep costs its own verdict
            return _too_deep()

    def row(self, evidence: CaseEvidence) -> VerdictRow:
        """The verdict as a row of the verdicts table."""
        verdict = self.verdict(evidence)
        try:
            compared, noop = _text([row.members() for row in verdict.compared]), self._noop(verdict, evidence)
            diverged = _text(verdict.diverged)
            exposed = None if verdict.status == "not_applicable" else evidence.exposed
        except (NotJSON, RecursionError):  # deeper by the few levels that a row puts around a value
            verdict, compared, noop, diverged, exposed = _too_deep(), None, None, None, None
        return VerdictRow(
            case_id=evidence.case.case_id,
            trial=evidence.trial,
            criterion=self.name,
            status=verdict.status,
            reason=verdict.reason,
            detail=verdict.detail,
            compared=compared,
            noop=noop,
            diverged=diverged,
            exposed=exposed,
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
            if isinstance(self.evaluator, StateUnchangedEvaluator):
                damage = self.evaluator.damage(evidence)  # what happened, happened
                if damage is not None:
                    return replace(damage, reason=reason.value, detail=detail)
            return failed(reason, detail) if self.declared.on_execution_error == "fail" else missing(reason, detail)
        return self.evaluator.judge(evidence)

    def _noop(self, verdict: Verdict, evidence: CaseEvidence) -> bool | None:
        if verdict.status == "not_applicable" or verdict.reason == VerdictReason.PATH_AMBIGUOUS:
            return None
        try:
            found = self.evaluator.noop(evidence)
        except PathAmbiguous:  # in a state that the verdict itself does not look at
            return None
        # Of a relation only the passed pairs count; a state criterion may be satisfied beforehand by a failed case.
        return found and verdict.status == "passed" if self.reads_pairs else found


def _text(value: Any) -> JSONText | None:
    return JSONText(json_of_json(value)) if value else None


def _too_deep() -> Verdict:
    return missing(VerdictReason.EVALUATOR_ERROR, "the values are nested too deep to be compared")


def build(
    declarations: tuple[Declaration, ...], load_check: LoadCheck, volatile: Volatile = NOTHING_VOLATILE
) -> Iterator[Criterion]:
    """The criteria that declarations ask for, in their order; `volatile` paths join those that they name."""
    first = next((each for each in declarations if isinstance(each, StateMatches)), StateMatches(type="state_matches"))
    states = StateMatchesEvaluator(first, volatile)
    for declared in declarations:
        if isinstance(declared, FaultRecovery):
            check = PythonEvaluator(*load_check(declared.check)) if declared.check else None
            yield Criterion(declared.name, RecoveryEvaluator(declared, states, check, volatile), declared)
        else:
            yield Criterion(declared.name, _evaluator(declared, load_check, volatile), declared)


def _evaluator(declared: Declaration, load_check: LoadCheck, volatile: Volatile) -> Evaluator:
    match declared:
        case ExactMatch() | Contains():
            return OutcomeEvaluator(declared)
        case StateMatches():
            return StateMatchesEvaluator(declared, volatile)
        case StateUnchanged():
            return StateUnchangedEvaluator(declared, volatile)
        case ToolCalls():
            return ToolCallsEvaluator(declared)
        case MetamorphicRelation():
            return RelationEvaluator(declared, volatile)
        case PythonCheck():
            return PythonEvaluator(*load_check(declared.callable))
    raise AssertionError(f"no evaluator for {type(declared).__name__}")
