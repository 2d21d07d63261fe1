"""What a system does to the process that it runs in: each misdeed costs its own case, is named, and the run goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.local_run.instance import open_instance
from oloproof_dagster.local_run.release_run import materialize
from oloproof_dagster.project.project import load_project
from oloproof_dagster.workers.outside import CUT, FORWARDED_BYTES
from tests.support.interrupts import interruptible
from tests.support.projects import write_project
from tests.support.runs import Home
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.support.workers import ABUSER, SYSTEM, answers, call, gone, noted, outcomes, sandboxes_of, written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

DEATHS: dict[str, tuple[Any, str]] = {
    "os._exit(0)": (["exit", 0], "it ended with exit code 0"),
    "os._exit(3)": (["exit", 3], "it ended with exit code 3"),
    "a segmentation fault": ("crash", "it was killed by SIGSEGV"),
    "SIGKILL": ("kill_itself", "it was killed by SIGKILL"),
    "SIGTERM to its group": ("kill_its_group", "it ended with exit code 15"),
    "every file closed": ("close_all_files", "it ended with exit code 9"),
}


@pytest.mark.parametrize("step", ["call", "reset", "snapshot"])
def test_a_worker_that_dies_costs_its_own_case_and_is_named(tmp_path: Path, step: str) -> None:
    root = written(tmp_path, timeout_s=60)
    calls = []
    for way, _ in DEATHS.values():
        calls += [call(len(calls), **{step: way}), call(len(calls) + 1)]
    told = outcomes(root, *calls)
    assert [each.error for each in told[::2]] == [f"worker_died: {how}" for _, how in DEATHS.values()]
    assert {each.outcome.status for each in told[::2]} == {"error"}
    assert [each.outcome.state for each in told[1::2]] == [f'{{"n":0,"done":"c{n}"}}' for n in range(1, 12, 2)]
    if step == "call":
        assert noted(root) == [each.case_id for each in calls]


def test_a_worker_that_dies_before_an_answer_is_heard_costs_the_case_that_it_was_in(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    calls = [
        call(1, call=["answer_much", 20_000]),
        call(2, reset="crash"),
    ]  # reading the answer takes longer than to die
    for _ in range(3):
        told = outcomes(root, *calls)
        assert [each.error for each in told] == ["", "worker_died: it was killed by SIGSEGV"]


def test_a_worker_that_dies_in_a_replay_costs_that_replay(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    died, after = outcomes(root, call(1, replayed=True, replay="crash"), call(2, replayed=True))
    assert (died.error, after.outcome.status) == ("worker_died: it was killed by SIGSEGV", "ok")


def test_a_process_that_dies_between_two_cases_costs_neither(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    with sandboxes_of(root) as sandboxes:
        (first,) = answers(sandboxes, [call(1, call=["exit_soon", 5])])
        assert gone(first.output["pid"])
        (second,) = answers(sandboxes, [call(2)])
    assert second.output["pid"] != first.output["pid"]


def test_a_thread_that_ends_the_process_costs_the_case_that_it_is_in_by_then(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    first, second = outcomes(root, call(1, call=["exit_once_called", 5, "c2"]), call(2, "other", call="sleep"))
    assert first.outcome.status == "ok"
    assert second.error == "worker_died: it ended with exit code 5"


def test_memory_that_runs_out_costs_its_case(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    failed, after = outcomes(root, call(1, call="exhaust_memory"), call(2))
    assert (failed.outcome.status, failed.error) == ("error", "MemoryError")
    assert after.outcome.status == "ok"


ERRORS: list[tuple[str, Any, str]] = [
    ("call", "leave", "SystemExit: 4"),
    ("call", "interrupt", "KeyboardInterrupt"),
    ("call", "unusual", "Unusual: of its own"),
    ("call", "fail", "ValueError: no"),
    ("call", "close_its_loop", "RuntimeError: Event loop stopped before Future completed."),
    ("reset", "leave", "reset: SystemExit: 4"),
    ("reset", "interrupt", "reset: KeyboardInterrupt"),
    ("reset", "fail", "reset: ValueError: no"),
    ("snapshot", "unusual", "snapshot: Unusual: of its own"),
    ("snapshot", "fail", "snapshot: ValueError: no"),
]


@pytest.mark.parametrize("isolated", [False, True])
def test_an_exception_of_any_kind_costs_its_case_with_and_without_worker_processes(
    tmp_path: Path, isolated: bool
) -> None:
    root = written(tmp_path, timeout_s=60 if isolated else None)
    # A KeyboardInterrupt in this process counts as a person's unless a pass watches: see test_interrupts.
    errors = [each for each in ERRORS if isolated or each[1] != "interrupt"]
    calls = []
    for step, way, _ in errors:
        calls += [call(len(calls), **{step: way}), call(len(calls) + 1)]
    told = outcomes(root, *calls)
    assert [each.error for each in told[::2]] == [error for _, _, error in errors]
    assert {each.outcome.status for each in told[1::2]} == {"ok"}
    assert len(noted(root, "made.txt")) == 1


def test_threads_and_tasks_that_are_left_running_harm_no_later_case(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    told = outcomes(root, call(1, call="start_threads"), call(2, call="leave_tasks"), call(3, call="leave_tasks"))
    assert [each.outcome.status for each in told] == ["ok"] * 3
    assert told[1].output == told[2].output, "one event loop for the sandbox's whole life"
    assert sum(each.after for each in told) < 30, "the threads sleep for 60 s"


def cases_of(root: Path, ways: dict[str, Any]) -> None:
    """Makes the abuser's dataset one case for each name, whose agent does in its call what is said."""
    lines = [
        {"id": name, "input": {"call": way} if way else {}, "initial_state": {}, "expected": {}}
        for name, way in ways.items()
    ]
    (root / "data" / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))


