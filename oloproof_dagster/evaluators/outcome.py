"""Output criteria: a field of the output against a field of what is expected."""

from typing import Any

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, by_comparison, missing, not_applicable
from oloproof_dagster.project.evaluator_keys import Contains, ExactMatch
from oloproof_dagster.records.compared import Compared
from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason


class OutcomeEvaluator:
    """exact_match: equal as JSON, text after strip and casefold. contains: the expected text stands in the output's."""

    def __init__(self, declared: ExactMatch | Contains) -> None:
        self._contains = isinstance(declared, Contains)
        self._field = parse_path(declared.field or "$")
        self._expected_field = parse_path(declared.expected_at)
        self._strip, self._casefold = declared.strip, declared.casefold

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where the dataset expects no such field."""
        # A whole `expected` of null is a case that expects nothing; a field that holds null expects null.
        expected = lookup(evidence.expected, self._expected_field)
        if expected is ABSENT or (not self._expected_field and expected is None):
            return not_applicable(VerdictReason.NO_EXPECTED)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the output's field equals, or contains, the expected one."""
        expected, actual = lookup(evidence.expected, self._expected_field), lookup(evidence.output, self._field)
        if actual is ABSENT:
            return missing(VerdictReason.NO_OUTPUT_FIELD, show_path(self._field))
        return by_comparison((Compared(show_path(self._field), expected, actual, self._agree(expected, actual)),))

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: the check reads no state."""
        return None

    def _agree(self, expected: Any, actual: Any) -> bool:
        expected, actual = self._normal(expected), self._normal(actual)
        if not self._contains:
            return json_equal(expected, actual)
        return isinstance(expected, str) and isinstance(actual, str) and expected in actual

    def _normal(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.strip() if self._strip else value
            value = value.casefold() if self._casefold else value
        return value
