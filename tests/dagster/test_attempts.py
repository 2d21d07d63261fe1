"""Attempts: made afresh, interrupted, repeated for errors, and killed between the two tables of a pass."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from oloproof_dagster import EvidenceError, load_project, load_run
from oloproof_dagster.evidence.parquet import Index
from oloproof_dagster.execution.execute import RecordedExecutions
from oloproof_dagster.project.evidence_place import evidence_of
from tests.support.interrupts import interruptible
from tests.support.projects import case, write_project
from tests.support.runs import COUNTED_TILL, EXECUTED, RECOVERY, Home, Result, home


def test_a_fresh_run_executes_and_replays_everything_and_keeps_the_former_attempt_readable(
    ran: Home, first: Result
) -> None:
    result = ran.run(fresh=True)
    assert (ran.noted(), len(ran.noted("replays"))) == (EXECUTED, 6)
    assert result.said("trajectories")["executed"] == 3
    for attempt in (None, 1):
        run = load_run(ran.root, "v1", attempt)
        assert ran.verdicts("v1", attempt)["c-001", "state_matches"] == ("passed", None)
        assert len(run.table("fault_replays")) == 6
        assert run.table("trajectories").content == first.data_version("trajectories")
    assert load_run(ran.root, "v1", 1).table("trajectories").path != load_run(ran.root).table("trajectories").path
    with pytest.raises(EvidenceError, match="attempt 3"):
        load_run(ran.root, "v1", 3)


FAILING_ONCE = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        stop = pathlib.Path(__file__).with_name("stop")
        if stop.exists() and current_case().id == "c-002":
            from tests.support.interrupts import ctrl_c
            stop.unlink()
            ctrl_c()
""",
)


@pytest.mark.parametrize("fresh_again", [True, False])
@pytest.mark.slow
def test_an_attempt_that_was_interrupted_is_resumed_by_the_next_run_fresh_or_not(
    tmp_path: Path, fresh_again: bool
) -> None:
    root = write_project(tmp_path, app=FAILING_ONCE)
    with home(root) as till:
        till.run()
        till.noted()
        (root / "stop").touch()
        with interruptible():
            assert not till.run(fresh=True).success
        assert till.noted() == ["c-001", "c-002"]
        assert till.run(fresh=fresh_again).success
        assert till.noted() == ["c-002", "c-003"]
        assert load_run(root, "v1", 1).metrics.n_passed.tolist() == [3]
        till.run()
        assert till.noted() == []


@pytest.mark.slow
def test_recorded_errors_are_evidence_until_they_are_asked_to_be_repeated(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if current_case().id == "c-002" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, files={"down": ""})
    with home(root) as till:
        till.run()
        assert till.verdicts()["c-002", "state_matches"] == ("missing", "execution_error")
        till.noted()
        (root / "down").unlink()
        assert till.run().said("trajectories")["n_errors"] == 1
        assert till.noted() == []
        result = till.run(retry_errors=True)
        assert till.noted() == ["c-002"]
        assert result.said("trajectories")["n_errors"] == 0
        assert till.verdicts()["c-002", "state_matches"] == ("passed", None)
        till.run(retry_errors=True)
        assert till.noted() == []


