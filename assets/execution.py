"""Execution: one pass of the suite around the sandbox, giving trajectories and the states left behind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

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
from oloproof_dagster.assets.stage import Names, Stage, require_as_loaded
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.evidence import Attempt
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.execution.execute import Asked
from oloproof_dagster.execution.passes import Shard
from oloproof_dagster.execution.progress import Progress, current_progress
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.records.keys import ENGINE_VERSION, Identity, facts
from oloproof_dagster.records.tables import EXECUTIONS, STATES, SuiteRow
from oloproof_dagster.resources.turns import require_turns

GROUP = "execution"


class ExecutionConfig(dg.Config):
    """What can be asked of one run's execution.

    `fresh` opens a new attempt that executes and replays everything again; an unfinished attempt is resumed instead.
    `retry_errors` repeats the executions and replays that are recorded as errors.
    """

    fresh: bool = False
    retry_errors: bool = False


def identity(stage: Stage) -> Identity:
    """Whose behaviour a run records that executes now."""
    project = stage.project
    return Identity(project.suite.system.name, project.version, stage.session.code_digest)


def require_current_version(context: dg.AssetExecutionContext, project: Project) -> None:
    """Refuses to execute for a version that is not the one that oloproof.yaml declares now."""
    names, version, declared = Names(project.slug), context.partition_key, load_project(project.root).version
    if version != declared:
        raise dg.Failure(
            f"this run is for system version {version!r}, but oloproof.yaml declares {declared!r}:"
            f" run {names.slug}_rejudge to judge what is recorded of {version!r}",
            allow_retries=False,
        )
    require_as_loaded(project)
    require_turns(context)


def execution_assets(project: Project, pool: str | None, shards: int = 1) -> list[dg.AssetsDefinition]:
    """`trajectories` and `environment_states` of a project, made together; `pool` is that of a shared sandbox."""
    names = Names(project.slug)
    name, reads = f"{names.slug}_execution", ("transformed_cases",)
    described = {
        "trajectories": "What the system returned and recorded, one row a case and trial.",
        "environment_states": "The state left behind, one row a case and trial; null where none was recorded.",
    }
    common: dict[str, Any] = {
        "reads": reads,
        "group": GROUP,
        "code_version": digest("code_version/v1", [ENGINE_VERSION, project.suite.trials]),
    }
    specs = [names.spec(table, description=description, **common) for table, description in described.items()]

    def begin(context: dg.AssetExecutionContext, tables: Mapping[str, Stored[Any]]) -> ExecutionPass:
        return ExecutionPass(context, project, tables["transformed_cases"])

    if shards > 1:
        return [over_steps(names, name, specs, reads=reads, config=ExecutionConfig, shards=shards, begin=begin)]

    @dg.multi_asset(
        name=name,
        specs=specs,
        ins={"transformed_cases": dg.AssetIn(names.key("transformed_cases"))},  # its type would clash with the deps
        partitions_def=names.partitions,
        required_resource_keys={names.evidence, names.sandbox},
        pool=pool,
    )
    def execution(
        context: dg.AssetExecutionContext, config: ExecutionConfig, transformed_cases: Any
    ) -> Iterator[dg.MaterializeResult[Any]]:
        work = begin(context, {"transformed_cases": transformed_cases})
        yield from in_one_step(work, fresh=config.fresh, retry_errors=config.retry_errors)

    return [execution]


class ExecutionPass:
    """One run's execution: reused whole, or the missing cases executed and both tables written."""

    def __init__(self, context: dg.AssetExecutionContext, project: Project, suite: Stored[SuiteRow]) -> None:
        self.stage, self._states = Stage(context, project, EXECUTIONS), Stage(context, project, STATES)
        self._suite, self._project, self._log = suite, project, context.log

    def require(self) -> None:
        require_current_version(self.stage.context, self._project)

    def plan(self, *, fresh: bool, retry_errors: bool) -> Plan:
        now = identity(self.stage)
        attempt = self.stage.evidence.open_attempt(self.stage.version, fresh=fresh)
        prints = self._prints(now, attempt.number)
        unchanged = all(said is not None for said in self._said_before(prints))
        reused = unchanged and nothing_to_do(self.stage, attempt, "executions", retry_errors=retry_errors)
        return Plan(
            attempt=attempt.number,
            identity=(now.system, now.version, now.code),
            prints=prints,
            reused=reused,
            retry_errors=retry_errors,
            warning=None if reused else self._warning(now),
        )

    def prints(self, plan: Plan) -> tuple[str, ...]:
        return self._prints(Identity(*plan.identity), plan.attempt)

    def clusters(self) -> Iterator[str]:
        return (cluster for (cluster,) in self._suite.columns("cluster"))

    def share(self, part: Part, attempt: Attempt, progress: Progress) -> Share:
        asked = self._asked(part.n_cases, part.plan.retry_errors, progress)
        work = at_work(self.stage, part.plan, attempt, asked)
        counts = work.execute_shard(self._suite, Shard(part.index, part.of))
        return Share(made=counts.miss, seconds=counts.seconds, warning=self._unseen())

    def results(
        self, plan: Plan, attempt: Attempt, shares: Sequence[Share] | None = None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        if plan.reused:
            said_of_executions, said_of_states = self._said_before(plan.prints)
            yield self.stage.reused(said_of_executions or {}, said("executed", recorded(self.stage)))
            yield self._states.reused(said_of_states or {})
            return
        asked = self._asked(len(self._suite), plan.retry_errors, current_progress())
        work = at_work(self.stage, plan, attempt, asked, shares)
        executions, states, counts = work.execute(self._suite, *plan.prints)
        unseen = [self._unseen()] if shares is None else [each.warning for each in shares]
        news = said("executed", total(counts, shares), plan.warning, *unseen)
        yield self.stage.handed_over(executions, plan.prints[0], news)
        yield self._states.handed_over(states, plan.prints[1], {})

    def _asked(self, n_cases: int, retry_errors: bool, progress: Progress) -> Asked:
        suite = self._project.suite
        return Asked(n_cases, suite.trials, retry_errors, suite.retries, progress)

    def _prints(self, of: Identity, attempt: int) -> tuple[str, ...]:
        whole = {"attempt": attempt, "identity": list(facts(of, attempt).values())}
        return tuple(each.fingerprint(self._suite, **whole) for each in (self.stage, self._states))

    def _said_before(self, prints: tuple[str, ...]) -> list[dict[str, Any] | None]:
        return [each.current(print_) for each, print_ in zip((self.stage, self._states), prints, strict=True)]

    def _warning(self, now: Identity) -> str | None:
        """Said when the agent was edited and its version was not: old evidence is never an answer for new code."""
        noted = self.stage.stored.facts()
        if not noted or noted.get("code") == now.code or noted.get("version") != now.version:
            return None
        warning = (
            f"the system's files changed since version {now.version!r} was recorded: its cases are"
            " executed again. Bump system.version in oloproof.yaml to keep releases apart"
        )
        self._log.warning(warning)
        return warning

    def _unseen(self) -> str | None:
        """Said when an edit of a file that the system imports would not be noticed."""
        unseen = self.stage.session.unseen
        if not unseen:
            return None
        warning = f"edits of {', '.join(unseen)} are not seen, as no import names them: bump system.version after one"
        self._log.warning(warning)
        return warning
