"""Runs that live in a command's process: one that was killed is reported as failed when the next one starts.

Dagster looks after the runs that it launched itself. Of these it cannot tell whether anybody is still at them, and a
killed one would stay under way for ever.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import dagster as dg

from oloproof_dagster.liveness import began, is_alive, machine

TAG = "oloproof/process"
"""The tag that names the process of a run: machine, process id, when it began, and a mark of the run's own."""

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_under_way: set[str] = set()
"""The runs of this process that have not ended, by their tag's value: a process may outlive many of its runs."""


@contextmanager
def living() -> Iterator[dict[str, str]]:
    """The tags of a run that ends with the block, or with this process."""
    pid = os.getpid()
    value = f"{machine()}/{pid}/{began(pid)}/{uuid4().hex}"
    _under_way.add(value)
    try:
        yield {TAG: value}
    finally:
        _under_way.discard(value)


def report_killed(instance: dg.DagsterInstance) -> list[str]:
    """Reports as failed every unfinished run whose process, on this machine, is gone; their ids."""
    found = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        if _is_over(run.tags.get(TAG, "")):
            report_failed(instance, run, "The process of this run was killed; what it finished is kept.")
            found.append(run.run_id)
    return found


def report_failed(instance: dg.DagsterInstance, run: dg.DagsterRun, why: str) -> None:
    """Ends a run that nobody is at any more, and frees what it held of pools."""
    # First what it held: once it is reported nobody looks at it again.
    if instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    instance.report_run_failed(run, why)


def _is_over(value: str) -> bool:
    """Whether a tag's value names a run of this machine that nobody is at any more; of others nothing is known."""
    match value.split("/"):
        case [where, pid, since, _] if where == machine() and pid.isdecimal():
            if pid == str(os.getpid()) and is_alive(os.getpid(), float(since)):
                return value not in _under_way
            return not is_alive(int(pid), float(since))
    return False
