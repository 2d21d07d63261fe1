"""How much faster four worker processes execute a suite than one sandbox, with an agent that waits for others."""

import json
import tempfile
import time
from contextlib import closing
from pathlib import Path

from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.parquet import stage
from oloproof_dagster.execution.execute import PassOptions
from oloproof_dagster.execution.passes import ExecutionPass, PassTarget, write_tables
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.tables import SUITE
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.workers.session import Session

WORKERS = 4
APP = """
import time


class Waiter:
    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, request):
        time.sleep(0.02)
        self.state["done"] = request["n"]
        return "done"


waiter = Waiter
"""


def parallel_speedup(n_cases: int) -> float:
    """The time of one sandbox over that of four worker processes, from the first case to the finished tables; the
    start of the workers is in it."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = [_seconds(Path(folder) / str(workers), workers, n_cases) for workers in (1, WORKERS)]
    return seconds[0] / seconds[1]


def _seconds(root: Path, workers: int, n_cases: int) -> float:
    project = load_project(_written(root, workers, n_cases))
    evidence, count = Evidence(root / "evidence"), SuiteCount()
    rows = count.counting(expand(project, read_cases(project)))
    staged = stage(evidence.staging("transformed_cases", project.version), SUITE, rows, count.facts)
    evidence.put(staged.path, "transformed_cases", project.version)
    suite, attempt = (
        evidence.table("transformed_cases", project.version),
        evidence.open_attempt(project.version, fresh=False),
    )
    start = time.perf_counter()
    with closing(Session(project)) as session:
        identity = Identity(project.suite.system.name, project.version, session.code_digest)
        options = PassOptions(len(suite))
        target = PassTarget(evidence, attempt, identity, lambda: session.sandboxes(identity.code), options)
        _, counts = write_tables(ExecutionPass(suite), target)
        seconds = time.perf_counter() - start
    if (counts.miss, counts.errors) != (n_cases, 0):
        raise RuntimeError(f"{counts.miss} of {n_cases} cases were executed, {counts.errors} with an error")
    return seconds


def _written(root: Path, workers: int, n_cases: int) -> Path:
    (root / "data").mkdir(parents=True)
    cases = [{"id": f"c-{n:06d}", "input": {"n": n}, "initial_state": {}} for n in range(n_cases)]
    (root / "data" / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in cases), encoding="utf-8")
    (root / "app.py").write_text(APP, encoding="utf-8")
    suite = {
        "version": 1,
        "project": "waiter",
        "dataset": "data/cases.jsonl",
        "system": {"name": "waiter", "version": "v1", "callable": "app:waiter"},
        "sandbox": {"workers": workers},
        "evaluators": [{"type": "exact_match"}],
    }
    (root / "oloproof.yaml").write_text(json.dumps(suite), encoding="utf-8")
    return root
