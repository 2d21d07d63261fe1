"""Named subsets of the suite measured: which slices each case joins, and each criterion within them.

Slices describe. No rule reads them and no curve is fitted across them.
"""

from collections.abc import Iterable, Mapping, Sequence

from oloproof_dagster.decision.metrics import NOT_APPLICABLE, Bounds, Tally
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.evidence.parquet import Index, Stored
from oloproof_dagster.project.slice_names import Slice, parse_slice
from oloproof_dagster.records.keys import execution_key, identity_of
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.records.tables import ExecutionRow, SliceRow, SuiteRow, VerdictRow
from oloproof_dagster.records.trajectory import from_text

Memberships = Mapping[tuple[str, int], tuple[tuple[str, str], ...]]
"""For a case id and trial, the (slice, value) pairs that it belongs to."""


def memberships(
    slices: tuple[Slice, ...], suite: Stored[SuiteRow], executions: Stored[ExecutionRow], trials: int = 1
) -> Memberships:
    """For each case and trial its (slice, value) pairs; memory holds names only."""
    if not slices:
        return {}
    identity, index = identity_of(executions.facts()), Index(executions)
    by_recording = any(each.kind != "metadata" for each in slices)
    found: dict[tuple[str, int], tuple[tuple[str, str], ...]] = {}
    for case in suite.rows():
        metadata = parse_canonical(case.metadata)
        for trial in range(trials):
            row = index.get(execution_key(identity, case, trial)) if identity and by_recording else None
            recording = from_text(row.trajectory) if row and row.trajectory else None
            values = ((each.text, each.value_of(metadata, recording)) for each in slices)
            found[case.case_id, trial] = tuple((text, value) for text, value in values if value is not None)
    index.close()
    return found


def measure_slices(
    verdicts: Iterable[VerdictRow],
    memberships: Memberships,
    clusters: Mapping[str, str],
    *,
    confidence_level: float,
    min_clusters: int,
    min_support: int,
    declared: Sequence[str] = (),
) -> tuple[SliceRow, ...]:
    """One row per slice, value and criterion with an eligible verdict; below `min_support` of them, no interval.

    The interval is that of the suite's metrics, taken within the slice. Rows go by slice (in the order of `declared`,
    then as first met), value (ranges ascend, others by text) and criterion (as first met). Reads the verdicts once.

    Raises:
        KeyError: a verdict's case has no cluster.
        ValueError: a verdict that `Tally.add` refuses, or a slice that `parse_slice` does.
    """
    tallies: dict[tuple[str, str, str], Tally] = {}
    slices = {text: place for place, text in enumerate(declared)}
    criteria: dict[str, int] = {}
    for verdict in verdicts:
        criteria.setdefault(verdict.criterion, len(criteria))
        for text, value in memberships.get((verdict.case_id, verdict.trial), ()):
            slices.setdefault(text, len(slices))
            if verdict.status != NOT_APPLICABLE:
                tally = tallies.setdefault((text, value, verdict.criterion), Tally())
                tally.add(verdict, clusters[verdict.case_id])
    ranks = {text: parse_slice(text).rank for text in slices}
    ordered = sorted(tallies, key=lambda key: (slices[key[0]], ranks[key[0]](key[1]), criteria[key[2]]))
    return tuple(
        _row(*key, tallies[key], _bounds(tallies[key], confidence_level, min_clusters, min_support)) for key in ordered
    )


def _bounds(tally: Tally, confidence_level: float, min_clusters: int, min_support: int) -> Bounds:
    if tally.n_eligible < min_support:
        return Bounds(None, None, tally.method, DecisionReason.INTERVAL_UNAVAILABLE.value)
    return tally.bounds(confidence_level=confidence_level, min_clusters=min_clusters)


def _row(text: str, value: str, criterion: str, tally: Tally, bounds: Bounds) -> SliceRow:
    return SliceRow(
        slice=text,
        value=value,
        metric=criterion,
        estimate=tally.estimate,
        lower=bounds.lower,
        upper=bounds.upper,
        method=bounds.method,
        no_bounds=bounds.no_bounds,
        n_observed=tally.n_observed,
        n_passed=tally.passed,
        n_missing=tally.n_missing,
        support=tally.n_eligible,
        caution=bounds.caution,
    )
