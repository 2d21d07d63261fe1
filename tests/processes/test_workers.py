"""Worker processes: the same evidence for any number of them, calls that never return, and nothing left behind."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.project import load_project
from oloproof_dagster.resources import SandboxResource
from oloproof_dagster.workers.killing import Descent, kill
from oloproof_dagster.workers.timing import CLOCKS_DIFFER_SECONDS
from tests.support import ROOT
from tests.support.engine import AGENT, AGENT_SYSTEM, Engine, agent_case, contents
from tests.support.projects import write_project
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.support.workers import (
    ABUSER,
    SYSTEM,
    alive,
    answers,
    call,
    gone,
    mentioning,
    noted,
    outcomes,
    sandboxes_of,
    written,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
LIMIT = 0.5


def engine_with(root: Path, workers: int, timeout_s: float | None, **more: Any) -> Engine:
    """Cases that go well, raise, break agent_trajectory/v1 and are replayed, in clusters, three trials each."""
    cases = [
        agent_case(f"c-{number:02d}", "look", "pay", more={"group_id": f"g-{number // 3}"}, **given)
        for number, given in enumerate(
            [{}, {"raises": True}, {"raises": "late"}, {"records": False}, {"resume": "raises"}, *[{}] * 15]
        )
    ]
    recovery = {"type": "fault_recovery", "tool": "pay", "fault": "error", "criterion": "recovers"}
    transform = {"name": "polite", "field": "text", "template": "Please: {value}"}
    suite: dict[str, Any] = {
        "project": "agent",
        "system": AGENT_SYSTEM | ({"timeout_s": timeout_s} if timeout_s else {}),
        "sandbox": {"workers": workers},
        "trials": 3,
        "metamorphic": {"transforms": [transform]},
        "evaluators": [{"type": "state_unchanged", "paths": ["$.balance"]}, recovery],
    }
    return Engine(write_project(root, app=AGENT, cases=cases, suite=suite | more))


def test_evidence_is_the_same_for_any_number_of_workers_and_with_a_time_limit(tmp_path: Path) -> None:
    found = {}
    for workers, timeout_s in ((1, None), (1, 60.0), (2, None), (4, 60.0)):
        engine = engine_with(tmp_path / f"{workers}-{timeout_s}", workers, timeout_s)
        engine.run()
        found[workers, timeout_s] = contents(engine)
    assert set(found[1, None]) == {
        *("transformed_cases", "trajectories", "environment_states", "fault_replays", "verdicts")
    }
    assert [each for each in found.values() if each != found[1, None]] == []


def test_cases_of_one_cluster_stay_on_one_worker_and_each_worker_has_its_own_instance(tmp_path: Path) -> None:
    root = written(tmp_path, workers=4)
    calls = [call(number, cluster=f"g{number % 12}", call=["sleep", 0.005]) for number in range(60)]
    told = [(each.cluster, answer.output) for each, answer in zip(calls, outcomes(root, *calls), strict=True)]
    of_cluster = {
        cluster: {(output["index"], output["pid"]) for name, output in told if name == cluster} for cluster, _ in told
    }
    assert {len(workers) for workers in of_cluster.values()} == {1}
    workers = set.union(*of_cluster.values())
    assert sorted(index for index, _ in workers) == ["0", "1", "2", "3"]
    assert len({pid for _, pid in workers}) == 4
    for index, _ in workers:
        seen = [output["n"] for _, output in told if output["index"] == index]
        assert seen == list(range(1, len(seen) + 1))


def test_a_class_is_made_once_in_every_worker_and_never_in_the_process_that_steers(tmp_path: Path) -> None:
    root = written(tmp_path, workers=3)
    told = outcomes(root, *(call(number, call=["sleep", 0.05]) for number in range(9)))
    assert set(noted(root, "made.txt")) == {str(each.output["pid"]) for each in told}
    assert len(noted(root, "made.txt")) == 3
    assert str(os.getpid()) not in noted(root, "made.txt")


def test_workers_work_at_the_same_time(tmp_path: Path) -> None:
    root = written(tmp_path, workers=4, timeout_s=PATIENCE_SECONDS)
    with sandboxes_of(root) as sandboxes:
        told = answers(sandboxes, [call(number, call=["meet", 4]) for number in range(4)])
    assert {each.outcome.status for each in told} == {"ok"}


def test_a_replaced_worker_sees_the_same_index(tmp_path: Path) -> None:
    root = written(tmp_path, workers=2)
    clusters = ("a", "b") * 3
    ways = ({}, {}, {"call": "crash"}, {}, {}, {})
    told = outcomes(
        root, *(call(n, cluster, **way) for n, (cluster, way) in enumerate(zip(clusters, ways, strict=True)))
    )
    assert told[2].error == "worker_died: it was killed by SIGSEGV"
    assert told[4].output["index"] == told[0].output["index"]
    assert told[4].output["pid"] != told[0].output["pid"]
    assert {told[n].output["pid"] for n in (1, 3, 5)} == {told[1].output["pid"]}


NEVER_RETURNS: list[dict[str, Any]] = [
    {"call": "sleep"},
    {"call": "sleep_in_c"},
    {"call": "ignore_sigterm"},
    {"call": "catch_everything"},
    {"call": "spin"},
    {"call": "never"},
    {"reset": "sleep_in_c"},
    {"reset": "never"},
    {"snapshot": "sleep_in_c"},
    {"replayed": True, "replay": "sleep_in_c"},
    {"replayed": True, "replay": "spin"},
]


@pytest.mark.parametrize(
    "way", NEVER_RETURNS, ids=lambda way: "-".join(map(str, way.values())) + "-in-" + list(way)[-1]
)
def test_what_never_returns_is_ended_at_the_limit_and_its_worker_is_replaced(
    tmp_path: Path, way: dict[str, Any]
) -> None:
    root = written(tmp_path, timeout_s=LIMIT)
    before, late, after = outcomes(root, call(1), call(2, **way), call(3))
    assert (late.outcome.status, late.error, late.outcome.state) == ("timeout", f"no end within {LIMIT:g} s", None)
    assert LIMIT - CLOCKS_DIFFER_SECONDS <= late.outcome.duration_ms / 1000 < 30, "it would take 60 s"
    assert not alive(before.output["pid"])
    assert (after.outcome.status, after.output["pid"] != before.output["pid"]) == ("ok", True)
    assert after.outcome.state == '{"n":0,"done":"c3"}'


@pytest.mark.alone
@pytest.mark.parametrize("way", ["sleep", "sleep_in_c", "ignore_sigterm"])
def test_what_never_returns_ends_within_a_second_of_the_limit(tmp_path: Path, way: str) -> None:
    root = written(tmp_path, timeout_s=LIMIT)
    _, late, _ = outcomes(root, call(1), call(2, call=way), call(3))
    assert late.outcome.status == "timeout"
    assert late.after < LIMIT + 1
    assert late.outcome.duration_ms < (LIMIT + 1) * 1000


@pytest.mark.slow
def test_a_timeout_is_evidence_and_the_run_goes_on(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, 1, LIMIT, trials=1)
    cases = [agent_case("a", "pay"), agent_case("b", "pay", never_returns=True), agent_case("c", "pay")]
    cases.append(agent_case("d", "pay", inject_fault="never returns"))
    write_project(tmp_path, app=AGENT, cases=cases, suite=json_suite(tmp_path))
    engine = Engine(tmp_path)
    verdicts = engine.run()
    rows = {row.case_id: row.status for row in engine.rows("trajectories") if "~" not in row.case_id}
    assert rows == {"a": "ok", "b": "timeout", "c": "ok", "d": "ok"}
    assert [(row.case_id, row.discarded) for row in engine.rows("fault_replays") if row.kind == "fault"] == [
        *(("a", None), ("c", None), ("d", "replay_timeout"))
    ]
    assert verdicts["d", "recovers"].reason == "replay_timeout"
    counts = engine.execute()
    assert (counts.hit, counts.miss, counts.errors) == (8, 0, 2)


def json_suite(root: Path) -> dict[str, Any]:
    """The oloproof.yaml of a project as it was written."""
    lines = (root / "oloproof.yaml").read_text().splitlines()
    return {key: json.loads(value) for key, _, value in (line.partition(": ") for line in lines)}


@pytest.mark.slow
def test_waiting_for_the_sandbox_does_not_count_against_the_limit(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=1.5)
    told = outcomes(root, *(call(number, "g", call=["sleep", 0.4]) for number in range(5)))
    assert told[-1].at > 1.5
    assert {each.outcome.status for each in told} == {"ok"}


@pytest.mark.parametrize("end", [pytest.param("sleep", marks=pytest.mark.slow), "kill_itself"])
def test_nothing_that_an_ended_call_left_running_reaches_the_next_case(tmp_path: Path, end: str) -> None:
    root = written(tmp_path, timeout_s=1)
    ways = ("thread", "fork", "forked session", "multiprocessing", "process", "session")
    calls = [call(number, call=["write_late", how, end]) for number, how in enumerate(ways)]
    told = outcomes(root, *calls, call(6, call="let_late_writers_write"))
    ended = "no end within 1 s" if end == "sleep" else "worker_died: it was killed by SIGKILL"
    assert [each.error for each in told] == [*[ended] * 6, ""]
    assert not (root / "late.txt").exists()
    assert gone(*map(int, noted(root, "children.txt")), within=0)


def test_what_the_system_started_ends_with_the_session(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    told = outcomes(root, call(1, call=["write_late", "process"]), call(2, call=["write_late", "session"]))
    pids = [*map(int, noted(root, "children.txt")), told[0].output["pid"]]
    assert len(pids) == 3
    assert gone(*pids, within=0)


def test_what_the_system_left_to_be_done_at_exit_is_done(tmp_path: Path) -> None:
    at_exit = "\nimport atexit\natexit.register(note, 'exit.txt', 'done')\n"
    root = written(tmp_path, workers=2, app=ABUSER + at_exit)
    outcomes(root, *(call(number, call=["sleep", 0.05]) for number in range(4)))
    assert noted(root, "exit.txt") == ["done", "done"]


def threads_files_and_processes() -> tuple[int, int, set[int]]:
    children = {
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and alive(int(path.name)) and parent_of(int(path.name)) == os.getpid()
    }
    return threading.active_count(), len(os.listdir("/proc/self/fd")), children


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
def test_sessions_leave_no_thread_no_open_file_and_no_process(tmp_path: Path) -> None:
    root = written(tmp_path, workers=2)
    outcomes(root, call(1))
    gc.collect()
    before = threads_files_and_processes()
    for number in range(20):
        outcomes(root, call(1, call="crash" if number % 5 == 0 else None), call(2))
    until(lambda: threads_files_and_processes() == before, why=threads_files_and_processes)
    assert mentioning(str(root)) == []


TORN = 12
"""How many workers are killed in the middle of anything."""


@pytest.mark.slow
def test_a_worker_killed_at_any_moment_costs_at_most_its_case_and_never_the_run(tmp_path: Path) -> None:
    root = written(tmp_path, workers=2)
    dice, over = random.Random(7), threading.Event()
    padding = "x" * 200_000
    kills = 0

    def kill_now_and_then() -> None:
        nonlocal kills
        while not over.wait(dice.uniform(0.02, 0.12)) and kills < TORN:
            running = [int(pid) for pid in noted(root, "made.txt") if alive(int(pid))]
            if running:
                os.kill(dice.choice(running), signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill_now_and_then)
    told = []
    with sandboxes_of(root) as sandboxes:
        answers(sandboxes, [call(0)])
        killer.start()
        try:
            while kills < TORN:
                ways: dict[str, Any] = {"call": ["answer_much", 200, 0.001], "padding": padding}
                told += answers(sandboxes, [call(n, cluster=f"g{n % 8}", **ways) for n in range(60)])
        finally:
            over.set()
            killer.join()
    assert {each.error for each in told} <= {"", "worker_died: it was killed by SIGKILL"}
    assert sum(each.outcome.status == "error" for each in told) <= kills
    assert all(len(each.outcome.state or "") > 200_000 for each in told if each.outcome.status == "ok")


UNLOADABLE = {
    "a module that raises": "raise ValueError('no service')\n",
    "a module that leaves": "import sys\nsys.exit(3)\n",
    "a syntax error": "def agent(:\n",
    "no such attribute": "agents = 1\n",
    "a class that wants arguments": "class agent:\n    def __init__(self, a): pass\n    def __call__(self, x): pass\n",
    "nothing to call": "agent = 1\n",
    "reset without snapshot": "class agent:\n    def reset(self, s): pass\n    def __call__(self, x): pass\n",
}


@pytest.mark.parametrize("app", UNLOADABLE.values(), ids=UNLOADABLE)
def test_a_system_that_cannot_be_loaded_is_refused_in_the_same_words_with_workers(tmp_path: Path, app: str) -> None:
    said = []
    for workers in (1, 2):
        written(tmp_path, workers=workers, app=app)
        with pytest.raises(ConfigError) as refused:
            outcomes(tmp_path, call(1))
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "\n" not in said[0]


@pytest.mark.parametrize(("dies", "how"), [("os._exit(0)", "exit code 0"), ("os.kill(os.getpid(), 9)", "SIGKILL")])
def test_a_worker_that_dies_while_it_loads_the_system_is_a_configuration_error(
    tmp_path: Path, dies: str, how: str
) -> None:
    root = written(tmp_path, workers=2, app=f"import os\n{dies}\n")
    with pytest.raises(ConfigError, match=f"died while it loaded the system .*{how}.*oloproof check"):
        outcomes(root, call(1))


EDITS_ITSELF = """
import os
from pathlib import Path

