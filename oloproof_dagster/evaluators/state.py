"""State criteria: what the world should be after the case, and what must not have changed."""

from dataclasses import replace
from typing import Any

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, by_comparison, missing, not_applicable
from oloproof_dagster.project.evaluator_keys import StateMatches, StateUnchanged
from oloproof_dagster.records.comparison import EXACT, Comparison, compare_at
from oloproof_dagster.records.patches import patched
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason


class StateMatchesEvaluator:
    """Compares the recorded state with the expected one, whole or on each of some paths."""

    def __init__(self, declared: StateMatches) -> None:
        self._field = parse_path(declared.expected_field)
        self._paths = tuple(parse_path(path) for path in (declared.paths or ("$",)))
        self._comparison = Comparison(
            mode=declared.mode,
            tolerance=declared.exact_tolerance,
            ignored=tuple(parse_path(path) for path in declared.ignore_paths),
            unordered=tuple(parse_path(path) for path in declared.unordered_paths),
        )

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where the dataset expects no state."""
        if self._patch(evidence) is ABSENT and lookup(evidence.expected, self._field) is ABSENT:
            return not_applicable(VerdictReason.NO_EXPECTED_STATE)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the state left behind is the expected one."""
        expected, comparison = self._expected(evidence)
        lacking = [path for path in self._paths if lookup(expected, path) is ABSENT]
        if evidence.state is ABSENT:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        if lacking:
            return missing(VerdictReason.EXPECTED_PATH_ABSENT, ", ".join(map(show_path, lacking)))
        return by_comparison(
            tuple(
                row
                for path in self._paths
                for row in compare_at(comparison, path, lookup(expected, path), lookup(evidence.state, path))
            )
        )

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """Whether an agent that does nothing would pass."""
        expected, comparison = self._expected(evidence)
        return all(
            (wanted := lookup(expected, path)) is not ABSENT
            and (found := lookup(evidence.initial_state, path)) is not ABSENT
            and comparison.equal(wanted, found, path)
            for path in self._paths
        )

    def _patch(self, evidence: CaseEvidence) -> Any:
        """The case's `expected.state_patch`, where that takes the place of what is compared with; else ABSENT."""
        return lookup(evidence.expected, ("state_patch",)) if self._field == ("state",) else ABSENT

    def _expected(self, evidence: CaseEvidence) -> tuple[Any, Comparison]:
        """The expected state and how it is compared. A patch says what changes and that nothing else does."""
        patch = self._patch(evidence)
        if patch is ABSENT or evidence.initial_state is ABSENT:
            return lookup(evidence.expected, self._field), self._comparison
        return patched(evidence.initial_state, patch), replace(self._comparison, mode="exact")


class StateUnchangedEvaluator:
    """Compares paths of the recorded state with the initial state."""

    def __init__(self, declared: StateUnchanged) -> None:
        self._paths = tuple(parse_path(path) for path in declared.paths)

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where the case has no initial state."""
        if evidence.case.initial_state is None:
            return not_applicable(VerdictReason.NO_INITIAL_STATE)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the paths hold what they held before the case."""
        if evidence.state is ABSENT:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        lacking = [path for path in self._paths if lookup(evidence.initial_state, path) is ABSENT]
        if lacking:
            return missing(VerdictReason.INITIAL_PATH_ABSENT, ", ".join(map(show_path, lacking)))
        return by_comparison(
            tuple(
                row
                for path in self._paths
                for row in compare_at(EXACT, path, lookup(evidence.initial_state, path), lookup(evidence.state, path))
            )
        )

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """An agent that does nothing leaves everything as it was."""
        return all(lookup(evidence.initial_state, path) is not ABSENT for path in self._paths)
