"""Evidence as earlier releases wrote it: without seals and without digests."""

from pathlib import Path

import pyarrow.parquet as pq

from oloproof_dagster.evidence.seal import FORMER_KEY, KEY


def as_an_earlier_release_wrote_it(path: Path, *, without: tuple[str, ...] = ()) -> None:
    """Writes a table again without its seal and without some of its columns."""
    metadata = pq.read_metadata(path).metadata
    table = pq.read_table(path).drop_columns(list(without))
    with pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True) as file:
        file.write_table(table)
        file.add_key_value_metadata({FORMER_KEY: metadata.get(KEY.encode()) or metadata[FORMER_KEY.encode()]})


def lines_as_an_earlier_release_wrote_them(path: Path) -> None:
    """Writes a resume log's lines again without their digests."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line.partition(b" ")[2] for line in lines))
