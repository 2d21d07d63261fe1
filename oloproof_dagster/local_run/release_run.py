"""A release run from the command line: the same job, definitions, instance and stores that the UI shows, in-process.

It materialises and says what happened; what was decided is read from the stored tables.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster.components.definitions import LazyDefinitions

from oloproof_dagster.assets.automation import JUDGED, SUITE, evaluation_selection, register
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.definitions import build_definitions
from oloproof_dagster.errors import ConfigError, EvidenceError, OloproofError
from oloproof_dagster.local_run.losses import HistoryLost, losses_raised
from oloproof_dagster.project.evidence_place import evidence_of
from oloproof_dagster.project.project import Project
from oloproof_dagster.resources import EvidenceStore, SandboxResource
from oloproof_dagster.resources.processes import TAG, living, report_killed
from oloproof_dagster.resources.turns import taking_turns
from oloproof_dagster.system.loading import importing_from
from oloproof_dagster.system.own_files import OwnFiles

DEFINITIONS_FILE = "definitions.py"


@dataclass(frozen=True)
class Materialized:
    """What a run did: each table's metadata, and what broke, if anything did."""

    metadata: Mapping[str, Mapping[str, Any]]
    failure: BaseException | None

    @property
    def warnings(self) -> list[str]:
        """The warnings that the run's tables bear, one a line."""
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
    """Materialises a release run of the current version, or judges again what is recorded of another.

    Raises:
        ConfigError: the project's definitions cannot be built, or what they need is not there.
    """
    names, current = Names(project.slug), version == project.version
    job_name = f"{names.slug}_{'release_run' if current else 'rejudge'}"
    definitions = project_definitions(project)
    _require_own_evidence(project, definitions)
    try:
        job = definitions.resolve_job_def(job_name)
    except (dg.DagsterError, KeyError) as error:
        raise ConfigError(
            f"{DEFINITIONS_FILE}: the job {job_name} cannot be built from its definitions: {str(error).splitlines()[0]}"
        ) from error
    selection = evaluation_selection(project) if current else [names.key(table) for table in (*SUITE, *JUDGED)]
    sandbox = (definitions.resources or {}).get(names.sandbox)
    pool = names.sandbox if isinstance(sandbox, SandboxResource) and sandbox.is_shared(project) else None
    try:
        with losses_raised():
            register(instance, project, version)  # also one that another machine recorded in the same store
            report_killed(instance)
        with losses_raised(), living() as tags, taking_turns(instance, pool, tags[TAG]):
            result = job.execute_in_process(
                instance=instance,
                partition_key=version,
                asset_selection=selection,
                raise_on_error=False,
                run_config=_run_config(names, current=current, fresh=fresh, retry_errors=retry_errors),
                tags={**tags, **_origin(project)},
            )
    except (dg.DagsterInvalidConfigError, dg.DagsterInvalidSubsetError) as error:
        raise _not_started(str(error)) from error
    except HistoryLost as error:
        raise EvidenceError(
            f"cannot write Dagster's run history to {instance.root_directory}: {error}; what was finished is kept"
        ) from error
    return Materialized(
        {**({} if current else _recorded(project, version)), **_metadata(result)}, _failure(result, names)
    )


def _origin(project: Project) -> dict[str, str]:
    """The tag by which Dagster's pages know whose job a run is, as the workspace of `oloproof ui` names it."""
    here = (project.root / DEFINITIONS_FILE).is_file()
    location = DEFINITIONS_FILE if here else build_definitions.__module__
    return {".dagster/repository": f"__repository__@{location}"}


def project_definitions(project: Project) -> dg.Definitions:
    """What the project's definitions.py defines, so that its own resources are used; else the definitions as such.

    Raises:
        ConfigError: definitions.py raises, or defines no Definitions.
    """
    path = project.root / DEFINITIONS_FILE
    if not path.is_file():
        return build_definitions(project)
    own_files = OwnFiles.of(project, path.stem)
    own_files.forget()
    spec = importlib.util.spec_from_file_location(f"oloproof_definitions_of_{project.slug}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with importing_from(project.root):  # as `dagster dev` in that folder has it
            spec.loader.exec_module(module)
        found = [
            value() if isinstance(value, LazyDefinitions) else value
            for value in vars(module).values()
            if isinstance(value, dg.Definitions | LazyDefinitions)
        ]
    except OloproofError:
        raise
    except Exception as error:
        raise ConfigError(f"{DEFINITIONS_FILE}: {own_files.describe(error)}") from error
    if len(found) != 1:
        raise ConfigError(
            f"{DEFINITIONS_FILE}: must define one Definitions object, such as"
            " `defs = oloproof_dagster.build_definitions(Path(__file__).parent)`; it defines"
            f" {len(found)}"
        )
    return found[0]


def _require_own_evidence(project: Project, definitions: dg.Definitions) -> None:
    """Refuses definitions that keep evidence where the commands would not look for it, and so would show an older
    run."""
    store, own = (definitions.resources or {}).get(Names(project.slug).evidence), evidence_of(project).root
    if isinstance(store, EvidenceStore) and store.evidence.root != own:
        raise ConfigError(
            f"{DEFINITIONS_FILE}: evidence_root is {store.root}, but the command line works on {own};"
            " leave evidence_root out, or run through Dagster's own commands"
        )


def _recorded(project: Project, version: str) -> dict[str, dict[str, Any]]:
    """What a run that executes nothing has of each table of evidence: all its rows."""
    evidence = evidence_of(project)
    return {
        table: {"answered_from_evidence": len(evidence.table(table, version))}
        for table in ("trajectories", "fault_replays")
    }


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


def _failure(result: dg.ExecuteInProcessResult, names: Names) -> BaseException | None:
    """What broke, as an exception of ours; a blocking check that failed is an answer and nothing broken."""
    blocked = False
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        data = event.step_failure_data
        if data.user_failure_data is not None:
            return ConfigError(str(data.user_failure_data.description))
        errors = _chain(data.error)
        if any(error.cls_name == "DagsterAssetCheckFailedError" for error in errors):
            blocked = True
            continue
        if any(error.cls_name in _INTERRUPTED for error in errors):
            return KeyboardInterrupt()
        innermost = errors[-1]
        where = (event.step_key or "").removeprefix(f"{names.slug}__")
        return RuntimeError(f"{where}: {_message(innermost)}\n" + "".join(innermost.stack))
    if result.success or blocked:
        return None
    for event in result.all_events:  # no step was begun: a resource of the project's own could not be made
        if event.is_failure and event.event_type == dg.DagsterEventType.RUN_FAILURE:
            errors = _chain(event.job_failure_data.error)
            return _not_started(_message(errors[-1]) if errors else event.message or "it failed")
    return RuntimeError("the run failed and no step of it did")


def _not_started(why: str) -> ConfigError:
    return ConfigError(f"the run could not start: {' '.join(why.partition('Stack Trace')[0].split())}")


_INTERRUPTED = {"DagsterExecutionInterruptedError", "KeyboardInterrupt"}


def _chain(error: Any) -> Sequence[Any]:
    found = []
    while error is not None:
        found.append(error)
        error = error.cause
    return found


def _message(error: Any) -> str:
    """The message without the class name that Dagster puts in front."""
    return str(error.message.strip().partition(f"{error.cls_name}: ")[2] or error.message.strip())
