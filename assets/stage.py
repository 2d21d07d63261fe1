"""What every stage shares: its project's names, and the rule by which a recorded table is used again.

A table is reused when the latest materialisation of this very partition, and the file itself, bear the fingerprint
that would be written now. Dagster's own provenance answers for any partition and cannot tell.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.digests import digest
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.parquet import Staged, Stored, stage
from oloproof_dagster.project.project import PROJECT_FILE, Project, load_project
from oloproof_dagster.records.schema import Table
from oloproof_dagster.records.tables import TABLES
from oloproof_dagster.resources import EvidenceStore
from oloproof_dagster.resources.failures import failing_plainly
from oloproof_dagster.workers.session import Session

READER = dg.PythonObjectDagsterType(Stored, name="OloproofTable")


@dataclass(frozen=True)
class Names:
    """Everything in a deployment that a project's slug keeps apart from other projects'."""

    slug: str

    def key(self, table: str) -> dg.AssetKey:
        """The asset key of a table."""
        return dg.AssetKey([self.slug, table])

    @property
    def evidence(self) -> str:
        """The name of the evidence store's resource."""
        return f"{self.slug}_evidence"

    @property
    def io_manager(self) -> str:
        """The name of the tables' IO manager."""
        return f"{self.slug}_tables"

    @property
    def sandbox(self) -> str:
        """The name of the sandbox's resource, and of the pool where it is shared."""
        return f"{self.slug}_sandbox"

    @property
    def steps(self) -> str:
        """The name of the IO manager of values between steps."""
        return f"{self.slug}_steps"

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """One partition a system version: one release run."""
        return dg.DynamicPartitionsDefinition(name=f"{self.slug}_system_version")

    def asset(
        self,
        table: str,
        *,
        reads: tuple[str, ...] = (),
        group: str,
        code_version: str,
        description: str,
        sandbox: bool = False,
        **more: Any,
    ) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
        """The decorator of a table's asset: takes the tables it reads, is partitioned by version, stored in Parquet."""
        options: dict[str, Any] = {
            "key": self.key(table),
            "ins": {name: dg.AssetIn(self.key(name), dagster_type=READER) for name in reads},
            "group_name": group,
            "code_version": code_version,
            "description": description,
            "kinds": {"parquet"},
            "metadata": column_metadata(table),
            "partitions_def": self.partitions,
            "io_manager_key": self.io_manager,
            "required_resource_keys": {self.evidence, *([self.sandbox] if sandbox else [])},
            **more,
        }
        decorator: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(**options)
        return lambda body: decorator(failing_plainly(body))

    def spec(
        self, table: str, *, reads: tuple[str, ...], group: str, code_version: str, description: str
    ) -> dg.AssetSpec:
        """The same for a table that a multi-asset makes."""
        return dg.AssetSpec(
            self.key(table),
            deps=[self.key(name) for name in reads],
            group_name=group,
            code_version=code_version,
            description=description,
            kinds={"parquet"},
            metadata=column_metadata(table),
            partitions_def=self.partitions,
        ).with_io_manager_key(self.io_manager)