from oloproof_dagster import current_case


def agent(given):
    here = Path(__file__)
    with here.with_name("calls.txt").open("a") as calls:
        calls.write(current_case().id + "\\n")
    if given.get("edits"):
        here.write_text(here.read_text().replace("'old'", "'new'"))
        os._exit(1)
    return 'old'
"""


def test_an_edit_in_mid_run_is_not_picked_up_by_a_replaced_worker_and_what_is_done_is_kept(tmp_path: Path) -> None:
    cases = [{"id": f"c{number}", "input": {"edits": number == 2}} for number in range(1, 5)]
    suite = {"system": SYSTEM | {"timeout_s": 60}, "evaluators": [{"type": "exact_match"}]}
    write_project(tmp_path, app=EDITS_ITSELF, suite=suite, cases=cases)
    engine = Engine(tmp_path)
    with pytest.raises(ConfigError, match="the system's files changed after this run began"):
        engine.execute()
    assert noted(tmp_path) == ["c1", "c2"]
    (tmp_path / "app.py").write_text(EDITS_ITSELF)
    counts = engine.execute()
    assert (counts.hit, counts.miss) == (2, 2)
    rows = engine.rows("trajectories")
    assert [row.output for row in rows] == ['"old"', None, '"old"', '"old"']
    assert rows[1].error == "worker_died: it ended with exit code 1"


def test_an_edit_of_oloproof_yaml_in_mid_run_is_not_picked_up_by_a_replaced_worker(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60)
    with sandboxes_of(root) as sandboxes:
        (root / "oloproof.yaml").write_text("broken: [")
        told = answers(sandboxes, [call(1), call(2, call="crash"), call(3)])
    assert [each.outcome.status for each in told] == ["ok", "error", "ok"]


@pytest.mark.parametrize("transient", ["fail_at_first", "busy"])
def test_retries_are_made_on_the_worker_of_the_case_and_each_has_the_whole_time_limit(
    tmp_path: Path, transient: str
) -> None:
    retries = {"max": 2, "on": ["TransientError"], "wait_s": 0.4}
    root = written(tmp_path, workers=2, timeout_s=LIMIT, retries=retries)
    first, other = outcomes(root, call(1, call=transient), call(2, call=["sleep", 0.1]))
    assert other.outcome.status == "ok"
    if transient == "fail_at_first":
        assert (first.outcome.status, first.errors[0].partition(" (")[0]) == ("ok", "TransientError: busy")
        assert first.output["n"] == 2
    else:
        assert (first.outcome.status, first.error, len(first.errors)) == ("error", "TransientError: busy", 2)
        assert first.at > 0.4 + 0.8


def test_an_attempt_that_never_returns_is_a_timeout_and_is_not_repeated(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=LIMIT, retries={"max": 2, "on": ["TimeoutError"], "wait_s": 0})
    (told,) = outcomes(root, call(1, call="sleep"))
    assert (told.outcome.status, told.errors) == ("timeout", ())


DEFINITIONS = """
import os
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions
from oloproof_dagster.resources import SandboxResource
from oloproof_dagster.workers.timing import CLOCKS_DIFFER_SECONDS


