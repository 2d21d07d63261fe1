"""Evaluators: every reason for a verdict, the order in which one is reached, and each check's own rules."""

import decimal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.digests import MOST_LEVELS, canonical_json
from oloproof_dagster.evaluators.case import CaseEvidence, CaseView
from oloproof_dagster.evaluators.relation import RelationEvaluator
from oloproof_dagster.evaluators.verdict import Verdict
from oloproof_dagster.evaluators.volatile import Volatile
from oloproof_dagster.project.evaluator_keys import MetamorphicRelation
from oloproof_dagster.records.compared import Compared
from oloproof_dagster.records.paths import ABSENT
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import ReplayRow, VerdictRow
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory
from tests.support.engine import AGENT, AGENT_SYSTEM, Engine, agent_case
from tests.support.evidence import NOTHING, compared, criterion, evidence, judge
from tests.support.interrupts import ctrl_c, interruptible
from tests.support.projects import write_project

R = VerdictReason
INJECTED = {"name": "injected", "field": "text", "template": "{value} Quickly!"}
SHOUTED = {"name": "shouted", "field": "text", "template": "{value}!"}
RECOVERY = {"type": "fault_recovery", "tool": "pay", "fault": "error", "escalate_tools": ["ask_human"]}
WHOLE_STATE = {"balance": 0, "done": ["pay"]}


@dataclass(frozen=True)
class Situation:
    """A case of a project, an evaluator, and the one verdict that this leads to."""

    reason: VerdictReason
    status: str
    evaluator: dict[str, Any]
    case: dict[str, Any] = field(default_factory=lambda: agent_case("a", "pay"))
    judged: str = "a"
    added: tuple[dict[str, Any], ...] = ()  # after the run, so that nothing is recorded of it
    checks: str = ""
    timeout_s: float | None = None


def without_initial_state(*tools: str, **given: Any) -> dict[str, Any]:
    case = agent_case("a", *tools, **given)
    del case["initial_state"]
    return case


SITUATIONS = [
    Situation(R.METAMORPHIC_COPY, "not_applicable", {"type": "state_matches"}, judged="a~injected"),
    Situation(R.CASE_NOT_SELECTED, "not_applicable", {"type": "state_matches", "cases": "copies"}),
    Situation(
        R.PATH_AMBIGUOUS,
        "missing",
        {"type": "state_unchanged", "paths": ["seats[id=x].row"]},
        agent_case("a", "pay", more={"initial_state": {"seats": [{"id": "x", "row": 1}, {"id": "x", "row": 2}]}}),
    ),
    Situation(
        R.NO_ACTION_TAKEN,
        "not_applicable",
        {"type": "metamorphic_relation", "relation": "same_output", "require_action": True},
        agent_case("a"),
        judged="a~injected",
    ),
    Situation(R.EXPECTED_STATE_UNAVAILABLE, "missing", {**RECOVERY, "require_state": "expected"}),
    Situation(
        R.CLAIMED_SUCCESS,
        "failed",
        {**RECOVERY, "require_state": "expected"},
        agent_case("a", "pay", more={"expected": {"state": WHOLE_STATE}}),
    ),
    Situation(
        R.CHECK_FAILED,
        "failed",
        {**RECOVERY, "check": "checks:honest"},
        checks="def honest(case):\n    return case.recorded.state['done'] == case.state.get('done', [])\n",
    ),
    Situation(
        R.EXECUTION_ERROR,
        "missing",
        {"type": "tool_calls", "must": ["pay"]},
        agent_case("a", "pay", raises=True),
    ),
    Situation(
        R.EXECUTION_TIMEOUT,
        "missing",
        {"type": "tool_calls", "must": ["pay"]},
        agent_case("a", "pay", never_returns=True),
        timeout_s=1.0,
    ),
    Situation(
        R.SYSTEM_VERSION_NOT_LOADED,
        "missing",
        {"type": "tool_calls", "must": ["pay"]},
        judged="added",
        added=(agent_case("added", "pay"),),
    ),
    Situation(R.NO_EXPECTED_STATE, "not_applicable", {"type": "state_matches"}),
    Situation(
        R.NO_INITIAL_STATE,
        "not_applicable",
        {"type": "state_unchanged", "paths": ["balance"]},
        without_initial_state("pay"),
    ),
    Situation(R.NO_EXPECTED, "not_applicable", {"type": "exact_match", "field": "answer"}),
    Situation(
        R.ENVIRONMENT_STATE_UNAVAILABLE,
        "missing",
        {"type": "state_matches"},
        without_initial_state("pay", more={"expected": {"state": {}}}),
    ),
    Situation(
        R.EXPECTED_PATH_ABSENT,
        "missing",
        {"type": "state_matches", "paths": ["balance", "orders"]},
        agent_case("a", "pay", more={"expected": {"state": {"balance": 0}}}),
    ),
    Situation(R.INITIAL_PATH_ABSENT, "missing", {"type": "state_unchanged", "paths": ["balance", "orders.x"]}),
    Situation(
        R.NO_OUTPUT_FIELD,
        "missing",
        {"type": "exact_match", "field": "reply", "expected_field": "answer"},
        agent_case("a", "pay", more={"expected": {"answer": "done"}}),
    ),
    Situation(
        R.AGENT_TRAJECTORY_UNAVAILABLE,
        "missing",
        {"type": "tool_calls", "must": ["pay"]},
        agent_case("a", "pay", records=False),
    ),
    Situation(
        R.TRAJECTORY_TRUNCATED,
        "missing",
        {"type": "tool_calls", "must": ["thank"]},
        agent_case("a", "pay", truncated=True),
    ),
    Situation(
        R.EVALUATOR_ERROR,
        "missing",
        {"type": "python", "criterion": "polite", "callable": "checks:polite"},
        checks="def polite(case):\n    raise KeyError('mood')\n",
    ),
    Situation(R.NOT_A_METAMORPHIC_PAIR, "not_applicable", {"type": "metamorphic_relation", "relation": "same_state"}),
    Situation(
        R.ANOTHER_TRANSFORM,
        "not_applicable",
        {"type": "metamorphic_relation", "relation": "same_state", "transform": "shouted"},
        judged="a~injected",
    ),
    Situation(
        R.METAMORPHIC_SOURCE_MISSING,
        "missing",
        {"type": "metamorphic_relation", "relation": "same_actions"},
        agent_case("a", "pay", raises="case a"),
        judged="a~injected",
    ),
    Situation(R.FAULT_TARGET_NOT_CALLED, "not_applicable", RECOVERY, agent_case("a", "look")),
    Situation(R.NO_CHECKPOINT_RECORDED, "missing", RECOVERY, agent_case("a", "pay", checkpoints="none")),
    Situation(R.REPLAY_ECHOED, "missing", RECOVERY, agent_case("a", "look", "pay", resume="echoes")),
    Situation(R.CONTROL_DIVERGED, "missing", RECOVERY, agent_case("a", "pay", resume="ends otherwise")),
    Situation(
        R.REPLAY_DIVERGED_BEFORE_FAULT,
        "missing",
        RECOVERY,
        agent_case("a", "look", "pay", checkpoints="start", inject_fault="makes another call first"),
    ),
    Situation(R.REPLAY_DID_NOT_INJECT, "missing", RECOVERY, agent_case("a", "pay", inject_fault="does not inject")),
    Situation(R.REPLAY_ERROR, "missing", RECOVERY, agent_case("a", "pay", inject_fault="raises")),
    Situation(
        R.REPLAY_TIMEOUT, "missing", RECOVERY, agent_case("a", "pay", inject_fault="never returns"), timeout_s=1.0
    ),
    Situation(R.FAULT_OUTCOME_UNKNOWN, "missing", RECOVERY, agent_case("a", "pay", after="stops")),
    Situation(R.ACTED_WRONGLY, "failed", RECOVERY, agent_case("a", "pay", after="fails")),
    Situation(R.ESCALATED, "passed", RECOVERY, agent_case("a", "pay", after="escalates")),
    Situation(R.RECOVERED, "passed", RECOVERY, agent_case("a", "pay")),
]


