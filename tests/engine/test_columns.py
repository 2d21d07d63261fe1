"""Columns built by their bytes against those that pyarrow builds of the same values."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.evidence.columns import column
from oloproof_dagster.records.tables import TABLES

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    pa.bool_(): st.booleans(),
}


def test_every_kind_of_column_that_a_table_has_can_be_built() -> None:
    assert {field.type for table in TABLES.values() for field in table.schema} <= set(VALUES)


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(st.data())
def test_a_column_holds_what_pyarrow_makes_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    values: Sequence[Any] = data.draw(st.lists(st.none() | VALUES[kind], max_size=20).map(tuple))
    built = column(values, kind)
    built.validate(full=True)
    assert built.equals(pa.array(values, type=kind))
    assert built.null_count == values.count(None)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1, pa.string()), ("1", pa.int64()), (2**63, pa.int64()), ("\ud800", pa.string()), (1, pa.date32())],
)
def test_a_value_that_is_not_of_the_kind_is_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises((TypeError, OverflowError, UnicodeEncodeError)):
        column((value,), kind)
