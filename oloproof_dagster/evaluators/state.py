"""State criteria: what the world should be after the case, and what must not have changed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.evaluators.verdict import Verdict, by_comparison, missing, not_applicable
from oloproof_dagster.evaluators.volatile import NOTHING_VOLATILE, Volatile
from oloproof_dagster.project.evaluator_keys import StateMatches, StateUnchanged
from oloproof_dagster.records.compared import compare_at
from oloproof_dagster.records.comparison import Comparison
from oloproof_dagster.records.patches import expected_state, state_patch
from oloproof_dagster.records.paths import ABSENT, Path, lookup, matching, parse_path, show_path
from oloproof_dagster.records.reasons import VerdictReason


class StateMatchesEvaluator:
    """Compares the recorded state with the expected one, whole or on each of some paths."""

    def __init__(self, declared: StateMatches, volatile: Volatile = NOTHING_VOLATILE) -> None:
        self._field = parse_path(declared.expected_field)
        self._paths = tuple(parse_path(path) for path in (declared.paths or ("$",)))
        own = (declared.ignore_paths, declared.unordered_paths, declared.ignore_new_paths)
        self._comparison = replace(volatile.comparison(*own, declared.mode), tolerance=declared.exact_tolerance)

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where the dataset expects no state."""
        if self.expected(evidence) is ABSENT:
            return not_applicable(VerdictReason.NO_EXPECTED_STATE)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether the state left behind is the expected one."""
        exact, expected = self.is_patched(evidence), self.expected(evidence)
        return self.compare(expected, evidence.state_as_source(expected), evidence.initial_as_source, exact=exact)

    def is_patched(self, evidence: CaseEvidence) -> bool:
        """Whether the expected state is the initial one with the case's changes, and no others."""
        return state_patch(evidence.expected, self._field) is not ABSENT

    def expected(self, evidence: CaseEvidence) -> Any:
        """The state that the case expects, or ABSENT: the declared one, or the initial one with the case's patch.

        A copy expects what its source does, also where its world was changed.
        """
        return expected_state(evidence.expected, self._field, evidence.initial_as_source)

    def _on(self, exact: bool, initial: Any, expected: Any, state: Any) -> tuple[Comparison, Any, Any]:
        """How states are compared. A patch says what changes and that nothing else does (`exact`)."""
        comparison = replace(self._comparison, mode="exact") if exact else self._comparison
        return comparison.on(initial, expected, state)

    def compare(self, expected: Any, state: Any, initial: Any, *, exact: bool = False) -> Verdict:
        """Whether a state, reached from an initial one, is the expected one."""
        if state is ABSENT:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        lacking = self._lacking(expected)
        if lacking:
            return missing(VerdictReason.EXPECTED_PATH_ABSENT, ", ".join(map(show_path, lacking)))
        comparison, expected, state = self._on(exact, initial, expected, state)
        return by_comparison(
            tuple(
                row
                for path in self._compared(expected, state, comparison)
                for row in compare_at(comparison, path, lookup(expected, path), lookup(state, path))
            )
        )

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """Whether an agent that does nothing would pass."""
        expected, initial = self.expected(evidence), evidence.initial_as_source
        if initial is ABSENT or self._lacking(expected):
            return False
        comparison, expected, initial = self._on(self.is_patched(evidence), initial, expected, initial)
        return all(
            (wanted := lookup(expected, path)) is not ABSENT
            and (found := lookup(initial, path)) is not ABSENT
            and comparison.equal(wanted, found, path)
            for path in self._compared(expected, initial, comparison)
        )

    def _lacking(self, expected: Any) -> list[Path]:
        return [path for path in self._paths if next(matching(expected, path), None) is None]

    def _compared(self, expected: Any, state: Any, comparison: Comparison) -> Iterator[Path]:
        """The paths with each `*` followed; where the comparison is exact, also to what only the state has."""
        sides = (expected, state) if comparison.mode == "exact" else (expected,)
        for path in self._paths:
            if "*" in path:
                yield from {found: None for side in sides for found in matching(side, path)}
            else:
                yield path


class StateUnchangedEvaluator:
    """Compares the recorded state with the initial one: on some paths, or everywhere but on some."""

    def __init__(self, declared: StateUnchanged, volatile: Volatile = NOTHING_VOLATILE) -> None:
        self._paths = tuple(parse_path(path) for path in (declared.paths or ("$",)))
        self._comparison = volatile.comparison(declared.except_ or ())

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """Not applicable where the case has no initial state."""
        if evidence.case.initial_state is None:
            return not_applicable(VerdictReason.NO_INITIAL_STATE)
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """Whether everything holds what it held before the case."""
        initial, state = evidence.initial_state, evidence.state
        if state is ABSENT:
            return missing(VerdictReason.ENVIRONMENT_STATE_UNAVAILABLE)
        lacking = self._lacking(initial)
        if lacking:
            return missing(VerdictReason.INITIAL_PATH_ABSENT, ", ".join(map(show_path, lacking)))
        allowed = self._comparison.also_ignoring(_may_change(evidence))
        comparison, initial, state = allowed.on(initial, initial, state)
        return by_comparison(
            tuple(
                row
                for path in self._compared(initial, state, comparison)
                for row in compare_at(comparison, path, lookup(initial, path), lookup(state, path))
            )
        )

    def damage(self, evidence: CaseEvidence) -> Verdict | None:
        """The failed verdict where a recorded state shows damage, though the execution errored afterwards."""
        error = evidence.execution.error if evidence.execution else None
        if evidence.state is ABSENT or (error or "").startswith("reset: "):  # then the world is not the agent's work
            return None
        found = self.judge(evidence)
        return found if found.status == "failed" else None

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """An agent that does nothing leaves everything as it was."""
        return not self._lacking(evidence.initial_state)

    def _lacking(self, initial: Any) -> list[Path]:
        return [path for path in self._paths if next(matching(initial, path), None) is None]

    def _compared(self, initial: Any, state: Any, comparison: Comparison) -> Iterator[Path]:
        for path in self._paths:
            places = {found: None for side in (initial, state) for found in matching(side, path)}
            yield from (place for place in places if not comparison.leaves_out(place) or not place)


def _may_change(evidence: CaseEvidence) -> tuple[Path, ...]:
    """What the case itself says may change."""
    paths = lookup(evidence.expected, ("may_change",))
    return () if paths is ABSENT else tuple(parse_path(path) for path in paths)
