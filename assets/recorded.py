"""Which system versions a run may be of: the declared one is executed, a recorded one is taken as it is recorded.

The code of an old version is not there any more. A run of it reports its tables as reused and decides on them by the
rules of now, so that a run over all versions ends well; judging on today's dataset is left to the job `rejudge`.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from oloproof_dagster.assets.stage import Names, Stage
from oloproof_dagster.project.project import PROJECT_FILE, Project
from oloproof_dagster.wording import counted

KEPT = ("cases", "transformed_cases", "trajectories", "environment_states", "fault_replays")
"""The tables that a run of a recorded version leaves as they are."""

SCHEDULE_TAG = "dagster/schedule_name"
VERSIONS_NAMED = 5


def require_known(stage: Stage) -> None:
    """Refuses, before anything is materialised, a version that this run can do nothing with.

    Raises:
        dagster.Failure: the version is neither declared nor recorded, it is not recorded whole, or a person wants it
            executed.
    """
    version, declared = stage.version, stage.declared
    if version == declared:
        return
    if stage.evidence.attempt(version) is None:
        raise _refusal(
            f"system version {version!r} is neither declared nor recorded: {PROJECT_FILE} declares {declared!r};"
            f" recorded: {_named(stage.evidence.versions())}"
        )
    if not stage.keeps_recorded:
        return
    lost = [name for name in KEPT if not stage.evidence.table(name, version).exists]
    if lost:
        raise _refusal(
            f"system version {version!r} was not executed to its end ({', '.join(lost)} not recorded), and"
            f" {PROJECT_FILE} declares {declared!r}: declare {version!r} again, with its code, to execute it"
        )
    wanted = [option for option in _options(stage) if option == "fresh" or stage.n_recorded_errors]
    if wanted and not _is_scheduled(stage):
        raise _refusal(
            f"{' and '.join(wanted)}: only the declared version, {declared!r}, can be executed; leave it out, and what"
            f" is recorded of {version!r} is decided again"
        )


def line_of_ignored(stage: Stage) -> str | None:
    """One line where a schedule wanted a version executed that is not declared any more; None else."""
    if "fresh" not in _options(stage) or not _is_scheduled(stage):
        return None
    return (
        f"the schedule's fresh is ignored: {PROJECT_FILE} declares {stage.declared!r} by now, and what is recorded of"
        f" {stage.version!r} is decided again"
    )


def execution_step(project: Project) -> str:
    """The name of the step that executes, which a run's config knows it by."""
    return f"{Names(project.slug).slug}_execution"


def _options(stage: Stage) -> list[str]:
    """What the run's config wants executed anew."""
    configured: Mapping[str, Any] = stage.context.run.run_config
    step = (configured.get("ops") or {}).get(execution_step(stage.project)) or {}
    config = step.get("config") or {}
    return [option for option in ("fresh", "retry_errors") if config.get(option)]


def _is_scheduled(stage: Stage) -> bool:
    return SCHEDULE_TAG in stage.context.run.tags


def _named(versions: tuple[str, ...]) -> str:
    """The latest of some versions, by name."""
    named = ", ".join(map(repr, versions[-VERSIONS_NAMED:])) or "none"
    more = len(versions) - VERSIONS_NAMED
    return f"{named}, and {counted(more, 'earlier one')}" if more > 0 else named


def _refusal(why: str) -> dg.Failure:
    return dg.Failure(why, allow_retries=False)
