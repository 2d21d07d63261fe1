"""One line for a rule that the evidence did not decide: how much evidence would, or what stands in the way.

Reads a rule and its metric, and evaluates the same intervals as `metrics` at more cases of the same rates. `gate`
puts the line into the decision.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.intervals import (
    FEWEST_CLUSTERS,
    LARGEST_CLUSTER_SHARE,
    LARGEST_SIZE_VARIATION,
    Interval,
    clopper_pearson_missing_bounded,
    korn_graubard_guarded,
)
from oloproof_dagster.decision.metrics import clusters_of
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.project.release_yaml import Rule, State
from oloproof_dagster.records.reasons import DecisionReason, VerdictReason
from oloproof_dagster.records.tables import MetricRow

REALISTIC = 10_000_000
"""The most verdicts of one criterion that advice asks for."""

_MEANINGS = {reason.value: reason.meaning for reason in VerdictReason}


def advice(
    rule: Rule,
    metric: MetricRow,
    reasons: Sequence[DecisionReason],
    *,
    min_clusters: int,
    suite_clusters: int,
    unchecked: str = "",
) -> str:
    """One line for an undecided rule: a sentence for each of its reasons that something can be done about.

    `reasons` are the decision's, at least one. `unchecked` is the line on a transform that people's labels have not
    validated.
    """
    sentences: dict[DecisionReason, Callable[[], str]] = {
        DecisionReason.TRANSFORM_NOT_CHECKED: lambda: unchecked,
        DecisionReason.POLICY_REQUIRES_REVIEW: lambda: (
            "a person decides this rule (requires_manual_review); its numbers are shown for them"
        ),
        DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED: lambda: (
            "set allow_approximate_methods: true in release.yaml if clustered evidence may decide"
        ),
        DecisionReason.NO_OBSERVATIONS: lambda: _nothing_observed(metric),
        DecisionReason.INSUFFICIENT_CLUSTERS: lambda: _few_clusters(metric, min_clusters, suite_clusters),
        DecisionReason.MISSINGNESS_EXCEEDS_POLICY: lambda: _much_missing(rule, metric),
        DecisionReason.CLUSTER_SIZES_OUTSIDE_VALIDATED_RANGE: lambda: _sizes(metric),
        DecisionReason.INTERVAL_OVERLAPS_THRESHOLD: lambda: _more_cases(rule, metric),
        DecisionReason.MISSING_COULD_CHANGE_OUTCOME: lambda: _count_in_doubt(rule, metric),
    }
    found = [sentences[reason]() for reason in reasons if reason in sentences]
    return "; ".join(sentence for sentence in found if sentence) or reasons[0].meaning


def interval_at(metric: MetricRow, factor: float) -> Interval:
    """The metric's interval at `factor` times as many cases, with the same rates, missing share and cluster sizes.

    `factor` is any number of at least 1; at 1 it is the metric's own interval. The metric has an interval.
    """
    clusters = clusters_of(metric)
    if clusters is None:
        counts = (metric.n_passed * factor, metric.n_observed * factor, metric.n_missing * factor)
        return clopper_pearson_missing_bounded(*counts, metric.confidence_level)
    interval = korn_graubard_guarded(clusters.scaled(factor), metric.confidence_level)
    assert interval is not None  # at two clusters or more, as the metric's own
    return interval


def units(metric: MetricRow) -> int:
    """What more evidence is counted in: eligible cases, or the clusters that they come in."""
    clusters = clusters_of(metric)
    return metric.n_eligible if clusters is None else int(clusters.low.n_clusters)


def smallest_deciding(rule: Rule, metric: MetricRow, state: State) -> int | None:
    """The smallest number of units at which the same rates would give an interval rule that state.

    None above REALISTIC verdicts. The rule is undecided at the metric's own interval; with more evidence of the same
    rates both bounds only close in on the rates, so that bisection finds the number.
    """

    def decides(n_units: int) -> bool:
        interval = interval_at(metric, n_units / have)
        return against_the_bar(rule, interval.lower, interval.upper)[0] == state

    have = undecided = units(metric)
    decided = have * REALISTIC // metric.n_eligible
    if decided <= have or not decides(decided):
        return None
    while decided - undecided > 1:
        middle = (undecided + decided) // 2
        if decides(middle):
            decided = middle
        else:
            undecided = middle
    return decided


def _more_cases(rule: Rule, metric: MetricRow) -> str:
    bar = rule.threshold
    worst, best = metric.n_passed / metric.n_eligible, (metric.n_passed + metric.n_missing) / metric.n_eligible
    above, below = worst > bar, best < bar
    can_pass, can_fail = (above, below) if rule.direction == "min" else (below, above)
    rate = f"the observed rate {metric.n_passed}/{metric.n_observed}"
    if can_pass:
        needed = smallest_deciding(rule, metric, "PASS")
        first = f"mend first {_most(metric.missing)}; then " if metric.n_missing else ""
        if needed is None:
            return f"{first}no realistic number of cases would pass it: {rate} lies too close to the bar {bar:g}"
        return f"{first}{_amount(metric, needed)} of the same rate would pass it"
    if can_fail:
        needed = smallest_deciding(rule, metric, "FAIL")
        fails = (
            "no realistic number would fail it either"
            if needed is None
            else f"{_amount(metric, needed)} of the same rate would fail it"
        )
        return f"no number of cases would pass it: {rate} is {'above' if above else 'below'} the bar {bar:g}; {fails}"
    if metric.n_missing:
        return (
            f"no number of cases would decide it while {metric.n_missing} of {metric.n_eligible} verdicts are"
            f" missing: the rate is {worst:.4g} if they failed and {best:.4g} if they passed, around the bar"
            f" {bar:g}; mend first {_most(metric.missing)}"
        )
    if bar in (0, 1):
        instead = "; where no failure is accepted, write max_failures: 0" if bar == 1 else ""
        return f"no number of cases would decide it: no interval reaches a bar of {bar:g}{instead}"
    return f"no number of cases would decide it: {rate} equals the bar {bar:g}"


def _amount(metric: MetricRow, needed: int) -> str:
    have = units(metric)
    if clusters_of(metric) is None:
        return f"{needed:,} eligible cases (now {have:,})"
    verdicts = -(-needed * metric.n_eligible // have)
    return f"{needed:,} clusters alike with {verdicts:,} verdicts (now {have:,} with {metric.n_eligible:,})"


def _nothing_observed(metric: MetricRow) -> str:
    if metric.n_missing:
        return f"none of {metric.n_missing} eligible verdicts was observed; mend first {_most(metric.missing)}"
    if metric.n_excluded:
        return f"no case is eligible for {metric.metric}; excluded: {_most(metric.excluded)}"
    return f"no verdict of {metric.metric} is recorded; run the suite to its end"


def _few_clusters(metric: MetricRow, min_clusters: int, suite_clusters: int) -> str:
    found = (
        f"the suite has {suite_clusters}"
        if suite_clusters < min_clusters
        else f"{metric.n_clusters or 0} of {suite_clusters} have an eligible verdict"
    )
    return (
        f"needs at least {min_clusters} clusters, {found}; a clustered suite wants at least {FEWEST_CLUSTERS}"
        " source cases"
    )


def _much_missing(rule: Rule, metric: MetricRow) -> str:
    return (
        f"{metric.n_missing} of {metric.n_eligible} verdicts are missing, more than the share of"
        f" {rule.max_missing_fraction:g} that the rule accepts; mend first {_most(metric.missing)}"
    )


def _sizes(metric: MetricRow) -> str:
    clusters = clusters_of(metric)
    assert clusters is not None  # only clusters differ in size
    return (
        f"make the clusters more alike in size, or add clusters: their sizes vary by {clusters.size_variation:.3g}"
        f" of the mean (at most {LARGEST_SIZE_VARIATION:g}), the largest holds {clusters.largest_share:.3g} of the"
        f" verdicts (at most {LARGEST_CLUSTER_SHARE:g})"
    )


def _count_in_doubt(rule: Rule, metric: MetricRow) -> str:
    failures = metric.n_observed - metric.n_passed
    return (
        f"{metric.n_missing} missing verdicts could raise the failures from {failures} to"
        f" {failures + metric.n_missing}, over the limit of {rule.max_failures}; mend first"
        f" {_most(metric.missing)}"
    )


def _most(counts_text: str) -> str:
    """All reasons with their counts, most frequent first, and what the first one means."""
    counts = Counter(parse_canonical(counts_text)).most_common()
    listed = ", ".join(f"{reason} ({count})" for reason, count in counts)
    meaning = _MEANINGS.get(counts[0][0])
    return f"{listed}: {meaning}" if meaning else listed
