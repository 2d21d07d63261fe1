"""A release run made by the engine's own functions in a project's folder, without Dagster."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from oloproof_dagster.evaluators.judgment import Judgment, criteria
from oloproof_dagster.evidence.evidence import Attempt
from oloproof_dagster.evidence.parquet import Staged, Stored, stage
from oloproof_dagster.execution.execute import Counts, PassOptions
from oloproof_dagster.execution.passes import ExecutionPass, Pass, PassTarget, ReplayPass, write_tables
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.schema import Table
from oloproof_dagster.records.tables import SUITE, TABLES, VERDICTS, SuiteRow, VerdictRow
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.preflight import own_files
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.workers.session import Session

AGENT = '''
import copy
import time
from pathlib import Path

from oloproof_dagster import AgentCheckpoint, AgentConstraintCheck, AgentStep, AgentTrajectory, current_case


def in_this_trial(given):
    """What a case's input says, with what it says of this trial laid over it."""
    return given | given.get("by_trial", {}).get(str(current_case().trial), {})


class Agent:
    """Makes the calls that its input lists, notes each in its world, and is replayed as its input says."""

    def __init__(self):
        self.state = {}

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, given):
        given = in_this_trial(given)
        if given.get("raises", False) in (True, given.get("text")):
            raise ValueError("told to raise")
        if given.get("never_returns"):
            time.sleep(60)
        if given.get("records", True):
            current_case().agent_trajectory(self.work(given, given["calls"]))
        if given.get("raises") == "late":
            raise ValueError("told to raise once it had recorded")
        return given.get("output", {"answer": "done"})

    def replay(self, trajectory, *, checkpoint, change):
        given = in_this_trial(current_case().input)
        with (Path(__file__).parent / "replays.txt").open("a") as told:
            told.write(f"{current_case().id} {checkpoint.checkpoint_id} {change.fault or change.kind}\\n")
        how = given.get(change.kind, "as recorded")
        if how == "raises":
            raise ValueError("cannot be replayed")
        if how == "returns nonsense":
            return {"steps": "none"}
        if how == "echoes":
            return trajectory
        if how == "exits":
            raise SystemExit(3)
        if how == "interrupts":
            raise KeyboardInterrupt
        if how == "never returns":
            time.sleep(60)
        prefix = checkpoint.step_index or 0
        if prefix:
            self.state = checkpoint.payload
        calls = [step.index for step in trajectory.calls if step.index > prefix]
        left = given["calls"][len(trajectory.calls) - len(calls):]
        fault = calls.index(change.step_index) if change.kind == "inject_fault" else None
        if how == "makes another call first":
            left, fault = [{"tool": "other"}, *left], fault and fault + 1
        if how == "makes another call instead":
            left = [*left[:fault], {"tool": "other"}, *left[fault + 1:]]
        if how == "leaves the world otherwise":
            self.state["left"] = "otherwise"
        if how == "does not inject":
            fault = None
        if how == "ends otherwise":
            given["ends"] = "failure"
        return self.work(given, left, fault, change.fault_result)

    def work(self, given, calls, fault=None, fault_result=None):
        """Makes the calls; the one at position `fault` returns the fault's result, and the agent reacts to it."""
        steps, checkpoints, constraints = [], [], []
        names = given.get("ids", True)
        kept = given.get("checkpoints", "all")
        if kept != "none":
            checkpoints.append(AgentCheckpoint(checkpoint_id="start", payload=copy.deepcopy(self.state)))

        def add(kind, **more):
            steps.append(AgentStep(index=len(steps) + 1, kind=kind, **more))

        def say(position, call):
            add("tool_call", tool_name=call["tool"], call_id=f"c{position}" if names else None,
                arguments=call.get("arguments", {}), latency_ms=given.get("latency_ms"))

        def hear(position, call):
            if position == fault:
                result = fault_result
            else:
                self.state.setdefault("done", []).append(call["tool"])
                result = {"ok": call["tool"]}
            add("tool_result", tool_name=call["tool"], call_id=f"c{position}" if names else None, result=result)

        if given.get("parallel"):
            for each in enumerate(calls):
                say(*each)
            for each in enumerate(calls):
                hear(*each)
        else:
            for position, call in enumerate(calls):
                say(position, call)
                hear(position, call)
                if kept == "all":
                    checkpoints.append(AgentCheckpoint(
                        checkpoint_id=f"after {call['tool']}", step_index=len(steps), kind="tool_result",
                        payload=copy.deepcopy(self.state),
                    ))
                if position == fault:
                    break
        ends, truncated = given.get("ends", "success"), given.get("truncated", False)
        if fault is not None:
            after = given.get("after", "recovers")
            ends = {"fails": "failure", "stops": "unknown"}.get(after, "success")
            truncated = after == "is cut off"
            if after in ("escalates", "escalates in vain", "breaks and escalates"):
                add("tool_call", tool_name="ask_human", call_id="ask")
            if after == "escalates in vain":
                ends = "failure"
            if after in ("breaks a rule", "breaks and escalates"):
                constraints.append(AgentConstraintCheck(
                    name="honest", passed=False, detail="said it was paid", step_index=len(steps)
                ))
            if after == "keeps a rule":
                constraints.append(AgentConstraintCheck(name="honest", passed=True, step_index=len(steps)))
        add("final", result="done")
        return AgentTrajectory(
            steps=tuple(steps), checkpoints=tuple({c.checkpoint_id: c for c in checkpoints}.values()),
            constraints=tuple(constraints), terminal_status=ends, truncated=truncated,
        )


