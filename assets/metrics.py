"""Metrics and slices: each criterion's rate with its interval, over the suite and over its named subsets."""

from typing import Any

import dagster as dg

from oloproof_dagster.assets.stage import Names, NewTable, Stage
from oloproof_dagster.decision.intervals import STATISTICS_VERSION
from oloproof_dagster.decision.metrics import measure
from oloproof_dagster.decision.slices import measure_slices, memberships
from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.tables import METRICS, SLICES, ExecutionRow, MetricRow, SuiteRow, VerdictRow

GROUP = "judgment"


def metric_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`metrics` and `slices` of a project."""
    names = Names(project.slug)
    level, min_clusters = project.confidence_level, project.min_clusters
    statistics = [STATISTICS_VERSION, level, min_clusters]

    @names.asset(
        "metrics",
        reads=("verdicts", "transformed_cases"),
        group=GROUP,
        code_version=digest("code_version/v1", statistics),
        description="One row a criterion: its rate over the suite, the interval, and what is missing or excluded.",
    )
    def metrics(
        context: dg.AssetExecutionContext, verdicts: Stored[VerdictRow], transformed_cases: Stored[SuiteRow]
    ) -> dg.MaterializeResult[Any]:
        def make() -> NewTable:
            noted = {**{name: verdicts.facts()[name] for name in ("n_unreached", "trials")}, "recorded": recorded}
            rows = measure(
                verdicts.rows(),
                clusters(transformed_cases),
                project.criteria,
                clustered=is_clustered(transformed_cases, verdicts),
                confidence_level=level,
                min_clusters=min_clusters,
            )
            return NewTable(rows, lambda: noted, lambda: plotted(rows))

        stage, facts = Stage(context, project, METRICS), verdicts.facts()
        recorded = digest("recorded/v1", facts.get("upstream"))
        unreached = facts.get("n_unreached")
        result = stage.materialize(make, verdicts, transformed_cases, n_unreached=unreached, recorded=recorded)
        return result._replace(metadata={**(result.metadata or {}), **made_anew(stage)})

    @names.asset(
        "slices",
        reads=("verdicts", "trajectories", "transformed_cases"),
        group=GROUP,
        code_version=digest(
            "code_version/v1", [statistics, list(project.suite.slices), project.suite.min_slice_support]
        ),
        description="One row a slice value and criterion; descriptive, no rule reads it.",
    )
    def slices(
        context: dg.AssetExecutionContext,
        verdicts: Stored[VerdictRow],
        trajectories: Stored[ExecutionRow],
        transformed_cases: Stored[SuiteRow],
    ) -> dg.MaterializeResult[Any]:
        def make() -> NewTable:
            return NewTable(
                measure_slices(
                    verdicts.rows(),
                    memberships(project.slices, transformed_cases, trajectories, verdicts.facts()["trials"]),
                    clusters(transformed_cases),
                    min_support=project.suite.min_slice_support,
                    declared=project.suite.slices,
                    confidence_level=level,
                    min_clusters=min_clusters,
                )
            )

        return Stage(context, project, SLICES).materialize(make, verdicts, trajectories, transformed_cases)

    return [metrics, slices]


def made_anew(stage: Stage) -> dict[str, Any]:
    """How much of the version's evidence its latest execution and replays made, and how long that took."""
    executed, replayed = stage.metadata_of("trajectories"), stage.metadata_of("fault_replays")
    found: dict[str, Any] = {}
    for name in ("executed", "replayed", "answered_from_evidence", "seconds"):
        values = [latest[name].value for latest in (executed, replayed) if name in latest]
        if values:
            found[name] = sum(values)
    return found


def is_clustered(suite: Stored[SuiteRow], judged: Stored[Any]) -> bool:
    """Whether some cluster holds more than one case or trial; `judged` is the verdicts' or the metrics' table."""
    return bool(suite.facts()["clustered"] or judged.facts()["trials"] > 1)


def clusters(suite: Stored[SuiteRow]) -> dict[str, str]:
    """Each case's cluster."""
    return dict(suite.columns("case_id", "cluster"))


def plotted(rows: tuple[MetricRow, ...]) -> dict[str, Any]:
    """The numbers that Dagster plots across versions; what was not estimated is left out, never 0."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in (("rate", row.estimate), ("lower", row.lower), ("upper", row.upper)):
            if value is not None:
                found[f"{name}/{row.metric}"] = float(value)
        found[f"n_missing/{row.metric}"] = row.n_missing
        if row.n_unexposed is not None:
            found[f"n_unexposed/{row.metric}"] = row.n_unexposed
    found["n_missing"] = sum(row.n_missing for row in rows)
    return found
