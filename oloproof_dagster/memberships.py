"""Which slices each case joins: read off its metadata and its own recording."""

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.execution import execution_key, identity_of
from oloproof_dagster.slices import Memberships, Slice
from oloproof_dagster.tables import ExecutionRow, Index, Stored, SuiteRow
from oloproof_dagster.trajectory import from_text


def memberships(slices: tuple[Slice, ...], suite: Stored[SuiteRow], executions: Stored[ExecutionRow]) -> Memberships:
    """For each case and trial its (slice, value) pairs; memory holds names only."""
    if not slices:
        return {}
    identity, index = identity_of(executions.facts()), Index(executions)
    found: dict[tuple[str, int], tuple[tuple[str, str], ...]] = {}
    for case in suite.rows():
        row = index.get(execution_key(identity, case, 0)) if identity else None
        recording = from_text(row.trajectory) if row and row.trajectory else None
        metadata = parse_canonical(case.metadata)
        values = ((each.text, each.value_of(metadata, recording)) for each in slices)
        found[case.case_id, 0] = tuple((text, value) for text, value in values if value is not None)
    index.close()
    return found
