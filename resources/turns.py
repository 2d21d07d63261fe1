"""A sandbox that several runs share: they take turns, one step at a time, through a Dagster pool.

Dagster keeps to a pool where the instance has a limit for it. An instance of the user's own may have none, and only its
daemon, which need not run, frees what a killed run held.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

import dagster as dg
from dagster._core.instance.config import PoolGranularity

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.resources.processes import TAG, report_killed

LOOK_SECONDS = 2.0
"""How often a waiting run looks whether the one that it waits for was killed."""


@contextlib.contextmanager
def taking_turns(instance: dg.DagsterInstance, pool: str | None, mark: str) -> Iterator[None]:
    """Sees to the pool of a shared sandbox while a run of a command, tagged with `mark`, is under way.

    Raises:
        ConfigError: the instance cannot keep runs from using the sandbox at the same time.
    """
    if pool is None:
        yield
        return
    if _limit(instance, pool) is None and instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.set_concurrency_slots(pool, 1)
    why = _why_not(instance, pool, is_of_a_command=True)
    if why:
        raise ConfigError(why)
    over = threading.Event()
    looking = threading.Thread(target=_look, args=(instance, pool, mark, over), name="oloproof-turns", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def require_turns(context: dg.AssetExecutionContext) -> None:
    """Refuses a step that shares a sandbox on an instance where it would not be alone with it."""
    pool = context.op_execution_context.op_def.pool
    why = _why_not(context.instance, pool, is_of_a_command=TAG in context.run.tags) if pool else None
    if why:
        raise dg.Failure(why, allow_retries=False)


def _why_not(instance: dg.DagsterInstance, pool: str, *, is_of_a_command: bool) -> str | None:
    """Why steps of several runs could use a shared sandbox at the same time; None where they cannot."""
    shared = "the sandbox is shared, and this Dagster instance"
    if instance.is_ephemeral:  # no other process sees it
        return None
    if not instance.event_log_storage.supports_global_concurrency_limits:
        return f"{shared} is too old to have pools: run `dagster instance migrate`"
    if is_of_a_command and _granularity(instance) == PoolGranularity.RUN:
        return (
            f"{shared} counts runs in its pools, for which a run of the command line does not wait: set"
            " concurrency.pools.granularity to op in dagster.yaml"
        )
    limit = _limit(instance, pool)
    if limit == 1:
        return None
    found = "has no limit for its pool" if limit is None else f"lets {limit} steps into its pool"
    return f"{shared} {found}: run `dagster instance concurrency set {pool} 1`"


def _limit(instance: dg.DagsterInstance, pool: str) -> int | None:
    if instance.event_log_storage.supports_global_concurrency_limits:
        for each in instance.event_log_storage.get_pool_limits():
            if each.name == pool and not each.from_default:
                return each.limit
    return instance.get_concurrency_config().pool_config.default_pool_limit


def _granularity(instance: dg.DagsterInstance) -> PoolGranularity | None:
    return instance.get_concurrency_config().pool_config.pool_granularity


def _look(instance: dg.DagsterInstance, pool: str, mark: str, over: threading.Event) -> None:
    """Frees what killed runs held, and says once that this one waits."""
    has_told = False
    while not over.wait(LOOK_SECONDS):
        with contextlib.suppress(Exception):  # a busy database: the next look will do
            report_killed(instance)
            if not has_told and _waits(instance, pool, mark):
                print("waiting for the shared sandbox, which another run is using", file=sys.stderr, flush=True)
                has_told = True


def _waits(instance: dg.DagsterInstance, pool: str, mark: str) -> bool:
    info = instance.event_log_storage.get_concurrency_info(pool)
    own = {run.run_id for run in instance.get_runs(dg.RunsFilter(tags={TAG: mark}), limit=1)}
    return bool(own & info.pending_run_ids) and bool(info.active_run_ids - own)
