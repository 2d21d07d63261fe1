"""Columns of Arrow built from Python values, by their bytes: `pyarrow.array` loads pandas to look at a list."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as a column of text, 64-bit integers, doubles or booleans; None is null.

    Raises:
        TypeError: the kind is none of these, or a value is not of the kind.
    """
    n_null = values.count(None)
    valid = _bits([value is not None for value in values]) if n_null else None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = ["" if value is None else value for value in values] if n_null else values
        joined = "".join(texts)
        data = joined.encode()
        lengths = map(len, texts) if len(data) == len(joined) else (len(text.encode()) for text in texts)
        buffers = [
            pa.py_buffer(array("i" if pa.types.is_string(kind) else "q", accumulate(lengths, initial=0))),
            pa.py_buffer(data),
        ]
    elif pa.types.is_boolean(kind):
        buffers = [_bits(values)]
    elif pa.types.is_int64(kind) or pa.types.is_float64(kind):
        numbers = [0 if value is None else value for value in values] if n_null else values
        buffers = [pa.py_buffer(array("q" if pa.types.is_int64(kind) else "d", numbers))]
    else:
        raise TypeError(f"no column of {kind} can be built")
    return pa.Array.from_buffers(kind, len(values), [valid, *buffers], n_null)


def _bits(flags: Sequence[bool | None]) -> pa.Buffer:
    """A bit a flag, the first one lowest."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(flags) + 7) // 8, "little"))
