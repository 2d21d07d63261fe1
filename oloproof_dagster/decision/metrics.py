"""From verdicts to metrics: one criterion's rate over the suite, with its interval and every denominator.

Counts and bounds, decides nothing: `gate` reads these rows. A `Tally` counts one criterion, here over the suite and
in `slices` over a part of it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from oloproof_dagster.decision.intervals import EXACT, SPACING, clopper_pearson_missing_bounded
from oloproof_dagster.decision.spacing import Cluster, spacing_bound
from oloproof_dagster.digests import canonical_json, dump, parse_canonical
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import MetricRow, VerdictRow

PASSED, FAILED, MISSING, NOT_APPLICABLE = "passed", "failed", "missing", "not_applicable"
_ONE = {PASSED: (1, 0, 0), FAILED: (0, 1, 0), MISSING: (0, 0, 1)}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The interval of a tally, or the reason code why there is none.

    `method` is the one that applies, also where it gave no bounds; null where no verdict is eligible. `caution` is the
    reason code under which the bounds only describe.
    """

    lower: float | None
    upper: float | None
    method: str | None
    no_bounds: str | None
    caution: str | None = None


class Tally:
    """The verdicts of one criterion, counted per cluster; memory grows with the clusters, not with the verdicts."""

    __slots__ = ("_clusters", "_shared", "excluded", "failed", "missing", "n_unexposed", "noop_passed", "passed")

    def __init__(self) -> None:
        self.passed = self.failed = 0
        self.missing: Counter[str] = Counter()
        self.excluded: Counter[str] = Counter()
        self.noop_passed: int | None = None
        self.n_unexposed: int | None = None
        self._clusters: dict[str, Cluster] = {}
        self._shared: dict[Cluster, Cluster] = {}

    def add(self, verdict: VerdictRow, cluster: str) -> None:
        """Counts one verdict.

        Raises:
            ValueError: its status is unknown, or it is missing or not applicable without a reason.
        """
        if verdict.status in (MISSING, NOT_APPLICABLE):
            if verdict.reason is None:
                raise ValueError(f"case {verdict.case_id}: {verdict.criterion} is {verdict.status} without a reason")
            (self.missing if verdict.status == MISSING else self.excluded)[verdict.reason] += 1
        elif verdict.status == PASSED:
            self.passed += 1
        elif verdict.status == FAILED:
            self.failed += 1
        else:
            raise ValueError(f"case {verdict.case_id}: {verdict.criterion} has the unknown status {verdict.status!r}")
        eligible = verdict.status != NOT_APPLICABLE
        if verdict.noop is not None:
            self.noop_passed = (self.noop_passed or 0) + (eligible and verdict.noop)
        if eligible and verdict.exposed is not None:
            self.n_unexposed = (self.n_unexposed or 0) + (verdict.status == PASSED and not verdict.exposed)
        if eligible:
            passed, failed, missing = self._clusters.get(cluster, (0, 0, 0))
            one = _ONE[verdict.status]
            counts = (passed + one[0], failed + one[1], missing + one[2])
            self._clusters[cluster] = self._shared.setdefault(counts, counts)  # few distinct: a million fit in memory

    @property
    def n_observed(self) -> int:
        """Verdicts that passed or failed."""
        return self.passed + self.failed

    @property
    def n_missing(self) -> int:
        """Eligible verdicts that were not reached."""
        return self.missing.total()

    @property
    def n_eligible(self) -> int:
        """Verdicts that count: observed or missing."""
        return self.n_observed + self.n_missing

    @property
    def n_clusters(self) -> int:
        """The clusters with an eligible verdict."""
        return len(self._clusters)

    @property
    def estimate(self) -> float | None:
        """The observed rate, passed / observed, in [0, 1]; None where nothing was observed."""
        return self.passed / self.n_observed if self.n_observed else None

    @property
    def method(self) -> str | None:
        """The method that applies: exact when every cluster holds one eligible verdict, the spacing bound otherwise."""
        if not self.n_eligible:
            return None
        return EXACT if self.n_eligible == self.n_clusters else SPACING

    @property
    def clusters(self) -> Counter[Cluster]:
        """The distinct clusters, each with how many are alike."""
        return Counter(self._clusters.values())

    @property
    def largest_cluster(self) -> str | None:
        """The cluster with more eligible verdicts than any other; None where several are as large."""
        largest = max(map(sum, self._shared), default=0)
        found = [name for name, cluster in self._clusters.items() if sum(cluster) == largest]
        return found[0] if len(found) == 1 else None

    def bounds(self, *, confidence_level: float, min_clusters: int) -> Bounds:
        """The two-sided interval of the rate, missing verdicts bounded worst-case.

        None without an eligible verdict, and with clustered verdicts in fewer than two clusters. Below `min_clusters`
        clusters the bounds of clustered verdicts only describe.
        """
        method = self.method
        if method is None:
            return Bounds(None, None, None, DecisionReason.INTERVAL_UNAVAILABLE.value)
        if method == EXACT:
            exact = clopper_pearson_missing_bounded(self.passed, self.n_observed, self.n_missing, confidence_level)
            return Bounds(exact.lower, exact.upper, exact.method, None)
        interval = spacing_bound(self.clusters, confidence_level)
        if interval is None:
            return Bounds(None, None, method, DecisionReason.INTERVAL_UNAVAILABLE.value)
        caution = DecisionReason.INSUFFICIENT_CLUSTERS.value if self.n_clusters < min_clusters else None
        return Bounds(interval.lower, interval.upper, interval.method, None, caution)


