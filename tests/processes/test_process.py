"""The command line as a process of its own: what it loads and starts, what a terminal shows, how Ctrl-C ends it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import NO_FAILURE, TILL, case, rules, write_project

CALLED = "        recording = self.work(request, None)\n"
OLOPROOF = [sys.executable, "-m", "oloproof_dagster.cli"]

WATCHED = """
import json, sys
opened = []

def watch(event, arguments):
    if event == "sqlite3.connect":
        opened.append(str(arguments[0]))

sys.addaudithook(watch)
from oloproof_dagster.cli import main
try:
    main()
except SystemExit as left:
    print(json.dumps({"code": left.code, "modules": sorted(sys.modules), "opened": opened}))
"""


def till(root: Path, doing: str = "", **more: Any) -> Path:
    """A project whose system does something in every call."""
    body = "".join(f"        {line}\n" for line in doing.splitlines())
    return write_project(root, app=TILL.replace(CALLED, body + CALLED), release=rules(NO_FAILURE), **more)


def watched(root: Path, *arguments: str) -> Mapping[str, Any]:
    """What a command loaded and opened."""
    command = [sys.executable, "-c", WATCHED, *arguments, "--project", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose runs are those of `first_and_second_run`."""
    return till(tmp_path_factory.mktemp("till"))


@pytest.fixture(scope="module")
def first_and_second_run(recorded: Path) -> list[Mapping[str, Any]]:
    return [watched(recorded, "run"), watched(recorded, "run")]


def test_a_run_loads_no_deepdiff(first_and_second_run: list[Mapping[str, Any]]) -> None:
    for found in first_and_second_run:
        assert found["code"] == 0
        assert "deepdiff" not in found["modules"]


def test_a_run_that_uses_its_tables_again_loads_no_scipy(first_and_second_run: list[Mapping[str, Any]]) -> None:
    first, second = first_and_second_run
    assert "scipy" in first["modules"]
    assert "scipy" not in second["modules"]


@pytest.mark.usefixtures("first_and_second_run")
@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json"], ["versions"]])
def test_reading_a_run_loads_neither_dagster_nor_scipy_nor_pandas(command: list[str], recorded: Path) -> None:
    assert not {"dagster", "scipy", "pandas"} & set(watched(recorded, *command)["modules"])


def test_a_run_opens_the_files_of_its_events_a_few_times_and_not_for_every_event(
    first_and_second_run: list[Mapping[str, Any]],
) -> None:
    _, second = first_and_second_run
    times = {path: second["opened"].count(path) for path in second["opened"] if Path(path).parent.name == "runs"}
    assert len(times) == 2  # this run's events, the index over all events
    assert max(times.values()) <= 3


@pytest.mark.alone
def test_ctrl_c_ends_a_run_within_two_seconds_and_with_one_line(tmp_path: Path) -> None:
    root = till(tmp_path, "import time\nprint('called')\ntime.sleep(60)")
    process = subprocess.Popen(
        [*OLOPROOF, "run", "--project", root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stderr.readline() == b"called\n"
    interrupted = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group is told
    out, err = process.communicate()
    assert time.monotonic() - interrupted < 2
    assert (process.returncode, out) == (130, b"")
    assert err.split() == b"interrupted; what was finished is kept, run again to go on".split()


@pytest.mark.slow
def test_a_terminal_shows_bars_below_what_the_system_prints(tmp_path: Path) -> None:
    doing = "import sys, time\nprint('printed', request['amount'])\nprint('warned', file=sys.stderr)\ntime.sleep(0.2)"
    root = till(tmp_path, doing, cases=[case(number) for number in range(1, 16)])
    near, far = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(
        [*OLOPROOF, "run", "--json", "--project", root], stdout=subprocess.PIPE, stderr=far, env=environment
    )
    os.close(far)
    shown = b""
    try:
        while data := os.read(near, 1 << 16):
            shown += data
    except OSError:  # what a terminal says once nobody has it open any more
        pass
    os.close(near)
    out, _ = process.communicate()
    assert json.loads(out)["gate"]["action"] == "ALLOW"
    text = shown.decode()
    assert "executing" in text
    assert "/15" in text
    for number in range(1, 16):
        assert text.count(f"printed {number}\r\n") == 1
    assert text.count("warned\r\n") == 15
