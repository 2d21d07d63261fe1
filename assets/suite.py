"""The suite: cases as the dataset holds them, and the cases with their transformed copies."""

from typing import Any

import dagster as dg

from oloproof_dagster.assets.recorded import require_known
from oloproof_dagster.assets.stage import Names, NewTable, Stage, require_as_loaded
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.tables import CASES, SUITE, CaseRow
from oloproof_dagster.suite.cases import READER_VERSION, ReadNotes, dataset_digest, read_cases
from oloproof_dagster.suite.preflight import check_files, files_digest, readable_by_all
from oloproof_dagster.suite.rewriting import rewriting_digest
from oloproof_dagster.suite.transforms import SuiteCount, expand, transform_digest

GROUP = "suite"


def suite_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`cases` and `transformed_cases` of a project."""
    names = Names(project.slug)
    transforms = [transform_digest(each) for each in project.transforms]

    @names.asset(
        "cases",
        group=GROUP,
        sandbox=True,
        code_version=digest("code_version/v1", [READER_VERSION, dataset_digest(project)]),
        description="The cases of the dataset, one row each, checked before anything runs.",
    )
    def cases(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        stage, notes = Stage(context, project, CASES), ReadNotes()
        require_known(stage)
        if stage.keeps_recorded:
            return stage.as_recorded()

        def make() -> NewTable:
            check_files(project)
            if stage.version == stage.declared:
                require_as_loaded(project)
                stage.session.prepare()  # imported and its contract checked before anything runs
            rows = readable_by_all(project, read_cases(project, notes))
            return NewTable(rows, metadata=lambda: _warnings(notes))

        return stage.materialize(make, dataset=dataset_digest(project), files=files_digest(project))

    @names.asset(
        "transformed_cases",
        reads=("cases",),
        group=GROUP,
        code_version=digest("code_version/v1", [READER_VERSION, transforms]),
        description="Every case followed by its transformed copies, one row each, with the cluster they share.",
    )
    def transformed_cases(context: dg.AssetExecutionContext, cases: Stored[CaseRow]) -> dg.MaterializeResult[Any]:
        stage = Stage(context, project, SUITE)
        if stage.keeps_recorded and stage.stored.exists:
            return stage.as_recorded()

        def make() -> NewTable:
            count, notes = SuiteCount(), ReadNotes()
            rows = count.counting(expand(project, cases.rows(), notes))
            return NewTable(rows, count.facts, lambda: count.facts() | _warnings(notes))

        rewriting = rewriting_digest(project)
        read = {"dataset": dataset_digest(project)} | ({"rewriting": rewriting} if rewriting else {})
        return stage.materialize(make, cases, **read)

    return [cases, transformed_cases]


def _warnings(notes: ReadNotes) -> dict[str, Any]:
    return {"warnings": "\n".join(notes.warnings)} if notes.warnings else {}
