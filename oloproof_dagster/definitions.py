"""Dagster's view of a project: one function that builds its definitions, and this repository's own code location."""

import os
from pathlib import Path

import dagster as dg

from oloproof_dagster.assets.automation import jobs, schedules, sensors
from oloproof_dagster.assets.execution import execution_assets
from oloproof_dagster.assets.gate import gate_assets
from oloproof_dagster.assets.metrics import metric_assets
from oloproof_dagster.assets.replays import replay_assets
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.assets.suite import suite_assets
from oloproof_dagster.assets.verdicts import verdict_assets
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.project.evidence_place import evidence_root as root_of
from oloproof_dagster.project.project import OLOPROOF_FOLDER, Project, load_project
from oloproof_dagster.resources import EvidenceIOManager, EvidenceStore, SandboxResource
from oloproof_dagster.resources.steps import StepValuesIOManager

EXAMPLE = Path(__file__).parent / "examples" / "stateful_agent"


def build_definitions(
    project: Project | Path | str,
    *,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    evidence_root: Path | str | None = None,
    sandbox: SandboxResource | None = None,
) -> dg.Definitions:
    """The assets, checks, jobs, schedule, sensors and resources of one project, all carrying its slug.

    `executor` is the code location's; pass None where several projects are merged and set it once. `evidence_root`,
    a folder or a URL, is by default the project's `store`, else `<project>/.oloproof/evidence`. `sandbox` replaces the
    resource that imports the declared system.

    Raises:
        ConfigError: a problem in oloproof.yaml or release.yaml, with its line and key, or a package that `store` needs
            is not installed.
    """
    loaded = project if isinstance(project, Project) else load_project(project)
    names = Names(loaded.slug)
    root = str(evidence_root or root_of(loaded))
    evidence = Evidence(root)  # says now what is not installed
    check_schedule(loaded)
    sandbox = sandbox or SandboxResource(project_dir=str(loaded.root))
    shared = sandbox.is_shared(loaded)
    pool, shards = (names.sandbox, 1) if shared else (None, loaded.suite.sandbox.shards)
    return dg.Definitions(
        assets=[
            *suite_assets(loaded),
            *execution_assets(loaded, pool, shards),
            *replay_assets(loaded, pool, shards),
            *verdict_assets(loaded),
            *metric_assets(loaded),
            *gate_assets(loaded, root),
        ],
        jobs=jobs(loaded, executor),
        schedules=schedules(loaded, evidence),
        sensors=sensors(loaded, evidence),
        resources={
            names.evidence: EvidenceStore(root=root),
            names.io_manager: EvidenceIOManager(root=root),
            names.sandbox: sandbox,
            **({names.steps: StepValuesIOManager(root=root)} if shards > 1 else {}),
        },
        executor=executor,
    )


def check_schedule(project: Project) -> None:
    """Refuses a cron line that Dagster cannot run.

    Raises:
        ConfigError: naming the key.
    """
    from dagster._utils.schedules import is_valid_cron_schedule

    declared = project.suite.schedule
    if declared and not is_valid_cron_schedule(declared.cron):
        raise project.problem("schedule.cron", f'{declared.cron!r} is no cron line; write five, such as "0 2 * * *"')


@dg.definitions
def defs() -> dg.Definitions:
    """The project that OLOPROOF_PROJECT names, else the packaged example with its evidence under this folder."""
    named = os.environ.get("OLOPROOF_PROJECT")
    if named:
        return build_definitions(named)
    return build_definitions(EXAMPLE, evidence_root=Path.cwd() / OLOPROOF_FOLDER / "evidence")