class Country(dg.ConfigurableResource):
    name: str


class Prices(dg.ConfigurableResource):
    country: Country
    vat: int = 19
    _is_set_up: bool = False

    def setup_for_execution(self, context):
        self._is_set_up = True

    def teardown_after_execution(self, context):
        Path(__file__).with_name("torn_down.txt").open("a").write(f"{os.getpid()}\\n")

    def of(self, amount):
        assert self._is_set_up
        return [self.country.name, amount * self.vat]


class Desk:
    def __init__(self, prices):
        self.prices = prices

    def __call__(self, given):
        return {"vat": self.prices.of(2), "pid": os.getpid(), "index": os.environ["OLOPROOF_SANDBOX_INDEX"]}


class OwnSandbox(SandboxResource):
    prices: Prices

    def make_system(self):
        return Desk(self.prices)


here = str(Path(__file__).parent)
prices = Prices(country=Country(name=dg.EnvVar("DESK_COUNTRY")), vat=7)
defs = build_definitions(here, sandbox=OwnSandbox(project_dir=here, prices=prices))
"""


@pytest.mark.slow
def test_a_resource_of_the_projects_own_makes_the_system_in_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_COUNTRY", "Utopia")
    root = written(tmp_path, workers=2, app="agent = print\n")
    (root / "definitions.py").write_text(DEFINITIONS)
    project = load_project(root)
    resource = (project_definitions(project).resources or {})["till_sandbox"]
    with closing(resource.session(project)) as session:
        told = answers(session.sandboxes(session.code_digest), [call(n, call=["sleep", 0.1]) for n in range(2)])
    assert [each.output["vat"] for each in told] == [["Utopia", 14]] * 2
    assert sorted(noted(root, "torn_down.txt")) == sorted(str(each.output["pid"]) for each in told)
    assert {each.output["index"] for each in told} == {"0", "1"}
    assert os.getpid() not in {each.output["pid"] for each in told}


def test_a_resource_that_cannot_be_taken_into_a_worker_is_refused_in_words(tmp_path: Path) -> None:
    class Local(SandboxResource):
        def make_system(self) -> Any:
            return print

    root = written(tmp_path, timeout_s=60)
    project = load_project(root)
    told = r"the sandbox resource cannot be taken into worker processes: .*Local.*; define its class at the top"
    with closing(Local(project_dir=str(root)).session(project)) as session, pytest.raises(ConfigError, match=told):
        session.prepare()


def run_python(script: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """A Python process that finds what this one finds."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)] if not script else [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


