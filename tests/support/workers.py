"""Worker processes tried out: an agent that does what its input says, a session that asks it, and what is left."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oloproof_dagster.execution.sandboxes import Sandboxes, submit_with_retries
from oloproof_dagster.liveness import is_alive
from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory, checkpoint_text, valid_text
from oloproof_dagster.system.calls import Call, Outcome, ReplayOf
from oloproof_dagster.workers.session import Session, SystemOverrides
from tests.support.projects import write_project

ABUSER = '''
import asyncio
import contextlib
import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from oloproof_dagster import current_case

HERE = Path(__file__).parent
MADE = HERE / "made.txt"


class Unusual(BaseException):
    pass


class TransientError(Exception):
    pass


def note(name, text):
    """One write, so that processes do not mix."""
    descriptor = os.open(HERE / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\\n".encode())
    os.close(descriptor)


LATE = """
import os, time
end = time.monotonic() + 600
while not os.path.exists({now!r}):
    assert time.monotonic() < end
    time.sleep(0.01)
open({path!r}, "a").write("late\\\\n")
"""


class Agent:
    """Does in reset, call, snapshot or replay what the input names for that step, and answers with where it ran."""

    def __init__(self):
        note("made.txt", os.getpid())
        self.state = {}
        self.n = 0

    def reset(self, state):
        self.state = state
        return self.do("reset")

    def snapshot(self):
        self.do("snapshot")
        return self.state

    def __call__(self, given):
        note("calls.txt", current_case().id)
        self.n += 1
        self.state["done"] = current_case().id
        awaited = self.do("call")
        if awaited is not None:
            return awaited
        return {"pid": os.getpid(), "index": os.environ.get("OLOPROOF_SANDBOX_INDEX"), "n": self.n}

    def replay(self, trajectory, *, checkpoint, change):
        self.do("replay")
        return trajectory

    def do(self, step):
        given = current_case().input.get(step)
        if given is not None:
            name, *rest = given if isinstance(given, list) else [given]
            return getattr(self, name)(*rest)

    def sleep(self, seconds=60):
        time.sleep(seconds)

    def sleep_in_c(self, seconds=60):
        """Nothing in this process runs meanwhile: no handler of a signal, no other thread."""
        ctypes.PyDLL(None).sleep(seconds)

    def ignore_sigterm(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    def catch_everything(self):
        def defy(*_):
            raise Unusual

        signal.signal(signal.SIGTERM, defy)
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass

    def spin(self):
        while True:
            pass

    async def never(self):
        await asyncio.Event().wait()

    def exit(self, code):
        os._exit(code)

    def exit_once_called(self, code, case_id):
        """Ends the process as soon as it is called with another case."""
        def wait():
            while case_id not in (HERE / "calls.txt").read_text().split():
                time.sleep(0.005)
            os._exit(code)

        threading.Thread(target=wait, daemon=True).start()

    def exit_soon(self, code):
        threading.Timer(0.1, os._exit, [code]).start()

    def meet(self, n):
        """Returns once so many processes are in this call."""
        note("meeting.txt", os.getpid())
        while len(set((HERE / "meeting.txt").read_text().split())) < n:
            time.sleep(0.005)

    def let_late_writers_write(self):
        """Begins the time in which whatever was left running may write."""
        (HERE / "now.txt").touch()
        time.sleep(0.5)

    def crash(self):
        ctypes.string_at(0)

    def kill_itself(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_its_group(self):
        os.killpg(0, signal.SIGTERM)

    def exhaust_memory(self):
        limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        self.kept = []
        try:
            while True:
                self.kept.append(bytearray(1 << 20))
        finally:
            self.kept = None

    def leave(self, code=4):
        sys.exit(code)

    def interrupt(self):
        raise KeyboardInterrupt

    def unusual(self):
        raise Unusual("of its own")

    def fail(self, text="no"):
        raise ValueError(text)

    def fail_at_first(self):
        if self.n == 1:
            raise TransientError("busy")

    def busy(self):
        raise TransientError("busy")

    def close_all_files(self):
        os.closerange(3, 256)

    def close_its_loop(self):
        async def closing():
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        return closing()

    async def leave_tasks(self):
        asyncio.get_running_loop().create_task(asyncio.sleep(60))
        return {"loop": id(asyncio.get_running_loop())}

    def start_threads(self):
        for daemon in (True, False):
            threading.Thread(target=time.sleep, args=(60,), daemon=daemon).start()

    def print_much(self, megabytes):
        line = "x" * 1023 + "\\n"
        for _ in range(megabytes):
            sys.stdout.write(line * 1024)

    def log_much(self, megabytes):
        line = "x" * 1023
        for _ in range(megabytes * 1024):
            logging.getLogger("agent").warning(line)

    def print_a_bit(self, text):
        print(text)
        os.write(1, f"{text} by descriptor\\n".encode())

    def write_late(self, how, then="return"):
        """Leaves something running that writes to a file of a later case's world."""
        script = LATE.format(now=str(HERE / "now.txt"), path=str(HERE / "late.txt"))
        if how == "thread":
            threading.Thread(target=exec, args=(script, {}), daemon=True).start()
        elif how == "fork":
            child = os.fork()
            if not child:
                with contextlib.suppress(BaseException):
                    exec(script, {})
                os._exit(0)
        elif how == "forked session":
            child = os.fork()
            if not child:
                os.setsid()
                if not os.fork():
                    with contextlib.suppress(BaseException):
                        exec(script, {})
                os._exit(0)
            os.waitpid(child, 0)
        elif how == "multiprocessing":
            multiprocessing.get_context("fork").Process(target=exec, args=(script, {})).start()
        else:
            quiet = {} if how == "process" else {
                "start_new_session": True,
                "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL,
            }
            child = subprocess.Popen([sys.executable, "-S", "-c", script], **quiet)
            note("children.txt", child.pid)
        if then != "return":
            getattr(self, then)()

    def answer_much(self, kilobytes, seconds=0):
        self.state["much"] = "x" * kilobytes * 1024
        time.sleep(seconds)


