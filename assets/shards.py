"""A stage in one step, or spread over several: one plans it, one a shard does a part, one collects what they recorded.

Whatever executor the code location has may run the shards at once, on machines that share the evidence. They leave
parts; the collecting step writes the tables. Both forms of a stage say the same of them.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import dagster as dg
from pydantic import BaseModel, ConfigDict

from oloproof_dagster.assets.stage import READER, Names, Stage
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Attempt, What
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.execute import Asked, Counts
from oloproof_dagster.execution.passes import Pass, shard_of
from oloproof_dagster.execution.progress import Progress, current_progress, silent
from oloproof_dagster.execution.sandboxes import Sandboxes
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.resources.steps import StepValues
from oloproof_dagster.workers.session import Session

INDEX = "OLOPROOF_SHARD_INDEX"
"""The environment variable that tells the system which shard it works for, from 0."""


class Told(BaseModel):
    """What one step tells the others of its run."""

    model_config = ConfigDict(frozen=True)


class Plan(Told):
    """What is decided for a whole stage before any of it is done.

    `identity` is whose behaviour is recorded, `prints` are the fingerprints of the stage's tables, `reused` says that
    they are used again as they are.
    """

    attempt: int
    identity: tuple[str, str, str]
    prints: tuple[str, ...]
    reused: bool
    retry_errors: bool
    warning: str | None = None


class Part(Told):
    """One shard's part of what is planned: shard `index` of `of`, and how many cases are in it."""

    plan: Plan
    index: int
    of: int
    n_cases: int


class Share(Told):
    """What one shard did: rows made, the seconds that took, and what is to be warned of."""

    made: int
    seconds: float
    warning: str | None = None