SCRIPT = """
import sys
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions
from oloproof_dagster.resources import SandboxResource
from oloproof_dagster.workers.timing import CLOCKS_DIFFER_SECONDS

root = Path(sys.argv[1])
with open(root / "ran.txt", "a") as ran:
    ran.write("once\\n")


class Own(SandboxResource):
    def make_system(self):
        return str


own = Own(project_dir=str(root)) if sys.argv[2] == "own" else None
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions("till_system_version", ["1"])
    job = build_definitions(root, sandbox=own).resolve_job_def("till_release_run")
    job.execute_in_process(instance=instance, partition_key="1")
"""


@pytest.mark.parametrize("resource", [pytest.param("none", marks=pytest.mark.slow), "own"])
@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_once_and_its_own_classes_are_refused(tmp_path: Path, resource: str) -> None:
    root = written(tmp_path, timeout_s=60)
    (root / "script.py").write_text(SCRIPT)
    process = run_python("", root / "script.py", root, resource)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert noted(root, "ran.txt") == ["once"]
    if resource == "none":
        assert process.returncode == 0, stderr
        assert noted(root) == ["c"]
    else:
        assert "Own is defined in the script that is run; define its class at the top of definitions.py" in stderr
        assert noted(root) == []


STEERS = """
import sys
from pathlib import Path
from tests.support.workers import call, outcomes

root = Path(sys.argv[1])
calls = [call(1, call=["write_late", "process", "sleep"]), call(2, call="sleep_in_c"), call(3, call="spin")]
outcomes(root, *calls)
"""


