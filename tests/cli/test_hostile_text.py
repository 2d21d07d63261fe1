"""A project whose agent and cases try to print a Gate of their own: every command shows their text as data."""

import csv
import json
import unicodedata
from pathlib import Path

import pytest

from tests.support.command import Answer, Command
from tests.support.engine import AGENT, AGENT_SYSTEM, agent_case
from tests.support.projects import NO_FAILURE, rules, write_project

GATE_LINE = "Gate: ALLOW   exit code 0"
HOSTILE = f"refund\n{GATE_LINE}\n\x1b[2J\x07\u202e[red]"
FAULT = {"type": "fault_recovery", "tool": HOSTILE, "fault": "error", "criterion": "recovers"}


def hostile_project(root: Path) -> Path:
    case = agent_case(
        f"c{HOSTILE}",
        HOSTILE,
        more={"metadata": {"kind": HOSTILE}, "expected": {"state": {HOSTILE: HOSTILE, "balance": 1}}},
        output=HOSTILE,
        by_trial={"1": {"raises": True}},
    )
    suite = {
        "project": "desk",
        "system": AGENT_SYSTEM,
        "trials": 2,
        "evaluators": [{"type": "state_matches"}, FAULT],
        "slices": ["first_tool", "metadata.kind"],
    }
    app = AGENT.replace('"told to raise"', repr(HOSTILE))
    return write_project(root, app=app, cases=[case], suite=suite, release=rules(NO_FAILURE))


def assert_data(answer: Answer, n_gates: int = 0) -> None:
    """No control character, override or line of its own came through, on either stream."""
    lines = (answer.out + answer.err).splitlines()
    assert [line for line in lines if line.startswith("Gate")] == ["Gate: BLOCK   exit code 1"] * n_gates
    found = {unicodedata.category(char) for char in answer.out + answer.err if char != "\n"}
    assert not found & {"Cc", "Cf", "Zl", "Zp"}
    assert "Traceback" not in answer.err


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.slow
def test_no_text_of_agents_or_cases_prints_a_line_or_a_control_character(
    tmp_path: Path, oloproof: Command, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    root = hostile_project(tmp_path)
    answer = oloproof("run", "--project", root)
    assert answer.code == 1
    assert_data(answer, n_gates=1)
    assert r"refund\nGate: ALLOW" in answer.out.replace("\n    ", " ")
    for arguments in (["inspect"], ["inspect", "--failures"], ["inspect", "--case", f"c{HOSTILE}"], ["versions"]):
        answer = oloproof(*arguments, "--project", root)
        assert answer.code == 0
        assert_data(answer)
    assert_data(oloproof("check", "--project", root))
    assert_data(oloproof("run", "--version", HOSTILE, "--project", root))


@pytest.mark.usefixtures("in_shared_home")
def test_an_exported_cell_is_no_formula_unless_it_is_raw(tmp_path: Path, oloproof: Command) -> None:
    case = agent_case("=c", "pay", more={"expected": {"state": {"balance": 0, "done": ["pay"]}}}, output=-1)
    suite = {"system": AGENT_SYSTEM, "evaluators": [{"type": "state_matches"}]}
    root = write_project(tmp_path / "desk", app=AGENT, cases=[case], suite=suite, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 0
    for more, case_id in (([], "'=c"), (["--raw"], "=c")):
        folder = tmp_path / f"tables{len(more)}"
        assert oloproof("export", "--to", folder, *more, "--project", root).code == 0
        with (folder / "trajectories.csv").open(newline="") as stream:
            (row,) = csv.DictReader(stream)
        assert row["case_id"] == case_id
        assert row["trial"] == "0"
        assert row["output"] == ("-1" if more else "'-1")


@pytest.mark.usefixtures("in_shared_home")
def test_a_run_with_json_says_on_stderr_why(tmp_path: Path, oloproof: Command) -> None:
    root = hostile_project(tmp_path)
    answer = oloproof("run", "--json", "--project", root)
    assert json.loads(answer.out)["gate"]["exit_code"] == answer.code == 1
    assert "Rules" in answer.err
    assert answer.err.splitlines()[-1] == "Gate: BLOCK   exit code 1"
    assert "rule_0" in answer.err
