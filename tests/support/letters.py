"""Verdicts written as letters: P passed, F failed, M and T missing, N not applicable."""

from oloproof_dagster.decision.metrics import measure
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.tables import MetricRow, VerdictRow

STATUSES = {"P": "passed", "F": "failed", "M": "missing", "T": "missing", "N": "not_applicable"}
REASONS = {
    "M": VerdictReason.EXECUTION_ERROR.value,
    "T": VerdictReason.EXECUTION_TIMEOUT.value,
    "N": VerdictReason.NO_EXPECTED_STATE.value,
}


def measured(clusters: list[str], *, level: float = 0.95, min_clusters: int = 20) -> MetricRow:
    """The metric of clusters given as words, one letter a trial."""
    verdicts = [
        VerdictRow(str(cluster), trial, "polite", STATUSES[letter], REASONS.get(letter), None, None, None)
        for cluster, letters in enumerate(clusters)
        for trial, letter in enumerate(letters)
    ]
    (row,) = measure(
        verdicts,
        {str(cluster): str(cluster) for cluster in range(len(clusters))},
        ["polite"],
        clustered=any(len(letters) > 1 for letters in clusters),
        confidence_level=level,
        min_clusters=min_clusters,
    )
    return row