@pytest.mark.parametrize("killed", ["the process", "its group"])
def test_workers_and_what_they_started_die_with_the_process_that_steers(tmp_path: Path, killed: str) -> None:
    root = written(tmp_path, workers=3)
    process = run_python(STEERS, root, start_new_session=True)
    until(lambda: len(noted(root)) == 3 and noted(root, "children.txt"), why=process.poll)
    workers = [int(pid) for name in ("made.txt", "children.txt") for pid in noted(root, name)]
    assert len(workers) == 4
    assert all(map(alive, workers))
    (os.kill if killed == "the process" else os.killpg)(process.pid, signal.SIGKILL)
    assert gone(*workers)
    process.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not mentioning(str(root)), why=lambda: mentioning(str(root)))


EXECUTES = """
import sys
from pathlib import Path
from tests.support.engine import Engine

Engine(Path(sys.argv[1])).execute()
"""


@pytest.mark.slow
def test_a_finished_call_is_recorded_before_its_worker_is_given_another(tmp_path: Path) -> None:
    cases = [{"id": f"c{n}", "input": {"call": ["sleep", 0.05]}, "initial_state": {}} for n in range(60)]
    suite = {"system": SYSTEM, "sandbox": {"workers": 3}, "evaluators": [{"type": "exact_match"}]}
    root = write_project(tmp_path, app=ABUSER, suite=suite, cases=cases)

    def n_recorded() -> int:
        return sum(path.read_bytes().count(b"\n") for path in root.glob(".oloproof/**/*.jsonl"))

    process = run_python(EXECUTES, root, start_new_session=True)
    until(lambda: n_recorded() > 5, why=process.poll)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1)  # long enough for workers that were given more to do it
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert gone(*(int(pid) for pid in noted(root, "made.txt")))
    n_begun, n_kept = len(noted(root)), n_recorded()
    assert n_begun < len(cases)
    assert n_begun - n_kept <= 3
    assert Engine(root).execute().hit == n_kept


