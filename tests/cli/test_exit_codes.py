"""Exit codes: what the Gate says, and what ends a run without a verdict."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.support.command import WRONG, Command, assert_one_line, calls
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL
from tests.support.waiting import until

THREE = [case(number) for number in range(1, 4)]
CODES: dict[str, tuple[int, Any, Any]] = {
    "ALLOW": (0, THREE, rules(NO_FAILURE)),
    "WARN": (0, [WRONG], rules(NO_FAILURE, block_on=[], warn_on=["FAIL"])),
    "FAIL": (1, [WRONG], rules(NO_FAILURE)),
    "INSUFFICIENT_EVIDENCE": (3, THREE, rules({"metric": "state_matches", "min": 0.9})),
    "MANUAL_REVIEW": (4, THREE, rules(NO_FAILURE | {"requires_manual_review": True})),
    "missing evidence": (3, [case(1, expected=None)], rules(NO_FAILURE, block_on=[])),
}


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", CODES)
def test_the_exit_code_says_what_the_gate_says(what: str, oloproof: Command, tmp_path: Path) -> None:
    code, cases, release = CODES[what]
    answer = oloproof("run", "--json", "--project", write_project(tmp_path, cases=cases, release=release))
    assert answer.code == code
    assert answer.document["gate"]["exit_code"] == code


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_a_case_that_was_never_reached_exits_with_5(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, app=COUNTED_TILL, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 0
    calls(root)
    write_project(
        root,
        app=COUNTED_TILL,
        cases=[*THREE, case(4)],
        suite={"system": {"name": "till", "version": "v2", "callable": "app:till"}},
        release=rules(NO_FAILURE),
    )
    answer = oloproof("run", "--json", "--version", "v1", "--project", root)
    assert answer.code == 5
    assert answer.document["gate"]["reasons"] == ["partial_run"]
    assert answer.document["system"]["version"] == "v1"
    assert answer.document["metrics"][0]["missing"] == {"system_version_not_loaded": 1}
    assert calls(root) == []


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_without_a_policy_nothing_is_decided_and_that_is_said(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, cases=[WRONG])
    answer = oloproof("run", "--json", "--project", root)
    assert answer.code == 0
    assert answer.document["gate"] is None
    assert answer.document["decisions"] == []
    assert answer.document["metrics"][0]["n_passed"] == 0
    assert "release.yaml" in oloproof("run", "--project", root).out


OTHER_GATE = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions


@dg.asset(
    key=["till", "gate"],
    deps=[["till", "decisions"]],
    partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"),
)
def crashing_gate(context):
    raise ZeroDivisionError("the house is on fire")


@dg.definitions
def defs():
    whole = build_definitions(Path(__file__).parent)
    kept = [each for each in whole.assets if dg.AssetKey(["till", "gate"]) not in each.keys]
    return dg.Definitions(assets=[*kept, *GATES], jobs=whole.jobs, resources=whole.resources)
"""


@pytest.mark.usefixtures("in_shared_home")
def test_a_run_fails_where_the_gate_asset_is_taken_away(oloproof: Command, tmp_path: Path) -> None:
    definitions = OTHER_GATE.replace("GATES", "[]")
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    answer = oloproof("run", "--json", "--project", root)
    assert answer.code not in (0, 1, 3, 4, 5)
    assert answer.out == ""
    assert answer.err


@pytest.mark.usefixtures("in_shared_home")
def test_an_internal_crash_exits_with_70_and_looks_like_no_verdict(oloproof: Command, tmp_path: Path) -> None:
    definitions = OTHER_GATE.replace("GATES", "[crashing_gate]")
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    answer = oloproof("run", "--json", "--project", root)
    assert_one_line(answer, 70)
    assert "the house is on fire" in answer.err


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_an_interrupted_run_exits_with_130_and_the_next_goes_on(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        import os, signal
        stop = pathlib.Path(__file__).with_name("stop")
        if stop.exists() and current_case().id == "c-002":
            stop.unlink()
            os.kill(os.getpid(), signal.SIGINT)
""",
    )
    root = write_project(tmp_path, app=app, release=rules(NO_FAILURE), files={"stop": ""})
    answer = oloproof("run", "--json", "--project", root)
    assert (answer.code, answer.out) == (130, "")
    assert "Traceback" not in answer.err
    assert calls(root) == ["c-001", "c-002"]
    assert oloproof("run", "--project", root).code == 0
    assert calls(root) == ["c-002", "c-003"]


@pytest.mark.slow
def test_a_killed_run_loses_no_finished_case_and_is_no_run_under_way(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        import time; time.sleep(0.1)\n')
    ids = [case(number)["id"] for number in range(1, 21)]
    root = write_project(tmp_path, app=app, cases=[case(number) for number in range(1, 21)], release=rules(NO_FAILURE))
    process = subprocess.Popen(
        [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=root,
    )
    noted = root / "calls"
    until(lambda: noted.exists() and len(noted.read_text().split()) >= 5, why=process.poll)
    process.send_signal(signal.SIGKILL)
    process.communicate()  # until the child that makes the run is gone too
    before = calls(root)
    assert 5 <= len(before) < len(ids)

    answer = oloproof("run", "--json", "--project", root)
    assert answer.code == 0
    after = calls(root)
    assert after == ids[len(before) - 1 :] or after == ids[len(before) :]
    assert answer.document["cache"]["executions"] == {"hit": len(ids) - len(after), "miss": len(after)}
    with dg.DagsterInstance.from_config(str(root / ".oloproof/dagster")) as instance:
        statuses = [run.status for run in instance.get_runs()]
    assert statuses == [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]


def test_an_interrupted_run_is_never_shown_as_one_without_failures(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    stopping = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if request["amount"] == 2:
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)
""",
    )
    root = write_project(tmp_path, app=stopping, suite={"project": "stopped"}, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 130
    answer = oloproof("inspect", "--project", root)
    assert "did not finish: 1 of 3 executions are made and no verdict is reached" in answer.err
    assert "0 of 3 cases have no failed and no missing verdict" in answer.out


@pytest.mark.slow
def test_a_reader_that_has_gone_away_looks_like_no_verdict(tmp_path: Path, in_shared_home: None) -> None:
    root = write_project(tmp_path, suite={"project": "unread"}, release=rules(NO_FAILURE))
    for more in ([], ["--json"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", root, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 141


def test_pairs_that_nobody_reads_to_the_end_are_no_error(tmp_path: Path) -> None:
    transform = {"name": "polite", "field": "note", "template": "{value}, kindly"}
    root = write_project(tmp_path, suite={"metamorphic": {"transforms": [transform]}})
    said = tmp_path / "stderr"
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "oloproof_dagster.cli",
                "labels",
                "export",
                "--transform",
                "polite",
                "--project",
                root,
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    process.stdout.close()
    assert (process.wait(), said.read_bytes()) == (141, b"")
