"""The pass of a version that is recorded and not declared any more: its code is gone, its tables stay as they are."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dagster as dg

from oloproof_dagster.assets.pass_run import PassRun
from oloproof_dagster.assets.recorded import line_of_ignored, require_known
from oloproof_dagster.evidence.evidence import Attempt
from oloproof_dagster.execution.passes import Pass
from oloproof_dagster.execution.plan import PassPlan, ShardResult
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import Identity, identity_of


def begin_pass(context: dg.AssetExecutionContext, project: Project, work: Pass) -> PassRun:
    """The pass of a run's version, whichever it is."""
    run = PassRun(context, project, work)
    return FormerVersionRun(context, project, work) if run.is_of_a_former_version else run


class FormerVersionRun(PassRun):
    """A pass that does nothing: it executes nothing, so it keeps nobody away, and nobody it."""

    def require(self) -> None:
        """Refuses a version that is not recorded whole, and to execute it."""
        require_known(self._stages[0])

    def held(self, shard: int | None = None) -> AbstractContextManager[None]:
        """Nothing is held."""
        return nullcontext()

    def plan(self, *, fresh: bool, retry_errors: bool) -> PassPlan:
        """The plan that does nothing; what a schedule wanted executed is said to be ignored."""
        recorded = self._stages[0].stored.facts()
        identity = identity_of(recorded) or Identity("", self.version, "")
        warning = line_of_ignored(self._stages[0]) if self._work.kind == "executions" else None
        if warning:
            self._context.log.warning(warning)
        return PassPlan(
            attempt=int(recorded.get("attempt", 0)),
            identity=(identity.system, identity.version, identity.code),
            fingerprints=tuple(str(each.stored.facts().get("fingerprint")) for each in self._stages),
            reused=True,
            retry_errors=False,
            warning=warning,
        )

    def in_force(self, plan: PassPlan) -> Attempt:
        """The recorded attempt."""
        return Attempt(self.version, plan.attempt)

    def results(
        self, plan: PassPlan, attempt: Attempt, shards: Sequence[ShardResult] | None = None
    ) -> Iterator[dg.MaterializeResult[Any]]:
        """The tables as they are recorded."""
        news = self._news_of_reused(plan)
        for stage in self._stages:
            yield stage.as_recorded(**news)
            news = {}
