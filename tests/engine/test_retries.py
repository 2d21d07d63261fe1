"""Retries: another try for the user's own transient errors, never for a verdict, and what is told of each attempt."""

import contextlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.sandboxes import Done, submit_with_retries
from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.project.project import load_project
from oloproof_dagster.system.calls import Call, Outcome
from tests.support.engine import Engine
from tests.support.projects import EVALUATORS, TILL, case, write_project

FLAKY = '''
import time
from pathlib import Path

from oloproof_dagster import AgentStep, AgentTrajectory, current_case


class TransientError(Exception):
    """What a busy service raises."""


class RateLimited(TransientError):
    """One kind of it."""


class Busy:
    class Error(Exception):
        """A class within another."""


RAISED = {
    "TransientError": TransientError,
    "RateLimited": RateLimited,
    "Busy.Error": Busy.Error,
    "TimeoutError": TimeoutError,
    "ValueError": ValueError,
}


class Desk:
    """Raises what its input lists, one error an attempt, in the step that it names; then answers."""

    def __init__(self):
        self.state, self.attempts = {}, {}

    def reset(self, state):
        self.state = state
        self.note("reset")
        self.attempts[current_case().id] = self.attempts.get(current_case().id, 0) + 1
        self.fail("reset")

    def snapshot(self):
        self.fail("snapshot")
        return self.state

    def __call__(self, given):
        self.note("call")
        self.state["calls"] = self.state.get("calls", 0) + 1
        self.fail("call")
        if given.get("malformed"):
            current_case().agent_trajectory({"steps": "none"})
        if given.get("records") == self.attempts[current_case().id]:
            current_case().agent_trajectory(AgentTrajectory(steps=(AgentStep(index=1, kind="final"),)))
        return {"answer": given.get("answer", {1, 2} if given.get("no_json") else "done")}

    def fail(self, step):
        given, attempt = current_case().input, self.attempts[current_case().id]
        errors = given.get("errors", [])
        if given.get("step", "call") == step and attempt <= len(errors):
            raise RAISED[errors[attempt - 1]](f"attempt {attempt}")

    def note(self, what):
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(f"{current_case().id} {what} {time.monotonic()}\\n")


desk = Desk()
'''
DESK = {"name": "desk", "version": "v1", "callable": "app:desk"}
ON_TRANSIENT = {"max": 2, "on": ["TransientError"], "wait_s": 0}


def written(root: Path, *inputs: dict[str, Any], retries: dict[str, Any] | None = None, **suite: Any) -> Engine:
    """A project of one case for each input, named `c-001` and so on."""
    cases = [
        {"id": f"c-{number:03d}", "input": each, "initial_state": {}, "expected": {"answer": "done"}}
        for number, each in enumerate(inputs, 1)
    ]
    evaluator = {"type": "exact_match", "field": "answer", "expected_field": "answer"}
    declared = {"system": DESK, "retries": retries, "evaluators": [evaluator], **suite}
    return Engine(write_project(root, cases=cases, app=FLAKY, suite=declared))


