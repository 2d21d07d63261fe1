"""The evidence store as a Dagster resource, and the IO manager that puts tables into it and reads them back.

What belongs here: how Dagster reaches evidence. Where evidence lies and how it is written is the engine's
(oloproof_dagster.evidence, oloproof_dagster.tables).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence import Evidence, encode_version
from oloproof_dagster.parquet import Staged, Stored
from oloproof_dagster.tables import TABLES

if TYPE_CHECKING:
    from upath import UPath


class EvidenceStore(dg.ConfigurableResource["EvidenceStore"]):
    """Reads and writes tables and parts by table and version under `root`."""

    root: str

    @property
    def evidence(self) -> Evidence:
        return Evidence(Path(self.root))


class ParquetTables(dg.UPathIOManager):
    """Arrow tables in Parquet, `<root>/<version>/<table>.parquet`; every file is replaced whole.

    Our own assets hand over a file already written beside its place (Staged) and take a reader (Stored), so that no
    table has to fit into memory. An asset of yours may hand over, or ask for by annotation, a pyarrow Table or a
    pandas DataFrame.
    """

    extension = ".parquet"

    def make_safe_partition_path(self, base_path: "UPath", partition: str) -> "UPath":
        """Encoded, as Dagster's own lets `/` nest and one version delete another's file."""
        return base_path / encode_version(partition)

    def get_path_for_partition(
        self, context: dg.InputContext | dg.OutputContext, path: "UPath", partition: str
    ) -> "UPath":
        return self.make_safe_partition_path(self._base_path, partition) / path.name

    def dump_to_path(self, context: dg.OutputContext, obj: Any, path: "UPath") -> None:
        target = Path(str(path))
        if isinstance(obj, Staged):
            staged = obj.path
        elif target.stem in TABLES:
            raise EvidenceError(f"{target.stem} is a table of the release run; give your asset another name")
        else:
            staged = target.with_name(f".{target.name}.{os.getpid()}.staged")
            pq.write_table(obj if isinstance(obj, pa.Table) else pa.Table.from_pandas(obj), staged)
        try:
            os.replace(staged, target)
            _settle(target.parent)
        except OSError as error:
            raise EvidenceError(f"cannot write evidence to {target}: {error.strerror}") from None

    def load_from_path(self, context: dg.InputContext, path: "UPath") -> Any:
        wanted = context.dagster_type.typing_type
        name = context.asset_key.path[-1]
        if wanted in (Any, Stored) or getattr(wanted, "__origin__", None) is Stored:
            if name not in TABLES:
                raise EvidenceError(f"{name} is no table of a release run; annotate the input as pandas.DataFrame")
            return Stored(Path(str(path)), TABLES[name])
        table = pq.read_table(str(path))
        return table if wanted is pa.Table else table.to_pandas()


def _settle(folder: Path) -> None:
    """Makes a replaced file's name durable; where folders cannot be opened (Windows) there is nothing to do."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class EvidenceIOManager(dg.ConfigurableIOManagerFactory[ParquetTables]):
    """Makes the IO manager of a project's tables."""

    root: str

    def create_io_manager(self, context: dg.InitResourceContext) -> ParquetTables:
        from upath import UPath

        return ParquetTables(UPath(self.root))
