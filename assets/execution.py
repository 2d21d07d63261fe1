"""Execution: one pass of the suite around the sandbox, giving trajectories and the states left behind."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from oloproof_dagster.assets.former_version import begin_pass
from oloproof_dagster.assets.pass_run import PassRun
from oloproof_dagster.assets.recorded import execution_step
from oloproof_dagster.assets.shards import Sharded, in_one_step, over_steps
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.passes import ExecutionPass
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import ENGINE_VERSION
from oloproof_dagster.resources.failures import failing_plainly

GROUP = "execution"
READS = ("transformed_cases",)


class ExecutionConfig(dg.Config):
    """The options of one run's execution.

    `fresh` opens a new attempt that executes and replays everything again; an unfinished attempt is resumed instead.
    `retry_errors` repeats the executions and replays that are recorded as errors.
    """

    fresh: bool = False
    retry_errors: bool = False


def execution_assets(project: Project, pool: str | None, shards: int = 1) -> list[dg.AssetsDefinition]:
    """`trajectories` and `environment_states` of a project, made together; `pool` is that of a shared sandbox."""
    names = Names(project.slug)
    name = execution_step(project)
    described = {
        "trajectories": "What the system returned and recorded, one row a case and trial.",
        "environment_states": "The state left behind, one row a case and trial; null where none was recorded.",
    }
    common: dict[str, Any] = {
        "reads": READS,
        "group": GROUP,
        "code_version": digest("code_version/v1", [ENGINE_VERSION, project.suite.trials]),
    }
    specs = [names.spec(table, description=description, **common) for table, description in described.items()]

    def begin(context: dg.AssetExecutionContext, tables: Mapping[str, Stored[Any]]) -> PassRun:
        return begin_pass(context, project, ExecutionPass(tables["transformed_cases"]))

    if shards > 1:
        return [over_steps(Sharded(names, name, specs, READS, ExecutionConfig, shards, begin))]

    @dg.multi_asset(
        name=name,
        specs=specs,
        ins={"transformed_cases": dg.AssetIn(names.key("transformed_cases"))},  # its type would clash with the deps
        partitions_def=names.partitions,
        required_resource_keys={names.evidence, names.sandbox},
        pool=pool,
    )
    @failing_plainly
    def execution(
        context: dg.AssetExecutionContext, config: ExecutionConfig, transformed_cases: Any
    ) -> Iterator[dg.MaterializeResult[Any]]:
        run = begin(context, {"transformed_cases": transformed_cases})
        yield from in_one_step(run, fresh=config.fresh, retry_errors=config.retry_errors)

    return [execution]
