"""`oloproof check`: what one case shows of a project before its first run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command
from tests.support.engine import AGENT, AGENT_SYSTEM, agent_case
from tests.support.projects import rules, write_project

PAID = {"expected": {"state": {"balance": 0, "done": ["pay"]}}}
RECOVERY = {"type": "fault_recovery", "tool": "pay", "fault": "error", "require_state": "expected"}
NAME = "recovers_from_error_at_pay"
CHECKS = "def raises(case):\n    raise KeyError('amount')\n"


def project(root: Path, *evaluators: dict[str, Any], given: dict[str, Any] | None = None, **suite: Any) -> Path:
    declared = {"system": AGENT_SYSTEM, "evaluators": list(evaluators or [{"type": "state_matches"}]), **suite}
    cases = [agent_case("a", "pay", more=PAID, **(given or {}))]
    return write_project(root, cases=cases, app=AGENT, suite=declared, files={"checks.py": CHECKS})


def test_check_makes_a_control_and_a_fault_replay_for_each_evaluator_of_recovery(
    oloproof: Command, tmp_path: Path
) -> None:
    root = project(tmp_path, {"type": "state_matches"}, RECOVERY, {**RECOVERY, "fault": "timeout"})
    answer = oloproof("check", "--project", root)
    assert answer.code == 0
    assert "ok      1 control replay made\nok      2 fault replays made\n" in answer.out
    made = (root / "replays.txt").read_text().splitlines()
    assert made == ["a start resume", "a start error", "a start timeout"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"resume": "makes another call first"}, "the replay without a fault did not do what the recording did"),
        ({"resume": "raises"}, "the replay raised"),
        ({"inject_fault": "does not inject"}, "the named call was not made, or its result is not the fault's"),
        ({"checkpoints": "none"}, "no checkpoint stands before the call that is to fail"),
    ],
)
def test_a_replay_that_would_show_nothing_is_a_problem_with_its_reason(
    given: dict[str, Any], why: str, oloproof: Command, tmp_path: Path
) -> None:
    answer = oloproof("check", "--project", project(tmp_path, RECOVERY, given=given))
    assert answer.code == 1
    assert f"problem {NAME} will be missing on case 'a': {why}" in answer.out


def test_an_agents_own_interrupt_is_its_cases_error(oloproof: Command, tmp_path: Path) -> None:
    app = AGENT.replace("        given = in_this_trial(given)\n", "        raise KeyboardInterrupt\n", 1)
    root = project(tmp_path)
    (root / "app.py").write_text(app)
    answer = oloproof("check", "--project", root)
    assert answer.code == 1
    assert "problem case 'a' ended in an error: KeyboardInterrupt (app.py:" in answer.out


def test_a_python_check_that_raises_is_a_problem_with_its_place(oloproof: Command, tmp_path: Path) -> None:
    check = {"type": "python", "callable": "checks:raises", "criterion": "amount_right"}
    answer = oloproof("check", "--project", project(tmp_path, check))
    assert answer.code == 1
    assert "problem amount_right will be missing on case 'a': " in answer.out
    assert "KeyError: 'amount' (checks.py:2 in raises)" in answer.out


def test_a_path_that_no_case_has_is_named_by_check_and_by_run(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    evaluators = (
        {"type": "state_matches", "mode": "subset", "paths": ["balance", "don"]},
        {"type": "state_unchanged", "except": ["done", "balanc"], "criterion": "rest_alone"},
    )
    root = project(tmp_path, *evaluators, ignore_paths=["done.0", "dnoe"])
    line = "no case has the paths {}: mistyped?"
    in_dataset = "don (state_matches: paths), balanc (rest_alone: except)"
    answer = oloproof("check", "--project", root)
    assert answer.code == 1
    assert f"problem {line.format(in_dataset)}" in answer.out
    assert f"warning: {line.format('dnoe (ignore_paths), ' + in_dataset)}\n" in oloproof("run", "--project", root).err


def test_what_comes_into_being_in_a_case_is_no_path_that_no_case_has(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    case = agent_case("a", "pay", more={"expected": {"state": {"balance": 0}}})
    suite = {"system": AGENT_SYSTEM, "evaluators": [{"type": "state_matches"}], "ignore_paths": ["done"]}
    root = write_project(tmp_path, cases=[case], app=AGENT, suite=suite)
    assert oloproof("check", "--project", root).code == 0
    assert "no case has" not in oloproof("run", "--project", root).err


def test_a_criterion_that_no_rule_reads_is_named_by_check_and_by_run(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    root = project(tmp_path, {"type": "state_matches"}, RECOVERY)
    line = f"no rule of release.yaml reads {NAME}"
    assert line not in oloproof("check", "--project", root).out  # there is no release.yaml
    (root / "release.yaml").write_text(json.dumps(rules({"metric": "state_matches", "max_failures": 0})))
    answer = oloproof("check", "--project", root)
    assert (answer.code, f"note    {line}" in answer.out) == (0, True)
    assert f"warning: {line}\n" in oloproof("run", "--project", root).err


def test_check_repeats_the_case_for_the_errors_that_retries_name(oloproof: Command, tmp_path: Path) -> None:
    flaky = (
        "import pathlib\nmark = pathlib.Path('tried')\nif not mark.exists():\n"
        "    mark.touch()\n    raise TimeoutError\n"
    )
    body = "".join(f"        {line}\n" for line in flaky.splitlines())
    app = AGENT.replace("        given = in_this_trial(given)\n", body + "        given = in_this_trial(given)\n", 1)
    root = project(tmp_path, retries={"on": ["TimeoutError"], "max": 1, "wait_s": 0})
    (root / "app.py").write_text(app.replace("'tried'", repr(str(tmp_path / "tried"))))
    answer = oloproof("check", "--project", root)
    assert (answer.code, (tmp_path / "tried").exists()) == (0, True)
