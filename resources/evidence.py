"""The evidence store as a Dagster resource, and the IO manager that puts tables into it and reads them back.

What belongs here: how Dagster reaches evidence. Where evidence lies and how it is written is the engine's
(oloproof_dagster.evidence.evidence, oloproof_dagster.records.tables).
"""

import contextlib
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from oloproof_dagster.errors import EvidenceError, writing_to
from oloproof_dagster.evidence.evidence import Evidence, encode_version
from oloproof_dagster.evidence.parquet import Staged, Stored
from oloproof_dagster.evidence.store import Store
from oloproof_dagster.records.tables import TABLES
from oloproof_dagster.resources.failures import failing_plainly

if TYPE_CHECKING:
    from upath import UPath


class EvidenceStore(dg.ConfigurableResource["EvidenceStore"]):
    """Reads and writes tables and parts by table and version under `root`, a folder or a URL."""

    root: str

    @property
    def evidence(self) -> Evidence:
        """The engine's evidence at the root."""
        return Evidence(self.root)


class ParquetTables(dg.UPathIOManager):
    """Arrow tables in Parquet, `<root>/<version>/<table>.parquet`; every file is replaced whole.

    Our own assets hand over a file already written (Staged) and take a reader (Stored), so that no
    table has to fit into memory. An asset of yours may hand over, or ask for by annotation, a pyarrow Table or a
    pandas DataFrame.
    """

    extension = ".parquet"

    def __init__(self, store: Store) -> None:
        from upath import UPath

        self._store = store
        super().__init__(UPath(str(store.root)))

    def make_safe_partition_path(self, base_path: "UPath", partition: str) -> "UPath":
        """Encoded, as Dagster's own lets `/` nest and one version delete another's file."""
        return base_path / encode_version(partition)

    def get_path_for_partition(
        self, context: dg.InputContext | dg.OutputContext, path: "UPath", partition: str
    ) -> "UPath":
        """The file of one version's table."""
        return self.make_safe_partition_path(self._base_path, partition) / path.name

    @failing_plainly
    def load_partitions(self, context: dg.InputContext) -> Any:
        """One version straight from its file, without the two events that Dagster writes of each; others its way."""
        paths = self._get_paths_for_partitions(context)
        if len(paths) == 1:
            (path,) = paths.values()
            with contextlib.suppress(FileNotFoundError):
                return self.load_from_path(context, path)
        return super().load_partitions(context)

    @failing_plainly
    def dump_to_path(self, context: dg.OutputContext, obj: Any, path: "UPath") -> None:
        """Puts a staged table, or writes another asset's frame, into its place."""
        name = self._name(path)
        if isinstance(obj, Staged):
            staged = obj.path
        elif path.stem in TABLES:
            raise EvidenceError(f"{path.stem} is a table of the release run; give your asset another name")
        else:
            staged = self._store.staging(name)
            with writing_to(path):
                staged.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(obj if isinstance(obj, pa.Table) else pa.Table.from_pandas(obj), staged)
        self._store.put(staged, name)

    def load_from_path(self, context: dg.InputContext, path: "UPath") -> Any:
        """A reader of one of our tables, or another asset's frame."""
        wanted = context.dagster_type.typing_type
        name = context.asset_key.path[-1]
        file = self._store.path(self._name(path))
        if wanted in (Any, Stored) or getattr(wanted, "__origin__", None) is Stored:
            if name not in TABLES:
                raise EvidenceError(f"{name} is no table of a release run; annotate the input as pandas.DataFrame")
            return Stored(file, TABLES[name])
        with file.open("rb") as source:
            table = pq.read_table(source)
        return table if wanted is pa.Table else table.to_pandas()

    def path_exists(self, path: "UPath") -> bool:
        """Whether the file is there."""
        return self._store.path(self._name(path)).exists()

    def make_directory(self, path: "UPath") -> None:
        """The store makes what it needs."""

    def _handle_transition_to_partitioned_asset(self, context: dg.OutputContext, path: "UPath") -> None:
        """A version's folder never was an asset's file."""

    def _name(self, path: "UPath") -> str:
        return str(path)[len(str(self._base_path)) :].lstrip("/")


class EvidenceIOManager(dg.ConfigurableIOManagerFactory[ParquetTables]):
    """Makes the IO manager of a project's tables."""

    root: str

    def create_io_manager(self, context: dg.InitResourceContext) -> ParquetTables:
        """The IO manager at the root."""
        return ParquetTables(Evidence(self.root).store)
