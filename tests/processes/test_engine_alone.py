"""The engine in a process of its own: with Dagster absent, with no more loaded than it uses, killed, and forked."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_architecture import NAME, engine
from tests.engine.test_execution import DESK, calls, run_again
from tests.engine.test_sandbox import World, executed, sandbox_of, suite_row
from tests.support import ROOT
from tests.support.engine import Engine
from tests.support.projects import case, write_project


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_engine_imports_with_dagster_absent() -> None:
    names = [f"{NAME}.{each.removesuffix('.__init__')}" for each in engine()]
    python(
        "import sys; sys.modules['dagster'] = None\nimport importlib\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import oloproof; oloproof.Stateful, oloproof.AgentTrajectory, oloproof.load_run"
    )


@pytest.mark.slow
def test_the_tests_of_the_engine_import_no_dagster() -> None:
    python(
        "import sys; sys.modules['dagster'] = None\nimport pytest\n"
        f"sys.exit(pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider', {str(ROOT / 'tests/engine')!r}]))"
    )


def test_the_engine_executes_replays_and_judges_with_dagster_absent(tmp_path: Path) -> None:
    recovery = {"type": "fault_recovery", "tool": "add", "fault": "error"}
    write_project(tmp_path, suite={"evaluators": [{"type": "state_matches"}, recovery]})
    verdicts = python(
        f"import sys; sys.modules['dagster'] = None; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\nfrom tests.support.engine import Engine\n"
        f"engine = Engine(Path({str(tmp_path)!r}))\nengine.execute(), engine.replay()\n"
        "print(sorted({(row.criterion, row.status) for row in engine.judge().values()}))"
    )
    assert verdicts.strip() == "[('recovers_from_error_at_add', 'failed'), ('state_matches', 'passed')]"


def test_help_loads_neither_dagster_nor_pandas() -> None:
    loaded = python(
        "import sys\nfrom oloproof_dagster.cli.main import cli\n"
        "cli(['run', '--help'], standalone_mode=False)\n"
        "print(sorted({'dagster', 'pandas', 'pyarrow', 'numpy', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    assert loaded.splitlines()[-1] == "[]"


def test_a_worker_process_loads_no_library_that_it_has_no_use_for() -> None:
    libraries = "{'dagster', 'pandas', 'pyarrow', 'numpy', 'scipy', 'deepdiff', 'pebble', 'click', 'rich', 'filelock'}"
    loaded = python(f"import sys, oloproof_dagster.workers.inside; print({libraries} & set(sys.modules))")
    assert loaded.strip() == "set()"


DEADLY = '''
import os
import signal
from pathlib import Path

from oloproof_dagster import current_case


class Desk:
    """Is killed in the middle of the case that a file names; counts its calls in another."""

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, request):
        here = Path(__file__).parent
        with (here / "calls.txt").open("a") as calls:
            calls.write(current_case().id + "\\n")
        self.state["done"] = current_case().id
        if current_case().id == (here / "deadly.txt").read_text():
            os.kill(os.getpid(), signal.SIGKILL)
        return "fine"


desk = Desk()
'''
RUN = """
    import sys
    sys.modules["dagster"] = None  # the engine needs none
    from pathlib import Path
    from tests.support.engine import Engine
    counts = Engine(Path(sys.argv[1])).execute()
    print(counts.hit, counts.miss)
"""


def in_a_process(root: Path) -> tuple[int, str]:
    """Runs the engine in a process of its own; its exit status and what it printed."""
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN), str(root)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return found.returncode, found.stdout.strip() or found.stderr


def test_a_killed_run_loses_at_most_the_case_in_flight(tmp_path: Path) -> None:
    n = 8
    write_project(tmp_path, cases=[case(number) for number in range(1, n + 1)], app=DEADLY, suite=DESK)
    ids = [f"c-{number:03d}" for number in range(1, n + 1)]
    for deadly, expected in (("c-003", ids[:3]), ("c-007", ids[2:7])):
        (tmp_path / "deadly.txt").write_text(deadly)
        assert in_a_process(tmp_path)[0] == -signal.SIGKILL
        assert calls(tmp_path) == expected
    (tmp_path / "deadly.txt").write_text("")
    assert in_a_process(tmp_path) == (0, f"6 {n - 6}")
    assert calls(tmp_path) == ids[6:]
    engine = Engine(tmp_path)
    assert [row.case_id for row in engine.rows("trajectories")] == ids
    assert [json.loads(row.state)["done"] for row in engine.rows("environment_states")] == ids
    assert run_again(tmp_path) == (n, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_that_the_system_forks_and_lets_return_never_goes_on_with_the_suite(tmp_path: Path) -> None:
    def call(given: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of forking beside threads
            os.fork()
        return given

    sandbox = sandbox_of(World(call))
    for number in range(3):
        executed(sandbox, suite_row(number))
        with (tmp_path / "executed").open("a") as stream:
            stream.write("x")
    assert (tmp_path / "executed").read_text() == "xxx"
