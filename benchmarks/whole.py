"""Whole `oloproof run` processes on suites of many cases: seconds and peak memory, the first run and the one after."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import desk


@dataclass(frozen=True, slots=True)
class Process:
    """One process: how long it took in seconds, and its peak resident memory in MB."""

    seconds: float
    peak_mb: float


def runs(n_cases: int, times: int = 2, *, state_bytes: int = 0) -> list[Process]:
    """A first run of `n_cases` cases, and further ones that reuse everything."""
    with tempfile.TemporaryDirectory() as folder:
        root = desk.write(Path(folder) / "desk", n_cases, state_bytes)
        command = [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)]
        return [_run(command) for _ in range(times)]


def _run(command: list[str]) -> Process:
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1, 3):  # a decided Gate, whatever it says
        raise RuntimeError(f"{' '.join(command)} exited with {code}")
    return Process(seconds, usage.ru_maxrss / 1024)
