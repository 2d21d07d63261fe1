"""The fixed cost of the command line, whole processes: against `python -c "import dagster"` in the same minute."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def fixed_costs(*, repeats: int, warm: bool = True) -> dict[str, float]:
    """How many times as long as importing Dagster each command takes on the example; medians over repeats, in each of
    which every command runs once. Where `warm`, each runs once before that."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        oloproof = [sys.executable, "-m", "oloproof_dagster.cli"]
        _seconds([*oloproof, "init", str(demo), "--example", "stateful-agent"])
        on_demo = ["--project", str(demo)]
        commands = {
            "--help": [*oloproof, "--help"],
            "run": [*oloproof, "run", "--fresh", *on_demo],
            "run again": [*oloproof, "run", *on_demo],
            "inspect": [*oloproof, "inspect", *on_demo],
            "versions": [*oloproof, "versions", *on_demo],
        }
        unit = [sys.executable, "-c", "import dagster"]
        for command in (unit, *commands.values()) if warm else ():
            _seconds(command)  # compiled files and disk caches are warm for all alike
        ratios: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats):
            dagster = _seconds(unit)
            for name, command in commands.items():
                ratios[name].append(_seconds(command) / dagster)
    return {name: statistics.median(found) for name, found in ratios.items()}


def _seconds(command: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    start = time.perf_counter()
    finished = subprocess.run(command, capture_output=True, env=environment, check=False)
    if finished.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} exited with {finished.returncode}: {finished.stderr.decode()[-500:]}")
    return time.perf_counter() - start
