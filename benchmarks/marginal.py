"""The engine's cost per case: execute, replay, judge and store, against a bare loop over the same calls."""

import copy
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.project import write
from oloproof_dagster.cases import read_cases
from oloproof_dagster.evidence import Evidence
from oloproof_dagster.execution import Identity, Recorded, execute, executions, facts, states
from oloproof_dagster.fault import RESUME
from oloproof_dagster.judgment import Judgment, criteria
from oloproof_dagster.loading import System, load_system
from oloproof_dagster.parquet import Index, Stored, stage
from oloproof_dagster.preflight import own_files
from oloproof_dagster.project import Project, load_project
from oloproof_dagster.replay import Recorded as RecordedReplays
from oloproof_dagster.replay import replay_all, replays, sources
from oloproof_dagster.sandbox import Sandbox
from oloproof_dagster.system import CurrentCase, ReplayChange, inside
from oloproof_dagster.tables import EXECUTIONS, REPLAYS, STATES, SUITE, VERDICTS, Table
from oloproof_dagster.transforms import expand


def marginal_costs(n_cases: int) -> dict[str, float]:
    """Seconds of the engine and of the bare loop over `n_cases` cases, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        project = load_project(write(Path(folder), n_cases))
        start = time.perf_counter()
        engine_pass(project, Path(folder) / "evidence")
        engine = time.perf_counter() - start
        bare = bare_loop(project, load_system(project))
    return {"engine": engine, "bare": bare, "ratio": engine / bare}


def engine_pass(project: Project, root: Path) -> None:
    """What a release run does between the dataset and its verdicts, without Dagster."""
    evidence, version = Evidence(root), project.version
    attempt = evidence.open_attempt(version, fresh=False)
    identity = Identity(project.suite.system.name, version, own_files(project).code_digest)
    noted = facts(identity, attempt.number)

    def put(table: Table[Any], rows: Iterator[Any]) -> Stored[Any]:
        staged = stage(evidence.staging(table.name, version), table, rows, lambda: noted)
        staged.path.replace(evidence.path(table.name, version))
        return evidence.table(table.name, version)

    suite = put(SUITE, expand(project, read_cases(project)))
    sandbox = Sandbox(load_system(project))
    with recording(evidence, "executions", attempt) as parts:
        nothing = evidence.table("trajectories", version), evidence.table("environment_states", version)
        recorded = Recorded(parts, Index(nothing[0].nothing()), Index(nothing[1].nothing()))
        execute(suite.rows(), lambda: sandbox, recorded, identity=identity, n_cases=len(suite))
        trajectories = put(EXECUTIONS, executions(suite.rows(), recorded, identity))
        after = put(STATES, states(suite.rows(), recorded, identity))
    with recording(evidence, "replays", attempt) as parts:
        made = RecordedReplays(parts, Index(evidence.table("fault_replays", version).nothing()))
        shared: dict[str, Any] = {"declared": project.replayed, "identity": identity}
        cases = Index(trajectories), Index(after)
        replay_all(sources(suite.rows(), *cases, identity), lambda: sandbox, made, n_cases=len(suite), **shared)
        fault_replays = put(REPLAYS, replays(sources(suite.rows(), *cases, identity), made, **shared))
    sandbox.close()
    put(VERDICTS, Judgment(suite, trajectories, after, fault_replays).verdicts(criteria(project)))


@contextmanager
def recording(evidence: Evidence, what: Any, attempt: Any) -> Iterator[Any]:
    """Parts that are closed again."""
    parts = evidence.parts(attempt, what)
    try:
        yield parts
    finally:
        parts.close()


def bare_loop(project: Project, system: System) -> float:
    """Seconds for the same executions and replays with nothing around them: copy, call, serialise, compare."""
    cases = [
        (json.loads(row.input), json.loads(row.initial_state or "null"), json.loads(row.expected)["state"], row)
        for row in expand(project, read_cases(project))
    ]
    assert system.reset is not None
    assert system.snapshot is not None
    assert system.replay is not None
    fault = ReplayChange("inject_fault", 1, "error")
    start = time.perf_counter()
    for given, initial, expected, row in cases:
        changes = (None,) if row.source_case else (None, RESUME, fault)
        for change in changes:
            system.reset(copy.deepcopy(initial))
            with inside(CurrentCase(row.case_id, 0, row.input, row.initial_state)):
                if change is None:
                    system.call(given)
                else:
                    system.replay(None, checkpoint=None, change=change)
            snapshot = system.snapshot()
            json.dumps(snapshot, sort_keys=True)
            _ = snapshot == expected
    return time.perf_counter() - start
