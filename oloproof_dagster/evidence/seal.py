"""The seal of a table: a digest of all that its footer says, in front of it.

Pages bear checksums of their own; the footer (the facts noted of the whole table, its columns, how many rows there are
and where they lie) bears this one, so that a bit that a disk or a copy turned over is an error and never another number
of unreached cases. Other readers of Parquet pass over it.
"""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEY = "sealed facts/v1"
"""Where the footer has the facts of a table that is sealed."""
FORMER_KEY = "oloproof"
"""Where tables of earlier releases, which bear no seal, have them."""
FOOTER_BYTES = 64 << 10
"""More than what a file says of itself takes, unless it has very many row groups."""

_SEAL_BYTES = hashlib.sha256().digest_size
_END_BYTES = 8
"""The footer's length and Parquet's mark, with which a file ends."""


class NotSealed(ValueError):
    """What a footer says is not what was written, or was never written by Oloproof."""


def members(facts: dict[str, Any]) -> dict[str, str]:
    """The facts of a table as its footer has them."""
    return {KEY: json.dumps(facts)}


def seal(path: Path) -> None:
    """Puts the seal of a finished file in front of its footer: where rows lie is counted from the file's start."""
    with path.open("rb+") as file:
        _, footer = _end_of(file)
        file.seek(-len(footer), io.SEEK_END)
        file.write(hashlib.sha256(footer).digest() + footer)
        file.flush()
        os.fsync(file.fileno())


def checked_footer(file: Any) -> pq.FileMetaData:
    """What the footer of an open file says, held against its seal; as it is where the table is of an earlier release.

    Raises:
        NotSealed: it is not what was written, or not by Oloproof.
        pyarrow.ArrowException: the file is no Parquet.
    """
    seal, footer = _end_of(file)
    found = pq.read_metadata(pa.BufferReader(footer))
    is_sealed = seal == hashlib.sha256(footer).digest()
    if not is_sealed and FORMER_KEY.encode() not in (found.metadata or {}):
        raise NotSealed("is damaged, or was not written by Oloproof")
    return found


def holds_footer(end: bytes) -> bool:
    """Whether the last bytes of a file hold its footer whole, with a seal in front."""
    return int.from_bytes(end[-_END_BYTES:-4], "little") + _END_BYTES + _SEAL_BYTES <= len(end)


def facts_in(footer: pq.FileMetaData) -> dict[str, Any]:
    """The facts in a footer.

    Raises:
        NotSealed: there are none.
    """
    found = footer.metadata or {}
    try:
        return dict(json.loads(found[KEY.encode() if KEY.encode() in found else FORMER_KEY.encode()]))
    except (KeyError, TypeError, ValueError):
        raise NotSealed("is damaged, or was not written by Oloproof") from None


def _end_of(file: Any) -> tuple[bytes, bytes]:
    """What stands before the footer of a file, as long as a seal, and the footer to the end of the file."""
    size = file.seek(0, io.SEEK_END)
    n_bytes = FOOTER_BYTES
    while True:
        file.seek(max(0, size - n_bytes))
        end = file.read(min(size, n_bytes))
        n_footer = int.from_bytes(end[-_END_BYTES:-4], "little") + _END_BYTES
        if end[-4:] != b"PAR1" or n_footer > size:
            raise pa.ArrowInvalid("it does not end as a Parquet file does")
        if holds_footer(end) or len(end) == size:
            return end[:-n_footer][-_SEAL_BYTES:], end[-n_footer:]
        n_bytes = n_footer + _SEAL_BYTES
