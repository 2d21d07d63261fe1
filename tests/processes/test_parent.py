"""A command in two processes: its exit code is the Gate's, whatever the user's code does to the process it runs in."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import NO_FAILURE, TILL, case, rules, write_project
from tests.support.waiting import until

CALLED = "        recording = self.work(request, None)\n"
OLOPROOF = [sys.executable, "-m", "oloproof_dagster.cli"]
WRONG = case(2, expected={"state": {"balance": 7, "other": "untouched"}})
KEPT = "what was finished is kept"
RESUME = f"{KEPT}, run again to go on\n"


def till(root: Path, doing: str = "", **more: Any) -> Path:
    """A project whose system does something in every call."""
    body = "".join(f"        {line}\n" for line in doing.splitlines())
    return write_project(root, app=TILL.replace(CALLED, body + CALLED), release=rules(NO_FAILURE), **more)


def run(root: Path, *arguments: str, command: str = "run") -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*OLOPROOF, command, "--project", str(root), *arguments], capture_output=True, text=True)


@contextmanager
def begun(root: Path, *before: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A run whose system is in its first call: it has noted the id of its process, and sleeps."""
    pid = root / "pid"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen([*before, *OLOPROOF, "run", "--project", str(root)], **options) as process:
        try:
            until(lambda: pid.exists() and pid.read_text())
            yield process
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SLEEPS = """
import os, pathlib, time
pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
time.sleep(60)
"""
AT_ITS_END: dict[str, str] = {
    "at exit": "import atexit, os; atexit.register(lambda: os._exit(0))",
    "in a thread that waits for the main one": (
        "import os, threading\nmain = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), os._exit(0))).start()"
    ),
    "in place of sys.exit": "import os, sys\nsys.exit = lambda *code: os._exit(0)",
}
AT_ONCE = {
    "os._exit": "import os; os._exit(0)",
    "another program": "import os; os.execv('/bin/true', ['true'])",
    "every file closed": "import os; os.closerange(3, 256); os._exit(0)",
}


@pytest.mark.parametrize(
    "doing",
    [
        pytest.param(doing, id=name, marks=() if name == "at exit" else pytest.mark.slow)
        for name, doing in AT_ITS_END.items()
    ],
)
def test_a_system_that_ends_the_process_once_the_run_is_over_leaves_the_gates_exit_code(
    tmp_path: Path, doing: str
) -> None:
    done = run(till(tmp_path, doing, cases=[case(1), WRONG]), "--json")
    assert done.returncode == 1
    assert done.stderr.endswith("\nGate: BLOCK   exit code 1\n")
    assert json.loads(done.stdout)["gate"]["action"] == "BLOCK"


@pytest.mark.parametrize("command", ["run", pytest.param("check", marks=pytest.mark.slow)])
@pytest.mark.parametrize("doing", AT_ONCE.values(), ids=AT_ONCE)
@pytest.mark.slow
def test_a_system_that_ends_the_process_in_a_case_never_ends_it_green(tmp_path: Path, doing: str, command: str) -> None:
    done = run(till(tmp_path, doing), command=command)
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr == f"oloproof: the project's code ended the process with exit code 0; {KEPT}\n"


@pytest.mark.slow
def test_a_process_that_is_killed_is_said_with_its_signal(tmp_path: Path) -> None:
    done = run(till(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr == f"oloproof: the project's code ended the process by SIGKILL; {KEPT}\n"


@pytest.mark.slow
def test_code_of_the_project_that_leaves_while_it_is_loaded_never_ends_a_run_green(tmp_path: Path) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": "raise SystemExit(0)\n"})
    done = run(root)
    assert (done.returncode, done.stdout) == (70, "")
    assert "the project's code ended the process with SystemExit: 0" in done.stderr


@pytest.mark.parametrize(
    ("doing", "seconds"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(90,)).start()", 30),
        ("import atexit, time; atexit.register(time.sleep, 90)", 40),
        ("import os, time; os.fork() or (time.sleep(90), os._exit(0))", 30),
    ],
    ids=["a thread", "at exit", "a fork"],
)
@pytest.mark.slow
def test_what_the_system_leaves_running_does_not_keep_the_command(tmp_path: Path, doing: str, seconds: float) -> None:
    root, start = till(tmp_path, doing, cases=[WRONG]), time.monotonic()
    assert run(root).returncode == 1
    assert time.monotonic() - start < seconds


ENDS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated"), signal.SIGHUP: (129, "hung up")}


@pytest.mark.parametrize(
    "number", [pytest.param(each, marks=() if each == signal.SIGINT else pytest.mark.slow) for each in ENDS]
)
def test_a_signal_to_the_command_ends_it_and_its_child_with_one_line(tmp_path: Path, number: signal.Signals) -> None:
    root = till(tmp_path, SLEEPS)
    with begun(root) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=50)
        code, word = ENDS[number]
        assert (process.returncode, out, err.decode()) == (code, b"", f"{word}; {RESUME}")
        assert not is_alive(int((root / "pid").read_text()))