def test_a_later_process_that_has_the_id_of_one_that_ended_is_let_live() -> None:
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as later:
        try:
            of_the_later = Descent.of(later.pid, "MARK=none", 0)
            kill(replace(of_the_later, since=(of_the_later.since or 0) - 60))
            assert later.poll() is None
            kill(of_the_later)
            assert later.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL
        finally:
            later.kill()


LOADS_BADLY = """
import os
from pathlib import Path

HERE = Path(__file__).parent
with (HERE / "loads.txt").open("a") as loads:
    loads.write("x")
if len((HERE / "loads.txt").read_text()) in set(map(int, (HERE / "deadly.txt").read_text().split())):
    os.kill(os.getpid(), 9)


def agent(given):
    if given.get("call"):
        os._exit(1)
    return "done"
"""


def test_a_replacement_that_is_killed_while_it_loads_is_replaced_too_up_to_a_limit(tmp_path: Path) -> None:
    root = written(tmp_path, timeout_s=60, app=LOADS_BADLY)
    (root / "deadly.txt").write_text("2 3")
    told = outcomes(root, call(1), call(2, call="exit"), call(3))
    assert [each.error for each in told] == ["", "worker_died: it ended with exit code 1", ""]
    (root / "loads.txt").unlink()
    (root / "deadly.txt").write_text("2 3 4")
    with pytest.raises(ConfigError, match=r"died while it loaded the system \(it was killed by SIGKILL\)"):
        outcomes(root, call(1), call(2, call="exit"), call(3))
