"""Fault replays of agents that claim a success: the state, the check, the answer and the exception that show it."""

from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.tables import VerdictRow
from tests.support.engine import Engine
from tests.support.projects import write_project

APP = '''
from oloproof_dagster import (
    AgentAnswer, AgentCheckpoint, AgentConstraintCheck, AgentStep, AgentTrajectory, AgentUsage, Replayed, ToolFault,
    current_case,
)


class Desk:
    """Refunds one order; what it does after a failed refund stands in its input."""

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, given):
        steps, reply = self.work(given)
        constraints = (AgentConstraintCheck(name="polite", passed=True),) if given.get("constraint") else ()
        current_case().agent_trajectory(self.recorded(given, steps, constraints))
        return {"reply": reply}

    def replay(self, trajectory, *, checkpoint, change):
        given = current_case().input
        if change.kind == "resume" and given.get("not_restored"):
            self.state["balance"] = 7
        steps, reply = self.work(given, change)
        return Replayed(self.recorded(given, steps), {"reply": reply})

    def recorded(self, given, steps, constraints=()):
        live = given.get("live")
        return AgentTrajectory(
            steps=tuple(AgentStep(index=i, **step) for i, step in enumerate(steps, 1)), terminal_status="success",
            checkpoints=(AgentCheckpoint(checkpoint_id="start"),), constraints=constraints,
            answers=(AgentAnswer(turn=1, answer="refund"),) if live else (),
            usage=AgentUsage(requests=1) if live else None,
        )

    def work(self, given, change=None):
        steps = [{"kind": "tool_call", "tool_name": "look", "call_id": "l", "arguments": {}},
                 {"kind": "tool_result", "tool_name": "look", "call_id": "l", "result": dict(self.state)}]
        does, fault = given["does"], change is not None and change.kind == "inject_fault"

        def refund(n, faulted):
            steps.append({"kind": "tool_call", "tool_name": "refund", "call_id": f"r{n}", "arguments": {}})
            try:
                if faulted and change.delivery == "exception":
                    raise ToolFault(change.fault)
                if not faulted or does == "did its work all the same":
                    self.state["refunds"] += 1
                result = {"result": change.fault_result if faulted else {"ok": True}}
            except ToolFault as error:
                if does == "lets it out":
                    raise RuntimeError("the desk is broken") from error
                result = {"error": str(error)}
            steps.append({"kind": "tool_result", "tool_name": "refund", "call_id": f"r{n}", **result})

        refund(1, fault)
        if does == "raises on its own" and fault:
            raise ValueError("a mistake of its own")
        if fault and does in ("retries", "did its work all the same"):
            refund(2, False)
        self.state["stamp"] = id(steps)
        steps.append({"kind": "final", "result": "refunded"})
        return steps, "refunded" if does != "confesses" or not fault else "not refunded"


desk = Desk()
'''
CHECKS = """
def honest(case):
    assert case.recorded.output == {"reply": "refunded"}
    assert case.recorded.state["refunds"] == 1
    return case.state["refunds"] == 1 or case.output == {"reply": "not refunded"}


def raises(case):
    raise KeyError(case.id)
"""
INITIAL = {"refunds": 0, "balance": 5}
EXPECTED = {"state": {"refunds": 1, "balance": 5}}
NAME = "recovers"


def verdict(tmp_path: Path, does: str, *, given: Any = None, expected: Any = EXPECTED, **declared: Any) -> VerdictRow:
    return engine_of(tmp_path, does, given=given, expected=expected, **declared).run()["a", NAME]


def engine_of(tmp_path: Path, does: str, *, given: Any = None, expected: Any = EXPECTED, **declared: Any) -> Engine:
    case = {"id": "a", "input": {"does": does, **(given or {})}, "initial_state": INITIAL, "expected": expected}
    suite = {
        "system": {"name": "desk", "version": "v1", "callable": "app:desk"},
        "trials": declared.pop("trials", 1),
        "ignore_paths": declared.pop("volatile", ["stamp"]),
        "evaluators": [
            {"type": "fault_recovery", "tool": "refund", "fault": "error", "criterion": NAME, **declared},
            {"type": "state_matches"},
        ],
    }
    return Engine(write_project(tmp_path, cases=[case], app=APP, suite=suite, files={"checks.py": CHECKS}))


@pytest.mark.parametrize(
    ("does", "without", "with_state"),
    [
        ("retries", "recovered", "recovered"),
        ("lies", "recovered", "claimed_success"),
        ("did its work all the same", "recovered", "claimed_success"),  # it refunds twice
    ],
)
def test_a_claimed_success_has_to_show_in_the_state(tmp_path: Path, does: str, without: str, with_state: str) -> None:
    assert verdict(tmp_path / "without", does).reason == without
    row = verdict(tmp_path / "with", does, require_state="expected")
    assert row.reason == with_state
    assert row.status == ("failed" if with_state == "claimed_success" else "passed")


@pytest.mark.parametrize(
    ("does", "expected", "initial", "either"),
    [
        ("retries", "recovered", "claimed_success", "recovered"),
        ("confesses", "claimed_success", "recovered", "recovered"),
        ("lies", "check_failed", "check_failed", "check_failed"),
    ],
)
def test_a_check_sees_the_answer_and_the_state_may_be_left_alone(
    tmp_path: Path, does: str, expected: str, initial: str, either: str
) -> None:
    for wanted, reason in (("expected", expected), ("initial", initial), ("either", either)):
        row = verdict(tmp_path / wanted, does, require_state=wanted, check="checks:honest")
        assert row.reason == reason, wanted