class Work(Protocol):
    """A stage of a run, at work in one step."""

    @property
    def stage(self) -> Stage:
        """The stage's first table."""

    def require(self) -> None:
        """Refuses what must not be executed: another version than the declared one."""

    def plan(self, *, fresh: bool, retry_errors: bool) -> Plan:
        """Opens the attempt, and decides whether anything is to be done."""

    def prints(self, plan: Plan) -> tuple[str, ...]:
        """The fingerprints that the stage's tables would bear now."""

    def clusters(self) -> Iterator[str]:
        """The cluster of each case that the stage goes through."""

    def share(self, part: Part, attempt: Attempt, progress: Progress) -> Share:
        """Does one part of the work and leaves it recorded."""

    def results(
        self, plan: Plan, attempt: Attempt, shares: Sequence[Share] | None = None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """The tables, used again or written; what is not recorded is done first, or was to be done by `shares`."""


class PlanConfig(dg.Config):
    """What can be asked of a planning step; each stage's own config says what it means there."""

    fresh: bool = False
    retry_errors: bool = False


Begin = Callable[[dg.AssetExecutionContext, Mapping[str, Stored[Any]]], Work]
"""Makes a stage's work of a step's context and the tables that the stage reads."""


def in_one_step(work: Work, *, fresh: bool = False, retry_errors: bool = False) -> Iterator[dg.MaterializeResult[Any]]:
    """The whole stage, held against other runs until its tables are in their place."""
    work.require()
    with work.stage.evidence.held(work.stage.version):
        plan = work.plan(fresh=fresh, retry_errors=retry_errors)
        attempt = work.stage.evidence.attempt(work.stage.version)
        assert attempt is not None, "a plan opens one"
        yield from work.results(plan, attempt)


def over_steps(
    names: Names,
    name: str,
    specs: Sequence[dg.AssetSpec],
    *,
    reads: tuple[str, ...],
    config: type[dg.Config],
    shards: int,
    begin: Begin,
) -> dg.AssetsDefinition:
    """The stage over as many steps as there are shards with a case in them, and two more.

    Its node is named, and its run is configured, as that of the one-step form.
    """
    tables = {table: dg.In(dagster_type=READER) for table in reads}
    needs = {names.evidence, names.sandbox, names.steps}

    @dg.op(
        name=f"{name}_plan",
        ins=tables,
        out={"plan": dg.Out(io_manager_key=names.steps), "parts": dg.DynamicOut(io_manager_key=names.steps)},
        required_resource_keys=needs,
    )
    def plan(
        context: dg.AssetExecutionContext, config: PlanConfig, **given: Any
    ) -> Iterator[dg.Output[Any] | dg.DynamicOutput[Any]]:
        work = begin(context, given)
        work.require()
        with work.stage.evidence.held(work.stage.version):
            planned = work.plan(fresh=config.fresh, retry_errors=config.retry_errors)
        yield dg.Output(planned.model_dump(mode="json"), "plan")
        n_cases = Counter() if planned.reused else Counter(shard_of(each, shards) for each in work.clusters())
        for index in sorted(n_cases):
            part = Part(plan=planned, index=index, of=shards, n_cases=n_cases[index])
            yield dg.DynamicOutput(part.model_dump(mode="json"), str(index), "parts")

    @dg.op(
        name=f"{name}_shard",
        ins={**tables, "part": dg.In()},
        out=dg.Out(io_manager_key=names.steps),
        required_resource_keys=needs,
    )
    def shard(context: dg.AssetExecutionContext, part: Any, **given: Any) -> dg.Output[Any]:
        work, mine = begin(context, given), Part.model_validate(part)
        work.require()
        with (
            work.stage.evidence.held(work.stage.version, shard=mine.index),
            _told_to_the_system(work.stage.session, mine.index),
        ):
            share = work.share(mine, _in_force(work, mine.plan), _progress_of(mine))
        return dg.Output(share.model_dump(mode="json"), metadata={"made": share.made, "seconds": share.seconds})

    @dg.op(
        name=f"{name}_collect",
        ins={**tables, "plan": dg.In(), "shares": dg.In()},
        out={spec.key.path[-1]: dg.Out(io_manager_key=names.io_manager) for spec in specs},
        required_resource_keys=needs,
    )
    def collect(
        context: dg.AssetExecutionContext, plan: Any, shares: Any, **given: Any
    ) -> Iterator[dg.MaterializeResult[Any]]:
        work, agreed = begin(context, given), Plan.model_validate(plan)
        with work.stage.evidence.held(work.stage.version):
            yield from work.results(agreed, _in_force(work, agreed), [Share.model_validate(each) for each in shares])
        steps: StepValues = getattr(context.resources, names.steps)
        steps.forget(context.run)

    @dg.graph_multi_asset(
        name=name,
        ins={table: dg.AssetIn(names.key(table)) for table in reads},
        outs={spec.key.path[-1]: dg.AssetOut.from_spec(spec.replace_attributes(deps=())) for spec in specs},
        partitions_def=names.partitions,
        group_name=specs[0].group_name,
        config=dg.ConfigMapping(
            config_fn=lambda given: {"plan": {"config": given}}, config_schema=config.to_config_schema()
        ),
    )
    def stage(**given: Any) -> Mapping[str, Any]:
        agreed, parts = plan.alias("plan")(**given)
        shares = parts.map(lambda part: shard.alias("shard")(part=part, **given))
        made = collect.alias("collect")(plan=agreed, shares=shares.collect(), **given)
        handles = made if isinstance(made, tuple) else (made,)
        return {spec.key.path[-1]: handle for spec, handle in zip(specs, handles, strict=True)}

    return stage


def at_work(stage: Stage, plan: Plan, attempt: Attempt, asked: Asked, shares: Sequence[Share] | None = None) -> Pass:
    """The engine's pass for what is planned; after `shares` it finds everything recorded."""
    of = Identity(*plan.identity)
    if shares is None:
        return Pass(stage.evidence, attempt, of, lambda: stage.session.sandboxes(of.code), asked)
    return Pass(stage.evidence, attempt, of, nothing_is_left, replace(asked, retry_errors=False, progress=silent))


def nothing_to_do(stage: Stage, attempt: Attempt, what: What, *, retry_errors: bool) -> bool:
    """Whether a stage whose fingerprints hold has no recorded error to repeat and no part that is in no table yet."""
    return not (retry_errors and stage.n_errors) and not stage.evidence.has_parts(attempt, what)


def recorded(stage: Stage) -> Counts:
    """The counts of a stage that is used again."""
    return Counts(hit=len(stage.stored), errors=stage.n_errors)


def said(made: str, counts: Counts, *warnings: str | None) -> dict[str, Any]:
    """What is noted of a stage's work; `made` names the number of rows that were not there before."""
    warned = "\n".join(dict.fromkeys(filter(None, warnings)))
    return {
        made: counts.miss,
        "answered_from_evidence": counts.hit,
        "n_errors": counts.errors,
        "seconds": counts.seconds,
        **({"warnings": warned} if warned else {}),
    }


def total(counts: Counts, shares: Sequence[Share] | None) -> Counts:
    """The counts of a whole stage; what its shards made the collecting step finds recorded."""
    if shares is None:
        return counts
    made = sum(each.made for each in shares)
    seconds = counts.seconds + sum(each.seconds for each in shares)
    return Counts(counts.hit - made, made, counts.errors, seconds)


def nothing_is_left() -> Sandboxes:
    """The collecting step's sandboxes: it executes nothing.

    Raises:
        EvidenceError: always, as something would have to be executed.
    """
    raise EvidenceError("cases are not recorded that a shard was to do; start a new run: what was executed is kept")


def _in_force(work: Work, plan: Plan) -> Attempt:
    """The attempt that was planned for.

    Raises:
        EvidenceError: another is in force, or what the stage reads is not what it was.
    """
    stage = work.stage
    attempt = stage.evidence.attempt(stage.version)
    if attempt is None or attempt.number != plan.attempt:
        raise EvidenceError(
            f"attempt {plan.attempt} of version {stage.version!r} is not in force any more; start a new run"
        )
    if work.prints(plan) != plan.prints:
        raise EvidenceError(
            "the cases, or what is asked of them, changed while the shards were at work; start a new run: what was"
            " executed is kept"
        )
    return attempt


def _progress_of(part: Part) -> Progress:
    """What is told of one part, under a name of its own."""
    tell, which = current_progress(), f"shard {part.index + 1} of {part.of}"
    return lambda stage, done, n_cases: tell(f"{stage}, {which}", done, n_cases)


@contextmanager
def _told_to_the_system(session: Session, index: int) -> Iterator[None]:
    """Names the shard in the environment that the system is loaded in; one that was loaded before does not know it."""
    os.environ[INDEX] = str(index)
    try:
        session.load_again()
        yield
    finally:
        del os.environ[INDEX]
