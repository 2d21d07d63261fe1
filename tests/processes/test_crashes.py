"""Runs that are killed at any moment, that find the disk full or read-only, or that meet another: nothing is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.records.tables import TABLES
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.support.workers import noted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills process groups and mounts file systems")
N_CASES = 300
IN_FLIGHT = 2
"""How many finished calls a kill may lose: of each of two workers the one that it has just answered."""

SLOW_TILL = COUNTED_TILL.replace(
    "    def reset(self, state):\n", "    def reset(self, state):\n        time.sleep(0.004)\n", 1
).replace("import pathlib\n", "import pathlib\nimport time\n", 1)
EVALUATORS = [
    {"type": "state_matches"},
    {"type": "fault_recovery", "tool": "add", "fault": "error", "criterion": "recovers"},
]
READS_IT = {"metric": "recovers", "max_failures": 1_000}  # else a run says that no rule reads it


def written(root: Path, n_cases: int = N_CASES, *, app: str = SLOW_TILL, pad: int = 0, **suite: Any) -> Path:
    cases = [
        case(n, initial_state={"balance": 0, "other": "untouched", "pad": "x" * pad}) for n in range(1, n_cases + 1)
    ]
    for each in cases:
        each["expected"]["state"]["pad"] = "x" * pad
    return write_project(
        root, app=app, cases=cases, suite={"evaluators": EVALUATORS, **suite}, release=rules(NO_FAILURE, READS_IT)
    )


def begun(
    root: Path, *arguments: str, program: Sequence[str] = ("-m", "oloproof_dagster.cli"), **environment: str
) -> subprocess.Popen[str]:
    """`oloproof run` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *program, "run", "--project", str(root), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(root: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code of `oloproof run` and what it said on stderr."""
    process = begun(root, *arguments, **environment)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, stderr


def evidence_of(root: Path) -> Evidence:
    return Evidence(root / ".oloproof" / "evidence")


def contents(root: Path) -> dict[str, str]:
    """The digest of every table's rows."""
    evidence = evidence_of(root)
    return {name: evidence.table(name, "v1").content for name in TABLES}


def progress(root: Path) -> tuple[int, int]:
    """How many calls and how many replays were made."""
    sizes = [(root / name).stat().st_size if (root / name).exists() else 0 for name in ("calls", "replays")]
    return sizes[0] // len("c-001\n"), sizes[1] // len("c-001\n")


Moment = Callable[[Path, float], bool]
"""Told the project's folder and the seconds since the run was begun; whether it is time to kill it."""

KILLS_ITSELF = """
import os, signal, sys

table = sys.argv.pop(1)

def watch(event, arguments):
    if event == "os.rename" and os.path.basename(str(arguments[0])).startswith(f".{table}.parquet."):
        os.killpg(0, signal.SIGKILL)

sys.addaudithook(watch)
from oloproof_dagster.cli import main
main()
"""
"""`oloproof`, killed with its group when a table is written and about to be put in its place."""


@dataclass(frozen=True)
class Writing:
    """The moment at which a table is written and not yet in its place; too short to be caught from outside."""

    table: str


def after_calls(n: int) -> Moment:
    return lambda root, seconds: progress(root)[0] >= n


def after_replays(n: int) -> Moment:
    return lambda root, seconds: progress(root)[1] >= n


def after(limit: float) -> Moment:
    return lambda root, seconds: seconds > limit


def after_table(table: str, pause: float) -> Moment:
    """Some moments after a table was put in its place by this run."""
    seen: list[Any] = []

    def is_due(root: Path, seconds: float) -> bool:
        path = evidence_of(root).folder("v1") / f"{table}.parquet"
        mark = path.stat().st_mtime_ns if path.exists() else None
        if not seen:
            seen.append(mark)
        if mark != seen[0] and len(seen) == 1:
            seen.append(seconds)
        return len(seen) == 2 and seconds > seen[1] + pause

    return is_due


LONG = os.environ.get("OLOPROOF_LONG")
"""Where it is set, runs are killed at all of the moments, thrown with this seed, instead of at every third one."""

DICE = random.Random(LONG or "2024")
CALLS = sorted(DICE.sample(range(5, 290), 5))
REPLAYS = sorted(DICE.sample(range(5, 590), 5))
MOMENTS: list[tuple[str, Moment | Writing]] = [
    ("at random", after(DICE.uniform(0.1, 0.7))),
    ("expanding", Writing("transformed_cases")),
    ("at random", after(DICE.uniform(0.1, 0.7))),
    *((f"executing, {n} done", after_calls(n)) for n in CALLS),
    ("executed", after_calls(N_CASES)),
    ("trajectories written", after_table("trajectories", 0)),
    *((f"replaying, {n} done", after_replays(n)) for n in REPLAYS),
    ("replayed", after_replays(2 * N_CASES)),
    ("replays written", after_table("fault_replays", 0)),
    ("judging", Writing("verdicts")),
    ("deciding", Writing("decisions")),
    ("at the gate", Writing("gate")),
]
"""In the order in which a run comes to them; of a shorter test every third one."""


def killed_at(root: Path, moment: Moment | Writing) -> bool:
    """Begins a run and kills it with all that it has started; whether it was still under way."""
    if isinstance(moment, Writing):
        process = begun(root, program=["-c", KILLS_ITSELF, moment.table])
    else:
        process = begun(root)
        start = time.monotonic()
        until(lambda: process.poll() is not None or moment(root, time.monotonic() - start), pause=0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode == -signal.SIGKILL


def require_whole_files(root: Path) -> None:
    """Every table that a reader would open can be read to its end, and what is said of the attempt too."""
    folder = evidence_of(root).folder("v1")
    for path in folder.rglob("[!.]*.parquet"):
        pq.read_table(path)
    if (folder / "attempt.json").exists():
        assert set(json.loads((folder / "attempt.json").read_text())) == {"version", "number", "complete"}


@pytest.mark.slow
def test_a_run_killed_in_every_stage_comes_to_the_same_evidence(tmp_path: Path) -> None:
    undisturbed = written(tmp_path / "undisturbed")
    assert run(undisturbed) == (0, "")
    assert progress(undisturbed) == (N_CASES, 2 * N_CASES)
    kills: list[str] = []
    root, moments = tmp_path / "killed", MOMENTS if LONG else MOMENTS[1::3]
    for number, (name, moment) in enumerate(moments):
        written(root, sandbox={"workers": 1 + number % 2})
        if killed_at(root, moment):
            kills.append(name)
        require_whole_files(root)
    assert [name for name, _ in moments if name not in (*kills, "at random")] == []
    assert run(root) == (0, "")
    assert contents(root) == contents(undisturbed)
    require_whole_files(root)
    for name, once in (("calls", 1), ("replays", 2)):
        times = Counter(noted(root, name))
        assert len(times) == N_CASES
        assert min(times.values()) >= once
        assert sum(n - once for n in times.values()) <= IN_FLIGHT * len(kills)
    print(f"{len(kills)} kills: {', '.join(kills)}")


@pytest.mark.slow
def test_what_killed_runs_were_writing_is_swept_up_in_time_and_never_read(tmp_path: Path) -> None:
    root = written(tmp_path, 20, app=COUNTED_TILL)
    assert killed_at(root, Writing("verdicts"))
    left = list(evidence_of(root).folder("v1").glob(".*.staged"))
    assert left
    alive = evidence_of(root).folder("v1") / f".verdicts.parquet.{os.getpid()}.staged"
    alive.write_bytes(b"being written")
    for path in (*left, alive):
        os.utime(path, (0, 0))
    assert run(root) == (0, "")
    assert list(evidence_of(root).folder("v1").glob(".*.staged")) == [alive]


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small file system of its own in a folder; what is yielded changes its options."""
    folder.mkdir(parents=True)
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.decode().strip()}")
    try:
        yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
    finally:
        # Lazily: pyarrow's threads let go of a file some moments after this process has read it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


FULL = {
    "the suite": (".oloproof/evidence", "300k"),
    "finished executions": (".oloproof/evidence", "900k"),
    "Dagster's history": (".oloproof", "2000k"),
}


@pytest.mark.parametrize(("folder", "size"), FULL.values(), ids=FULL)
@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, folder: str, size: str) -> None:
    root = written(tmp_path, 100, app=COUNTED_TILL, pad=3000)
    with mounted(root / folder, size) as remount:
        code, stderr = run(root)
        assert (code, stderr.count("\n")) == (2, 1), stderr
        assert stderr.startswith("oloproof: cannot write ")
        assert any(reason in stderr for reason in ("No space left", "disk is full", "disk I/O error"))
        calls, replays = progress(root)
        remount("size=100m")
        assert run(root) == (0, "")
        assert progress(root)[0] <= 100 + (1 if 0 < calls < 100 else 0)
        assert progress(root)[1] <= 200 + (1 if replays else 0)
        require_whole_files(root)


@pytest.mark.slow
def test_a_read_only_store_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    root = written(tmp_path, 20, app=COUNTED_TILL)
    with mounted(root / ".oloproof" / "evidence", "100m") as remount:
        assert run(root) == (0, "")
        found = contents(root)
        remount("ro")
        code, stderr = run(root, "--fresh")
        assert (code, stderr.count("\n")) == (2, 1)
        assert stderr.startswith("oloproof: cannot write evidence to ")
        assert "Read-only file system" in stderr
        assert contents(root) == found
        remount("rw")
        assert run(root) == (0, "")
        assert progress(root) == (20, 40)


@pytest.mark.slow
def test_a_read_only_project_is_one_line(tmp_path: Path) -> None:
    root = written(tmp_path, 20, app=COUNTED_TILL)
    with mounted(root / ".oloproof", "100m") as remount:
        remount("ro")
        code, stderr = run(root)
        assert (code, stderr.count("\n")) == (2, 1)
        assert "Read-only file system" in stderr
    assert progress(root) == (0, 0)


WAITS = COUNTED_TILL.replace(
    "    def reset(self, state):\n",
    """    def reset(self, state):
        while pathlib.Path(__file__).with_name("wait").exists():
            time.sleep(0.01)
""",
    1,
).replace("import pathlib\n", "import pathlib\nimport time\n", 1)


def test_of_two_runs_of_one_version_the_second_refuses_and_the_first_is_unharmed(tmp_path: Path) -> None:
    root = written(tmp_path, 10, app=WAITS)
    (root / "wait").touch()
    first = begun(root)
    until(lambda: any(evidence_of(root).folder("v1").glob(".trajectories.*.staged")), why=first.poll)
    code, stderr = run(root)
    assert (code, stderr.count("\n")) == (2, 1)
    assert stderr.startswith("oloproof: another run is executing version 'v1' at this moment; wait for it to end")
    (root / "wait").unlink()
    assert (first.communicate(timeout=PATIENCE_SECONDS)[1], first.returncode) == ("", 0)
    assert progress(root) == (10, 20)
