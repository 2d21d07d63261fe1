"""What runs without a hand: the jobs, the nightly schedule, and the two sensors that follow the system version."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from oloproof_dagster.assets.stage import Names

from oloproof_dagster.project import Project

NO_RETRIES = {"dagster/max_retries": "0"}
"""A red Gate is an answer, not a crash to be retried."""

SUITE = ("cases", "transformed_cases")
RECORDED = ("trajectories", "environment_states", "fault_replays")
JUDGED = ("verdicts", "metrics", "slices", "decisions", "gate")


def jobs(project: Project, executor: dg.ExecutorDefinition | None) -> list[Any]:
    """`release_run`, everything and what hangs behind the Gate; `rejudge`, recorded versions without executing."""
    names = Names(project.slug)
    ours = dg.AssetSelection.assets(*(names.key(table) for table in (*SUITE, *RECORDED, *JUDGED)))
    behind = dg.AssetSelection.assets(names.key("gate")).downstream()
    common: dict[str, Any] = {"partitions_def": names.partitions, "tags": NO_RETRIES, "executor_def": executor}
    return [
        dg.define_asset_job(
            f"{names.slug}_release_run",
            ours | behind,
            description="Executes, judges and decides the version that the project declares now.",
            **common,
        ),
        dg.define_asset_job(
            f"{names.slug}_rejudge",
            dg.AssetSelection.assets(*(names.key(table) for table in (*SUITE, *JUDGED))),
            description="Judges and decides what is recorded of a version; executes nothing.",
            **common,
        ),
    ]


def evaluation_selection(project: Project) -> list[dg.AssetKey]:
    """The release run without what hangs behind the Gate."""
    return [Names(project.slug).key(table) for table in (*SUITE, *RECORDED, *JUDGED)]


def fresh_run(project: Project) -> dict[str, Any]:
    """The run config that executes everything again."""
    return {"ops": {f"{Names(project.slug).slug}_execution": {"config": {"fresh": True}}}}


def schedules(project: Project) -> list[dg.ScheduleDefinition]:
    """The nightly evaluation of the current version, fresh; none where oloproof.yaml declares no schedule."""
    declared, names = project.suite.schedule, Names(project.slug)
    if declared is None:
        return []

    @dg.schedule(
        name=f"{names.slug}_nightly_evaluation",
        job_name=f"{names.slug}_release_run",
        cron_schedule=declared.cron,
        execution_timezone=declared.timezone,
        description="Executes and decides the current version again.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        register(context.instance, project)
        return dg.RunRequest(
            partition_key=project.version,
            run_config=fresh_run(project),
            asset_selection=evaluation_selection(project),
            tags=NO_RETRIES,
        )

    return [nightly]


def sensors(project: Project) -> list[dg.SensorDefinition]:
    """One registers the current version's partition; one, when switched on, evaluates a version not yet decided."""
    names = Names(project.slug)

    @dg.sensor(
        name=f"{names.slug}_register_system_version",
        job_name=f"{names.slug}_release_run",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
        description="Adds the partition of the version that the project declares now.",
    )
    def registering(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.instance.has_dynamic_partition(names.partitions.name or "", project.version):
            return dg.SkipReason(f"system version {project.version!r} is registered")
        return dg.SensorResult(dynamic_partitions_requests=[names.partitions.build_add_request([project.version])])

    @dg.sensor(
        name=f"{names.slug}_evaluate_new_system_version",
        job_name=f"{names.slug}_release_run",
        default_status=dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description="Requests a release run of the current version when it has no decided Gate.",
    )
    def evaluating(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        register(context.instance, project)
        return request_for(context.instance, project)

    return [registering, evaluating]


def register(instance: dg.DagsterInstance, project: Project) -> bool:
    """Adds the current version's partition; whether it was new."""
    name = Names(project.slug).partitions.name or ""
    if instance.has_dynamic_partition(name, project.version):
        return False
    instance.add_dynamic_partitions(name, [project.version])
    return True


def request_for(instance: dg.DagsterInstance, project: Project) -> dg.RunRequest | dg.SkipReason:
    """A run for the current version, unless its Gate is decided or a run of it is under way.

    A failed run is asked for again once its cause is gone: the run key counts the runs that there were, and a failure
    is retried only after the project's files changed.
    """
    names, version = Names(project.slug), project.version
    decided = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=names.key("gate"), asset_partitions=[version]), limit=1
    ).records
    if decided:
        return dg.SkipReason(f"the Gate of system version {version!r} is decided")
    runs = _runs(instance, names, version)
    if any(not run.is_finished for run in runs):
        return dg.SkipReason(f"a run of system version {version!r} is under way")
    from oloproof_dagster.preflight import project_digest

    now = project_digest(project)
    if any(run.tags.get("oloproof/project") == now for run in runs):
        return dg.SkipReason(f"the run of system version {version!r} failed and nothing changed since")
    return dg.RunRequest(
        run_key=f"{version}/{now}",
        partition_key=version,
        asset_selection=evaluation_selection(project),
        tags={**NO_RETRIES, "oloproof/project": now},
    )


def _runs(instance: dg.DagsterInstance, names: Names, version: str) -> Sequence[dg.DagsterRun]:
    return instance.get_runs(
        dg.RunsFilter(job_name=f"{names.slug}_release_run", tags={"dagster/partition": version}), limit=50
    )