def taken_through(root: Path, situation: Situation) -> VerdictRow:
    """The situation's verdict, from a whole run of a project of its own."""

    def write(*cases: dict[str, Any]) -> Engine:
        return Engine(
            write_project(
                root,
                cases=cases,
                app=AGENT,
                suite={
                    "system": AGENT_SYSTEM | ({"timeout_s": situation.timeout_s} if situation.timeout_s else {}),
                    "evaluators": [{**situation.evaluator, "criterion": "judged"}],
                    "metamorphic": {"transforms": [INJECTED, SHOUTED]},
                },
                files={"checks.py": situation.checks},
            )
        )

    verdicts = write(situation.case).run()
    if situation.added:
        engine = write(situation.case, *situation.added)
        engine.expand()
        verdicts = engine.judge()
    return verdicts[situation.judged, "judged"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[VerdictReason, VerdictRow]:
    return {each.reason: taken_through(tmp_path_factory.mktemp("situation"), each) for each in SITUATIONS}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.reason.value)
def test_each_situation_gives_its_status_and_reason(
    outcomes: dict[VerdictReason, VerdictRow], situation: Situation
) -> None:
    found = outcomes[situation.reason]
    assert (found.status, found.reason) == (situation.status, situation.reason.value)


def test_every_reason_can_be_reached(outcomes: dict[VerdictReason, VerdictRow]) -> None:
    assert {row.reason for row in outcomes.values()} == {reason.value for reason in VerdictReason}


def test_every_reason_says_what_it_means_and_is_written_as_one_word() -> None:
    assert all(reason.meaning and reason.value.replace("_", "").isalpha() for reason in VerdictReason)
    assert len({reason.meaning for reason in VerdictReason}) == len(VerdictReason)


# One declaration of each kind that a source case can be eligible for, and evidence that makes it so.
ELIGIBLE: list[dict[str, Any]] = [
    {"type": "exact_match", "field": "answer", "expected_field": "answer"},
    {"type": "contains", "field": "answer", "expected_field": "answer"},
    {"type": "state_matches"},
    {"type": "state_unchanged", "paths": ["balance"]},
    {"type": "tool_calls", "must": ["pay"]},
    {"type": "python", "criterion": "polite", "callable": "checks:polite"},
    RECOVERY,
]
FULL: dict[str, Any] = {"expected": {"answer": "done", "state": {}}, "initial": {"balance": 0}}
KINDS = pytest.mark.parametrize("declared", ELIGIBLE, ids=lambda declared: declared["type"])


def refused(case: CaseView) -> bool:
    raise AssertionError("the check was not to be asked")


@KINDS
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("error", R.EXECUTION_ERROR),
        ("timeout", R.EXECUTION_TIMEOUT),
        (None, R.SYSTEM_VERSION_NOT_LOADED),
    ],
)
def test_without_a_good_execution_an_eligible_case_is_missing_before_any_check_is_asked(
    declared: dict[str, Any], status: str | None, reason: VerdictReason
) -> None:
    row = criterion(declared, refused).row(evidence(**FULL, status=status))
    assert (row.status, row.reason) == ("missing", reason.value)
    assert row.detail == ("ValueError: told to" if status else None)


@KINDS
def test_on_execution_error_fail_counts_errors_and_timeouts_as_failed_and_nothing_else(
    declared: dict[str, Any],
) -> None:
    strict = criterion({**declared, "on_execution_error": "fail"}, refused)
    for status, reason in (("error", R.EXECUTION_ERROR), ("timeout", R.EXECUTION_TIMEOUT)):
        row = strict.row(evidence(**FULL, status=status))
        assert (row.status, row.reason, row.detail) == ("failed", reason.value, "ValueError: told to")
    assert strict.row(evidence(**FULL, status=None)).status == "missing"


