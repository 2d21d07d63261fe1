"""A rule's bar against an interval: what decides PASS, FAIL or that more evidence is needed."""

from oloproof_dagster.project.release_yaml import Rule, State
from oloproof_dagster.records.reasons import DecisionReason


def against_the_bar(rule: Rule, lower: float, upper: float) -> tuple[State, DecisionReason]:
    """What an interval says of a rule with a bar: a bound on the bar passes, bounds on both sides decide nothing."""
    bar = rule.threshold
    if rule.direction == "min":
        if lower >= bar:
            return "PASS", DecisionReason.LOWER_BOUND_MEETS_MINIMUM
        if upper < bar:
            return "FAIL", DecisionReason.UPPER_BOUND_BELOW_MINIMUM
    else:
        if upper <= bar:
            return "PASS", DecisionReason.UPPER_BOUND_MEETS_MAXIMUM
        if lower > bar:
            return "FAIL", DecisionReason.LOWER_BOUND_ABOVE_MAXIMUM
    return "INSUFFICIENT_EVIDENCE", DecisionReason.INTERVAL_OVERLAPS_THRESHOLD
