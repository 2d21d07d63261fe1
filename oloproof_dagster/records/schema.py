"""How a table's columns are made of its row type: their Arrow types, and which of them its content digest covers."""

import dataclasses
import types
from collections.abc import Sequence
from typing import Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from oloproof_dagster.digests import canonical_json

JSONText = NewType("JSONText", str)
"""JSON text in the order of its keys (digests.json_in_order)."""

Row = TypeVar("Row")
_ARROW = {str: pa.string(), JSONText: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _field(name: str, annotation: Any) -> pa.Field:
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [option for option in options if option is not type(None)]
    return pa.field(name, _ARROW[kinds[0]], nullable=len(kinds) < len(options))


def _kind(annotation: Any) -> tuple[type, bool]:
    """A column's Python type, and whether it may be null."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [str if option is JSONText else option for option in options if option is not type(None)]
    return kinds[0], len(kinds) < len(options)


class Table(Generic[Row]):
    """A table's name, row type and schema. `volatile` columns are left out of the content digest: durations, texts that
    a digest in the same row stands for whatever the order of their keys, digests of what a row was made of. `optional`
    ones may be absent from a file and are null then. `added` ones are last, and part of the content digest where they
    are not null: rows that say nothing of them keep the digest that they had."""

    def __init__(
        self,
        name: str,
        row: type[Row],
        *,
        key: tuple[str, ...],
        volatile: tuple[str, ...] = (),
        added: tuple[str, ...] = (),
    ) -> None:
        self.name, self.row, self.key = name, row, key
        hints = get_type_hints(row)
        self.columns = tuple(field.name for field in dataclasses.fields(row))  # type: ignore[arg-type]
        self.schema = pa.schema([_field(column, hints[column]) for column in self.columns])
        self.optional = frozenset(field.name for field in dataclasses.fields(row) if field.default is None)  # type: ignore[arg-type]
        self._kinds = tuple(_kind(hints[column]) for column in self.columns)
        self.content = tuple(column for column in self.columns if column not in volatile)
        self.n_added = len(added)
        assert self.content[len(self.content) - len(added) :] == added

    def row_of(self, values: Sequence[Any]) -> Row | None:
        """The row of these values, read from somewhere else than a table; None where they do not fit the columns."""
        lacking = self.columns[len(values) :]  # columns that an earlier release did not have
        if len(values) > len(self._kinds) or not self.optional.issuperset(lacking):
            return None
        for value, (kind, nullable) in zip(values, self._kinds, strict=False):
            if not (nullable if value is None else type(value) is kind or (kind is float and type(value) is int)):
                return None
        return self.row(*values)


def json_text(text: str | None) -> JSONText | None:
    """A JSON text as a table's column takes it."""
    return None if text is None else JSONText(text)


def retried_text(errors: tuple[str, ...]) -> JSONText | None:
    """The errors of the attempts before the last one, as a table's column takes them."""
    return JSONText(canonical_json(list(errors))) if errors else None