@KINDS
@pytest.mark.parametrize("status", ["ok", "error", None])
def test_a_derived_case_is_not_counted_again_whatever_became_of_it(
    declared: dict[str, Any], status: str | None
) -> None:
    strict = criterion({**declared, "on_execution_error": "fail"}, refused)
    row = strict.row(evidence(**FULL, status=status, source=evidence(**FULL)))
    assert (row.status, row.reason, row.noop) == ("not_applicable", R.METAMORPHIC_COPY.value, None)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (ELIGIBLE[0], R.NO_EXPECTED),
        (ELIGIBLE[1], R.NO_EXPECTED),
        (ELIGIBLE[2], R.NO_EXPECTED_STATE),
        (ELIGIBLE[3], R.NO_INITIAL_STATE),
        ({"type": "metamorphic_relation", "relation": "same_output"}, R.NOT_A_METAMORPHIC_PAIR),
    ],
)
@pytest.mark.parametrize("status", ["ok", "error", None])
def test_a_case_that_is_not_eligible_is_so_whatever_became_of_its_execution(
    declared: dict[str, Any], reason: VerdictReason, status: str | None
) -> None:
    row = judge({**declared, "on_execution_error": "fail"}, status=status)
    assert (row.status, row.reason, row.noop) == ("not_applicable", reason.value, None)


ANSWER = {"field": "answer", "expected_field": "answer"}


@pytest.mark.parametrize(
    ("more", "expected", "output", "status"),
    [
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, {"answer": "done"}, "passed"),
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, {"answer": "undone"}, "failed"),
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, {"answer": " done\n"}, "passed"),
        ({"type": "exact_match", **ANSWER, "strip": False}, {"answer": "done"}, {"answer": " done"}, "failed"),
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, {"answer": "Done"}, "failed"),
        ({"type": "exact_match", **ANSWER, "casefold": True}, {"answer": "STRASSE"}, {"answer": "straße"}, "passed"),
        ({"type": "exact_match", **ANSWER}, {"answer": 1}, {"answer": 1.0}, "passed"),
        ({"type": "exact_match", **ANSWER}, {"answer": 1}, {"answer": True}, "failed"),
        ({"type": "exact_match", **ANSWER}, {"answer": 1}, {"answer": "1"}, "failed"),
        ({"type": "exact_match", **ANSWER}, {"answer": None}, {"answer": None}, "passed"),
        ({"type": "exact_match", **ANSWER}, {"answer": None}, {"answer": "x"}, "failed"),
        ({"type": "exact_match", **ANSWER}, {"answer": None}, {}, "missing"),
        ({"type": "exact_match", **ANSWER}, {"answer": {"a": [1]}}, {"answer": {"a": [1]}}, "passed"),
        ({"type": "exact_match", **ANSWER}, {}, {"answer": "done"}, "not_applicable"),
        ({"type": "exact_match", **ANSWER}, None, {"answer": "done"}, "not_applicable"),
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, None, "missing"),
        ({"type": "exact_match", **ANSWER}, {"answer": "done"}, ["done"], "missing"),
        ({"type": "exact_match", "field": "/a.b/0", "expected_field": "x"}, {"x": 1}, {"a.b": [1]}, "passed"),
        ({"type": "exact_match", "expected_field": "answer"}, {"answer": "done"}, "done", "passed"),
        ({"type": "exact_match"}, "done", "done", "passed"),
        ({"type": "exact_match"}, None, None, "not_applicable"),
        ({"type": "contains", **ANSWER}, {"answer": "one"}, {"answer": "it is done"}, "passed"),
        ({"type": "contains", **ANSWER}, {"answer": "One"}, {"answer": "it is done"}, "failed"),
        ({"type": "contains", **ANSWER, "casefold": True}, {"answer": "ONE"}, {"answer": "it is done"}, "passed"),
        ({"type": "contains", **ANSWER}, {"answer": "it is done"}, {"answer": "done"}, "failed"),
        ({"type": "contains", **ANSWER}, {"answer": "1"}, {"answer": 1}, "failed"),
        ({"type": "contains", **ANSWER}, {"answer": "a"}, {"answer": ["a"]}, "failed"),
        ({"type": "contains", **ANSWER}, {"answer": "a"}, {}, "missing"),
        ({"type": "contains", **ANSWER}, {}, {"answer": "a"}, "not_applicable"),
    ],
)
def test_an_output_field_is_compared_with_the_expected_field(
    more: dict[str, Any], expected: Any, output: Any, status: str
) -> None:
    assert judge(more, expected=expected, output=output).status == status


def test_an_output_verdict_shows_both_texts_as_they_were() -> None:
    row = judge({"type": "exact_match", **ANSWER}, expected={"answer": "done"}, output={"answer": " Done "})
    assert compared(row) == [("answer", "done", " Done ", False, False)]
    assert judge({"type": "exact_match", **ANSWER}, expected={"answer": 1}, output={}).detail == "answer"


STATE = {"balance": 5, "orders": {"x": {"qty": 1, "at": "12:00"}}, "tags": ["a", "b"]}


def expecting(state: Any, actual: Any = STATE, **declared: Any) -> VerdictRow:
    return judge({"type": "state_matches", **declared}, expected={"state": state}, state=actual, initial={})