@pytest.mark.slow
def test_recorded_errors_of_replays_are_repeated_when_asked(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("replays")\n',
        """note("replays")
        if change.kind == "inject_fault" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, suite={"evaluators": [RECOVERY]}, files={"down": ""})
    with home(root) as till:
        till.run()
        assert set(till.verdicts().values()) == {("missing", "replay_error")}
        (root / "down").unlink()
        till.noted(), till.noted("replays")
        till.run()
        assert till.noted("replays") == []
        assert till.run(retry_errors=True).said("fault_replays")["replayed"] == 3
        assert (till.noted(), till.noted("replays")) == ([], EXECUTED)
        assert {reason for _, reason in till.verdicts().values()} == {"acted_wrongly"}


KILLED = """
import os, sys
import dagster as dg
from oloproof_dagster import build_definitions

root, fresh = sys.argv[1], sys.argv[2] == "fresh"
replace = os.replace

def killed(source, target, **more):
    if str(target).endswith(os.path.join("v1", "environment_states.parquet")):
        os._exit(9)
    replace(source, target, **more)

os.replace = killed
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions("till_system_version", ["v1"])
    build_definitions(root).resolve_job_def("till_release_run").execute_in_process(
        instance=instance,
        partition_key="v1",
        run_config={"ops": {"till_execution": {"config": {"fresh": fresh}}}},
    )
"""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("nothing", marks=pytest.mark.slow),
        pytest.param("the same agent", marks=pytest.mark.slow),
        "another agent",
    ],
)
def test_a_kill_between_the_two_tables_of_a_pass_loses_nothing_and_pairs_nothing_wrongly(
    ran: Home, before: str
) -> None:
    if before == "nothing":
        shutil.rmtree(ran.root / ".oloproof")
    if before == "another agent":
        ran.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    fresh = "fresh" if before == "the same agent" else "not"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(ran.root), fresh], capture_output=True, check=False, cwd=ran.root
    )
    assert done.returncode == 9
    assert ran.noted() == EXECUTED

    if before == "another agent":  # recordings of the new agent lie beside states of the old one
        ran.run(job="rejudge")
        assert {ran.verdicts()[case_id, "state_matches"] for case_id in EXECUTED} == {
            ("missing", "environment_state_unavailable")
        }
    result = ran.run()
    assert ran.noted() == []
    assert result.said("trajectories")["answered_from_evidence"] == 3
    status = "failed" if before == "another agent" else "passed"
    assert {ran.verdicts()[case_id, "state_matches"] for case_id in EXECUTED} == {(status, None)}
    ran.run()
    assert ran.noted() == []


@pytest.mark.slow
def test_tables_of_two_attempts_are_never_judged_as_one(till: Home) -> None:
    (till.root / "mode").write_text("0")
    till.edit("app.py", 'self.state.get("balance", 0) + request["amount"]', "request['amount'] + more()")
    till.edit(
        "app.py",
        "class Till:",
        "def more():\n    return int(pathlib.Path(__file__).with_name('mode').read_text())\n\n\nclass Till:",
    )
    till.run()
    states = till.root / ".oloproof/evidence/v1/environment_states.parquet"
    first = states.read_bytes()
    (till.root / "mode").write_text("7")
    till.run(fresh=True)
    states.write_bytes(first)  # as a kill between the two tables leaves them
    till.edit("oloproof.yaml", '"version": "v1"', '"version": "v2"')
    till.run("v1", job="rejudge")
    assert till.verdicts("v1")["c-001", "state_matches"] == ("missing", "environment_state_unavailable")


def test_a_run_that_was_partial_is_so_no_longer_once_the_case_is_executed(ran: Home) -> None:
    with (ran.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4) | {"expected": {}}) + "\n")
    ran.edit("oloproof.yaml", '"version": "v1"', '"version": "v2"')
    ran.run("v1", job="rejudge")
    assert (load_run(ran.root, "v1").gate or {})["reasons"] == ["partial_run"]
    ran.edit("oloproof.yaml", '"version": "v2"', '"version": "v1"')
    ran.run()
    assert (load_run(ran.root, "v1").gate or {})["action"] == "ALLOW"


def test_what_a_killed_retry_has_finished_is_kept_by_a_plain_run(till: Home) -> None:
    (till.root / "broken").write_text("")
    stop = '        if pathlib.Path(__file__).with_name("broken").exists(): raise OSError\n'
    till.edit("app.py", 'note("calls")\n', 'note("calls")\n' + stop)
    till.run()
    (till.root / "broken").unlink()
    evidence = evidence_of(load_project(till.root))
    attempt = evidence.attempt("v1")
    assert attempt is not None
    executions, states = (evidence.table(name, "v1") for name in ("trajectories", "environment_states"))
    finished = replace(next(executions.rows()), status="ok", error=None, output='{"answer":"added"}')
    with (
        closing(evidence.resume_log(attempt, "executions")) as parts,
        closing(Index(executions)) as former,
        closing(Index(states)) as left,
    ):
        RecordedExecutions(parts, former, left).keep(finished, next(states.rows()))
    till.run()
    assert [row.status for row in evidence.table("trajectories", "v1").rows()] == ["ok", "error", "error"]


@pytest.mark.slow
def test_executions_whose_resets_nobody_verified_are_told_once_a_run_until_a_fresh_one(tmp_path: Path) -> None:
    root = write_project(tmp_path, app=COUNTED_TILL, suite={"sandbox": {"verify_reset": False}})
    with home(root) as till:
        assert "warnings" not in till.run().said("trajectories")
        till.edit("oloproof.yaml", '"verify_reset": false', '"verify_reset": true')
        for _ in range(2):
            told = till.run().said("trajectories")["warnings"]
            assert told.startswith("3 executions recorded without a look at the world right after its reset")
        assert "warnings" not in till.run(fresh=True).said("trajectories")
