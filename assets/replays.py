"""Fault replays: for each recorded call that an evaluator lets fail, a control replay and the fault."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from oloproof_dagster.assets.execution import identity, require_current_version
from oloproof_dagster.assets.shards import (
    Part,
    Plan,
    Share,
    at_work,
    in_one_step,
    nothing_to_do,
    over_steps,
    recorded,
    said,
    total,
)
from oloproof_dagster.assets.stage import Names, Stage
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.evidence import Attempt
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.execute import Asked
from oloproof_dagster.execution.passes import Recordings, Shard
from oloproof_dagster.execution.progress import Progress, current_progress
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import ENGINE_VERSION, Identity, facts
from oloproof_dagster.records.tables import REPLAYS, ExecutionRow, StateRow, SuiteRow

GROUP = "execution"
READS = ("transformed_cases", "trajectories", "environment_states")


class ReplayConfig(dg.Config):
    """What can be asked of one run's replays; a fresh execution makes them fresh too."""

    retry_errors: bool = False


def replay_assets(project: Project, pool: str | None, shards: int = 1) -> list[dg.AssetsDefinition]:
    """`fault_replays` of a project; `pool` is that of a shared sandbox."""
    names = Names(project.slug)
    plans = [[each.tool, each.fault, each.occurrence] for each in project.replayed]
    common: dict[str, Any] = {
        "reads": READS,
        "group": GROUP,
        "code_version": digest("code_version/v1", [ENGINE_VERSION, plans]),
        "description": "One row a replay: each control, which changes nothing, and each fault.",
    }

    def begin(context: dg.AssetExecutionContext, tables: Mapping[str, Stored[Any]]) -> ReplayPass:
        return ReplayPass(Stage(context, project, REPLAYS), Recordings(*(tables[name] for name in READS)))

    if shards > 1 and project.replayed:
        name, specs = f"{names.slug}__fault_replays", [names.spec("fault_replays", **common)]
        return [over_steps(names, name, specs, reads=READS, config=ReplayConfig, shards=shards, begin=begin)]

    @names.asset("fault_replays", sandbox=True, pool=pool if project.replayed else None, **common)
    def fault_replays(
        context: dg.AssetExecutionContext,
        config: ReplayConfig,
        transformed_cases: Stored[SuiteRow],
        trajectories: Stored[ExecutionRow],
        environment_states: Stored[StateRow],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        tables: tuple[Stored[Any], ...] = (transformed_cases, trajectories, environment_states)
        work = begin(context, dict(zip(READS, tables, strict=True)))
        yield from in_one_step(work, retry_errors=config.retry_errors)

    return [fault_replays]


class ReplayPass:
    """One run's replays: reused whole, or the missing ones made and the table written."""

    def __init__(self, stage: Stage, recordings: Recordings) -> None:
        self.stage, self._recordings = stage, recordings
        self._project, self._declared = stage.project, stage.project.replayed

    def require(self) -> None:
        if not self.stage.session.loaded:
            require_current_version(self.stage.context, self._project)

    def plan(self, *, fresh: bool, retry_errors: bool) -> Plan:
        of = self._recordings.identity or identity(self.stage)
        attempt = self.stage.evidence.open_attempt(self.stage.version, fresh=fresh)
        prints = self._prints(of, attempt.number)
        unchanged = self.stage.current(*prints) is not None
        return Plan(
            attempt=attempt.number,
            identity=(of.system, of.version, of.code),
            prints=prints,
            reused=unchanged and nothing_to_do(self.stage, attempt, "replays", retry_errors=retry_errors),
            retry_errors=retry_errors,
        )

    def prints(self, plan: Plan) -> tuple[str, ...]:
        return self._prints(Identity(*plan.identity), plan.attempt)

    def clusters(self) -> Iterator[str]:
        columns = self._recordings.upstream[0].columns("cluster", "source_case")
        return (cluster for cluster, source_case in columns if source_case is None)

    def share(self, part: Part, attempt: Attempt, progress: Progress) -> Share:
        asked = self._asked(part.n_cases, part.plan.retry_errors, progress)
        work = at_work(self.stage, part.plan, attempt, asked)
        counts = work.replay_shard(self._recordings, self._declared, Shard(part.index, part.of))
        return Share(made=counts.miss, seconds=counts.seconds)

    def results(
        self, plan: Plan, attempt: Attempt, shares: Sequence[Share] | None = None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        if plan.reused:
            now = said("replayed", recorded(self.stage))
            yield self.stage.reused(self.stage.current(*plan.prints) or {}, now)
        else:
            asked = self._asked(self._recordings.n_cases, plan.retry_errors, current_progress())
            work = at_work(self.stage, plan, attempt, asked, shares)
            replays, counts = work.replay(self._recordings, self._declared, *plan.prints)
            yield self.stage.handed_over(replays, plan.prints[0], said("replayed", total(counts, shares)))
        # The IO manager has put the table in its place: parts are not needed any more.
        self.stage.evidence.complete(attempt)

    def _asked(self, n_cases: int, retry_errors: bool, progress: Progress) -> Asked:
        retries = self._project.suite.retries
        return Asked(n_cases, retry_errors=retry_errors, retries=retries, progress=progress)

    def _prints(self, of: Identity, attempt: int) -> tuple[str, ...]:
        noted = list(facts(of, attempt).values())
        return (self.stage.fingerprint(*self._recordings.upstream, of=noted),)