def begun(root: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """`oloproof run` in a process group of its own, with its stdout and stderr in two files."""
    with interruptible(), (root / "stdout").open("wb") as stdout, (root / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def n_kept(root: Path) -> int:
    """How many executions a run has finished and kept so far."""
    return sum(path.read_bytes().count(b"\n") for path in root.glob(".oloproof/evidence/*/parts/*/executions/*.jsonl"))


def peak_kilobytes(pid: int) -> int:
    """The most memory that a command or the child that makes its run has had so far; its rusage would begin with that
    of the process it was forked from."""
    try:
        processes = [pid, *(each.pid for each in psutil.Process(pid).children())]
        texts = [Path(f"/proc/{each}/status").read_text("ascii") for each in processes]
        return max(int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) for text in texts)
    except (OSError, IndexError, psutil.Error):  # it has ended
        return 0


MEGABYTES = 120
"""How much an agent prints, and then logs again."""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_noise_never_reaches_our_stdout_and_a_flood_costs_no_memory(tmp_path: Path, workers: int) -> None:
    root, megabytes = written(tmp_path, workers=workers), MEGABYTES if workers > 1 else 10
    floods = {"b": ["print_much", megabytes], "c": ["log_much", megabytes]}
    cases_of(root, {"a": ["print_a_bit", "hello"], **floods, "d": "start_threads"})
    process, most = begun(root, "--json"), 0
    while process.poll() is None:
        most = max(most, peak_kilobytes(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    assert 0 < most < 400 * 1024
    assert json.loads((root / "stdout").read_bytes())["cache"]["executions"] == {"hit": 0, "miss": 4}
    stderr = (root / "stderr").read_bytes()
    assert b"hello\n" in stderr
    assert b"hello by descriptor\n" in stderr
    if workers > 1:
        assert len(stderr) < workers * FORWARDED_BYTES + 10_000
        assert CUT in stderr


CTRL_C: dict[str, tuple[int, float | None, str]] = {
    "one that sleeps": (1, None, "sleep"),
    "one with a handler of its own": (1, None, "handle_interrupts"),
    "two workers that sleep": (2, None, "sleep"),
    "a worker in C code": (1, 60.0, "sleep_in_c"),
}
HANDLES = """
    def handle_interrupts(self):
        signal.signal(signal.SIGINT, lambda *_: note("handled.txt", "swallowed"))
        time.sleep(60)

    def sleep(self"""


@pytest.mark.parametrize(
    ("workers", "timeout_s", "way"),
    [
        pytest.param(*each, id=name, marks=pytest.mark.slow if each != CTRL_C["one that sleeps"] else ())
        for name, each in CTRL_C.items()
    ],
)
@pytest.mark.slow
def test_ctrl_c_ends_a_run_at_once_and_says_how_to_resume(
    tmp_path: Path, workers: int, timeout_s: float | None, way: str
) -> None:
    app = ABUSER.replace("\n    def sleep(self", HANDLES, 1)
    root = written(tmp_path, workers=workers, timeout_s=timeout_s, app=app)
    cases_of(root, {"a": None, "b": None, "c": way, "d": None})
    process = begun(root)
    until(
        lambda: "c" in noted(root) and n_kept(root) == (2 if workers == 1 else 3),
        why=lambda: (noted(root), process.poll()),
    )
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130, "it would take 60 s"
    assert (root / "stdout").read_text() == ""
    assert (root / "stderr").read_text().strip() == "interrupted; what was finished is kept, run again to go on"
    assert gone(*map(int, noted(root, "made.txt")))
    if workers > 1:
        (root / "calls.txt").unlink()
        again = begun(root)
        until(lambda: noted(root), why=again.poll)
        time.sleep(0.3)  # in which another case would be called
        os.killpg(again.pid, signal.SIGINT)
        assert again.wait(timeout=PATIENCE_SECONDS) == 130
        assert noted(root) == ["c"]


SHARED = '''
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oloproof_dagster import current_case

HERE = Path(__file__).parent


def note(name):
    with (HERE / name).open("a") as stream:
        stream.write(f"{os.environ['RELEASE']}\\n")


class Desk:
    """Notices when another run is in the middle of a case."""

    def reset(self, state):
        self.state = state
        try:
            os.close(os.open(HERE / "busy", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            note("overlaps.txt")

    def snapshot(self):
        (HERE / "busy").unlink(missing_ok=True)
        return self.state

    def __call__(self, given):
        note("calls.txt")
        while (HERE / f"hold-{os.environ['RELEASE']}").exists():
            time.sleep(0.01)
        time.sleep(0.02)
        return "done"


agent = Desk()
'''


def shared(root: Path) -> Path:
    """A project with a sandbox that its runs share; the environment names the version."""
    suite = {
        "system": SYSTEM | {"version": "${RELEASE}"},
        "sandbox": {"shared": True, "verify_reset": False},  # a snapshot of it ends the case
        "evaluators": [{"type": "exact_match"}],
    }
    cases = [{"id": f"c-{n}", "input": {}, "initial_state": {}, "expected": "done"} for n in range(12)]
    return write_project(root, app=SHARED, suite=suite, cases=cases)


@pytest.mark.slow
def test_two_runs_that_share_a_sandbox_take_turns(tmp_path: Path) -> None:
    root = shared(tmp_path)
    runs = [begun(root, RELEASE=version) for version in ("v1", "v2")]
    assert [process.wait(timeout=PATIENCE_SECONDS) for process in runs] == [0, 0], (root / "stderr").read_text()
    calls = noted(root)
    assert calls in (["v1"] * 12 + ["v2"] * 12, ["v2"] * 12 + ["v1"] * 12)
    assert noted(root, "overlaps.txt") == []


@pytest.mark.slow
def test_in_a_dagster_home_without_limits_they_take_turns_too_and_a_killed_run_ends_its_turn(tmp_path: Path) -> None:
    root, home = shared(tmp_path / "project"), tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (root / "hold-v1").touch()
    holder = begun(root, RELEASE="v1", DAGSTER_HOME=str(home))
    until(lambda: noted(root), why=holder.poll)
    waiting = begun(root, RELEASE="v2", DAGSTER_HOME=str(home))
    until(lambda: (root / "stderr").read_text(), why=waiting.poll)
    assert (root / "stderr").read_text() == "waiting for the shared sandbox, which another run is using\n"
    assert noted(root) == ["v1"]
    os.killpg(holder.pid, signal.SIGKILL)
    holder.wait()
    (root / "busy").unlink()
    assert waiting.wait(timeout=PATIENCE_SECONDS) == 0
    assert noted(root) == ["v1"] + ["v2"] * 12


@pytest.fixture
def instance_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dg.DagsterInstance]]:
    """Makes the instance of a Dagster home with these settings, in which a project releases version v1."""
    with ExitStack() as opened:

        def made(settings: str) -> dg.DagsterInstance:
            home = tmp_path / "home"
            home.mkdir()
            (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{settings}\n")
            monkeypatch.setenv("DAGSTER_HOME", str(home))
            monkeypatch.setenv("RELEASE", "v1")
            return opened.enter_context(open_instance(load_project(shared(tmp_path / "project"))))

        yield made


@pytest.mark.slow
def test_a_run_is_refused_where_the_instance_would_let_others_use_its_sandbox(
    tmp_path: Path, instance_with: Callable[[str], dg.DagsterInstance]
) -> None:
    instance, root = instance_with(""), tmp_path / "project"
    result = Home(root, instance).run()
    assert "has no limit for its pool: run `dagster instance concurrency set till_sandbox 1`" in result.why
    instance.event_log_storage.set_concurrency_slots("till_sandbox", 3)
    assert "lets 3 steps into its pool" in Home(root, instance).run().why
    with pytest.raises(ConfigError, match="lets 3 steps into its pool"):
        materialize(load_project(root), instance, version="v1")
    assert noted(root) == []
    instance.event_log_storage.set_concurrency_slots("till_sandbox", 1)
    assert Home(root, instance).run().success
    assert len(noted(root)) == 12


def test_a_command_is_refused_where_pools_count_runs(
    tmp_path: Path, instance_with: Callable[[str], dg.DagsterInstance]
) -> None:
    instance = instance_with("concurrency: {pools: {default_limit: 1, granularity: run}}")
    with pytest.raises(ConfigError, match="counts runs in its pools"):
        materialize(load_project(tmp_path / "project"), instance, version="v1")