agent = Agent
'''
SYSTEM = {"name": "agent", "version": "1", "callable": "app:agent"}
RECORDING = AgentTrajectory(
    steps=(AgentStep(index=1, kind="final", result="done"),), checkpoints=(AgentCheckpoint(checkpoint_id="start"),)
)


def written(root: Path, *, workers: int = 1, timeout_s: float | None = None, app: str = ABUSER, **more: Any) -> Path:
    """A project around the abuser. Every test asks its session itself; the dataset has one case."""
    system = SYSTEM | ({"timeout_s": timeout_s} if timeout_s else {})
    suite = {"system": system, "sandbox": {"workers": workers}, "evaluators": [{"type": "exact_match"}], **more}
    return write_project(root, app=app, suite=suite, cases=[{"id": "c", "input": {}, "initial_state": {}}])


def call(number: int, cluster: str | None = None, replayed: bool = False, **given: Any) -> Call:
    """Case `c<number>`, whose agent does what is named for each step."""
    case_id, replay = f"c{number}", None
    if replayed:
        replay = ReplayOf(valid_text(RECORDING), checkpoint_text(RECORDING.checkpoints[0]), ReplayChange())
    return Call(case_id, 0, cluster or case_id, json.dumps(given), '{"n":0}', replay)


@dataclass(frozen=True)
class Answered:
    """The outcome of a call, when it came (seconds from the start, and from the one before), and former errors."""

    outcome: Outcome
    at: float
    after: float
    errors: tuple[str, ...] = ()

    @property
    def output(self) -> Any:
        assert self.outcome.output is not None, self.outcome
        return json.loads(self.outcome.output)

    @property
    def error(self) -> str:
        """The error without the frames that it ends with."""
        return (self.outcome.error or "").partition(" (app.py")[0]


def answers(sandboxes: Sandboxes, calls: Sequence[Call], retries: Retries | None = None) -> list[Answered]:
    """What the calls came to, in their order."""
    answered: dict[int, Answered] = {}
    start = last = time.monotonic()

    def finished(position: int, outcome: Outcome, errors: tuple[str, ...]) -> None:
        nonlocal last
        now = time.monotonic()
        answered[position] = Answered(outcome, now - start, now - last, errors)
        last = now

    for position, each in enumerate(calls):
        submit_with_retries(sandboxes, each, retries, lambda *outcome, position=position: finished(position, *outcome))
    while len(answered) < len(calls):
        sandboxes.wait()
    return [answered[position] for position in range(len(calls))]


@contextmanager
def sandboxes_of(root: Path, overrides: SystemOverrides | None = None) -> Iterator[Sandboxes]:
    """The sandboxes of the project in a folder."""
    with closing(Session(load_project(root), overrides)) as session:
        yield session.sandboxes(session.code_digest)


def outcomes(root: Path, *calls: Call, overrides: SystemOverrides | None = None) -> list[Answered]:
    """What the calls came to in a session of their own."""
    with sandboxes_of(root, overrides) as sandboxes:
        return answers(sandboxes, calls, load_project(root).suite.retries)


def noted(root: Path, name: str = "calls.txt") -> list[str]:
    """The lines that the abuser left in a file."""
    path = root / name
    return path.read_text().splitlines() if path.exists() else []


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for does not."""
    return is_alive(pid)


def gone(*pids: int, within: float = 30.0) -> bool:
    """Whether all of these processes end in a while."""
    deadline = time.monotonic() + within
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def mentioning(text: str) -> list[int]:
    """The processes, other than this one, that have a text in their command line or environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                answered = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in answered and alive(int(folder.name)):
                found.append(int(folder.name))
    return found
