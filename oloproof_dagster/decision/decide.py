"""From metrics to decisions, and from decisions to what they mean for the release: ALLOW, WARN or BLOCK.

Reads the bounds that `metrics` computed and the bars of release.yaml; measures nothing. Lack of evidence never
passes a rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from oloproof_dagster.decision.advice import advice
from oloproof_dagster.decision.bar import against_the_bar
from oloproof_dagster.decision.intervals import EXACT, SPACING
from oloproof_dagster.digests import canonical_json, digest
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.project.release_yaml import Policy, Rule, State
from oloproof_dagster.project.reviews import Review, approved
from oloproof_dagster.records.reasons import DecisionReason, GateReason
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import DecisionRow, GateRow, MetricRow

Reasons = tuple[DecisionReason, ...]

_NOT_EVIDENCE = ("state", "reasons", "advice", "evidence")


@dataclass(frozen=True, slots=True)
class SuiteFacts:
    """What decisions ask of the suite and the run.

    `clustered`: some cluster holds more than one case or trial. `n_clusters`: all clusters of the suite. `partial`:
    some case was never reached. `recorded`: a digest over what was executed and replayed.
    """

    clustered: bool
    n_clusters: int
    partial: bool
    recorded: str | None = None


def decide(
    policy: Policy,
    metrics: Mapping[str, MetricRow],
    facts: SuiteFacts,
    unchecked: Mapping[str, str],
    reviews: Sequence[Review] = (),
) -> tuple[DecisionRow, ...]:
    """One decision per rule, in the policy's order; an undecided rule comes with one line of advice.

    `metrics` maps criteria to their rows. `unchecked` maps each criterion over a transform that people's labels have
    not validated to one line on what is lacking. `reviews` decide the rules that are left to a person.

    Raises:
        EvidenceError: a rule's metric was not measured, or at another confidence level than the policy's, or by a
            method of an earlier release.
    """
    return tuple(
        _decide(policy, rule, _measured(policy, rule, metrics), facts, unchecked, reviews) for rule in policy.rules
    )


def _measured(policy: Policy, rule: Rule, metrics: Mapping[str, MetricRow]) -> MetricRow:
    metric = metrics.get(rule.metric)
    if metric is None:
        raise EvidenceError(f"rule {rule.id!r}: {rule.metric!r} was not measured; materialize the metrics again")
    if metric.confidence_level != policy.confidence_level:
        raise EvidenceError(
            f"rule {rule.id!r}: {rule.metric!r} was measured at confidence level"
            f" {metric.confidence_level} and the policy asks {policy.confidence_level};"
            " materialize the metrics again"
        )
    if metric.method not in (None, EXACT, SPACING):
        raise EvidenceError(
            f"rule {rule.id!r}: {rule.metric!r} was measured by {metric.method}, which this release does not decide on;"
            " materialize the metrics again"
        )
    return metric


def _decide(
    policy: Policy,
    rule: Rule,
    metric: MetricRow,
    facts: SuiteFacts,
    unchecked: Mapping[str, str],
    reviews: Sequence[Review],
) -> DecisionRow:
    row = _numbers(rule, metric)
    evidence = _evidence(row, metric, facts.recorded)
    review = approved(reviews, rule.id, evidence)
    state, reasons = _state(policy, rule, metric, facts, rule.metric in unchecked, review)
    row = replace(row, state=state, reasons=JSONText(canonical_json(list(reasons))), evidence=evidence)
    if state in ("PASS", "FAIL"):
        return row
    line = advice(
        rule,
        metric,
        reasons,
        min_clusters=policy.min_clusters,
        suite_clusters=facts.n_clusters,
        unchecked=unchecked.get(rule.metric, ""),
        evidence=evidence,
    )
    return replace(row, advice=line)


def _numbers(rule: Rule, metric: MetricRow) -> DecisionRow:
    """A rule's row as far as nothing is decided yet."""
    has_interval = rule.direction != "count"
    return DecisionRow(
        rule_id=rule.id,
        metric=rule.metric,
        state="",
        reasons=JSONText("[]"),
        direction=rule.direction,
        threshold=rule.threshold,
        estimate=metric.estimate,
        lower=metric.lower if has_interval else None,
        upper=metric.upper if has_interval else None,
        method=metric.method if has_interval else None,
        n_eligible=metric.n_eligible,
        n_observed=metric.n_observed,
        n_passed=metric.n_passed,
        n_missing=metric.n_missing,
        n_excluded=metric.n_excluded,
        n_clusters=metric.n_clusters,
        advice=None,
    )


def _evidence(row: DecisionRow, metric: MetricRow, recorded: str | None) -> str | None:
    """The digest that a review names: a decision's numbers, the verdicts that they count, and the outputs, states and
    recordings that people read; None where an earlier release measured the metric, without a digest of its verdicts."""
    if metric.verdicts is None:
        return None
    numbers = {each.name: getattr(row, each.name) for each in fields(row) if each.name not in _NOT_EVIDENCE}
    return digest("decision_evidence/v1", {**numbers, "verdicts": metric.verdicts, "recorded": recorded})