agent = Agent()
'''
AGENT_SYSTEM = {"name": "agent", "version": "v1", "callable": "app:agent"}


def agent_case(case_id: str, *tools: str, more: Mapping[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    """A case whose agent calls these tools; `given` says how it behaves, `more` is laid over the case."""
    calls = [{"tool": tool, "arguments": {"n": number}} for number, tool in enumerate(tools, 1)]
    return {
        "id": case_id,
        "input": {"calls": calls, "text": f"case {case_id}", **given},
        "initial_state": {"balance": 0},
        **(more or {}),
    }


class Engine:
    """One version of a project, taken through the walk a stage at a time; every stage reads what is stored."""

    def __init__(self, root: Path) -> None:
        self.project: Project = load_project(root)
        self.version = self.project.version
        self.evidence = evidence_of(self.project)

    @property
    def identity(self) -> Identity:
        return Identity(self.project.suite.system.name, self.version, own_files(self.project).code_digest)

    def stored(self, table: str) -> Stored[Any]:
        return self.evidence.table(table, self.version)

    def put(self, table: Table[Any], rows: Any, noted: Callable[[], dict[str, Any]] = dict) -> None:
        staged = stage(self.evidence.staging(table.name, self.version), table, rows, noted)
        self._settle(staged, table.name)

    def expand(self) -> Stored[SuiteRow]:
        """Writes the suite as the dataset has it now."""
        count = SuiteCount()
        self.put(SUITE, count.counting(expand(self.project, read_cases(self.project))), count.facts)
        return self.stored("transformed_cases")

    def execute(self, *, fresh: bool = False, retry_errors: bool = False) -> Counts:
        """Writes `trajectories` and `environment_states`."""
        suite, declared = self.expand(), self.project.suite
        attempt = self.evidence.open_attempt(self.version, fresh=fresh)
        options = PassOptions(len(suite), declared.trials, retry_errors, declared.retries)
        return self._write(ExecutionPass(suite), attempt, options)

    def replay(self, *, retry_errors: bool = False) -> Counts:
        """Writes `fault_replays` and completes the attempt."""
        attempt = self.evidence.attempt(self.version)
        assert attempt is not None
        tables = ("transformed_cases", "trajectories", "environment_states")
        work = ReplayPass(tuple(map(self.stored, tables)), self.project.replayed)
        options = PassOptions(work.n_cases, retry_errors=retry_errors, retries=self.project.suite.retries)
        counts = self._write(work, attempt, options)
        self.evidence.complete(attempt)
        return counts

    def target(self, attempt: Attempt, session: Session, options: PassOptions) -> PassTarget:
        identity = self.identity  # as it is now, whatever is edited meanwhile
        return PassTarget(self.evidence, attempt, identity, lambda: session.sandboxes(identity.code), options)

    def _write(self, work: Pass, attempt: Attempt, options: PassOptions) -> Counts:
        with closing(Session(self.project)) as session:
            tables, counts = write_tables(work, self.target(attempt, session, options))
        for staged, name in zip(tables, work.tables, strict=True):
            self._settle(staged, name)
        return counts

    def _settle(self, staged: Staged, table: str) -> None:
        self.evidence.put(staged.path, table, self.version)

    def judge(self) -> dict[tuple[str, str], VerdictRow]:
        """Writes `verdicts`; gives them by case and criterion."""
        tables = ("transformed_cases", "trajectories", "environment_states", "fault_replays")
        trials = self.project.suite.trials
        judgment = Judgment(*map(self.stored, tables), trials)
        rows = judgment.verdicts(criteria(self.project))
        self.put(VERDICTS, rows, lambda: {"n_unreached": judgment.n_unreached, "trials": trials})
        judgment.close()
        return {(row.case_id, row.criterion): row for row in self.stored("verdicts").rows()}

    def run(self) -> dict[tuple[str, str], VerdictRow]:
        """The whole walk up to verdicts."""
        self.execute()
        self.replay()
        return self.judge()

    def rows(self, table: str) -> list[Any]:
        return list(self.stored(table).rows())


def contents(engine: Engine) -> Mapping[str, str]:
    """The content digest of every stored table."""
    return {name: engine.stored(name).content for name in TABLES if engine.stored(name).exists}