STUBBORN = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
"""


@pytest.mark.slow
def test_a_system_that_handles_signals_itself_is_ended_too(tmp_path: Path) -> None:
    root = till(tmp_path, STUBBORN + SLEEPS)
    with begun(root) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=50) == 130, "it would take 60 s"
        assert not is_alive(int((root / "pid").read_text()))


IGNORING = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
"""Starts a command as a shell does in the background: interrupts are ignored."""


@pytest.mark.slow
def test_a_command_that_was_started_with_interrupts_ignored_heeds_them(tmp_path: Path) -> None:
    with begun(till(tmp_path, SLEEPS), *IGNORING) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=50)[1].decode() == f"interrupted; {RESUME}"
        assert process.returncode == 130


@pytest.mark.parametrize("before", [[], IGNORING], ids=["", "ignored"])
@pytest.mark.slow
def test_an_interrupt_of_the_systems_own_is_its_cases_error_however_the_command_was_started(
    tmp_path: Path, before: list[str]
) -> None:
    root = till(tmp_path, "if request['amount'] == 2:\n    raise KeyboardInterrupt")
    done = subprocess.run([*before, *OLOPROOF, "run", "--project", str(root)], capture_output=True, text=True)
    assert done.returncode == 3
    assert "1 of 3 executions ended in an error, the first: case 'c-002': KeyboardInterrupt" in done.stderr


@pytest.mark.slow
def test_nohup_keeps_a_run_from_being_hung_up(tmp_path: Path) -> None:
    root = till(tmp_path, SLEEPS.replace("60", "1"))
    with begun(root, "sh", "-c", "trap '' HUP; exec \"$@\"", "sh") as process:
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.slow
def test_the_child_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    root = till(tmp_path, SLEEPS)
    with begun(root) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not is_alive(int((root / "pid").read_text())))


@pytest.mark.slow
def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    root = till(tmp_path, SLEEPS, suite={"sandbox": {"workers": 2}})
    with begun(root) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not is_alive(int((root / "pid").read_text())))


@contextmanager
def in_a_terminal(root: Path, *settings: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A run in the foreground of a terminal of its own, and the end by which a person uses that."""
    near, far = pty.openpty()
    command = " ".join(["stty", "opost", *settings, ";", "exec", *OLOPROOF, "run", "--project", f"'{root}'"])
    streams = {"stdin": far, "stdout": far, "stderr": far}
    with begun_in(["setsid", "--ctty", "--wait", "sh", "-c", command], root, streams) as process:
        os.close(far)
        yield process, near
    os.close(near)


@contextmanager
def begun_in(command: list[str], root: Path, streams: dict[str, int]) -> Iterator["subprocess.Popen[bytes]"]:
    pid = root / "pid"
    with subprocess.Popen(command, **streams) as process:  # type: ignore[call-overload]
        try:
            until(lambda: pid.exists() and pid.read_text())
            yield process
        finally:
            process.kill()


def shown(near: int) -> str:
    """All that a terminal shows until nobody has it open any more."""
    found = b""
    try:
        while data := os.read(near, 1 << 16):
            found += data
    except OSError:
        pass
    return found.decode()


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_the_run_with_one_line(tmp_path: Path) -> None:
    with in_a_terminal(till(tmp_path, SLEEPS)) as (process, near):
        os.write(near, b"\x03")
        assert shown(near).replace("^C", "") == f"interrupted; {RESUME}".replace("\n", "\r\n")
        assert process.wait(timeout=50) == 130


@pytest.mark.slow
def test_a_terminal_that_stops_who_writes_in_the_background_shows_the_answer(tmp_path: Path) -> None:
    root = till(tmp_path, "print('printed')\n" + SLEEPS.replace("60", "0.1"), cases=[case(1)])
    with in_a_terminal(root, "tostop") as (process, near):
        text = shown(near)
        assert process.wait(timeout=60) == 0
    assert "printed\r\n" in text
    assert "ALLOW" in text.rpartition("Gate: ")[2]


@pytest.mark.slow
def test_a_system_that_reads_from_the_terminal_finds_it_at_its_end(tmp_path: Path) -> None:
    doing = SLEEPS.replace("60", "0") + "try:\n    input('name? ')\nexcept EOFError:\n    print('at its end')\n"
    with in_a_terminal(till(tmp_path, doing, cases=[case(1)])) as (process, near):
        text = shown(near)
        assert process.wait(timeout=60) == 0
    assert "at its end" in text


@pytest.mark.slow
def test_nothing_but_the_document_reaches_stdout(tmp_path: Path) -> None:
    doing = """
import os, subprocess, sys
print("printed")
sys.__stdout__.write("written")
os.write(1, b"straight to the descriptor")
subprocess.run(["echo", "from a child"], check=True)
print("warned", file=sys.stderr)
"""
    done = run(till(tmp_path, doing, cases=[case(1)]), "--json")
    assert json.loads(done.stdout)["gate"]["action"] == "ALLOW"
    for text in ("printed", "written", "straight to the descriptor", "from a child", "warned"):
        assert text in done.stderr


def test_the_command_itself_loads_nothing_of_the_run(tmp_path: Path) -> None:
    code = """
import sys
from oloproof_dagster.cli.main import program
sys.argv = ["oloproof", "check", "--project", sys.argv[1]]
try:
    program()
finally:
    print(sorted({"dagster", "pandas", "pyarrow", "pydantic", "rich", "yaml"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, str(till(tmp_path))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "cases" in done.stdout
