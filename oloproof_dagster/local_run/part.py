"""Part of a suite executed, recorded and judged for a first try: no table of the version is touched, nothing decided.

What is finished goes to the attempt's resume logs, from which the next whole run takes it.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.assets.stage import Names
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.evaluators.judgment import Judgment, criteria
from oloproof_dagster.evidence.evidence import Attempt, Evidence
from oloproof_dagster.evidence.parquet import stage
from oloproof_dagster.execution.execute import Counts, PassOptions
from oloproof_dagster.execution.passes import ExecutionPass, Pass, PassTarget, ReplayPass, write_tables
from oloproof_dagster.execution.progress import current_progress
from oloproof_dagster.local_run.losses import losses_raised
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.tables import SUITE, VERDICTS, SuiteRow
from oloproof_dagster.report.runs import Run
from oloproof_dagster.resources import SandboxResource
from oloproof_dagster.resources.processes import TAG, living
from oloproof_dagster.resources.turns import taking_turns
from oloproof_dagster.suite.cases import ReadNotes, read_cases
from oloproof_dagster.suite.preflight import check_files, readable_by_all
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.wording import shortened
from oloproof_dagster.workers.session import Session


@dataclass(frozen=True, slots=True)
class Selection:
    """Which source cases are executed, with their copies: those whose id fits one of `globs` (none: all), and of them
    the first `limit`."""

    globs: tuple[str, ...] = ()
    limit: int | None = None

    def of(self, suite: Sequence[SuiteRow]) -> list[SuiteRow]:
        """The selected cases, in the suite's order. A glob that fits a copy selects its source, and so all copies.

        Raises:
            ConfigError: a glob fits no case.
        """
        fitting: dict[str, None] = {}
        for glob in self.globs or ("*",):
            found = [row.source_case or row.case_id for row in suite if fnmatchcase(row.case_id, glob)]
            if not found:
                raise ConfigError(f"--case {shortened(glob)}: fits the id of no case")
            fitting.update(dict.fromkeys(found))
        sources = (row.case_id for row in suite if row.source_case is None and row.case_id in fitting)
        selected = set(islice(sources, self.limit))
        return [row for row in suite if (row.source_case or row.case_id) in selected]


@dataclass(frozen=True, slots=True)
class Part:
    """What came of a part: a run in a place of its own, which goes with the block that made it; how many cases of the
    suite are in it, and what executions and replays were made."""

    run: Run
    n_cases: int
    n_of: int
    executions: Counts
    replays: Counts
    warnings: tuple[str, ...]

    @property
    def cache(self) -> dict[str, dict[str, int]]:
        """What was made and what was answered from evidence."""
        made = {"executions": self.executions, "replays": self.replays}
        return {name: {"hit": counts.hit, "miss": counts.miss} for name, counts in made.items()}

    def verdicts(self) -> list[dict[str, Any]]:
        """Each verdict of the part, with its reason."""
        names = ("case_id", "trial", "criterion", "status", "reason", "detail")
        return [{name: getattr(row, name) for name in names} for row in self.run.table("verdicts").rows()]


@contextmanager
def run_part(
    project: Project, instance: dg.DagsterInstance, selection: Selection, *, fresh: bool, retry_errors: bool
) -> Iterator[Part]:
    """Executes, replays and judges part of the suite of the declared version.

    Raises:
        ConfigError: the project's files cannot be used, or nothing is selected.
    """
    check_files(project)
    notes = ReadNotes()
    suite = list(expand(project, readable_by_all(project, read_cases(project, notes)), notes))
    selected = selection.of(suite)
    with (
        tempfile.TemporaryDirectory(prefix="oloproof-part-") as folder,
        losses_raised(),
        _session(project, instance) as session,
    ):
        made = _Part(project, session, Evidence(Path(folder)), selected)
        with made.evidence.held(project.version):
            executions, replays = made.execute(fresh=fresh, retry_errors=retry_errors)
        made.judge()
        run = Run(project, project.version, None, made.place)
        warnings = (*notes.warnings, *executions.lines(session.n_sandboxes))
        yield Part(run, len(selected), len(suite), executions, replays, warnings)


class _Part:
    """The walk of the selected cases: recorded in the project's evidence, its tables in a `place` of their own."""

    def __init__(self, project: Project, session: Session, place: Evidence, selected: list[SuiteRow]) -> None:
        self._project, self._session, self.place = project, session, place
        self.evidence = evidence_of(project)
        count = SuiteCount()
        version = project.version
        staged = stage(place.staging(SUITE.name, version), SUITE, count.counting(iter(selected)), count.facts)
        place.put(staged.path, SUITE.name, version)

    def execute(self, *, fresh: bool, retry_errors: bool) -> tuple[Counts, Counts]:
        """Executes and replays; both are in the attempt's resume logs then."""
        project, version = self._project, self._project.version
        identity = Identity(project.suite.system.name, version, self._session.code_digest)
        work = ExecutionPass(self.place.table(SUITE.name, version))
        recorded = self.evidence.table("trajectories", version).facts()
        attempt = self.evidence.open_attempt(version, fresh=fresh or work.is_edited(recorded, identity))
        executions = self._pass(work, attempt, identity, retry_errors)
        tables = (SUITE.name, "trajectories", "environment_states")
        replay = ReplayPass(tuple(self.place.table(name, version) for name in tables), project.replayed)
        return executions, self._pass(replay, attempt, identity, retry_errors)

    def _pass(self, work: Pass, attempt: Attempt, identity: Identity, retry_errors: bool) -> Counts:
        suite = self._project.suite
        options = PassOptions(work.n_cases, suite.trials, retry_errors, suite.retries, current_progress())
        target = PassTarget(
            self.evidence, attempt, identity, lambda: self._session.sandboxes(identity.code), options, self.place
        )
        tables, counts = write_tables(work, target)
        for staged, name in zip(tables, work.tables, strict=True):
            self.place.put(staged.path, name, attempt.version)
        return counts

    def judge(self) -> None:
        """Writes the part's verdicts."""
        version, trials = self._project.version, self._project.suite.trials
        names = (SUITE.name, "trajectories", "environment_states", "fault_replays")
        suite, executions, states, replays = (self.place.table(name, version) for name in names)
        with closing(Judgment(suite, executions, states, replays, trials)) as judgment:
            rows = judgment.verdicts(criteria(self._project))
            staged = stage(self.place.staging(VERDICTS.name, version), VERDICTS, rows, lambda: {"trials": trials})
        self.place.put(staged.path, VERDICTS.name, version)


@contextmanager
def _session(project: Project, instance: dg.DagsterInstance) -> Iterator[Session]:
    """The project's own use of its system, with its turn at a sandbox that other runs share."""
    names = Names(project.slug)
    sandbox = (project_definitions(project).resources or {}).get(names.sandbox)
    if not isinstance(sandbox, SandboxResource):
        raise ConfigError("--case and --limit: the definitions' sandbox is no SandboxResource; run the whole suite")
    pool = names.sandbox if sandbox.is_shared(project) else None
    with (
        living() as tags,
        taking_turns(instance, pool, tags[TAG]),
        sandbox.process_config_and_initialize_cm() as session,
    ):
        yield session
