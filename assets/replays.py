"""Fault replays: for each recorded call that an evaluator lets fail, a control replay and the fault."""

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import dagster as dg

from oloproof_dagster.assets.execution import identity, require_current_version
from oloproof_dagster.assets.stage import Made, Names, Stage
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence import Attempt, Parts
from oloproof_dagster.execution import ENGINE_VERSION, Counts, facts, identity_of
from oloproof_dagster.parquet import Index, Stored
from oloproof_dagster.progress import current_progress
from oloproof_dagster.project import Project
from oloproof_dagster.replay import Recorded, Source, replay_all, replays, sources
from oloproof_dagster.tables import REPLAYS, ExecutionRow, StateRow, SuiteRow

GROUP = "execution"


class ReplayConfig(dg.Config):
    """What can be asked of one run's replays; a fresh execution makes them fresh too."""

    retry_errors: bool = False


def replay_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`fault_replays` of a project."""
    names = Names(project.slug)
    plans = [[each.tool, each.fault, each.occurrence] for each in project.replayed]

    @names.asset(
        "fault_replays",
        reads=("transformed_cases", "trajectories", "environment_states"),
        group=GROUP,
        sandbox=True,
        code_version=digest("code_version/v1", [ENGINE_VERSION, plans]),
        description="One row a replay: each control, which changes nothing, and each fault.",
    )
    def fault_replays(
        context: dg.AssetExecutionContext,
        config: ReplayConfig,
        transformed_cases: Stored[SuiteRow],
        trajectories: Stored[ExecutionRow],
        environment_states: Stored[StateRow],
    ) -> Iterator[dg.MaterializeResult[Any]]:
        stage = Stage(context, project, REPLAYS)
        if not stage.session.loaded:
            require_current_version(context, project)
        recordings = Recordings(transformed_cases, trajectories, environment_states)
        yield from ReplayPass(stage, config, recordings).results()

    return [fault_replays]


class Recordings:
    """The source cases that can be replayed, read from the tables once for making and once for writing.

    `identity` is the one that the cases were executed under, so that a replay never joins other code's recording.
    """

    def __init__(self, suite: Stored[SuiteRow], executions: Stored[ExecutionRow], states: Stored[StateRow]) -> None:
        self.upstream, self.identity = (suite, executions, states), identity_of(executions.facts())
        self.n_cases = int(suite.facts().get("n_source_cases", 0))

    @cached_property
    def _open(self) -> tuple[Index[ExecutionRow], Index[StateRow]]:
        """Opened when the first case is asked for: a run that reuses its replays reads no recording."""
        _, executions, states = self.upstream
        return Index(executions), Index(states)

    def __iter__(self) -> Iterator[Source]:
        if self.identity is None:
            return iter(())
        return sources(self.upstream[0].rows(), *self._open, self.identity)

    def close(self) -> None:
        for index in self._open:
            index.close()


class ReplayPass:
    """One run's replays: reused whole, or the missing ones made and the table written."""

    def __init__(self, stage: Stage, config: ReplayConfig, recordings: Recordings) -> None:
        self._stage, self._config, self._recordings = stage, config, recordings
        self._project, self._declared = stage.project, stage.project.replayed
        self._identity = recordings.identity or identity(stage)

    def results(self) -> Iterator[dg.MaterializeResult[Any]]:
        evidence, version = self._stage.evidence, self._stage.version
        with evidence.held(version):
            attempt = evidence.attempt(version) or evidence.open_attempt(version, fresh=False)
            noted = facts(self._identity, attempt.number)
            fingerprint = self._stage.fingerprint(*self._recordings.upstream, of=list(noted.values()))
            n_errors = self._stage.stored.facts().get("n_errors", 0)
            parts = evidence.parts(attempt, "replays")
            before = self._stage.current(fingerprint)
            repeats = self._config.retry_errors and n_errors
            if before is not None and not repeats and not len(parts):
                yield self._stage.reused(before, self._said(Counts(hit=len(self._stage.stored), errors=n_errors)))
            else:
                yield self._made(attempt, parts, noted, fingerprint)
            evidence.complete(attempt)  # the IO manager has put the table in its place: parts are not needed any more

    def _made(
        self, attempt: Attempt, parts: Parts, noted: dict[str, Any], fingerprint: str
    ) -> dg.MaterializeResult[Any]:
        former = Index(self._stage.stored.of_attempt(attempt.number))
        recorded = Recorded(parts, former)
        try:
            start = time.perf_counter()
            counts = replay_all(
                self._recordings,
                lambda: self._stage.session.sandbox(self._project, self._identity.code),
                recorded,
                declared=self._declared,
                identity=self._identity,
                n_cases=self._recordings.n_cases,
                retry_errors=self._config.retry_errors,
                progress=current_progress(),
            )
            counts.seconds = time.perf_counter() - start
            rows = replays(self._recordings, recorded, declared=self._declared, identity=self._identity)
            said = self._said(counts)
            return self._stage.written(
                Made(rows, lambda: {**noted, "n_errors": counts.errors}, lambda: said), fingerprint
            )
        finally:
            parts.close()
            former.close()
            self._recordings.close()

    @staticmethod
    def _said(counts: Counts) -> dict[str, Any]:
        return {
            "replayed": counts.miss,
            "answered_from_evidence": counts.hit,
            "n_errors": counts.errors,
            "seconds": counts.seconds,
        }
