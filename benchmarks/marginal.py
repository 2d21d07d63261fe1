"""The engine's cost per case: execute, replay, judge and store, against a bare loop over the same calls."""

import copy
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oloproof_dagster.evaluators.judgment import Judgment, criteria
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.parquet import Staged, Stored, stage
from oloproof_dagster.execution.execute import PassOptions
from oloproof_dagster.execution.passes import ExecutionPass, Pass, PassTarget, ReplayPass, write_tables
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import SUITE, VERDICTS
from oloproof_dagster.records.trajectory import from_text
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.preflight import own_files
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.system.loading import load_system
from oloproof_dagster.system.protocols import CurrentCase, inside
from oloproof_dagster.workers.session import Session


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that the engine and the bare loop took for the same executions and replays."""

    n_cases: int
    engine: float
    bare: float

    @property
    def ratio(self) -> float:
        return self.engine / self.bare


def marginal_cost(write: Callable[[Path, int], Path], n_cases: int, repeats: int) -> Cost:
    """The fastest of some repeats of each, taken in turn: what else the machine does only ever adds."""
    engine, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        project = load_project(write(Path(folder) / "project", n_cases))
        for repeat in range(repeats):
            engine_pass = EnginePass(project, Evidence(Path(folder) / f"evidence-{repeat}"))
            engine.append(engine_pass.seconds())
            bare.append(bare_loop(engine_pass))
    return Cost(n_cases, min(engine), min(bare))


class EnginePass:
    """What a release run does between the suite and its verdicts, without Dagster."""

    def __init__(self, project: Project, evidence: Evidence) -> None:
        self.project, self._evidence = project, evidence
        count = SuiteCount()
        rows = count.counting(expand(project, read_cases(project)))
        self._put(stage(self._staging("transformed_cases"), SUITE, rows, count.facts), "transformed_cases")

    def seconds(self) -> float:
        """How long it takes to execute, replay, judge and store."""
        project = self.project
        identity = Identity(project.suite.system.name, project.version, own_files(project).code_digest)
        suite = self.table("transformed_cases")
        with closing(Session(project)) as session:
            sandboxes = session.sandboxes(identity.code)  # imports the system, a fixed cost
            start = time.perf_counter()
            attempt = self._evidence.open_attempt(project.version, fresh=False)
            target = PassTarget(self._evidence, attempt, identity, lambda: sandboxes, PassOptions(len(suite)))
            self._write(ExecutionPass(suite), target)
            upstream = (suite, self.table("trajectories"), self.table("environment_states"))
            self._write(ReplayPass(upstream, project.replayed), target)
        names = ("transformed_cases", "trajectories", "environment_states", "fault_replays")
        with closing(Judgment(*map(self.table, names))) as judgment:
            verdicts = stage(self._staging("verdicts"), VERDICTS, judgment.verdicts(criteria(project)), dict)
        self._put(verdicts, "verdicts")
        return time.perf_counter() - start

    def table(self, name: str) -> Stored[Any]:
        return self._evidence.table(name, self.project.version)

    def _staging(self, name: str) -> Path:
        return self._evidence.staging(name, self.project.version)

    def _write(self, work: Pass, target: PassTarget) -> None:
        staged, _ = write_tables(work, target)
        for each, table in zip(staged, work.tables, strict=True):
            self._put(each, table)

    def _put(self, staged: Staged, table: str) -> None:
        self._evidence.put(staged.path, table, self.project.version)


def bare_loop(made: EnginePass) -> float:
    """Seconds for the same executions and replays with nothing around them: for each, a deep copy of the state, the
    call of the agent, the snapshot serialised and compared."""
    system = load_system(made.project)
    assert system.reset is not None
    assert system.snapshot is not None
    assert system.replay is not None
    calls = list(_calls(made))
    start = time.perf_counter()
    for case, given, initial, expected, replay in calls:
        system.reset(copy.deepcopy(initial))
        with inside(CurrentCase(case.case_id, 0, case.input, case.initial_state)):
            if replay is None:
                system.call(given)
            else:
                system.replay(replay[0], checkpoint=replay[1], change=replay[2])
        snapshot = system.snapshot()
        json.dumps(snapshot, sort_keys=True)
        _ = snapshot == expected
    return time.perf_counter() - start


def _calls(made: EnginePass) -> Any:
    """Every execution and replay that the engine made, read from its tables."""
    recordings = {row.case_id: row.trajectory for row in made.table("trajectories").rows()}
    replays = defaultdict(list)
    for row in made.table("fault_replays").rows():
        replays[row.case_id].append(row)
    for case in made.table("transformed_cases").rows():
        initial, expected = json.loads(case.initial_state), json.loads(case.expected)["state"]
        yield case, json.loads(case.input), initial, expected, None
        for replay in replays[case.case_id]:
            recording = from_text(recordings[case.case_id])
            checkpoint = next(c for c in recording.checkpoints if c.checkpoint_id == replay.checkpoint_id)
            change = ReplayChange("inject_fault" if replay.fault else "resume", replay.step_index, replay.fault)
            yield case, json.loads(case.input), initial, expected, (recording, checkpoint, change)
