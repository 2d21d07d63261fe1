"""One run's pass in Dagster, executions or replays alike: planned, done or reused, its tables handed over.

What is decided and done is the engine's (oloproof_dagster.execution); here is what only Dagster knows: the partition,
the latest materialisations, the run's sandboxes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import dagster as dg

from oloproof_dagster.assets.recorded import require_known
from oloproof_dagster.assets.stage import Stage, require_as_loaded
from oloproof_dagster.evidence.evidence import Attempt
from oloproof_dagster.execution.execute import Counts, PassOptions
from oloproof_dagster.execution.passes import Pass, PassTarget, Shard, run_shard, write_tables
from oloproof_dagster.execution.plan import (
    Before,
    PassPlan,
    ShardPlan,
    ShardResult,
    attempt_in_force,
    no_sandboxes,
    plan_pass,
    shard_progress,
    summary,
    total,
)
from oloproof_dagster.execution.progress import current_progress, silent
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import Identity
from oloproof_dagster.records.tables import TABLES
from oloproof_dagster.resources.turns import require_turns
from oloproof_dagster.suite.preflight import read_apart
from oloproof_dagster.system.declared_inputs import line_of_changed
from oloproof_dagster.wording import counted


class PassRun:
    """One pass of one run: reused whole, or the missing rows made and its tables written."""

    def __init__(self, context: dg.AssetExecutionContext, project: Project, work: Pass) -> None:
        self._context, self._project, self._work = context, project, work
        self._stages = tuple(Stage(context, project, TABLES[name]) for name in work.tables)
        self.evidence, self.version = self._stages[0].evidence, self._stages[0].version
        self.session = self._stages[0].session

    @property
    def _is_begun(self) -> bool:
        """Whether the system was imported for this run's executions: then its replays are made, whatever is declared
        by now."""
        return self._work.kind == "replays" and self.session.loaded

    @property
    def is_of_a_former_version(self) -> bool:
        """Whether the version is recorded, and neither declared any more nor being executed by this run."""
        return self._stages[0].keeps_recorded and not self._is_begun

    def require(self) -> None:
        """Refuses to execute where this run may not."""
        if not self._is_begun:
            require_known(self._stages[0])
            require_as_loaded(self._project)
            require_turns(self._context)

    def held(self, shard: int | None = None) -> AbstractContextManager[None]:
        """Keeps other runs from executing the version meanwhile, or a shard of it."""
        return self.evidence.held(self.version, shard=shard)

    def plan(self, *, fresh: bool, retry_errors: bool) -> PassPlan:
        """Opens the attempt, and decides whether anything is to be done."""
        recorded = self.evidence.table(self._work.tables[0], self.version).facts()
        identity = self._work.identity or self._identity()
        edited = self._work.is_edited(recorded, identity)
        attempt = self.evidence.open_attempt(self.version, fresh=fresh or edited)
        fingerprints = self._fingerprints(identity, attempt.number)
        unchanged = all(latest is not None for latest in self._latest(fingerprints))
        before = Before(attempt, identity, fingerprints, unchanged)
        plan = plan_pass(self._work, self.evidence, before, retry_errors=retry_errors)
        files = recorded.get("files")
        if files and attempt.number == recorded.get("attempt") and plan.warning is None:
            apart = read_apart(self._project)
            files = {name: content for name, content in files.items() if name not in apart}
            plan = plan.model_copy(update={"warning": line_of_changed(files, self.session.other_files)})
        if plan.warning:
            self._context.log.warning(plan.warning)
        return plan

    def in_force(self, plan: PassPlan) -> Attempt:
        """The attempt that was planned for, if it still is; see `attempt_in_force`."""
        fingerprints = self._fingerprints(Identity(*plan.identity), plan.attempt)
        return attempt_in_force(plan, self.evidence, self.version, fingerprints)

    def clusters(self) -> Iterator[str]:
        """The cluster of each case that the pass goes through."""
        return self._work.clusters()

    def run_shard(self, shard: ShardPlan, attempt: Attempt) -> ShardResult:
        """Does one shard and leaves it recorded."""
        options = replace(
            self._options(shard.plan), n_cases=shard.n_cases, progress=shard_progress(shard, current_progress())
        )
        counts = run_shard(self._work, self._target(shard.plan, attempt, options), Shard(shard.index, shard.of))
        lines = [each for each in (self._unseen(), *self._noticed(counts)) if each]
        return ShardResult(n_new=counts.miss, seconds=counts.seconds, warning="\n".join(lines) or None)

    def results(
        self, plan: PassPlan, attempt: Attempt, shards: Sequence[ShardResult] | None = None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """The tables, reused or written; what is not recorded is done first, or was to be done by `shards`."""
        yield from self._reused(plan) if plan.reused else self._written(plan, attempt, shards)
        if self._work.kind == "replays":
            # The IO manager has put the last table in its place: what was kept to resume from is not needed any more.
            self.evidence.complete(attempt)

    def _reused(self, plan: PassPlan) -> Iterator[dg.MaterializeResult[Any]]:
        news = self._news_of_reused(plan)
        for stage, latest in zip(self._stages, self._latest(plan.fingerprints), strict=True):
            yield stage.reused(latest or {}, news)
            news = {}

    def _news_of_reused(self, plan: PassPlan) -> dict[str, Any]:
        """What is noted on the first of tables that are used again."""
        recorded = self._stages[0].stored
        facts = recorded.facts()
        counts = Counts(
            hit=len(recorded),
            errors=int(facts.get("n_errors", 0)),
            n_unverified=int(facts.get("n_unverified", 0)),
        )
        return summary(self._work, counts, plan.warning, *self._noticed(counts))

    def _written(
        self, plan: PassPlan, attempt: Attempt, shards: Sequence[ShardResult] | None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        options = self._options(plan)
        target = self._target(plan, attempt, options)
        if shards is not None:  # they did it all: this step reads what they recorded
            options = replace(options, retry_errors=False, collects=True, progress=silent)
            target = replace(target, sandboxes=no_sandboxes, options=options)
        tables, counts = write_tables(self._work, target, plan.fingerprints)
        unseen = [self._unseen()] if shards is None else [each.warning for each in shards]
        noticed = self._noticed(counts) if shards is None else []
        news = summary(self._work, total(counts, shards), plan.warning, *unseen, *noticed)
        for stage, staged, fingerprint in zip(self._stages, tables, plan.fingerprints, strict=True):
            yield stage.handed_over(staged, fingerprint, news)
            news = {}

    def _identity(self) -> Identity:
        """Whose behaviour a run records that executes now."""
        return Identity(self._project.suite.system.name, self._project.version, self.session.code_digest)

    def _fingerprints(self, identity: Identity, attempt: int) -> tuple[str, ...]:
        more = self._work.fingerprinted(identity, attempt)
        return tuple(each.fingerprint(*self._work.upstream, **more) for each in self._stages)

    def _latest(self, fingerprints: tuple[str, ...]) -> list[dict[str, Any] | None]:
        return [stage.current(each) for stage, each in zip(self._stages, fingerprints, strict=True)]

    def _options(self, plan: PassPlan) -> PassOptions:
        suite = self._project.suite
        return PassOptions(
            self._work.n_cases,
            suite.trials,
            plan.retry_errors,
            suite.retries,
            current_progress(),
            self._files(plan),
            verifies=suite.sandbox.verify_reset is not None,
        )

    def _files(self, plan: PassPlan) -> Callable[[], dict[str, str]]:
        """What the project's other files are, or were when the attempt's first executions were recorded; a file that
        the system writes to meanwhile is none that it is made of."""
        if self._work.kind == "replays":
            return dict
        recorded, before = self._stages[0].stored.facts(), self.session.other_files
        former: dict[str, str] = recorded.get("files", {}) if recorded.get("attempt") == plan.attempt else {}

        def unchanged() -> dict[str, str]:
            now = self.session.other_files
            return {name: content for name, content in before.items() if now.get(name) == content} | former

        return unchanged

    def _target(self, plan: PassPlan, attempt: Attempt, options: PassOptions) -> PassTarget:
        identity = Identity(*plan.identity)
        return PassTarget(self.evidence, attempt, identity, lambda: self.session.sandboxes(identity.code), options)

    def _noticed(self, counts: Counts) -> list[str]:
        """One line for each thing that the executions of this pass gave notice of."""
        lines = list(counts.lines(self.session.n_sandboxes))
        if counts.n_unverified and self._project.suite.sandbox.verify_reset is not None:
            lines.append(
                f"{counted(counts.n_unverified, 'execution')} recorded without a look at the world right after its"
                " reset: what reset forgets was not noticed there; `oloproof run --fresh` verifies"
            )
        for line in lines:
            self._context.log.warning(line)
        return lines

    def _unseen(self) -> str | None:
        """One line where an edit of a file that the system imports would not be noticed; the executions give it."""
        unseen = self.session.unseen
        if not unseen or self._work.kind == "replays":
            return None
        warning = f"edits of {', '.join(unseen)} are not seen, as no import names them: bump system.version after one"
        self._context.log.warning(warning)
        return warning
