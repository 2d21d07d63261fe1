"""Runs that live in a command's process: one that was killed is reported as failed when the next one starts.

Dagster looks after the runs that it launched itself. Of these it cannot tell whether anybody is still at them, and a
killed one would stay under way for ever.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import dagster as dg
from filelock import FileLock, Timeout

TAG, HOST = "oloproof/process", "oloproof/host"
UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@contextmanager
def living(instance: dg.DagsterInstance) -> Iterator[dict[str, str]]:
    """The tags of a run that ends with this process: they name a lock, which the system lets go when it dies."""
    mark = uuid4().hex
    path = _lock(instance, mark)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path):
            yield {TAG: mark, HOST: platform.node()}
    finally:
        path.unlink(missing_ok=True)


def report_killed(instance: dg.DagsterInstance) -> list[str]:
    """Reports as failed every unfinished run whose process, on this machine, is gone; their ids."""
    found = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        mark = run.tags.get(TAG)
        if mark and run.tags.get(HOST) == platform.node() and not _held(_lock(instance, mark)):
            # First what it held: once it is reported nobody looks at it again.
            if instance.event_log_storage.supports_global_concurrency_limits:
                instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            instance.report_run_failed(run, "The process of this run was killed; what it finished is kept.")
            found.append(run.run_id)
    return found


def _lock(instance: dg.DagsterInstance, mark: str) -> Path:
    return Path(instance.root_directory) / "oloproof" / f"{mark}.lock"


def _held(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            pass
    except Timeout:
        return True
    path.unlink(missing_ok=True)
    return False
