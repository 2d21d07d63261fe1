"""Execution: one pass of the suite around the sandbox, giving trajectories and the states left behind."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from oloproof_dagster.assets.stage import Made, Names, Stage, require_as_loaded
from oloproof_dagster.digests import digest
from oloproof_dagster.execution import (
    ENGINE_VERSION,
    Counts,
    Identity,
    Recorded,
    execute,
    executions,
    facts,
    states,
)
from oloproof_dagster.parquet import Index, Stored
from oloproof_dagster.progress import current_progress
from oloproof_dagster.project import Project, load_project
from oloproof_dagster.tables import EXECUTIONS, STATES, SuiteRow

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
    return Identity(project.suite.system.name, project.version, stage.session.code_digest(project))


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


def execution_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`trajectories` and `environment_states` of a project, one multi-asset."""
    names = Names(project.slug)
    code_version = digest("code_version/v1", [ENGINE_VERSION, project.suite.trials])
    described = {
        "trajectories": "What the system returned and recorded, one row a case and trial.",
        "environment_states": "The state left behind, one row a case and trial; null where none was recorded.",
    }

    @dg.multi_asset(
        name=f"{names.slug}_execution",
        specs=[
            names.spec(
                table, reads=("transformed_cases",), group=GROUP, code_version=code_version, description=description
            )
            for table, description in described.items()
        ],
        ins={"transformed_cases": dg.AssetIn(names.key("transformed_cases"))},  # its type would clash with the deps
        partitions_def=names.partitions,
        required_resource_keys={names.evidence, names.sandbox},
    )
    def execution(
        context: dg.AssetExecutionContext, config: ExecutionConfig, transformed_cases: Any
    ) -> Iterator[dg.MaterializeResult[Any]]:
        require_current_version(context, project)
        yield from ExecutionPass(context, project, config, transformed_cases).results()

    return [execution]


class ExecutionPass:
    """One run's execution: reused whole, or the missing cases executed and both tables written."""

    def __init__(
        self, context: dg.AssetExecutionContext, project: Project, config: ExecutionConfig, suite: Stored[SuiteRow]
    ) -> None:
        self._executions, self._states = Stage(context, project, EXECUTIONS), Stage(context, project, STATES)
        self._config, self._suite, self._identity = config, suite, identity(self._executions)
        self._project, self._log = project, context.log

    def results(self) -> Iterator[dg.MaterializeResult[Any]]:
        evidence, version = self._executions.evidence, self._executions.version
        with evidence.held(version):
            attempt = evidence.open_attempt(version, fresh=self._config.fresh)
            whole = {"attempt": attempt.number, "identity": list(facts(self._identity, attempt.number).values())}
            prints = [each.fingerprint(self._suite, **whole) for each in (self._executions, self._states)]
            n_errors = self._executions.stored.facts().get("n_errors", 0)
            parts = evidence.parts(attempt, "executions")
            said = [each.current(print_) for each, print_ in zip((self._executions, self._states), prints, strict=True)]
            repeats = self._config.retry_errors and n_errors
            # Parts hold what a killed run finished and no table has yet.
            if said[0] is not None and said[1] is not None and not repeats and not len(parts):
                counts = Counts(hit=len(self._executions.stored), errors=n_errors)
                yield self._executions.reused(said[0], self._said(counts))
                yield self._states.reused(said[1])
                return
            former = [each.stored for each in (self._executions, self._states)]
            known = [Index(each.of_attempt(attempt.number)) for each in former]
            recorded = Recorded(parts, *known)
            try:
                warning = self._warning(former[0])
                counts = self._execute(recorded)
                noted = {**facts(self._identity, attempt.number), "n_errors": counts.errors}
                news = self._said(counts, "\n".join(filter(None, (warning, self._unseen()))))
                yield self._executions.written(
                    Made(executions(self._suite.rows(), recorded, self._identity), lambda: noted, lambda: news),
                    prints[0],
                )
                yield self._states.written(
                    Made(states(self._suite.rows(), recorded, self._identity), lambda: noted), prints[1]
                )
            finally:
                parts.close()
                for index in known:
                    index.close()

    def _execute(self, recorded: Recorded) -> Counts:
        start = time.perf_counter()
        counts = execute(
            self._suite.rows(),
            lambda: self._executions.session.sandbox(self._project, self._identity.code),
            recorded,
            identity=self._identity,
            n_cases=len(self._suite),
            retry_errors=self._config.retry_errors,
            progress=current_progress(),
        )
        counts.seconds = time.perf_counter() - start
        return counts

    def _warning(self, former: Stored[Any]) -> str | None:
        """Said when the agent was edited and its version was not: old evidence is never an answer for new code."""
        noted = former.facts()
        if not noted or noted.get("code") == self._identity.code or noted.get("version") != self._identity.version:
            return None
        warning = (
            f"the system's files changed since version {self._identity.version!r} was recorded: its cases are"
            " executed again. Bump system.version in oloproof.yaml to keep releases apart"
        )
        self._log.warning(warning)
        return warning

    def _unseen(self) -> str | None:
        """Said when an edit of a file that the system imports would not be noticed."""
        unseen = self._executions.session.unseen
        if not unseen:
            return None
        warning = f"edits of {', '.join(unseen)} are not seen, as no import names them: bump system.version after one"
        self._log.warning(warning)
        return warning

    @staticmethod
    def _said(counts: Counts, warning: str | None = None) -> dict[str, Any]:
        return {
            "executed": counts.miss,
            "answered_from_evidence": counts.hit,
            "n_errors": counts.errors,
            "seconds": counts.seconds,
            **({"warnings": warning} if warning else {}),
        }
