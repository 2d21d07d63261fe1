"""How much evidence would decide a rule: the metric's suite made larger, and bounded as the metric is.

`advice` puts the numbers into words. Every number is that of a suite whose clusters can be counted out: it holds the
same failures per case, rounded up, and the same share of missing verdicts.
"""

import math
from collections.abc import Callable, Mapping

from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.intervals import Interval, clopper_pearson_missing_bounded, tail_of
from oloproof_dagster.decision.metrics import clusters_of
from oloproof_dagster.decision.spacing import FAILED, PASSED, Cluster, kinds, reaches, spacing_bound
from oloproof_dagster.project.release_yaml import Rule, State
from oloproof_dagster.records.tables import MetricRow

REALISTIC = 10_000_000
"""The most verdicts of one criterion that advice asks for."""
ONE_BY_ONE = 200
"""So many numbers are tried one after the other, until bisection takes over."""
EIGHTY_PERCENT = 0.8416212335729143
"""A normal variable lies above minus this with a chance of 80%."""


def interval_of(clusters: Mapping[Cluster, float], confidence_level: float) -> Interval:
    """The interval of at least two clusters, exact where each holds one verdict: as `metrics` gives it."""
    if all(sum(cluster) == 1 for cluster in clusters):
        passed, failed, missing = (clusters.get(one, 0) for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
        return clopper_pearson_missing_bounded(passed, passed + failed, missing, confidence_level)
    interval = spacing_bound(clusters, confidence_level)
    assert interval is not None  # at two clusters or more, as the metric's own
    return interval


def units(metric: MetricRow) -> int:
    """What more evidence is counted in: eligible cases, or the clusters that they come in."""
    return sum(clusters_of(metric).values())


def enlarged(clusters: Mapping[Cluster, int], n_units: int, counted: int) -> dict[Cluster, int]:
    """A suite of `n_units` clusters in the same shares, those in which least is `counted` rounded up first.

    >>> enlarged({(1, 0, 0): 9, (0, 1, 0): 1}, 25, PASSED)
    {(0, 1, 0): 3, (1, 0, 0): 22}
    """
    have = sum(clusters.values())
    found, placed, seen = {}, 0, 0
    for cluster in sorted(clusters, key=lambda each: (each[counted] / sum(each), -sum(each), each)):
        seen += clusters[cluster]
        upto = -(-n_units * seen // have)
        found[cluster], placed = upto - placed, upto
    return found


def smallest_deciding(rule: Rule, metric: MetricRow, state: State) -> int | None:
    """The smallest number of units at which the same counts per case would give an interval rule that state.

    None above REALISTIC verdicts. The rule is undecided at the metric's own interval, and its observed rate, missing
    verdicts counted against it, lies beyond the bar.
    """
    clusters, counted = clusters_of(metric), counted_towards(rule, state)
    have = sum(clusters.values())
    decides = _test(rule, state, metric.confidence_level)

    def at(n_units: int) -> bool:
        return decides(enlarged(clusters, n_units, counted))

    def in_shares(n_units: int) -> bool:
        return decides({cluster: count * n_units / have for cluster, count in clusters.items()})

    most = have * REALISTIC // metric.n_eligible
    undecided = have
    needed = _between(in_shares, undecided, most)
    if needed is None:
        return None
    # Rounding up costs a little, and less at multiples of the suite, where nothing is rounded.
    for n_units in range(needed, min(needed + ONE_BY_ONE, most + 1)):
        if at(n_units):
            return n_units
    times = _between(lambda times: at(times * have), (needed - 1) // have, most // have)
    return None if times is None else _between(at, needed + ONE_BY_ONE - 1, times * have)


def deciding_by_chance(rule: Rule, metric: MetricRow, state: State) -> int | None:
    """About how many units would give an interval rule that state with a chance of 80%, were the rates true ones.

    A suite drawn at these rates is no worse, with that chance, than one whose rate lies 0.84 standard errors off; its
    clusters are taken in shares that lean so far. None above REALISTIC verdicts.
    """
    clusters, counted = clusters_of(metric), counted_towards(rule, state)
    have = sum(clusters.values())
    decides = _test(rule, state, metric.confidence_level)
    size = sum(sum(cluster) * count for cluster, count in clusters.items())
    rate = sum(cluster[counted] * count for cluster, count in clusters.items()) / size
    apart = {cluster: cluster[counted] - rate * sum(cluster) for cluster in clusters}
    deviation = math.sqrt(sum(apart[cluster] ** 2 * count for cluster, count in clusters.items()) / have)

    def leaning(n_units: int) -> bool:
        lean = EIGHTY_PERCENT / (deviation * math.sqrt(n_units)) if deviation else 0.0
        shares = {cluster: count * math.exp(-lean * apart[cluster]) for cluster, count in clusters.items()}
        total = sum(shares.values())
        return decides({cluster: share * n_units / total for cluster, share in shares.items()})

    return _between(leaning, have, have * REALISTIC // metric.n_eligible)


def counted_towards(rule: Rule, state: State) -> int:
    """What has to be frequent for a state of a rule with a bar: `PASSED` or `FAILED`."""
    return PASSED if (rule.direction == "min") == (state == "PASS") else FAILED


def _test(rule: Rule, state: State, confidence_level: float) -> Callable[[Mapping[Cluster, float]], bool]:
    """Whether clusters give a rule a state."""
    tail, counted = tail_of(confidence_level), counted_towards(rule, state)
    bar = rule.threshold if counted == PASSED else 1 - rule.threshold

    def decides(clusters: Mapping[Cluster, float]) -> bool:
        if any(sum(cluster) > 1 for cluster in clusters):
            return reaches(kinds(clusters, counted), tail, bar)
        interval = interval_of(clusters, confidence_level)
        return against_the_bar(rule, interval.lower, interval.upper)[0] == state

    return decides


def _between(decides: Callable[[int], bool], undecided: int, most: int) -> int | None:
    """The number after `undecided` at which a test begins to hold, None where it does not up to `most`."""
    step, decided = 1, undecided
    while True:
        decided = min(undecided + step, most)
        if decided <= undecided:
            return None
        if decides(decided):
            break
        undecided, step = decided, step * 2
    while decided - undecided > 1:
        middle = (undecided + decided) // 2
        if decides(middle):
            decided = middle
        else:
            undecided = middle
    return decided