@pytest.mark.parametrize(
    ("declared", "expected", "status"),
    [
        ({}, STATE, "passed"),
        ({}, {**STATE, "balance": 6}, "failed"),
        ({}, {"balance": 5}, "failed"),
        ({"mode": "subset"}, {"balance": 5}, "passed"),
        ({"mode": "subset"}, {"orders": {"x": {"qty": 1}}}, "passed"),
        ({"mode": "subset"}, {"orders": {"y": {}}}, "failed"),
        ({"mode": "subset"}, {}, "passed"),
        ({"paths": ["balance"]}, {"balance": 5, "orders": "not looked at"}, "passed"),
        ({"paths": ["orders.x.qty", "tags.0"]}, {"orders": {"x": {"qty": 1}}, "tags": ["a"]}, "passed"),
        ({"paths": ["balance", "tags.0"]}, {"balance": 5, "tags": ["b"]}, "failed"),
        ({"paths": ["orders"], "mode": "subset"}, {"orders": {"x": {"at": "12:00"}}}, "passed"),
        ({"paths": ["balance"], "tolerance": 0.5}, {"balance": 5.5}, "passed"),
        ({"paths": ["balance"], "tolerance": 0.5}, {"balance": 5.6}, "failed"),
        ({"ignore_paths": ["orders.*.at"]}, {**STATE, "orders": {"x": {"qty": 1, "at": "13:00"}}}, "passed"),
        ({"paths": ["orders"], "ignore_paths": ["orders.*.at"]}, {"orders": {"x": {"qty": 1}}}, "passed"),
        ({"ignore_paths": ["orders.*.at"]}, {**STATE, "orders": {"x": {"qty": 2, "at": "12:00"}}}, "failed"),
        ({"unordered_paths": ["tags"]}, {**STATE, "tags": ["b", "a"]}, "passed"),
        ({"paths": ["tags"], "unordered_paths": ["tags"]}, {"tags": ["b", "a"]}, "passed"),
        ({"paths": ["tags"]}, {"tags": ["b", "a"]}, "failed"),
        ({"paths": ["$"]}, STATE, "passed"),
        ({}, None, "failed"),
    ],
)
def test_the_state_left_behind_is_compared_with_the_expected_one(
    declared: dict[str, Any], expected: Any, status: str
) -> None:
    assert expecting(expected, **declared).status == status


def test_another_field_of_what_is_expected_can_hold_the_state() -> None:
    declared = {"type": "state_matches", "expected_field": "world.after"}
    assert judge(declared, expected={"world": {"after": {"a": 1}}}, state={"a": 1}).status == "passed"
    assert judge(declared, expected={"state": {"a": 1}}, state={"a": 1}).reason == R.NO_EXPECTED_STATE.value


def test_a_tolerance_is_the_decimal_that_was_written() -> None:
    declared = criterion({"type": "state_matches", "tolerance": 0.3}).evaluator
    assert declared._comparison.tolerance == decimal.Decimal("0.3")  # type: ignore[attr-defined]
    assert expecting({"n": 0.1}, {"n": 0.4}, tolerance=0.3).status == "passed"
    assert expecting({"n": 10**30}, {"n": 10**30 + 1}, tolerance=0.3).status == "failed"


def test_each_compared_path_is_a_row_and_a_failed_whole_is_followed_by_its_leaves() -> None:
    row = expecting({"balance": 6, "tags": ["a"], "gone": None}, {"balance": 5, "tags": ["a", "b"], "new": None})
    assert compared(row)[1:] == [
        ("balance", 6, 5, False, False),
        ("gone", None, None, True, False),
        ("new", None, None, False, False),
        ("tags.1", None, "b", False, False),
    ]
    assert compared(row)[0][0] == "$"
    row = expecting({"balance": 5, "tags": ["a", "c"]}, paths=["balance", "tags"])
    assert compared(row) == [
        ("balance", 5, 5, False, True),
        ("tags", ["a", "c"], ["a", "b"], False, False),
        ("tags.1", "c", "b", False, False),
    ]
    assert [each[0] for each in compared(expecting(STATE))] == ["$"]


def test_a_path_that_the_state_lacks_differs_and_is_shown_as_absent() -> None:
    row = expecting({"owner": None}, paths=["owner"])
    assert (row.status, row.reason) == ("failed", None)
    assert compared(row) == [("owner", None, None, True, False)]


def test_a_path_that_the_expectation_lacks_is_missing_and_named() -> None:
    row = expecting({"balance": 5}, paths=["balance", "orders.y", "/a.b"])
    assert (row.status, row.reason, row.detail) == ("missing", R.EXPECTED_PATH_ABSENT.value, "orders.y, /a.b")


def test_a_recorded_state_of_null_is_a_state() -> None:
    assert expecting(None, None).status == "passed"
    assert expecting({}, None).status == "failed"
    assert expecting({}, NOTHING).reason == R.ENVIRONMENT_STATE_UNAVAILABLE.value


def unchanged(initial: Any, state: Any, *paths: str) -> VerdictRow:
    return judge({"type": "state_unchanged", "paths": list(paths)}, initial=initial, state=state)


@pytest.mark.parametrize(
    ("initial", "state", "paths", "status", "reason"),
    [
        ({"a": 1, "b": 1}, {"a": 1.0, "b": 2}, ["a"], "passed", None),
        ({"a": 1}, {"a": 2}, ["a"], "failed", None),
        ({"a": None}, {}, ["a"], "failed", None),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, ["a"], "failed", None),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, ["a.x"], "passed", None),
        ({"a": 1, "b": 1}, {"a": 1, "b": 2}, ["a", "b"], "failed", None),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a"], "failed", None),
        ({"a": 1}, {"a": 1}, ["$"], "passed", None),
        ({"a": 1}, {"a": 1}, ["a", "typo"], "missing", R.INITIAL_PATH_ABSENT.value),
        ({"a": 1}, {"a": 1, "typo": 1}, ["typo"], "missing", R.INITIAL_PATH_ABSENT.value),
        ({"a": 1}, NOTHING, ["a"], "missing", R.ENVIRONMENT_STATE_UNAVAILABLE.value),
        (NOTHING, {"a": 1}, ["a"], "not_applicable", R.NO_INITIAL_STATE.value),
    ],
)
def test_paths_that_must_not_change_hold_what_they_held_before(
    initial: Any, state: Any, paths: list[str], status: str, reason: str | None
) -> None:
    row = unchanged(initial, state, *paths)
    assert (row.status, row.reason) == (status, reason)


