"""The fixed cost of the command line, whole processes: against `python -c "import dagster"` in the same run."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def fixed_costs(*, repeats: int) -> dict[str, float]:
    """Median ratios of `oloproof --help` and of `oloproof run` on the example to importing Dagster."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        oloproof = [sys.executable, "-m", "oloproof_dagster.cli"]
        _seconds([*oloproof, "init", str(demo), "--example", "stateful-agent"])
        commands = {
            "import dagster": [sys.executable, "-c", "import dagster"],
            "--help": [*oloproof, "--help"],
            "run": [*oloproof, "run", "--project", str(demo), "--fresh"],
        }
        for command in commands.values():
            _seconds(command)  # compiled files and disk caches are warm for all alike
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, command in commands.items():
                times[name].append(_seconds(command))
    unit = statistics.median(times["import dagster"])
    return {name: statistics.median(times[name]) / unit for name in ("--help", "run")}


def _seconds(command: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    start = time.perf_counter()
    finished = subprocess.run(command, capture_output=True, env=environment, check=False)
    if finished.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} exited with {finished.returncode}: {finished.stderr.decode()[-500:]}")
    return time.perf_counter() - start