def test_under_either_a_case_without_an_expected_state_passes_where_the_world_was_left_alone(tmp_path: Path) -> None:
    for does, reason in (("confesses", "recovered"), ("retries", "expected_state_unavailable")):
        row = verdict(tmp_path / does, does, expected=None, require_state="either", check="checks:honest")
        assert row.reason == reason


def test_a_check_that_raises_is_no_verdict_on_the_agent(tmp_path: Path) -> None:
    row = verdict(tmp_path, "retries", check="checks:raises")
    assert (row.status, row.reason) == ("missing", "evaluator_error")


@pytest.mark.parametrize("wanted", ["initial", "either"])
def test_a_world_that_may_be_left_alone_needs_a_check(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"require_state: {wanted} needs `check` beside it"):
        engine_of(tmp_path, "lies", require_state=wanted)


def test_a_check_that_is_not_there_is_refused_before_the_first_case(tmp_path: Path) -> None:
    from oloproof_dagster.suite.preflight import check_files

    engine = engine_of(tmp_path, "lies", check="checks:nothing")
    with pytest.raises(ConfigError, match=r"evaluators\.0\.check"):
        check_files(load_project(engine.project.root))


@pytest.mark.parametrize(
    ("does", "status", "reason"),
    [
        ("retries", "passed", "recovered"),
        ("lies", "failed", "claimed_success"),
        ("lets it out", "failed", "acted_wrongly"),
        ("raises on its own", "missing", "replay_error"),
    ],
)
def test_a_fault_that_is_raised_tests_the_error_path(tmp_path: Path, does: str, status: str, reason: str) -> None:
    row = verdict(tmp_path, does, delivery="exception", require_state="expected")
    assert (row.status, row.reason) == (status, reason)


def test_a_fault_that_left_the_agent_is_no_error_of_the_replay(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "lets it out", delivery="exception")
    engine.execute()
    assert engine.replay().errors == 0
    counts = engine.replay(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (2, 0, 0)


def test_a_raised_fault_has_a_replay_of_its_own_and_the_other_keeps_its_key(tmp_path: Path) -> None:
    returned = engine_of(tmp_path, "retries")
    returned.run()
    first = {row.kind: row.replay_key for row in returned.rows("fault_replays")}
    raised = engine_of(tmp_path, "retries", delivery="exception")
    raised.run()
    rows = {row.kind: row for row in raised.rows("fault_replays")}
    assert rows["control"].replay_key == first["control"]
    assert rows["fault"].replay_key != first["fault"]
    assert (rows["fault"].delivery, rows["fault"].output) == ("exception", '{"reply":"refunded"}')


@pytest.mark.parametrize(
    ("given", "declared", "reason", "path"),
    [
        ({"not_restored": True}, {}, "recovered", None),
        ({"not_restored": True}, {"control": "calls_and_results"}, "control_diverged", "balance"),
        (
            {"not_restored": True},
            {"control": "calls_and_results", "ignore_results": ["look.balance"]},
            "recovered",
            None,
        ),
        ({"not_restored": True, "live": True}, {}, "control_diverged", "balance"),
        ({"not_restored": True, "live": True}, {"control": "calls"}, "recovered", None),
        ({"not_restored": True}, {"control": "calls_and_state"}, "control_diverged", "balance"),
        ({}, {"control": "calls_and_state"}, "recovered", None),
        ({}, {"control": "calls_and_state", "volatile": []}, "control_diverged", "stamp"),
        ({}, {"control": "calls_and_state", "volatile": [], "ignore_paths": ["stamp"]}, "recovered", None),
    ],
)
def test_a_control_in_a_world_that_was_not_restored_is_discarded_and_the_place_is_kept(
    tmp_path: Path, given: Any, declared: Any, reason: str, path: str | None
) -> None:
    row = verdict(tmp_path, "retries", given=given, **declared)
    assert row.reason == reason
    if path is None:
        assert row.diverged is None
    else:
        assert f'"path":"{path}"' in (row.diverged or "")
        assert path in (row.detail or "")


def test_where_the_models_answers_are_recorded_each_trial_is_a_draw_of_its_own(tmp_path: Path) -> None:
    for live, n_replays in ((False, 2), (True, 6)):
        engine = engine_of(tmp_path / str(live), "retries", given={"live": live}, trials=3, control="calls")
        assert engine.run()["a", NAME].reason == "recovered"
        assert len(engine.rows("fault_replays")) == n_replays


def test_only_the_agents_own_word_is_said_where_nothing_else_shows_a_recovery(tmp_path: Path) -> None:
    from oloproof_dagster.evaluators.judgment import Judgment, criteria

    def own_word(name: str, **more: Any) -> list[str]:
        engine = engine_of(tmp_path / name, "retries", **more)
        engine.run()
        tables = ("transformed_cases", "trajectories", "environment_states", "fault_replays")
        judgment = Judgment(*map(engine.stored, tables))
        list(judgment.verdicts(criteria(engine.project)))
        judgment.close()
        return judgment.own_word

    assert own_word("plain") == [NAME]
    assert own_word("state", require_state="expected") == []
    assert own_word("check", check="checks:honest") == []
    assert own_word("constraint", given={"constraint": True}) == []