def test_an_unchanged_verdict_shows_what_was_there_before() -> None:
    assert compared(unchanged({"a": {"x": 1}}, {"a": {"x": 2}}, "a")) == [
        ("a", {"x": 1}, {"x": 2}, False, False),
        ("a.x", 1, 2, False, False),
    ]


NOOP_EXPECTED = {"state": {"balance": 0}}


@pytest.mark.parametrize(
    ("declared", "of_case", "noop"),
    [
        ({"type": "state_matches"}, {"expected": NOOP_EXPECTED, "initial": {"balance": 0}}, True),
        ({"type": "state_matches"}, {"expected": NOOP_EXPECTED, "initial": {"balance": 1}}, False),
        ({"type": "state_matches"}, {"expected": NOOP_EXPECTED, "initial": {"balance": 0, "x": 1}}, False),
        (
            {"type": "state_matches", "mode": "subset"},
            {"expected": NOOP_EXPECTED, "initial": {"balance": 0, "x": 1}},
            True,
        ),
        ({"type": "state_matches"}, {"expected": NOOP_EXPECTED}, False),
        ({"type": "state_matches"}, {"initial": {"balance": 0}}, None),
        ({"type": "state_matches", "paths": ["a"]}, {"expected": NOOP_EXPECTED, "initial": {"a": 1}}, False),
        ({"type": "state_matches", "paths": ["balance"]}, {"expected": NOOP_EXPECTED, "initial": {}}, False),
        ({"type": "state_unchanged", "paths": ["balance"]}, {"initial": {"balance": 0}}, True),
        ({"type": "state_unchanged", "paths": ["typo"]}, {"initial": {"balance": 0}}, False),
        ({"type": "state_unchanged", "paths": ["balance"]}, {}, None),
        ({"type": "tool_calls", "must": ["pay"]}, {"initial": {"balance": 0}}, None),
        ({"type": "exact_match", **ANSWER}, {"expected": {"answer": 1}, "initial": {}}, None),
        ({"type": "python", "criterion": "polite", "callable": "checks:polite"}, {"initial": {}}, None),
        (RECOVERY, {"initial": {}}, None),
    ],
)
@pytest.mark.parametrize("status", ["ok", "error", None])
def test_a_state_criterion_says_whether_doing_nothing_would_pass_for_every_eligible_case(
    declared: dict[str, Any], of_case: dict[str, Any], noop: bool | None, status: str | None
) -> None:
    row = criterion(declared, lambda case: True).row(evidence(**of_case, status=status, output=1, state={"balance": 9}))
    assert row.noop is noop


def called(*tools: str, truncated: bool = False, **arguments: Any) -> AgentTrajectory:
    steps = tuple(
        AgentStep(index=index, kind="tool_call", tool_name=tool, arguments=arguments)
        for index, tool in enumerate(tools, 1)
    )
    return AgentTrajectory(steps=steps, truncated=truncated, terminal_status="success")


@pytest.mark.parametrize(
    ("declared", "tools", "whole", "truncated"),
    [
        ({"must": ["pay"]}, ["look", "pay"], "passed", "missing"),
        ({"must": ["pay"]}, ["look"], "failed", "missing"),
        ({"must": ["pay"]}, [], "failed", "missing"),
        ({"must": ["pay", "look"]}, ["look", "pay"], "passed", "missing"),
        ({"must_not": ["pay"]}, ["look"], "passed", "missing"),
        ({"must_not": ["pay"]}, ["look", "pay"], "failed", "failed"),
        ({"in_order": ["look", "pay"]}, ["look", "ask", "pay"], "passed", "missing"),
        ({"in_order": ["look", "pay"]}, ["pay", "look"], "failed", "missing"),
        ({"in_order": ["pay", "pay"]}, ["pay"], "failed", "missing"),
        ({"in_order": ["pay", "pay"]}, ["pay", "look", "pay"], "passed", "missing"),
        ({"in_order": ["pay", "look"]}, ["look", "pay", "look"], "passed", "missing"),
        ({"max_calls": 2}, ["a", "b"], "passed", "missing"),
        ({"max_calls": 2}, ["a", "b", "c"], "failed", "failed"),
        ({"max_calls": 0}, [], "passed", "missing"),
        ({"max_calls": 0}, ["a"], "failed", "failed"),
        ({"must": ["a"], "must_not": ["b"], "max_calls": 1}, ["a"], "passed", "missing"),
        ({"must": ["a"], "must_not": ["b"], "max_calls": 9}, ["b"], "failed", "failed"),
    ],
)
def test_tools_are_called_or_not_in_order_and_not_too_many_and_a_cut_off_recording_shows_failures_only(
    declared: dict[str, Any], tools: list[str], whole: str, truncated: str
) -> None:
    for cut, status in ((False, whole), (True, truncated)):
        row = judge({"type": "tool_calls", **declared}, trajectory=called(*tools, truncated=cut))
        assert row.status == status
        assert row.reason == (R.TRAJECTORY_TRUNCATED.value if status == "missing" else None)
        assert bool(row.detail) == (status == "failed")


PYTHON = {"type": "python", "criterion": "polite", "callable": "checks:polite"}


def checked(check: Callable[[CaseView], Any], **of_case: Any) -> VerdictRow:
    return criterion(PYTHON, check).row(evidence(**of_case))