def column_metadata(table: str) -> dict[str, dg.TableSchema]:
    """The table's columns as its page shows them."""
    columns = [
        dg.TableColumn(
            name=each.name, type=str(each.type), constraints=dg.TableColumnConstraints(nullable=each.nullable)
        )
        for each in TABLES[table].schema
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def require_as_loaded(project: Project) -> None:
    """Refuses to run the system where oloproof.yaml declares another one than when these definitions were loaded.

    A code location may live for days; one declaration's version must never be on what another's system did.
    """
    now, loaded = load_project(project.root).suite, project.suite
    if any(getattr(now, key) != getattr(loaded, key) for key in ("system", "sandbox", "trials", "retries")):
        raise dg.Failure(
            f"the system in {PROJECT_FILE} was edited after these definitions were loaded; reload the code location,"
            " then run again",
            allow_retries=False,
        )


def require_registered(context: dg.AssetExecutionContext, project: Project) -> None:
    """Refuses a version that is no partition: Dagster launches such a run and fails only once there is a table to
    store."""
    version = context.partition_key
    if not context.instance.has_dynamic_partition(Names(project.slug).partitions.name or "", version):
        raise dg.Failure(
            f"system version {version!r} is not registered; oloproof.yaml declares {project.version!r}, which"
            " `oloproof versions --register` adds",
            allow_retries=False,
        )


@dataclass
class NewTable:
    """A table about to be written: its rows, and what is noted of it once they are through."""

    rows: Iterable[Any]
    facts: Callable[[], dict[str, Any]] = dict
    metadata: Callable[[], dict[str, Any]] = dict


class Stage:
    """One materialisation of one table of one partition."""

    def __init__(self, context: dg.AssetExecutionContext, project: Project, table: Table[Any]) -> None:
        self.context, self.project, self.table = context, project, table
        self.names = Names(project.slug)
        self.version = context.partition_key
        require_registered(context, project)
        store: EvidenceStore = getattr(context.resources, self.names.evidence)
        self.evidence: Evidence = store.evidence

    @property
    def session(self) -> Session:
        """The run's use of the system under test."""
        session: Session = getattr(self.context.resources, self.names.sandbox)
        return session

    @property
    def stored(self) -> Stored[Any]:
        """The table as it is recorded now."""
        return self.evidence.table(self.table.name, self.version)

    @cached_property
    def declared(self) -> str:
        """The version that oloproof.yaml declares now."""
        return load_project(self.project.root).version

    @property
    def keeps_recorded(self) -> bool:
        """Whether the run takes its version's cases and recordings as they are: it is not the declared one, and not to
        be judged on today's dataset, which is what the job `rejudge` is for."""
        return self.version != self.declared and self.context.run.job_name != f"{self.names.slug}_rejudge"

    @property
    def n_recorded_errors(self) -> int:
        """How many of the version's executions and replays are recorded as errors."""
        tables = (self.evidence.table(name, self.version) for name in ("trajectories", "fault_replays"))
        return sum(int(each.facts().get("n_errors", 0)) for each in tables)

    def fingerprint(self, *upstream: Stored[Any], **more: Any) -> str:
        """What the table is a function of: the code version, the upstream contents, and what else is named."""
        code_version = self.context.assets_def.code_versions_by_key[self.names.key(self.table.name)]
        contents = [each.content for each in upstream]
        return digest("fingerprint/v1", {"code": code_version, "upstream": contents, **more})

    def current(self, fingerprint: str) -> dict[str, Any] | None:
        """The latest materialisation's metadata, where it and the recorded table bear the fingerprint; else None."""
        latest = self._latest_metadata
        noted = latest.get("fingerprint")
        facts, n_rows = self.stored.facts_and_length()
        if noted is None or not noted.value == fingerprint == facts.get("fingerprint"):
            return None
        if latest["dagster/row_count"].value != n_rows:
            return None
        return {name: value for name, value in latest.items() if name != "warnings"}

    @cached_property
    def _latest_metadata(self) -> Mapping[str, dg.MetadataValue[Any]]:
        return self.metadata_of(self.table.name)

    def metadata_of(self, table: str) -> Mapping[str, dg.MetadataValue[Any]]:
        """The metadata of a table's latest materialisation in this very partition; empty where there is none."""
        wanted = dg.AssetRecordsFilter(asset_key=self.names.key(table), asset_partitions=[self.version])
        found = self.context.instance.fetch_materializations(wanted, limit=1).records
        materialization = found[0].asset_materialization if found else None
        return materialization.metadata if materialization else {}

    def reused(self, latest: Mapping[str, Any], now: Mapping[str, Any] | None = None) -> dg.MaterializeResult[Any]:
        """The recorded table, used again: no value, so that the file stays as it is and downstream reads it."""
        return dg.MaterializeResult(
            asset_key=self.names.key(self.table.name),
            data_version=dg.DataVersion(self.stored.content),
            metadata={**latest, "reused": True, **(now or {})},
        )

    def as_recorded(self, **now: Any) -> dg.MaterializeResult[Any]:
        """The recorded table, whatever it would be made of now."""
        latest = {name: value for name, value in self._latest_metadata.items() if name != "warnings"}
        return self.reused(latest, {"dagster/row_count": len(self.stored), **now})

    @property
    def staging(self) -> Path:
        """Where the table is written before it takes its place."""
        return self.evidence.staging(self.table.name, self.version)

    def written(
        self, new: NewTable, fingerprint: str, upstream: tuple[Stored[Any], ...]
    ) -> dg.MaterializeResult[Staged]:
        """The table made anew and staged; it notes the contents of those that it was made of."""
        noted = {"fingerprint": fingerprint, "upstream": [each.content for each in upstream]}
        staged = stage(self.staging, self.table, new.rows, lambda: {**new.facts(), **noted})
        return self.handed_over(staged, fingerprint, new.metadata())

    def handed_over(
        self, staged: Staged, fingerprint: str, metadata: Mapping[str, Any]
    ) -> dg.MaterializeResult[Staged]:
        """A staged table, which the IO manager puts in its place."""
        return dg.MaterializeResult(
            asset_key=self.names.key(self.table.name),
            value=staged,
            data_version=dg.DataVersion(staged.content),
            metadata={
                "dagster/row_count": staged.n_rows,
                "fingerprint": fingerprint,
                "reused": False,
                **metadata,
            },
        )

    def materialize(
        self, make: Callable[[], NewTable], *upstream: Stored[Any], **more: Any
    ) -> dg.MaterializeResult[Any]:
        """The table: used again where its fingerprint still holds and it notes what it was made of, else made."""
        fingerprint = self.fingerprint(*upstream, **more)
        latest = self.current(fingerprint) if "upstream" in self.stored.facts() else None
        return self.written(make(), fingerprint, upstream) if latest is None else self.reused(latest)
