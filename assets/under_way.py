"""Which runs that Dagster shows as under way nobody is at any more: their daemon or machine died with them.

Dagster's launcher on one machine never looks whether a run that it started still lives. While a step executes or
replays it holds its version in the evidence, and a holder that dies lets go: so the evidence can tell.
"""

import time
from collections.abc import Iterable

import dagster as dg

from oloproof_dagster.assets.stage import Names
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.resources.processes import TAG, report_failed

GRACE_SECONDS = 60.0
"""How long a step may take from its start until it holds its version."""

PARTITION_TAG = "dagster/partition"


def report_gone(instance: dg.DagsterInstance, names: Names, evidence: Evidence) -> list[str]:
    """Reports as failed every run of a project in which a step is to execute or replay and holds nothing; their ids.

    A run of a command is known by its process, and left to that (`resources.processes`).
    """
    at_work = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
    found = []
    for run in instance.get_runs(at_work):
        version = run.tags.get(PARTITION_TAG)
        if version is None or TAG in run.tags or not executes(run, names):
            continue
        if any(_should_hold(instance, run.run_id, names)) and not evidence.is_held(version):
            report_failed(instance, run, "Nobody is at this run any more; what it finished is kept.")
            found.append(run.run_id)
    return found


def executes(run: dg.DagsterRun, names: Names) -> bool:
    """Whether a run executes a version, wherever it was started: a job, the asset graph, a command."""
    executed = names.key("trajectories")
    return run.job_name == f"{names.slug}_release_run" or executed in (run.asset_selection or ())


def _should_hold(instance: dg.DagsterInstance, run_id: str, names: Names) -> Iterable[bool]:
    """For each step that is under way, whether it ought to hold its version by now."""
    holding = (f"{names.slug}_execution", f"{names.slug}__fault_replays")
    for step in instance.get_run_step_stats(run_id):
        if step.start_time is not None and step.end_time is None:
            began_long_ago = time.time() - step.start_time > GRACE_SECONDS
            yield began_long_ago and step.step_key.partition(".")[0] in holding