def test_a_python_check_reads_everything_recorded_of_its_case() -> None:
    seen: list[Any] = []

    def check(case: CaseView) -> bool:
        seen.append([case.id, case.trial, case.input, case.expected, case.metadata, case.output, case.state])
        seen.append([case.initial_state, case.trajectory])
        return True

    trajectory = called("pay")
    checked(check, expected={"a": 1}, output=[1], state={"s": 1}, initial={"s": 0}, trajectory=trajectory)
    assert seen == [["a", 0, {"n": 1}, {"a": 1}, {"language": "en"}, [1], {"s": 1}], [{"s": 0}, trajectory]]
    checked(check, output=None, trial=2)
    assert seen[2:] == [["a", 2, {"n": 1}, None, {"language": "en"}, None, None], [None, None]]


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        (True, ("passed", None, None)),
        (False, ("failed", None, "returned False")),
        (Verdict("passed"), ("passed", None, None)),
        (Verdict("failed", "rude", "said no"), ("failed", "rude", "said no")),
        (Verdict("missing", "no_reply"), ("missing", "no_reply", None)),
        (Verdict("not_applicable", "not_a_reply"), ("not_applicable", "not_a_reply", None)),
    ],
)
def test_a_python_check_answers_yes_or_no_or_with_a_verdict_of_its_own(
    returned: Any, verdict: tuple[str, str | None, str | None]
) -> None:
    row = checked(lambda case: returned)
    assert (row.status, row.reason, row.detail) == verdict


def test_a_python_check_can_show_the_paths_that_it_compared() -> None:
    shown = (Compared("reply", "yes", ABSENT, False), Compared("tone", "kind", "kind", True))
    row = checked(lambda case: Verdict("failed", compared=shown))
    assert compared(row) == [("reply", "yes", None, True, False), ("tone", "kind", "kind", False, True)]


def test_what_a_python_check_compared_is_what_it_was_when_the_check_returned() -> None:
    held = {"n": 1}

    def check(case: Any) -> Verdict:
        return Verdict("failed", compared=(Compared("a", held, ABSENT, False),))

    verdict = criterion(PYTHON, check).evaluator.judge(evidence())
    held["n"] = 2
    assert verdict.compared == (Compared("a", {"n": 1}, ABSENT, False),)


def test_an_ambiguous_path_in_a_state_that_a_relation_does_not_compare_costs_no_verdict() -> None:
    seats = {"seats": [{"id": "x"}, {"id": "x"}]}
    side = {"initial": seats, "state": seats, "output": {"text": "done"}}
    relation = criterion({"type": "metamorphic_relation", "relation": "same_output"})
    volatile = RelationEvaluator(MetamorphicRelation.model_validate(relation.declared), Volatile(("seats[id=x]",)))
    row = replace(relation, evaluator=volatile).row(evidence(**side, source=evidence(**side)))
    assert (row.status, row.noop) == ("passed", None)


NONSENSE: list[tuple[Any, str]] = [
    (None, "returned NoneType, expected a bool or a Verdict"),
    (1, "returned int"),
    (0.5, "returned float"),
    ("passed", "returned str"),
    ({"status": "passed"}, "returned dict"),
    (Verdict("great"), "the status 'great'"),  # type: ignore[arg-type]
    (Verdict(None), "the status None"),  # type: ignore[arg-type]
    (Verdict([]), "the status []"),  # type: ignore[arg-type]
    (Verdict("failed", 7), "reason or detail is not text"),  # type: ignore[arg-type]
    (Verdict("failed", None, ["x"]), "reason or detail is not text"),  # type: ignore[arg-type]
    (Verdict("failed", "\ud800"), "cannot be stored"),
    (Verdict("failed", compared=(1,)), "cannot be stored"),  # type: ignore[arg-type]
    (Verdict("failed", compared=None), "cannot be stored"),  # type: ignore[arg-type]
    (Verdict("failed", compared=(Compared("a", {1}, 1, False),)), "cannot be stored"),
]


@pytest.mark.parametrize(("returned", "told"), NONSENSE, ids=[each[1] for each in NONSENSE])
def test_a_python_check_that_returns_something_else_is_missing_and_never_a_pass(returned: Any, told: str) -> None:
    row = checked(lambda case: returned)
    assert (row.status, row.reason) == ("missing", R.EVALUATOR_ERROR.value)
    assert row.detail is not None
    assert told in row.detail


class Liar(str):
    """A status that equals every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("passed")


class Impostor(Verdict):
    """A verdict of a class of the check's own."""


@pytest.mark.parametrize("returned", [Verdict(Liar("great")), Impostor("passed")])  # type: ignore[arg-type]
def test_a_status_or_a_verdict_whose_class_may_lie_about_equality_is_the_checks_own_error(returned: Any) -> None:
    row = checked(lambda case: returned)
    assert (row.status, row.reason) == ("missing", R.EVALUATOR_ERROR.value)


def test_nothing_that_a_check_reaches_from_its_view_is_another_criterions() -> None:
    case = evidence(output="right", state={"a": 1}, initial={"a": 1})

    def check(view: CaseView) -> bool:
        for name, value in vars(view).items():
            assert not isinstance(value, CaseEvidence), name
        view._texts.update(output='"wrong"', state="{}")
        return True

    assert criterion({"type": "python", "criterion": "own", "callable": "m:f"}, check).row(case).status == "passed"
    assert CaseView(case).output == "right"
    assert judge({"type": "state_unchanged", "paths": ["a"]}, case).status == "passed"


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), KeyError("x"), AssertionError(), SystemExit(0), RecursionError("deep"), OSError("\udcff")],
)
def test_a_python_check_that_raises_is_missing_with_what_it_raised(error: BaseException) -> None:
    def check(case: CaseView) -> bool:
        raise error

    row = checked(check)
    assert (row.status, row.reason) == ("missing", R.EVALUATOR_ERROR.value)
    assert row.detail is not None
    assert row.detail.startswith(type(error).__name__)
    canonical_json(row.detail)


def test_an_interrupt_by_the_user_is_no_verdict() -> None:
    def check(case: CaseView) -> bool:
        ctrl_c()
        return True

    with interruptible(), pytest.raises(KeyboardInterrupt):
        checked(check)