def notes(root: Path) -> list[str]:
    """What the agent did since this was last asked: the case and the step."""
    path = root / "notes.txt"
    found = [line.rsplit(" ", 1)[0] for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def told(text: str | None) -> list[str] | None:
    """The errors of the attempts before, without the frames that they end with."""
    return None if text is None else [each.partition(" (app.py")[0] for each in json.loads(text)]


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        ("TransientError", "TransientError"),
        ("RateLimited", "RateLimited"),
        ("RateLimited", "TransientError"),
        ("RateLimited", "app.RateLimited"),
        ("RateLimited", "app.TransientError"),
        ("RateLimited", "Exception"),
        ("Busy.Error", "Error"),
        ("Busy.Error", "app.Busy.Error"),
        ("TimeoutError", "TimeoutError"),
        ("TimeoutError", "builtins.TimeoutError"),
        ("TimeoutError", "OSError"),
    ],
)
def test_an_error_is_tried_again_where_its_class_or_one_it_derives_from_is_named(
    tmp_path: Path, raised: str, named: str
) -> None:
    engine = written(tmp_path, {"errors": [raised]}, retries={**ON_TRANSIENT, "on": ["KeyError", named]})
    counts = engine.execute()
    (row,) = engine.rows("trajectories")
    assert (row.status, row.error, row.output) == ("ok", None, '{"answer":"done"}')
    assert told(row.retried) == [f"{raised.rpartition('.')[2]}: attempt 1"]
    assert (counts.miss, counts.errors) == (1, 0)


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        ("TransientError", "RateLimited"),
        ("RateLimited", "Limited"),
        ("RateLimited", "other.RateLimited"),
        ("RateLimited", "app.app.RateLimited"),
        ("RateLimited", "RateLimited.RateLimited"),
        ("RateLimited", "ratelimited"),
        ("Busy.Error", "Busy"),
        ("TimeoutError", "app.TimeoutError"),
        ("ValueError", "TransientError"),
    ],
)
def test_an_error_of_another_class_is_not_tried_again(tmp_path: Path, raised: str, named: str) -> None:
    engine = written(tmp_path, {"errors": [raised]}, retries={**ON_TRANSIENT, "on": [named]})
    engine.execute()
    (row,) = engine.rows("trajectories")
    assert row.status == "error"
    assert row.retried is None
    assert notes(tmp_path) == ["c-001 reset", "c-001 call"]


