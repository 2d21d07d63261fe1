"""What may run behind the Gate: `require_gate` and `gated_asset` go on only for what its Gate was decided on.

A blocking check holds back within one run only, and says nothing of what was edited since. So the Gate's row is read
from the evidence, with the digests of all that it stands on, and these are compared with the files and tables of now.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.assets.basis import basis_now
from oloproof_dagster.assets.stage import Names
from oloproof_dagster.decision.basis import Basis, what_changed
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.project.evidence_place import evidence_root as root_of
from oloproof_dagster.project.project import PROJECT_FILE, Project, load_project
from oloproof_dagster.report.runs import Run
from oloproof_dagster.resources.failures import as_failure

GROUP = "release"
PROJECT, EVIDENCE = "oloproof/project_folder", "oloproof/evidence_root"
"""Where a gate's definition, and each of its materialisations, say where its project and its evidence are."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Gate's project and its evidence are."""

    project: Path
    evidence: str

    def metadata(self) -> dict[str, str]:
        """The place as a gate's metadata."""
        return {PROJECT: str(self.project), EVIDENCE: self.evidence}


def require_gate(
    context: dg.AssetExecutionContext,
    *,
    gate: dg.AssetKey | Sequence[str] | None = None,
    project: Path | str | None = None,
    evidence_root: Path | str | None = None,
    allow_warn: bool = False,
) -> None:
    """Goes on only when the Gate of this very partition allows the release, and nothing that it stands on was changed.

    `gate` is the key of the gate; by default the upstream asset of that name. `project` is the folder of oloproof.yaml,
    and `evidence_root` where its evidence is: by default what the gate itself says.

    Raises:
        dagster.Failure: the Gate blocks, warns (unless `allow_warn`) or was never decided for this version, or the
            files or tables are not those that it was decided on.
    """
    key = dg.AssetKey.from_coercible(gate) if gate is not None else _upstream_gate(context)
    with as_failure():
        _require(context, _place(context, key, project, evidence_root), allow_warn)


def gated_asset(
    project: Project | Path | str, *, allow_warn: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """An asset behind a project's Gate: downstream of it, of its partitions, its body run only where `require_gate`
    goes on.

    `options` are those of `dagster.asset`; the decorated function takes `context` first.
    """
    loaded = project if isinstance(project, Project) else load_project(project)
    names = Names(loaded.slug)

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        @functools.wraps(function)
        def guarded(context: dg.AssetExecutionContext, *args: Any, **kwargs: Any) -> Any:
            require_gate(context, gate=names.key("gate"), project=loaded.root, allow_warn=allow_warn)
            return function(context, *args, **kwargs)

        deps = [*options.pop("deps", ()), names.key("gate")]
        own = {"key_prefix": names.slug, "group_name": GROUP, "partitions_def": names.partitions, **options}
        gated: dg.AssetsDefinition = dg.asset(**own, deps=deps)(guarded)
        return gated

    return decorate


def _require(context: dg.AssetExecutionContext, place: Place, allow_warn: bool) -> None:
    version, project = context.partition_key, load_project(place.project)
    run = Run(project, version, None, Evidence(place.evidence))
    if run.gate is None:
        raise _refusal(f"no Gate was decided for system version {version!r}, or its evidence was removed")
    action = run.gate["action"]
    if action != "ALLOW" and not (action == "WARN" and allow_warn):
        raise _refusal(
            f"the Gate of system version {version!r} says {action}"
            + ("; pass allow_warn=True to go on with warnings" if action == "WARN" else "")
        )
    again = f"run {project.slug}_release_run for {version!r} again"
    text = next(iter(run.table("gate").rows())).basis
    if text is None:
        raise _refusal(f"the Gate of system version {version!r} does not say what it was decided on; {again}")
    noted = Basis.of_text(text)
    changed = what_changed(noted, basis_now(project, version, run.evidence, noted))
    if changed is not None:
        raise _refusal(f"{changed} after the Gate of system version {version!r} was decided; {again}")


def _place(
    context: dg.AssetExecutionContext, key: dg.AssetKey, project: Path | str | None, evidence: Path | str | None
) -> Place:
    """Where the gate's project and evidence are: as the caller says, as the gate's definition says, or as it said of
    its latest materialisation, which another machine may have made."""
    noted = _of_definition(context, key) or _of_materialization(context, key)
    root = Path(project or noted.get(PROJECT) or "")
    if not (project or noted) or not (root / PROJECT_FILE).is_file():
        raise _refusal(
            f"require_gate does not find the project of {key.to_user_string()}; pass project=, the folder of its"
            f" {PROJECT_FILE}"
        )
    return Place(root, str(evidence or noted.get(EVIDENCE) or root_of(load_project(root))))


def _of_definition(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dict[str, str]:
    """What the gate's definition says, where it is in the same code location.

    Dagster has no public way from a context to other assets; without this one the materialisation says the same.
    """
    graph = getattr(getattr(context.job_def, "asset_layer", None), "asset_graph", None)
    return _place_in(graph.get(key).metadata) if graph is not None and graph.has(key) else {}


def _of_materialization(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dict[str, str]:
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[context.partition_key])
    records = context.instance.fetch_materializations(wanted, limit=1).records
    latest = records[0].asset_materialization if records else None
    return _place_in(latest.metadata) if latest else {}


def _place_in(metadata: Mapping[str, Any]) -> dict[str, str]:
    found = {name: metadata[name] for name in (PROJECT, EVIDENCE) if name in metadata}
    return {name: str(value.value if isinstance(value, dg.MetadataValue) else value) for name, value in found.items()}


def _upstream_gate(context: dg.AssetExecutionContext) -> dg.AssetKey:
    found: set[dg.AssetKey] = {
        key for keys in context.assets_def.asset_deps.values() for key in keys if key.path[-1] == "gate"
    }
    if len(found) != 1:
        raise _refusal(f"require_gate found {len(found)} upstream assets named gate; pass gate=AssetKey([...])")
    return found.pop()


def _refusal(why: str) -> dg.Failure:
    return dg.Failure(f"not released: {why}", allow_retries=False)