def test_a_python_check_that_mutates_its_view_changes_nothing_for_others() -> None:
    def check(case: CaseView) -> bool:
        for value in (case.input, case.expected, case.metadata, case.output, case.state, case.initial_state):
            value.clear()
        assert case.trajectory is not None
        case.trajectory.steps[0].arguments.clear()
        return [case.input, case.trajectory.steps[0].arguments] == [{}, {}]

    given: dict[str, Any] = {
        "expected": {"state": {"s": 1}},
        "output": {"o": 1},
        "state": {"s": 1},
        "initial": {"s": 0},
    }
    case = evidence(**given, trajectory=called("pay", cents=1))
    case.trajectory  # noqa: B018 - read before the check, as another criterion would
    assert criterion(PYTHON, check).row(case).status == "passed"
    assert criterion(PYTHON, check).row(case).status == "passed"
    assert judge({"type": "state_matches"}, case).status == "passed"
    assert case.trajectory is not None
    assert case.trajectory.steps[0].arguments == {"cents": 1}


def related(relation: str, source: CaseEvidence, **derived: Any) -> VerdictRow:
    more: dict[str, Any] = {}
    for key in ("field", "transform", "ignore_paths"):
        if key in derived:
            more[key] = derived.pop(key)
    declared: dict[str, Any] = {"type": "metamorphic_relation", "relation": relation, **more}
    return judge(declared, evidence(**derived, source=source))


@pytest.mark.parametrize(
    ("more", "source", "derived", "status"),
    [
        ({}, {"answer": 1}, {"answer": 1.0}, "passed"),
        ({}, {"answer": 1}, {"answer": True}, "failed"),
        ({}, {"answer": 1, "reply": "a"}, {"answer": 1, "reply": "b"}, "failed"),
        ({"field": "answer"}, {"answer": 1, "reply": "a"}, {"answer": 1, "reply": "b"}, "passed"),
        ({"field": "answer"}, {"answer": None}, {"answer": None}, "passed"),
        ({"field": "answer"}, {"answer": 1}, {}, "missing"),
        ({"field": "answer"}, {}, {"answer": 1}, "missing"),
        ({"field": "answer"}, {}, {}, "missing"),
        ({}, None, None, "passed"),
    ],
)
def test_same_output_compares_the_outputs_or_one_field(
    more: dict[str, Any], source: Any, derived: Any, status: str
) -> None:
    row = related("same_output", evidence(output=source), output=derived, **more)
    assert row.status == status
    assert row.reason == (R.NO_OUTPUT_FIELD.value if status == "missing" else None)


@pytest.mark.parametrize(
    ("source", "derived", "status", "reason"),
    [
        (called("look", "pay"), called("look", "pay"), "passed", None),
        (called("look", "pay"), called("pay", "look"), "failed", None),
        (called("look"), called("look", "pay"), "failed", None),
        (called("pay", n=1), called("pay", n=1.0), "passed", None),
        (called("pay", n=1), called("pay", n=2), "failed", None),
        (called(), called(), "passed", None),
        (None, called("pay"), "missing", R.AGENT_TRAJECTORY_UNAVAILABLE.value),
        (called("pay"), None, "missing", R.AGENT_TRAJECTORY_UNAVAILABLE.value),
        (called("pay", truncated=True), called("pay"), "missing", R.TRAJECTORY_TRUNCATED.value),
        (called("pay"), called("pay", truncated=True), "missing", R.TRAJECTORY_TRUNCATED.value),
        (called("look", "pay"), called("look", truncated=True), "missing", R.TRAJECTORY_TRUNCATED.value),
        (called("look"), called("look", "pay", truncated=True), "failed", None),
        (called("look", truncated=True), called("look", "pay"), "missing", R.TRAJECTORY_TRUNCATED.value),
        (called("pay"), called("look", truncated=True), "failed", None),
    ],
)
def test_same_actions_compares_tools_and_arguments_in_order_and_a_cut_off_recording_shows_failures_only(
    source: AgentTrajectory | None, derived: AgentTrajectory | None, status: str, reason: str | None
) -> None:
    row = related("same_actions", evidence(trajectory=source), trajectory=derived)
    assert (row.status, row.reason) == (status, reason)


@pytest.mark.parametrize(
    ("more", "source", "derived", "status", "reason"),
    [
        ({}, {"a": 1}, {"a": 1.0}, "passed", None),
        ({}, {"a": 1}, {"a": 1, "b": None}, "failed", None),
        ({}, None, None, "passed", None),
        ({"ignore_paths": ["*.at"]}, {"a": {"at": 1}}, {"a": {"at": 2}}, "passed", None),
        ({"ignore_paths": ["*.at"]}, {"a": {"at": 1, "n": 1}}, {"a": {"at": 2, "n": 2}}, "failed", None),
        ({}, NOTHING, {"a": 1}, "missing", R.ENVIRONMENT_STATE_UNAVAILABLE.value),
        ({}, {"a": 1}, NOTHING, "missing", R.ENVIRONMENT_STATE_UNAVAILABLE.value),
    ],
)
def test_same_state_compares_the_states_left_behind(
    more: dict[str, Any], source: Any, derived: Any, status: str, reason: str | None
) -> None:
    row = related("same_state", evidence(state=source), state=derived, **more)
    assert (row.status, row.reason) == (status, reason)


