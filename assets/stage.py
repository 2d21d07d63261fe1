"""What every stage shares: its project's names, and the rule by which a recorded table is used again.

A table is reused when the latest materialisation of this very partition, and the file itself, bear the fingerprint
that would be written now. Dagster's own provenance answers for any partition and cannot tell.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from oloproof_dagster.resources import EvidenceStore, SandboxSession

from oloproof_dagster.digests import digest
from oloproof_dagster.evidence import Evidence
from oloproof_dagster.project import Project
from oloproof_dagster.tables import TABLES, Staged, Stored, Table, stage


@dataclass(frozen=True)
class Names:
    """Everything in a deployment that a project's slug keeps apart from other projects'."""

    slug: str

    def key(self, table: str) -> dg.AssetKey:
        return dg.AssetKey([self.slug, table])

    @property
    def evidence(self) -> str:
        return f"{self.slug}_evidence"

    @property
    def io_manager(self) -> str:
        return f"{self.slug}_tables"

    @property
    def sandbox(self) -> str:
        return f"{self.slug}_sandbox"

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """One partition a system version: one release run."""
        return dg.DynamicPartitionsDefinition(name=f"{self.slug}_system_version")

    def spec(self, table: str, **more: Any) -> dict[str, Any]:
        """What every asset of a project has in common."""
        return {
            "key": self.key(table),
            "kinds": {"parquet"},
            "metadata": {"dagster/column_schema": column_schema(TABLES[table])},
            **more,
        }

    def reads(self, *tables: str) -> dict[str, dg.AssetIn]:
        """The tables that an asset takes as readers."""
        return {table: dg.AssetIn(self.key(table), dagster_type=READER) for table in tables}


READER = dg.PythonObjectDagsterType(Stored, name="OloproofTable")


def column_schema(table: Table[Any]) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=each.name, type=str(each.type), constraints=dg.TableColumnConstraints(nullable=each.nullable)
            )
            for each in table.schema
        ]
    )


@dataclass
class Made:
    """A table about to be written: its rows, and what is to be noted of it once they are through."""

    rows: Iterable[Any]
    facts: Callable[[], dict[str, Any]] = dict
    metadata: Callable[[], dict[str, Any]] = dict


class Stage:
    """One materialisation of one table of one partition."""

    def __init__(self, context: dg.AssetExecutionContext, project: Project, table: Table[Any]) -> None:
        self.context, self.project, self.table = context, project, table
        self.names = Names(project.slug)
        self.version = context.partition_key
        store: EvidenceStore = getattr(context.resources, self.names.evidence)
        self.evidence: Evidence = store.evidence

    @property
    def session(self) -> SandboxSession:
        session: SandboxSession = getattr(self.context.resources, self.names.sandbox)
        return session

    @property
    def stored(self) -> Stored[Any]:
        """The table as it is recorded now."""
        return self.evidence.table(self.table.name, self.version)

    def fingerprint(self, *upstream: Stored[Any], **more: Any) -> str:
        """What the table is a function of: the code version, the upstream contents, and what else is named."""
        code_version = self.context.assets_def.code_versions_by_key[self.names.key(self.table.name)]
        return digest(
            "fingerprint/v1",
            {
                "code": code_version,
                "upstream": [each.content for each in upstream],
                **more,
            },
        )

    def is_current(self, fingerprint: str) -> bool:
        """Whether the recorded table, and the latest materialisation of this partition, bear the fingerprint."""
        found = self.context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=self.names.key(self.table.name), asset_partitions=[self.version]), limit=1
        ).records
        if not found or not self.stored.exists:
            return False
        materialization = found[0].asset_materialization
        noted = materialization.metadata.get("fingerprint") if materialization else None
        return noted is not None and noted.value == fingerprint == self.stored.facts().get("fingerprint")

    def reused(self, metadata: Mapping[str, Any] | None = None) -> dg.MaterializeResult[Any]:
        """The recorded table, used again: no value, so that the file stays as it is and downstream reads it."""
        facts = self.stored.facts()
        return dg.MaterializeResult(
            asset_key=self.names.key(self.table.name),
            data_version=dg.DataVersion(facts["content"]),
            metadata={
                "dagster/row_count": len(self.stored),
                "fingerprint": facts["fingerprint"],
                "reused": True,
                **(metadata or {}),
            },
        )

    def written(self, made: Made, fingerprint: str) -> dg.MaterializeResult[Staged]:
        """The table made anew and staged; the IO manager puts it in its place."""
        staged = stage(
            self.evidence.staging(self.table.name, self.version),
            self.table,
            made.rows,
            lambda: {**made.facts(), "fingerprint": fingerprint},
        )
        return dg.MaterializeResult(
            asset_key=self.names.key(self.table.name),
            value=staged,
            data_version=dg.DataVersion(staged.content),
            metadata={
                "dagster/row_count": staged.n_rows,
                "fingerprint": fingerprint,
                "reused": False,
                **made.metadata(),
            },
        )

    def materialize(
        self, make: Callable[[], Made], *upstream: Stored[Any], metadata: Mapping[str, Any] | None = None, **more: Any
    ) -> dg.MaterializeResult[Any]:
        """The table: used again where its fingerprint still holds, else made."""
        fingerprint = self.fingerprint(*upstream, **more)
        if self.is_current(fingerprint):
            return self.reused(metadata)
        return self.written(make(), fingerprint)
