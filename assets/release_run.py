"""A release run from the command line: the same job, definitions, instance and stores that the UI shows, in-process.

It materialises and says what happened; what was decided is read from the stored tables.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from oloproof_dagster.assets.automation import JUDGED, SUITE, evaluation_selection, register
from oloproof_dagster.assets.stage import Names

from oloproof_dagster.definitions import build_definitions
from oloproof_dagster.errors import ConfigError, EvidenceError, OloproofError
from oloproof_dagster.project import Project

DEFINITIONS_FILE = "definitions.py"


@dataclass(frozen=True)
class Materialized:
    """What a run did: each table's metadata, and what broke, if anything did."""

    metadata: Mapping[str, Mapping[str, Any]]
    failure: Exception | None

    @property
    def warnings(self) -> list[str]:
        found = (str(table.get("warnings") or "") for table in self.metadata.values())
        return [line for text in found for line in text.splitlines()]

    def cache(self) -> dict[str, dict[str, int]]:
        """How many executions and replays were answered from evidence and how many were made."""
        return {
            what: {
                "hit": int(self.metadata.get(table, {}).get("answered_from_evidence", 0)),
                "miss": int(self.metadata.get(table, {}).get(made, 0)),
            }
            for what, table, made in (
                ("executions", "trajectories", "executed"),
                ("replays", "fault_replays", "replayed"),
            )
        }


def materialize(
    project: Project, instance: dg.DagsterInstance, *, version: str, fresh: bool = False, retry_errors: bool = False
) -> Materialized:
    """Materialises a release run of the current version, or judges again what is recorded of another."""
    names, current = Names(project.slug), version == project.version
    job_name = f"{names.slug}_{'release_run' if current else 'rejudge'}"
    definitions = project_definitions(project)
    try:
        job = definitions.resolve_job_def(job_name)
    except (dg.DagsterError, KeyError) as error:
        raise ConfigError(
            f"{DEFINITIONS_FILE}: the job {job_name} cannot be built from its definitions: {str(error).splitlines()[0]}"
        ) from error
    if current:
        register(instance, project)
        selection = evaluation_selection(project)
    else:
        selection = [names.key(table) for table in (*SUITE, *JUDGED)]
    result = job.execute_in_process(
        instance=instance,
        partition_key=version,
        asset_selection=selection,
        raise_on_error=False,
        run_config=_run_config(names, current=current, fresh=fresh, retry_errors=retry_errors),
    )
    return Materialized(_metadata(result), _failure(result, names))


def project_definitions(project: Project) -> dg.Definitions:
    """What the project's definitions.py defines, so that its own resources are used; else the definitions as such.

    Raises:
        ConfigError: definitions.py raises, or defines no Definitions.
    """
    path = project.root / DEFINITIONS_FILE
    if not path.is_file():
        return build_definitions(project)
    spec = importlib.util.spec_from_file_location(f"oloproof_definitions_of_{project.slug}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except OloproofError:
        raise
    except Exception as error:
        raise ConfigError(f"{DEFINITIONS_FILE}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, dg.Definitions)]
    if len(found) != 1:
        raise ConfigError(
            f"{DEFINITIONS_FILE}: must define one Definitions object, such as"
            " `defs = oloproof_dagster.build_definitions(Path(__file__).parent)`; it defines"
            f" {len(found)}"
        )
    return found[0]


def _run_config(names: Names, *, current: bool, fresh: bool, retry_errors: bool) -> dict[str, Any]:
    config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    if current:
        config["ops"] = {
            f"{names.slug}_execution": {"config": {"fresh": fresh, "retry_errors": retry_errors}},
            f"{names.slug}__fault_replays": {"config": {"retry_errors": retry_errors}},
        }
    return config


def _metadata(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    return {
        event.asset_key.path[-1]: {
            name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def _failure(result: dg.ExecuteInProcessResult, names: Names) -> Exception | None:
    """What broke, as an exception of ours; a blocking check that failed is an answer and nothing broken."""
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        data = event.step_failure_data
        if data.user_failure_data is not None:
            return ConfigError(str(data.user_failure_data.description))
        errors = _chain(data.error)
        if any(error.cls_name == "DagsterAssetCheckFailedError" for error in errors):
            continue
        for error in errors:
            if error.cls_name in _OURS:
                return _OURS[error.cls_name](_message(error))
        innermost = errors[-1]
        where = (event.step_key or "").removeprefix(f"{names.slug}__")
        return RuntimeError(f"{where}: {_message(innermost)}\n" + "".join(innermost.stack))
    return None


_OURS: dict[str, type[OloproofError]] = {"ConfigError": ConfigError, "EvidenceError": EvidenceError}


def _chain(error: Any) -> Sequence[Any]:
    found = []
    while error is not None:
        found.append(error)
        error = error.cause
    return found


def _message(error: Any) -> str:
    """The message without the class name that Dagster puts in front."""
    return str(error.message.strip().partition(f"{error.cls_name}: ")[2] or error.message.strip())
