"""Verdicts: every case of the suite under every criterion, judged on recorded evidence alone."""

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from oloproof_dagster.assets.stage import Names, NewTable, Stage
from oloproof_dagster.digests import digest, parse_canonical
from oloproof_dagster.evaluators.judgment import JUDGMENT_VERSION, Judgment, criteria
from oloproof_dagster.evaluators.unseen_paths import UnseenPaths
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.tables import VERDICTS, ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow
from oloproof_dagster.report.markdown import cell, table
from oloproof_dagster.suite.preflight import python_checks
from oloproof_dagster.system.own_files import OwnFiles

GROUP = "judgment"
FAILURES_SHOWN = 50


def judgment_code(project: Project) -> str:
    """The code version of verdicts: the evaluators as declared, and the code of python checks."""
    suite = project.suite
    declared = [each.model_dump(mode="json") for each in project.evaluators]
    volatile = [suite.ignore_paths, suite.ignore_new_paths, suite.unordered_paths]
    checks = [OwnFiles.of(project, name).code_digest for name in python_checks(project).values()]
    return digest("code_version/v1", [JUDGMENT_VERSION, declared, [list(each) for each in volatile], checks])


def verdict_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`verdicts` of a project."""
    names = Names(project.slug)

    @names.asset(
        "verdicts",
        reads=("transformed_cases", "trajectories", "environment_states", "fault_replays"),
        group=GROUP,
        code_version=judgment_code(project),
        description="One row a case, trial and criterion: passed, failed, missing or not applicable, and why.",
    )
    def verdicts(
        context: dg.AssetExecutionContext,
        transformed_cases: Stored[SuiteRow],
        trajectories: Stored[ExecutionRow],
        environment_states: Stored[StateRow],
        fault_replays: Stored[ReplayRow],
    ) -> dg.MaterializeResult[Any]:
        stage = Stage(context, project, VERDICTS)
        if not trajectories.exists and stage.evidence.attempt(stage.version) is None:
            raise dg.Failure(
                f"nothing is recorded of system version {stage.version!r}: run {names.slug}_release_run first",
                allow_retries=False,
            )
        upstream = (transformed_cases, trajectories, environment_states, fault_replays)
        # The checks' files as they are now: a long-lived code location knows the version of those it was loaded with.
        judges, trials = judgment_code(project), project.suite.trials
        if stage.keeps_recorded:
            trials = int(trajectories.facts().get("trials", 1))

        def make() -> NewTable:
            judgment, failures, unseen = Judgment(*upstream, trials), Failures(), UnseenPaths.of(project)
            rows = failures.watching(judgment.verdicts(criteria(project), unseen))
            noted = {"trials": trials, "judges": judges}
            return NewTable(
                rows,
                lambda: {
                    **noted,
                    "n_unreached": judgment.n_unreached,
                    "own_word": judgment.own_word,
                    "unseen_paths": unseen.names,
                },
                failures.metadata,
            )

        return stage.materialize(make, *upstream, judges=judges, trials=trials)

    return [verdicts]


class Failures:
    """The failing verdicts, counted and the first of them kept for the asset's page."""

    def __init__(self) -> None:
        self._first: list[VerdictRow] = []
        self._n_failed = self._n_missing = 0

    def watching(self, rows: Iterable[VerdictRow]) -> Iterator[VerdictRow]:
        """The same rows, counted on the way."""
        for row in rows:
            self._n_missing += row.status == "missing"
            if row.status == "failed":
                self._n_failed += 1
                if len(self._first) < FAILURES_SHOWN:
                    self._first.append(row)
            yield row

    def metadata(self) -> dict[str, Any]:
        """What the asset's page shows: counts, and a table of the first failures."""
        shown = [line for row in self._first for line in _lines(row)]
        heading = ("case", "criterion", "path", "expected", "actual")
        return {
            "n_failed": self._n_failed,
            "n_missing": self._n_missing,
            "failing_cases": dg.MarkdownMetadataValue(table(heading, shown) if shown else "No verdict failed."),
        }


def _lines(row: VerdictRow) -> Iterator[tuple[str, ...]]:
    compared = [each for each in (parse_canonical(row.compared) if row.compared else []) if not each["matches"]]
    leaves = [each for each in compared if each["path"] != "$"] or compared
    why = row.detail or row.reason
    first = (row.case_id, f"{row.criterion}: {why}" if why else row.criterion)
    if not leaves:
        yield (*first, "", "", "")
    for each in leaves[:5]:
        expected = "(not expected)" if each.get("unexpected") else cell(each["expected"])
        yield (*first, each["path"], expected, "(absent)" if each["absent"] else cell(each["actual"]))
        first = ("", "")
