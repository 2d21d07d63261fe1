"""One line for a rule that the evidence did not decide: how much evidence would, or what stands in the way.

Reads a rule and its metric; `planning` counts what more evidence would show. `gate` puts the line into the decision.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.intervals import FEWEST_CLUSTERS, Interval
from oloproof_dagster.decision.metrics import clusters_of
from oloproof_dagster.decision.planning import (
    counted_towards,
    deciding_by_chance,
    interval_of,
    smallest_deciding,
    units,
)
from oloproof_dagster.decision.spacing import PASSED, Cluster
from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.project.release_yaml import Rule, State
from oloproof_dagster.records.reasons import DecisionReason, meaning_of
from oloproof_dagster.records.tables import MetricRow
from oloproof_dagster.wording import outwards, shortened

LOOKS = (
    "Plan the number of cases, then decide once: a suite that is extended and decided again has looked twice."
    " L looks want a confidence_level of 1 - (1 - confidence_level)/L."
)
"""What stands once under advice that names numbers of cases."""


def advice(
    rule: Rule,
    metric: MetricRow,
    reasons: Sequence[DecisionReason],
    *,
    min_clusters: int,
    suite_clusters: int,
    unchecked: str = "",
    evidence: str | None = None,
) -> str:
    """One line for an undecided rule: a sentence for each of its reasons that something can be done about.

    `reasons` are the decision's, at least one. `unchecked` is the line on a transform that people's labels have not
    validated; `evidence` is the digest that a person's review of the rule names.
    """
    sentences: dict[DecisionReason, Callable[[], str]] = {
        DecisionReason.TRANSFORM_NOT_CHECKED: lambda: unchecked,
        DecisionReason.POLICY_REQUIRES_REVIEW: lambda: _for_a_person(rule, evidence),
        DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED: lambda: (
            "set allow_approximate_methods: true in release.yaml if an interval of clustered verdicts may decide"
        ),
        DecisionReason.NO_OBSERVATIONS: lambda: _nothing_observed(metric),
        DecisionReason.INSUFFICIENT_CLUSTERS: lambda: _few_clusters(metric, min_clusters, suite_clusters),
        DecisionReason.MISSINGNESS_EXCEEDS_POLICY: lambda: _much_missing(rule, metric),
        DecisionReason.TOO_FEW_ELIGIBLE: lambda: (
            f"needs at least {rule.min_eligible} eligible cases, {metric.n_eligible} are"
        ),
        DecisionReason.INTERVAL_OVERLAPS_THRESHOLD: lambda: _more_cases(rule, metric),
        DecisionReason.MISSING_COULD_CHANGE_OUTCOME: lambda: _count_in_doubt(rule, metric),
    }
    found = [sentences[reason]() for reason in reasons if reason in sentences]
    return "; ".join(sentence for sentence in found if sentence) or reasons[0].meaning


def _for_a_person(rule: Rule, evidence: str | None) -> str:
    """How a person decides a rule: the line to write, with `approve` as they find."""
    found = "a person decides this rule (requires_manual_review); its numbers are shown for them"
    if evidence is None:
        return found
    line = {"rule": rule.id, "evidence": evidence, "by": "NAME", "approve": True}
    return f"{found}, who write to reviews.jsonl: {json.dumps(line)} (or false)"


def _more_cases(rule: Rule, metric: MetricRow) -> str:
    """What would decide a rule whose bar lies inside the interval: first the missing, then more cases."""
    bar = rule.threshold
    worst, best = metric.n_passed / metric.n_eligible, (metric.n_passed + metric.n_missing) / metric.n_eligible
    above, below = worst > bar, best < bar
    can_pass, can_fail = (above, below) if rule.direction == "min" else (below, above)
    rate = f"the observed rate {metric.n_passed}/{metric.n_observed}"
    mending = _mended(rule, metric) if metric.n_missing else ""
    first = (mending,) if mending else ()
    if can_pass:
        needed = smallest_deciding(rule, metric, "PASS")
        if needed is None:
            found: tuple[str, ...] = (
                f"no realistic number of cases would pass it: {rate} lies too close to the bar {bar:g}",
            )
        else:
            found = (f"{_amount(rule, metric, 'PASS', needed)} would pass it{_by_chance(rule, metric, needed)}",)
        return "; ".join((*first, *found, *_costly_cluster(rule, metric)))
    if can_fail:
        needed = smallest_deciding(rule, metric, "FAIL")
        fails = (
            "no realistic number would fail it either"
            if needed is None
            else f"{_amount(rule, metric, 'FAIL', needed)} would fail it"
        )
        side = "above" if above else "below"
        return "; ".join((*first, f"no number of cases would pass it: {rate} is {side} the bar {bar:g}", fails))
    if metric.n_missing:
        return (
            f"{mending}; no number of cases would decide it while {metric.n_missing} of {metric.n_eligible} verdicts"
            f" are missing: the rate is {worst:.4g} if they failed and {best:.4g} if they passed, around the bar"
            f" {bar:g}"
        )
    if bar in (0, 1):
        instead = "; where no failure is accepted, write max_failures: 0" if bar == 1 else ""
        return f"no number of cases would decide it: no interval reaches a bar of {bar:g}{instead}"
    return f"no number of cases would decide it: {rate} equals the bar {bar:g}"


def _amount(rule: Rule, metric: MetricRow, state: State, needed: int) -> str:
    """So many cases, and what is counted against the state among them."""
    have = units(metric)
    if counted_towards(rule, state) == PASSED:
        against, one, many = metric.n_observed - metric.n_passed, "a failure", "failures"
    else:
        against, one, many = metric.n_passed, "a pass", "passes"
    alike = f"with as many {many} per case (now {against})" if against else f"without {one}"
    if metric.n_missing:
        alike += " and the same share missing"
    if metric.clusters is None:
        return f"{needed:,} eligible cases (now {have:,}) {alike}"
    verdicts = -(-needed * metric.n_eligible // have)
    return f"{needed:,} clusters alike, {verdicts:,} verdicts (now {have:,} with {metric.n_eligible:,}), {alike},"


def _by_chance(rule: Rule, metric: MetricRow, needed: int) -> str:
    """How many more it takes where chance plays along; nothing where all verdicts agree."""
    likely = deciding_by_chance(rule, metric, "PASS")
    if likely is None or likely <= needed:
        return ""
    noun = "cases" if metric.clusters is None else "clusters"
    return f" (about {likely:,} {noun} with a chance of 80%, if that is the true rate)"


def _mended(rule: Rule, metric: MetricRow) -> str:
    """What the missing verdicts are, and what there would be without them."""
    first = f"mend first {_most(metric.missing)}"
    passing = rule.direction == "min"
    mended: Counter[Cluster] = Counter()
    for (passed, failed, missing), count in clusters_of(metric).items():
        mended[(passed + missing, failed, 0) if passing else (passed, failed + missing, 0)] += count
    interval = interval_of(mended, metric.confidence_level)
    if against_the_bar(rule, interval.lower, interval.upper)[0] != "PASS":
        return first
    n_passed = metric.n_passed + (metric.n_missing if passing else 0)
    outcome = "passes" if passing else "failures"
    return f"{first}; with all of them {outcome}, {n_passed} of {metric.n_eligible} would pass now"


def _costly_cluster(rule: Rule, metric: MetricRow) -> tuple[str, ...]:
    """The cluster that is larger than all others, where the bound is better without it."""
    clusters = clusters_of(metric)
    largest = max(clusters, key=sum)
    others = {cluster: count for cluster, count in clusters.items() if cluster != largest}
    if metric.largest_cluster is None or sum(others.values()) < 2:
        return ()
    own, without = (_deciding_bound(rule, interval_of(each, metric.confidence_level)) for each in (clusters, others))
    if (without <= own) if rule.direction == "min" else (without >= own):
        return ()
    side: Literal["lower", "upper"] = "lower" if rule.direction == "min" else "upper"
    return (
        f"the cluster of {shortened(metric.largest_cluster)} holds {sum(largest)} verdicts, the next largest"
        f" {max(map(sum, others))}: that costs, the {side} bound is {outwards(own, side)} with it and"
        f" {outwards(without, side)} without it",
    )


def _deciding_bound(rule: Rule, interval: Interval) -> float:
    return interval.lower if rule.direction == "min" else interval.upper


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
    most = counts[0][0]
    meaning = meaning_of(most)
    return listed if meaning == most else f"{listed}: {meaning}"
