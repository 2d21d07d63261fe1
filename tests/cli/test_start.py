"""Starting a project: users' mistakes, help, examples, checks, the instance."""

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest

from oloproof_dagster import ConfigError
from oloproof_dagster.cli.main import main
from tests.support.command import EXAMPLE, Command, assert_one_line, calls, in_a_process
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL

SHARED = """
version: 1
project: till
dataset: data/cases.jsonl
system: {name: till, version: v1, callable: app:till}
sandbox: {shared: true}
evaluators: [{type: state_matches}]
"""
MISTAKES: dict[str, tuple[Mapping[str, str], list[str], str]] = {
    "no project": ({"oloproof.yaml": ""}, ["run", "--project", "nowhere"], "oloproof init"),
    "a key that is none": ({"oloproof.yaml": "version: 1\nprojct: x\n"}, ["run"], "oloproof.yaml:"),
    "a case that is none": ({"data/cases.jsonl": '{"id": "a"}\n'}, ["run"], "data/cases.jsonl:1"),
    "a rule about nothing": (
        {"release.yaml": '{"version": 1, "rules": [{"id": "r", "metric": "polite", "min": 0.5}]}'},
        ["run"],
        "state_matches",
    ),
    "an agent that cannot be imported": ({"app.py": "import nowhere\n"}, ["run"], "nowhere"),
    "a version that was never run": ({}, ["run", "--version", "v0"], "v0"),
    "nothing recorded": ({}, ["inspect"], "v1"),
    "nothing to export": ({}, ["export"], "v1"),
    "a transform that is none": ({}, ["labels", "export", "--transform", "t"], "t"),
    "two workers on a shared sandbox": ({"oloproof.yaml": SHARED}, ["run", "--workers", "2"], "--workers 2"),
}


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", MISTAKES)
def test_a_users_mistake_is_one_line_on_stderr(
    what: str, oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, arguments, said = MISTAKES[what]
    write_project(tmp_path, files=files)
    monkeypatch.chdir(tmp_path)
    answer = oloproof(*arguments)
    assert_one_line(answer)
    assert said in answer.err


@pytest.mark.parametrize("arguments", [["nonsense"], ["run", "--nonsense"], ["run", "--workers", "0"], ["init"]])
def test_wrong_usage_exits_with_2(arguments: list[str], oloproof: Command) -> None:
    answer = oloproof(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err


def test_debug_shows_where_a_mistake_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["oloproof", "run", "--debug", "--project", str(tmp_path)])
    with pytest.raises(ConfigError):
        main()


@pytest.mark.parametrize(
    "command",
    ["init", "check", "run", "inspect", "ui", "labels export", "labels status", "versions", "history", "export"],
)
def test_every_commands_help_has_an_example(command: str, oloproof: Command) -> None:
    answer = oloproof(*command.split(), "--help")
    assert answer.code == 0
    assert f"oloproof {command}" in answer.out
    assert command == "init" or "--project" in answer.out


def test_an_example_is_copied_runs_and_is_never_overwritten(oloproof: Command, tmp_path: Path) -> None:
    assert "stateful-agent" in oloproof("init", "--example", "list").out
    root = tmp_path / "mine"
    assert oloproof("init", root, "--example", "stateful-agent").code == 0
    assert {path.name for path in EXAMPLE.iterdir()} - {"__pycache__", ".oloproof"} == {
        path.name for path in root.iterdir()
    }
    (root / "app.py").write_text("# mine\n")
    assert_one_line(oloproof("init", root, "--example", "stateful-agent"))
    assert (root / "app.py").read_text() == "# mine\n"


@pytest.mark.usefixtures("in_shared_home")
def test_a_project_is_written_around_a_system_and_checked(
    oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(COUNTED_TILL)
    assert oloproof("init", tmp_path, "--system", "shop:till").code == 0
    assert_one_line(oloproof("init", tmp_path, "--system", "shop:till"))
    (tmp_path / "data/cases.jsonl").write_text(json.dumps(case(1)) + "\n")
    answer = oloproof("check", "--project", tmp_path)
    assert answer.code == 0
    assert calls(tmp_path) == ["c-001"]
    assert not (tmp_path / ".oloproof" / "evidence").exists()


def test_check_says_what_is_missing_and_exits_with_1(tmp_path: Path) -> None:
    root = write_project(tmp_path, app="def till(request):\n    print('noise')\n    return {'answer': 'added'}\n")
    answer = in_a_process("check", "--project", root)
    assert answer.code == 1
    assert "state_matches" in answer.out
    assert "noise" not in answer.out


@pytest.mark.usefixtures("in_shared_home")
def test_registering_a_version_lets_dagsters_own_commands_run_it(
    oloproof: Command, tmp_path: Path, shared_home: Path
) -> None:
    root = write_project(tmp_path, suite={"project": "to be registered"})
    assert oloproof("versions", "--register", "--project", root).code == 0
    assert oloproof("versions", "--register", "--project", root).code == 0
    with dg.DagsterInstance.from_config(str(shared_home)) as instance:
        assert instance.get_dynamic_partitions("to_be_registered_system_version") == ["v1"]


@pytest.mark.parametrize("home", ["relative/home", "/nowhere/at/all"])
def test_a_dagster_home_that_cannot_be_used_is_never_replaced_by_a_temporary_one(
    home: str, oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", home)
    answer = oloproof("run", "--project", write_project(tmp_path))
    assert_one_line(answer)
    assert "DAGSTER_HOME" in answer.err


@pytest.mark.slow
def test_two_projects_run_in_one_process_have_a_home_each(oloproof: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        root = write_project(tmp_path / name, cases=[case(1)])
        assert oloproof("run", "--project", root).code == 0
        assert "DAGSTER_HOME" not in os.environ
        with dg.DagsterInstance.from_config(str(root / ".oloproof/dagster")) as instance:
            assert len(instance.get_runs()) == 1


def test_a_port_that_something_listens_on_is_refused(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        answer = oloproof("ui", "--project", root, "--port", str(other.getsockname()[1]))
    assert_one_line(answer)
    assert "name another port" in answer.err


def test_what_is_recorded_is_kept_out_of_version_control(
    oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    assert oloproof("versions", "--project", root, "--register").code == 0
    assert (root / ".oloproof/.gitignore").read_text() == "*\n"
