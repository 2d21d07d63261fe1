"""What runs without a hand: the jobs, the nightly schedule, and the two sensors that follow the system version."""

import time
from collections.abc import Sequence
from typing import Any

import dagster as dg

from oloproof_dagster.assets.recorded import execution_step
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.assets.under_way import PARTITION_TAG, executes, report_gone
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.project.project import PROJECT_FILE, Project, load_project
from oloproof_dagster.resources.processes import report_killed
from oloproof_dagster.suite.preflight import project_digest

NO_RETRIES = {"dagster/max_retries": "0"}
"""A red Gate is an answer, not a crash to be retried."""

RETRIED_AFTER_SECONDS = 3600
"""How long a failed run rests whose cause does not lie in the project's files, and so cannot be seen to be gone."""

PROJECT_TAG = "oloproof/project"
"""Bears the digest of the files that a requested run is of."""

SUITE = ("cases", "transformed_cases")
RECORDED = ("trajectories", "environment_states", "fault_replays")
JUDGED = ("verdicts", "metrics", "slices", "decisions", "gate")


def jobs(project: Project, executor: dg.ExecutorDefinition | None) -> list[Any]:
    """`release_run`, everything and what hangs behind the Gate; `rejudge`, recorded versions without executing."""
    names = Names(project.slug)
    ours = dg.AssetSelection.assets(*evaluation_selection(project))
    behind = dg.AssetSelection.assets(names.key("gate")).downstream()
    common: dict[str, Any] = {"tags": NO_RETRIES, "executor_def": executor}
    return [
        dg.define_asset_job(
            f"{names.slug}_release_run",
            ours | behind,
            description="Executes, judges and decides the declared version; of another it decides what is recorded.",
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
    return {"ops": {execution_step(project): {"config": {"fresh": True}}}}


def schedules(project: Project, evidence: Evidence) -> list[dg.ScheduleDefinition]:
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
        now = as_now(project)
        register(context.instance, now)
        report_gone(context.instance, names, evidence)  # what it has of a shared sandbox is needed
        return dg.RunRequest(
            partition_key=now.version,
            run_config=fresh_run(project),
            asset_selection=evaluation_selection(project),
            tags=NO_RETRIES,
        )

    return [nightly]


def sensors(project: Project, evidence: Evidence) -> list[dg.SensorDefinition]:
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
        version = as_now(project).version
        if context.instance.has_dynamic_partition(names.partitions.name or "", version):
            return dg.SkipReason(f"system version {version!r} is registered")
        return dg.SensorResult(
            dynamic_partitions_requests=[names.partitions.build_add_request([version])],
            skip_reason=f"added the partition of system version {version!r}",
        )

    @dg.sensor(
        name=f"{names.slug}_evaluate_new_system_version",
        job_name=f"{names.slug}_release_run",
        default_status=dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description="Requests a release run of the current version when it has no decided Gate.",
    )
    def evaluating(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        now = as_now(project)
        register(context.instance, now)
        return request_for(context.instance, now, evidence)

    return [registering, evaluating]


def as_now(project: Project) -> Project:
    """The project as its files declare it now: a code location that is loaded once ticks for days.

    Raises:
        ConfigError: its files cannot be used, or its name, which all keys are made of, is another.
    """
    now = load_project(project.root)
    if now.slug != project.slug:
        raise ConfigError.at(PROJECT_FILE, None, f"the project is named {now.slug} now; reload the code location")
    return now


def register(instance: dg.DagsterInstance, project: Project, version: str | None = None) -> bool:
    """Adds a version's partition, the current one's by default; whether it was new."""
    name, version = Names(project.slug).partitions.name or "", version or project.version
    if instance.has_dynamic_partition(name, version):
        return False
    instance.add_dynamic_partitions(name, [version])
    return True


def request_for(instance: dg.DagsterInstance, project: Project, evidence: Evidence) -> dg.RunRequest | dg.SkipReason:
    """A run for the current version, unless its Gate is decided or a run of it is under way that somebody is at.

    A run that was killed is requested again at once, as it goes on where it stopped. A failed run is requested again
    when the project's files have changed since, else after an hour, as what broke it may lie elsewhere. The run key
    counts the runs that there were, so that no key blocks a version for ever.
    """
    names, version = Names(project.slug), project.version
    last = names.key("gate" if project.policy else "metrics")  # without release.yaml nothing is ever decided
    if instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=last, asset_partitions=[version]), limit=1
    ).records:
        return dg.SkipReason(f"system version {version!r} is evaluated")
    killed = {*report_killed(instance), *report_gone(instance, names, evidence)}
    runs = _runs(instance, names, version)
    if any(not each.dagster_run.is_finished for each in runs):
        return dg.SkipReason(f"a run of system version {version!r} is under way")
    now = project_digest(project)
    latest = runs[0] if runs and runs[0].dagster_run.run_id not in killed else None
    if latest and latest.dagster_run.tags.get(PROJECT_TAG) == now and not _rested(latest):
        return dg.SkipReason(f"the last run of system version {version!r} failed and no file changed since")
    return dg.RunRequest(
        run_key=f"{version}/{now}/{len(runs)}",
        partition_key=version,
        asset_selection=evaluation_selection(project),
        tags={**NO_RETRIES, PROJECT_TAG: now},
    )


def _rested(record: dg.RunRecord) -> bool:
    """Whether a failed run is old enough to be requested again; what a person cancelled stays cancelled."""
    failed = record.dagster_run.status == dg.DagsterRunStatus.FAILURE
    return failed and time.time() - (record.end_time or 0) > RETRIED_AFTER_SECONDS


def _runs(instance: dg.DagsterInstance, names: Names, version: str) -> Sequence[dg.RunRecord]:
    """The runs that executed a version, the latest first."""
    records = instance.get_run_records(dg.RunsFilter(tags={PARTITION_TAG: version}))
    return [each for each in records if executes(each.dagster_run, names)]
