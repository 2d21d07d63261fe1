"""Fault replays: for each recorded call that an evaluator lets fail, a control replay and the fault."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from oloproof_dagster.assets.former_version import begin_pass
from oloproof_dagster.assets.pass_run import PassRun
from oloproof_dagster.assets.shards import Sharded, in_one_step, over_steps
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.passes import ReplayPass
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import ENGINE_VERSION
from oloproof_dagster.records.tables import ExecutionRow, StateRow, SuiteRow

GROUP = "execution"
READS = ("transformed_cases", "trajectories", "environment_states")


class ReplayConfig(dg.Config):
    """The options of one run's replays; a fresh execution makes them fresh too."""

    retry_errors: bool = False


def replay_assets(project: Project, pool: str | None, shards: int = 1) -> list[dg.AssetsDefinition]:
    """`fault_replays` of a project; `pool` is that of a shared sandbox."""
    names = Names(project.slug)
    plans = [
        [each.tool, each.fault, each.occurrence, *([] if each.delivery == "result" else [each.delivery])]
        for each in project.replayed
    ]
    common: dict[str, Any] = {
        "reads": READS,
        "group": GROUP,
        "code_version": digest("code_version/v1", [ENGINE_VERSION, plans]),
        "description": "One row a replay: each control, which changes nothing, and each fault.",
    }

    def begin(context: dg.AssetExecutionContext, tables: Mapping[str, Stored[Any]]) -> PassRun:
        return begin_pass(context, project, ReplayPass(tuple(tables[name] for name in READS), project.replayed))

    if shards > 1 and project.replayed:
        name, specs = f"{names.slug}__fault_replays", [names.spec("fault_replays", **common)]
        return [over_steps(Sharded(names, name, specs, READS, ReplayConfig, shards, begin))]

    @names.asset("fault_replays", sandbox=True, pool=pool if project.replayed else None, **common)
    def fault_replays(
        context: dg.AssetExecutionContext,
        config: ReplayConfig,
        transformed_cases: Stored[SuiteRow],
        trajectories: Stored[ExecutionRow],
        environment_states: Stored[StateRow],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        tables: tuple[Stored[Any], ...] = (transformed_cases, trajectories, environment_states)
        run = begin(context, dict(zip(READS, tables, strict=True)))
        yield from in_one_step(run, retry_errors=config.retry_errors)

    return [fault_replays]