def test_without_retries_nothing_is_tried_again(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError"]})
    assert engine.execute().errors == 1
    assert engine.rows("trajectories")[0].retried is None
    assert notes(tmp_path) == ["c-001 reset", "c-001 call"]


def test_each_attempt_starts_from_a_world_that_is_reset(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError", "RateLimited"]}, {}, retries=ON_TRANSIENT)
    counts = engine.execute()
    assert notes(tmp_path) == ["c-001 reset", "c-001 call"] * 3 + ["c-002 reset", "c-002 call"]
    assert [row.state for row in engine.rows("environment_states")] == ['{"calls":1}', '{"calls":1}']
    retried, other = engine.rows("trajectories")
    assert told(retried.retried) == ["TransientError: attempt 1", "RateLimited: attempt 2"]
    assert other.retried is None
    assert counts.miss == 2


@pytest.mark.parametrize("step", ["reset", "snapshot"])
def test_a_transient_error_of_reset_or_snapshot_is_tried_again_too(tmp_path: Path, step: str) -> None:
    engine = written(tmp_path, {"errors": ["TransientError"], "step": step}, retries=ON_TRANSIENT)
    engine.execute()
    (row,) = engine.rows("trajectories")
    assert (row.status, told(row.retried)) == ("ok", [f"{step}: TransientError: attempt 1"])


def test_of_an_error_that_stays_the_last_attempts_is_the_cases(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError"] * 9}, retries=ON_TRANSIENT)
    assert engine.execute().errors == 1
    (row,) = engine.rows("trajectories")
    assert (row.status, row.output) == ("error", None)
    assert row.error.startswith("TransientError: attempt 3 (app.py:")
    assert told(row.retried) == ["TransientError: attempt 1", "TransientError: attempt 2"]
    (state,) = engine.rows("environment_states")
    assert state.state == '{"calls":1}'
    assert engine.judge()["c-001", "exact_match"].reason == "execution_error"


def test_an_error_of_another_class_ends_the_attempts(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError", "ValueError"]}, retries={**ON_TRANSIENT, "max": 5})
    engine.execute()
    (row,) = engine.rows("trajectories")
    assert row.error.startswith("ValueError: attempt 2")
    assert told(row.retried) == ["TransientError: attempt 1"]


@pytest.mark.parametrize(
    ("given", "status"),
    [({"answer": "wrong"}, "ok"), ({"malformed": True}, "error"), ({"no_json": True}, "error")],
    ids=["a wrong answer", "a malformed trajectory", "an output that is not JSON"],
)
def test_what_is_wrong_with_the_evidence_is_never_tried_again(
    tmp_path: Path, given: dict[str, Any], status: str
) -> None:
    engine = written(tmp_path, given, retries={**ON_TRANSIENT, "on": ["BaseException", "object"]})
    engine.execute()
    (row,) = engine.rows("trajectories")
    assert (row.status, row.retried) == (status, None)
    assert notes(tmp_path) == ["c-001 reset", "c-001 call"]
    assert engine.judge()["c-001", "exact_match"].status == ("failed" if status == "ok" else "missing")


def test_a_recording_of_an_attempt_that_failed_is_none_of_the_next_attempts(tmp_path: Path) -> None:
    inputs = ({"errors": ["TransientError"], "step": "snapshot", "records": attempt} for attempt in (1, 2))
    engine = written(tmp_path, *inputs, retries=ON_TRANSIENT)
    engine.execute()
    rows = engine.rows("trajectories")
    assert [row.status for row in rows] == ["ok", "ok"]
    assert [row.trajectory is None for row in rows] == [True, False]


def test_retries_are_in_no_key_and_retried_rows_are_evidence_like_others(tmp_path: Path) -> None:
    inputs = ({"errors": ["TransientError"]}, {})
    assert written(tmp_path, *inputs).execute().errors == 1
    notes(tmp_path)
    engine = written(tmp_path, *inputs, retries=ON_TRANSIENT)
    counts = engine.execute()
    assert (counts.hit, counts.miss, counts.errors) == (2, 0, 1)
    counts = engine.execute(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (1, 1, 0)
    assert notes(tmp_path) == ["c-001 reset", "c-001 call"] * 2


def test_what_was_retried_is_kept_in_parts_and_in_the_table(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError"]}, {"errors": ["TransientError"] * 9}, retries=ON_TRANSIENT)
    engine.execute()
    made = engine.rows("trajectories")
    engine.stored("trajectories").path.unlink()
    engine.execute()  # from the parts
    assert engine.rows("trajectories") == made
    engine.replay()  # which removes them
    engine.execute()
    assert engine.rows("trajectories") == made


BUSY_REPLAYS = TILL.replace(
    "        return self.work(current_case().input, change.fault_result)\n",
    """        self.state["attempts"] = self.state.get("attempts", 0) + 1
        self.made = {**getattr(self, "made", {}), change.kind: getattr(self, "made", {}).get(change.kind, 0) + 1}
        if self.made[change.kind] <= current_case().input.get(change.kind, 0):
            raise ConnectionError(f"attempt {self.made[change.kind]}")
        return self.work(current_case().input, change.fault_result)
""",
)
RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
ON_CONNECTION = {"max": 2, "on": ["ConnectionError"], "wait_s": 0}


def replays_of(root: Path, **given: int) -> dict[str, Any]:
    """The rows of a case's control and fault, whose input says how many attempts of each fail."""
    assert BUSY_REPLAYS != TILL
    suite = {"evaluators": [RECOVERY], "retries": ON_CONNECTION}
    engine = Engine(write_project(root, app=BUSY_REPLAYS, suite=suite, cases=[case(1, input={"amount": 1, **given})]))
    engine.execute()
    engine.replay()
    return {row.kind: row for row in engine.rows("fault_replays")}


def test_replays_are_tried_again_like_executions(tmp_path: Path) -> None:
    rows = replays_of(tmp_path, resume=1, inject_fault=2)
    assert [row.status for row in rows.values()] == ["ok", "ok"]
    assert told(rows["control"].retried) == ["ConnectionError: attempt 1"]
    assert told(rows["fault"].retried) == ["ConnectionError: attempt 1", "ConnectionError: attempt 2"]
    assert json.loads(rows["fault"].state)["attempts"] == 1


def test_a_replay_that_fails_in_every_attempt_is_an_error_with_the_last_ones_message(tmp_path: Path) -> None:
    rows = replays_of(tmp_path, inject_fault=9)
    assert rows["control"].retried is None
    assert (rows["fault"].status, rows["fault"].discarded) == ("error", "replay_error")
    assert rows["fault"].error.startswith("ConnectionError: attempt 3")
    assert told(rows["fault"].retried) == ["ConnectionError: attempt 1", "ConnectionError: attempt 2"]


class AlwaysBusy:
    """Sandboxes whose every call ends in the same transient error; notes how long each was to wait."""

    workers = 1

    def __init__(self) -> None:
        self.waits: list[float] = []

    def submit(self, call: Call, done: Done) -> None:
        self.waits.append(call.wait_s)
        done(Outcome("error", f"attempt {len(self.waits)}", 1.0, transient=True))

    def wait(self) -> None:
        return

    def close(self) -> None:
        return


@pytest.mark.parametrize("wait_s", [0.0, 0.25, 3.0])
def test_each_further_attempt_waits_twice_as_long(wait_s: float) -> None:
    busy, ended = AlwaysBusy(), list[tuple[str | None, tuple[str, ...]]]()
    call = Call("c-001", 0, "c-001", "{}", None)
    submit_with_retries(
        busy,
        call,
        Retries(max=4, on=("Busy",), wait_s=wait_s),
        lambda outcome, errors: ended.append((outcome.error, errors)),
    )
    assert busy.waits == [0.0, wait_s, 2 * wait_s, 4 * wait_s, 8 * wait_s]
    assert ended == [("attempt 5", ("attempt 1", "attempt 2", "attempt 3", "attempt 4"))]


def test_attempts_are_as_far_apart_as_declared_and_waiting_counts_as_no_duration(tmp_path: Path) -> None:
    engine = written(tmp_path, {"errors": ["TransientError"] * 3}, retries={**ON_TRANSIENT, "max": 3, "wait_s": 0.1})
    engine.execute()
    lines = (tmp_path / "notes.txt").read_text().splitlines()
    times = [float(line.split()[2]) for line in lines if " call " in line]
    assert [later - earlier >= 0.1 * 2**n for n, (earlier, later) in enumerate(pairwise(times))] == [True] * 3
    (row,) = engine.rows("trajectories")
    assert row.status == "ok"
    assert row.duration_ms < 400  # the last wait alone


def test_the_first_wait_is_a_second_unless_declared(tmp_path: Path) -> None:
    write_project(
        tmp_path, suite={"retries": {"max": 2, "on": ["TransientError", "app.Busy"]}, "evaluators": EVALUATORS}
    )
    assert load_project(tmp_path).suite.retries == Retries(max=2, on=("TransientError", "app.Busy"), wait_s=1.0)


def test_a_run_whose_first_five_executions_end_in_one_error_stops_and_keeps_none_of_them(tmp_path: Path) -> None:
    app = "from pathlib import Path\n\n\ndef agent(given):\n    return [Path('the.key').read_text(), given]\n"
    cases = [{"id": f"c-{n}", "input": {"n": n}} for n in range(500)]
    suite = {"system": {"name": "agent", "version": "v1", "callable": "app:agent"}}
    evaluators = [{"type": "exact_match", "expected_field": "n", "field": "n"}]
    engine = Engine(write_project(tmp_path, app=app, cases=cases, suite={**suite, "evaluators": evaluators}))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"the first 5 executions all ended in the same error.*the.key"):
            engine.execute()
    assert not engine.stored("trajectories").exists
    with contextlib.chdir(tmp_path):
        (tmp_path / "the.key").write_text("k")
        counts = engine.execute()
    assert (counts.miss, counts.hit, counts.errors) == (500, 0, 0)


def test_five_errors_that_differ_or_come_later_stop_nothing(tmp_path: Path) -> None:
    app = "def agent(given):\n    if given['n'] != 2:\n        raise ValueError(given['n'])\n"
    cases = [{"id": f"c-{n}", "input": {"n": min(n, 3)}} for n in range(9)]
    suite = {"system": {"name": "agent", "version": "v1", "callable": "app:agent"}}
    evaluators = [{"type": "exact_match", "expected_field": "n", "field": "n"}]
    engine = Engine(write_project(tmp_path, app=app, cases=cases, suite={**suite, "evaluators": evaluators}))
    assert engine.execute().errors == 8