def _state(
    policy: Policy, rule: Rule, metric: MetricRow, facts: SuiteFacts, unchecked: bool, review: bool | None
) -> tuple[State, Reasons]:
    """The first tier that applies gives the state; all its reasons are listed. `review`: what a person decided."""
    lacking = _lacking_evidence(policy, rule, metric, facts)
    if unchecked:
        return "INSUFFICIENT_EVIDENCE", (DecisionReason.TRANSFORM_NOT_CHECKED, *lacking)
    if rule.requires_manual_review and review is not None:
        if review:
            return "PASS", (DecisionReason.APPROVED_BY_REVIEW,)
        return "FAIL", (DecisionReason.REJECTED_BY_REVIEW,)
    undecided = _needs_a_person(policy, rule, metric)
    if undecided:
        return "MANUAL_REVIEW", undecided
    if lacking:
        return "INSUFFICIENT_EVIDENCE", lacking
    if rule.direction == "count":
        state, reason = _against_the_count(rule, metric)
    else:
        assert metric.lower is not None  # interval_unavailable otherwise
        assert metric.upper is not None
        state, reason = against_the_bar(rule, metric.lower, metric.upper)
    return state, (reason,)


def _needs_a_person(policy: Policy, rule: Rule, metric: MetricRow) -> Reasons:
    approximate = rule.direction != "count" and metric.method == SPACING and not policy.allow_approximate_methods
    return _holding(
        (DecisionReason.POLICY_REQUIRES_REVIEW, rule.requires_manual_review),
        (DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED, approximate),
    )


def _lacking_evidence(policy: Policy, rule: Rule, metric: MetricRow, facts: SuiteFacts) -> Reasons:
    nothing = (DecisionReason.NO_OBSERVATIONS, metric.n_observed == 0)
    if rule.direction == "count":
        few = rule.min_eligible is not None and metric.n_eligible < rule.min_eligible
        return _holding(nothing, (DecisionReason.TOO_FEW_ELIGIBLE, few))
    few_in_suite = facts.clustered and facts.n_clusters < policy.min_clusters
    few_in_metric = metric.method == SPACING and (metric.n_clusters or 0) < policy.min_clusters
    return _holding(
        nothing,
        (DecisionReason.INSUFFICIENT_CLUSTERS, few_in_suite or few_in_metric),
        (DecisionReason.MISSINGNESS_EXCEEDS_POLICY, _too_much_missing(rule, metric)),
        (DecisionReason.INTERVAL_UNAVAILABLE, metric.lower is None),
    )


def _holding(*claims: tuple[DecisionReason, bool]) -> Reasons:
    return tuple(reason for reason, holds in claims if holds)


def _too_much_missing(rule: Rule, counts: MetricRow | DecisionRow) -> bool:
    if rule.max_missing_fraction is None or not counts.n_eligible:
        return False
    return counts.n_missing / counts.n_eligible > rule.max_missing_fraction


def _against_the_count(rule: Rule, metric: MetricRow) -> tuple[State, DecisionReason]:
    failures = metric.n_observed - metric.n_passed
    if failures > rule.threshold:
        return "FAIL", DecisionReason.OBSERVED_FAILURES_EXCEED_LIMIT
    if failures + metric.n_missing <= rule.threshold:
        return "PASS", DecisionReason.OBSERVED_FAILURES_WITHIN_LIMIT
    return "INSUFFICIENT_EVIDENCE", DecisionReason.MISSING_COULD_CHANGE_OUTCOME


def settle(policy: Policy, decisions: Sequence[DecisionRow], facts: SuiteFacts) -> GateRow:
    """What the decisions mean for the release, with the exit code of the command line.

    BLOCK where a state stands in `block_on`, where a rule has no observation or more missing than it accepts
    (whatever its state, whatever the policy says), or where the run is partial and the policy blocks that; else WARN
    where a state stands in `warn_on`; else ALLOW. A block never exits with 0: 1 for FAIL, 5 for a partial run, 4 for
    MANUAL_REVIEW, 3 for INSUFFICIENT_EVIDENCE or missing evidence, in that order, among what caused it.

    Raises:
        EvidenceError: the decisions are not one for each rule of the policy.
    """
    rules = {rule.id: rule for rule in policy.rules}
    if sorted(rules) != sorted(row.rule_id for row in decisions):
        raise EvidenceError("the decisions are not those of this policy's rules; materialize the decisions again")
    states = {row.state for row in decisions}
    blocking = states.intersection(policy.block_on)
    missing = any(row.n_observed == 0 or _too_much_missing(rules[row.rule_id], row) for row in decisions)
    partial = facts.partial and policy.block_on_partial_run
    causes = (
        ("FAIL" in blocking, 1),
        (partial, 5),
        ("MANUAL_REVIEW" in blocking, 4),
        ("INSUFFICIENT_EVIDENCE" in blocking or missing, 3),
        ("PASS" in blocking, 1),
    )
    exit_code = next((code for caused, code in causes if caused), 0)
    warned = not states.isdisjoint(policy.warn_on)
    reasons = [
        reason for reason, holds in ((GateReason.PARTIAL_RUN, partial), (GateReason.MISSING_EVIDENCE, missing)) if holds
    ]
    return GateRow(
        action="BLOCK" if exit_code else "WARN" if warned else "ALLOW",
        exit_code=exit_code,
        reasons=JSONText(canonical_json(reasons)),
    )
