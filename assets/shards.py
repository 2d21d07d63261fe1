"""A pass in one step, or over several: one plans it, one a shard does its cases, one collects what they recorded.

Whatever executor the code location has may run the shards at once, on machines that share the evidence. They leave
resume logs; the collecting step writes the tables. Both forms of a pass give the same tables and metadata.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg

from oloproof_dagster.assets.pass_run import PassRun
from oloproof_dagster.assets.stage import READER, Names
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.plan import PassPlan, ShardPlan, ShardResult, plan_shards
from oloproof_dagster.resources.failures import failing_plainly
from oloproof_dagster.resources.steps import StepValues
from oloproof_dagster.workers.session import Session

INDEX = "OLOPROOF_SHARD_INDEX"
"""The environment variable that holds the shard that the system works for, from 0."""

Begin = Callable[[dg.AssetExecutionContext, Mapping[str, Stored[Any]]], PassRun]
"""Makes a run's pass of a step's context and the tables that the pass reads."""


class PlanConfig(dg.Config):
    """The options of a planning step; each pass's own config documents them."""

    fresh: bool = False
    retry_errors: bool = False


@dataclass(frozen=True, slots=True)
class Sharded:
    """A pass over as many steps as there are shards with a case in them, and two more.

    `name` and `config` are those of the one-step form, so that runs are configured alike.
    """

    names: Names
    name: str
    specs: Sequence[dg.AssetSpec]
    reads: tuple[str, ...]
    config: type[dg.Config]
    shards: int
    begin: Begin

    @property
    def tables(self) -> dict[str, dg.In]:
        """The inputs that every step takes."""
        return {table: dg.In(dagster_type=READER) for table in self.reads}

    @property
    def needs(self) -> set[str]:
        """The resources that every step needs."""
        return {self.names.evidence, self.names.sandbox, self.names.steps}


def in_one_step(
    run: PassRun, *, fresh: bool = False, retry_errors: bool = False
) -> Iterator[dg.MaterializeResult[Any]]:
    """The whole pass, held against other runs until its tables are in their place."""
    run.require()
    with run.held():
        plan = run.plan(fresh=fresh, retry_errors=retry_errors)
        attempt = run.evidence.attempt(run.version)
        assert attempt is not None, "a plan opens one"
        yield from run.results(plan, attempt)


def over_steps(sharded: Sharded) -> dg.AssetsDefinition:
    """The graph of a pass's steps, as an asset that is named as the one-step form."""
    names, specs = sharded.names, sharded.specs
    plan_op, shard_op, collect_op = _plan_op(sharded), _shard_op(sharded), _collect_op(sharded)

    @dg.graph_multi_asset(
        name=sharded.name,
        ins={table: dg.AssetIn(names.key(table)) for table in sharded.reads},
        outs={spec.key.path[-1]: dg.AssetOut.from_spec(spec.replace_attributes(deps=())) for spec in specs},
        partitions_def=names.partitions,
        group_name=specs[0].group_name,
        config=dg.ConfigMapping(
            config_fn=lambda given: {"plan": {"config": given}}, config_schema=sharded.config.to_config_schema()
        ),
    )
    def steps(**tables: Any) -> Mapping[str, Any]:
        plan, shards = plan_op.alias("plan")(**tables)
        results = shards.map(lambda shard: shard_op.alias("shard")(shard=shard, **tables))
        collected = collect_op.alias("collect")(plan=plan, results=results.collect(), **tables)
        handles = collected if isinstance(collected, tuple) else (collected,)
        return {spec.key.path[-1]: handle for spec, handle in zip(specs, handles, strict=True)}

    return steps


def _plan_op(sharded: Sharded) -> dg.OpDefinition:
    """The step that opens the attempt and deals the cases to shards."""
    steps = sharded.names.steps

    @dg.op(
        name=f"{sharded.name}_plan",
        ins=sharded.tables,
        out={"plan": dg.Out(io_manager_key=steps), "shards": dg.DynamicOut(io_manager_key=steps)},
        required_resource_keys=sharded.needs,
    )
    @failing_plainly
    def plan(
        context: dg.AssetExecutionContext, config: PlanConfig, **tables: Any
    ) -> Iterator[dg.Output[Any] | dg.DynamicOutput[Any]]:
        run = sharded.begin(context, tables)
        run.require()
        with run.held():
            planned = run.plan(fresh=config.fresh, retry_errors=config.retry_errors)
        yield dg.Output(planned.model_dump(mode="json"), "plan")
        for shard in plan_shards(planned, run.clusters(), sharded.shards):
            yield dg.DynamicOutput(shard.model_dump(mode="json"), str(shard.index), "shards")

    return plan


def _shard_op(sharded: Sharded) -> dg.OpDefinition:
    """The step that does one shard's cases."""

    @dg.op(
        name=f"{sharded.name}_shard",
        ins={**sharded.tables, "shard": dg.In()},
        out=dg.Out(io_manager_key=sharded.names.steps),
        required_resource_keys=sharded.needs,
    )
    @failing_plainly
    def shard(context: dg.AssetExecutionContext, shard: Any, **tables: Any) -> dg.Output[Any]:
        run, own = sharded.begin(context, tables), ShardPlan.model_validate(shard)
        run.require()
        with run.held(own.index), _shard_index(run.session, own.index):
            result = run.run_shard(own, run.in_force(own.plan))
        return dg.Output(result.model_dump(mode="json"), metadata={"n_new": result.n_new, "seconds": result.seconds})

    return shard


def _collect_op(sharded: Sharded) -> dg.OpDefinition:
    """The step that writes the tables from what the shards recorded."""
    names = sharded.names

    @dg.op(
        name=f"{sharded.name}_collect",
        ins={**sharded.tables, "plan": dg.In(), "results": dg.In()},
        out={spec.key.path[-1]: dg.Out(io_manager_key=names.io_manager) for spec in sharded.specs},
        required_resource_keys=sharded.needs,
    )
    @failing_plainly
    def collect(
        context: dg.AssetExecutionContext, plan: Any, results: Any, **tables: Any
    ) -> Iterator[dg.MaterializeResult[Any]]:
        run, planned = sharded.begin(context, tables), PassPlan.model_validate(plan)
        with run.held():
            shards = [ShardResult.model_validate(each) for each in results]
            yield from run.results(planned, run.in_force(planned), shards)
        values: StepValues = getattr(context.resources, names.steps)
        values.forget(context.run)

    return collect


@contextmanager
def _shard_index(session: Session, index: int) -> Iterator[None]:
    """Names the shard in the environment that the system is loaded in; one that was loaded before does not know it."""
    os.environ[INDEX] = str(index)
    try:
        session.load_again()
        yield
    finally:
        del os.environ[INDEX]