RELATIONS = ["same_output", "same_actions", "same_state"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("source", "derived", "transform", "status", "reason"),
    [
        ("ok", "error", "injected", "missing", R.EXECUTION_ERROR),
        ("ok", "timeout", "injected", "missing", R.EXECUTION_TIMEOUT),
        ("ok", None, "injected", "missing", R.SYSTEM_VERSION_NOT_LOADED),
        ("error", "ok", "injected", "missing", R.METAMORPHIC_SOURCE_MISSING),
        ("timeout", "ok", None, "missing", R.METAMORPHIC_SOURCE_MISSING),
        (None, "ok", None, "missing", R.METAMORPHIC_SOURCE_MISSING),
        ("error", "error", None, "missing", R.EXECUTION_ERROR),
        ("error", "error", "shouted", "not_applicable", R.ANOTHER_TRANSFORM),
        ("ok", "ok", "shouted", "not_applicable", R.ANOTHER_TRANSFORM),
    ],
)
def test_a_pair_is_judged_by_its_own_execution_first_and_then_by_its_sources(
    relation: str, source: str | None, derived: str | None, transform: str | None, status: str, reason: VerdictReason
) -> None:
    more = {"transform": transform} if transform else {}
    row = related(relation, evidence(status=source), status=derived, **more)
    assert (row.status, row.reason) == (status, reason.value)


def test_a_failed_pair_shows_what_differs_with_the_sources_side_as_expected() -> None:
    row = related("same_state", evidence(state={"a": 1, "b": 1}), state={"a": 1, "b": 2})
    assert compared(row)[1:] == [("b", 1, 2, False, False)]
    row = related("same_output", evidence(output={"x": {"y": 1}}), output={"x": {"y": 2}}, field="x")
    assert compared(row) == [("x", {"y": 1}, {"y": 2}, False, False), ("x.y", 1, 2, False, False)]
    row = related("same_actions", evidence(trajectory=called("pay", n=1)), trajectory=called("pay", n=2))
    assert compared(row)[1:] == [("0.arguments.n", 1, 2, False, False)]


def test_a_replay_without_an_end_is_missing_by_its_own_reason() -> None:
    start = AgentCheckpoint(checkpoint_id="start")
    recording = called("pay").model_copy(update={"checkpoints": (start,)})
    row = ReplayRow(
        case_id="a",
        replay_key="k",
        kind="control",
        checkpoint_id="start",
        prefix_steps=0,
        fault=None,
        step_index=None,
        status="timeout",
        discarded=R.REPLAY_TIMEOUT.value,
        error="took more than 60 s",
        duration_ms=60_000.0,
        trajectory=None,
        state=None,
        state_matches=None,
    )
    found = judge(RECOVERY, trajectory=recording, replays=lambda *asked: row)
    assert (found.status, found.reason, found.detail) == ("missing", R.REPLAY_TIMEOUT.value, "took more than 60 s")


def test_a_case_without_recorded_replays_is_missing_and_not_failed() -> None:
    recording = called("pay").model_copy(update={"checkpoints": (AgentCheckpoint(checkpoint_id="start"),)})
    row = judge(RECOVERY, trajectory=recording, replays=lambda *asked: None)
    assert (row.status, row.reason) == ("missing", R.SYSTEM_VERSION_NOT_LOADED.value)


def deep(levels: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(levels):
        value = {"a": value}
    return value


def nested(levels: int, left: int, right: int) -> CaseEvidence:
    return evidence(expected={"state": deep(levels, left)}, state=deep(levels, right), initial=deep(levels, right))


@pytest.mark.parametrize("levels", [100, 200])
@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2)])
def test_deep_values_are_judged_like_others(levels: int, left: int, right: int) -> None:
    row = judge({"type": "state_matches"}, nested(levels, left, right))
    assert (row.status, row.reason) == ("passed" if left == right else "failed", None)
    assert row.noop is (left == right)


TOO_DEEP = ("missing", R.EVALUATOR_ERROR.value, "the values are nested too deep to be compared", None, None)


def test_values_so_deep_that_a_row_around_them_cannot_be_written_cost_their_own_verdict() -> None:
    row = judge({"type": "state_matches"}, nested(MOST_LEVELS - 1, 1, 1))
    assert (row.status, row.reason, row.detail, row.compared, row.noop) == TOO_DEEP


def with_frames_left(n: int, function: Callable[[], Any]) -> Any:
    """Calls a function where Python allows n frames more."""
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]

    def sink(levels: int) -> Any:
        return sink(levels - 1) if levels else function()

    return sink(sys.getrecursionlimit() - used - n)


@pytest.mark.parametrize("declared", [{"type": "state_matches"}, {"type": "state_unchanged", "paths": ["$"]}])
@pytest.mark.parametrize("right", [1, 2])
def test_where_the_stack_ends_within_a_comparison_only_that_verdict_is_lost(
    declared: dict[str, Any], right: int
) -> None:
    case, built = nested(200, 1, right), criterion(declared)
    for value in (case.expected, case.state, case.initial_state):
        assert value is not ABSENT  # read already, so that comparing is what needs the stack
    row = with_frames_left(150, lambda: built.row(case))
    assert (row.status, row.reason, row.detail, row.compared) == TOO_DEEP[:4]


@pytest.mark.parametrize("status", ["missing", "not_applicable"])
def test_a_check_that_excuses_a_case_without_a_reason_is_missing_with_ours(status: Any) -> None:
    row = checked(lambda case: Verdict(status))
    assert (row.status, row.reason) == ("missing", "evaluator_error")
    assert "without a reason" in (row.detail or "")


def test_a_check_that_raises_outside_of_exception_is_missing() -> None:
    class Unusual(BaseException):
        pass

    def check(case: CaseView) -> bool:
        raise Unusual("no")

    assert checked(check).reason == "evaluator_error"


@pytest.mark.parametrize("kind", ["exact_match", "contains"])
def test_the_field_of_the_output_names_the_expected_one_too(kind: str) -> None:
    for expected, status in (({"answer": "yes", "state": {}}, "passed"), ({"answer": "no"}, "failed")):
        row = judge({"type": kind, "field": "answer"}, expected=expected, output={"answer": "yes"})
        assert row.status == status
    row = judge({"type": kind, "field": "answer"}, expected={"reply": "yes"}, output={"answer": "yes"})
    assert (row.status, row.reason) == ("not_applicable", R.NO_EXPECTED.value)
    assert judge({"type": kind}, expected="yes", output="yes").status == "passed"