def measure(
    verdicts: Iterable[VerdictRow],
    clusters: Mapping[str, str],
    criteria: Sequence[str],
    *,
    clustered: bool,
    confidence_level: float,
    min_clusters: int,
) -> tuple[MetricRow, ...]:
    """One row per criterion, in the order given; a criterion without verdicts has zeros, no estimate, no interval.

    `clusters` maps every case id to its cluster. Reads the verdicts once; verdicts of other criteria are left out.

    Raises:
        KeyError: a verdict's case has no cluster.
        ValueError: a verdict that `Tally.add` refuses.
    """
    tallies = {criterion: Tally() for criterion in criteria}
    contents = dict.fromkeys(criteria, 0)
    for verdict in verdicts:
        tally = tallies.get(verdict.criterion)
        if tally is not None:
            tally.add(verdict, clusters[verdict.case_id])
            contents[verdict.criterion] += _content(verdict)
    rows = (_row(criterion, tally, clustered, confidence_level, min_clusters) for criterion, tally in tallies.items())
    return tuple(replace(row, verdicts=f"{contents[row.metric] % 2**256:064x}") for row in rows)


def _content(verdict: VerdictRow) -> int:
    """A verdict's digest as a number: their sum over a criterion stands for its verdicts in whatever order."""
    row = (verdict.case_id, verdict.trial, verdict.status, verdict.reason, verdict.detail, verdict.compared)
    return int.from_bytes(hashlib.sha256(dump(row).encode()).digest(), "big")


def _row(criterion: str, tally: Tally, clustered: bool, confidence_level: float, min_clusters: int) -> MetricRow:
    bounds = tally.bounds(confidence_level=confidence_level, min_clusters=min_clusters)
    return MetricRow(
        metric=criterion,
        estimate=tally.estimate,
        lower=bounds.lower,
        upper=bounds.upper,
        confidence_level=confidence_level,
        method=bounds.method,
        no_bounds=bounds.no_bounds,
        n_eligible=tally.n_eligible,
        n_observed=tally.n_observed,
        n_passed=tally.passed,
        n_missing=tally.n_missing,
        n_excluded=tally.excluded.total(),
        n_clusters=tally.n_clusters if clustered else None,
        missing=JSONText(canonical_json(dict(tally.missing))),
        excluded=JSONText(canonical_json(dict(tally.excluded))),
        noop_passed=tally.noop_passed,
        clusters=_text(tally.clusters) if tally.method == SPACING else None,
        largest_cluster=tally.largest_cluster if tally.method == SPACING else None,
        caution=bounds.caution,
        n_unexposed=tally.n_unexposed,
    )


def _text(clusters: Mapping[Cluster, int]) -> JSONText:
    return JSONText(canonical_json([[*cluster, count] for cluster, count in sorted(clusters.items())]))


def clusters_of(metric: MetricRow) -> dict[Cluster, int]:
    """The distinct clusters of a metric, each with how many are alike; under the exact method each is one verdict."""
    if metric.clusters is None:
        failed = metric.n_observed - metric.n_passed
        alone = {(1, 0, 0): metric.n_passed, (0, 1, 0): failed, (0, 0, 1): metric.n_missing}
        return {cluster: count for cluster, count in alone.items() if count}
    return {(passed, failed, missing): count for passed, failed, missing, count in parse_canonical(metric.clusters)}
