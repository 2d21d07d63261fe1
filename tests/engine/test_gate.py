"""Deciding rules and settling the Gate: tiers, reasons, precedence."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.decision.decide import SuiteFacts, decide, settle
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.project.release_yaml import Policy, State
from oloproof_dagster.records.reasons import DecisionReason, GateReason
from oloproof_dagster.records.tables import DecisionRow
from tests.support.letters import measured

LABELS_LACK = {"polite": "label 12 more pairs of injected"}
STATES: tuple[State, ...] = ("PASS", "FAIL", "INSUFFICIENT_EVIDENCE", "MANUAL_REVIEW")


def facts_of(clusters: list[str], *, partial: bool = False) -> SuiteFacts:
    return SuiteFacts(any(len(letters) > 1 for letters in clusters), len(clusters), partial)


def policy_of(*rules: dict[str, Any], **options: Any) -> Policy:
    named = [{"id": f"rule_{place}", "metric": "polite", **rule} for place, rule in enumerate(rules)]
    return Policy.model_validate({"version": 1, "rules": tuple(named), **options})


def decided(
    clusters: list[str], rule: dict[str, Any], *, unchecked: Mapping[str, str] | None = None, **options: Any
) -> DecisionRow:
    """The decision of one rule over clusters given as words; approximate methods are allowed unless said."""
    policy = policy_of(rule, **{"allow_approximate_methods": True, **options})
    (row,) = decide(policy, {"polite": measured(clusters)}, facts_of(clusters), unchecked or {})
    return row


def reasons_of(row: DecisionRow) -> list[str]:
    return list(json.loads(row.reasons))


UNEVEN = ["P" * 12, *["P"] * 24]
REVIEW = {"requires_manual_review": True}
CASES: list[tuple[list[str], dict[str, Any], dict[str, Any], State, list[DecisionReason]]] = [
    # bars
    (list("P" * 36), {"min": 0.9}, {}, "PASS", [DecisionReason.LOWER_BOUND_MEETS_MINIMUM]),
    (list("P" * 35), {"min": 0.9}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.INTERVAL_OVERLAPS_THRESHOLD]),
    (list("F" * 36), {"min": 0.11}, {}, "FAIL", [DecisionReason.UPPER_BOUND_BELOW_MINIMUM]),
    (list("F" * 36), {"max": 0.1}, {}, "PASS", [DecisionReason.UPPER_BOUND_MEETS_MAXIMUM]),
    (list("F" * 35), {"max": 0.1}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.INTERVAL_OVERLAPS_THRESHOLD]),
    (list("P" * 36), {"max": 0.89}, {}, "FAIL", [DecisionReason.LOWER_BOUND_ABOVE_MAXIMUM]),
    (["PP"] * 30, {"min": 0.8}, {}, "PASS", [DecisionReason.LOWER_BOUND_MEETS_MINIMUM]),
    # counts
    (list("PPFF"), {"max_failures": 1}, {}, "FAIL", [DecisionReason.OBSERVED_FAILURES_EXCEED_LIMIT]),
    (list("PPFM"), {"max_failures": 2}, {}, "PASS", [DecisionReason.OBSERVED_FAILURES_WITHIN_LIMIT]),
    (list("PPFM"), {"max_failures": 1}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.MISSING_COULD_CHANGE_OUTCOME]),
    (["MMM"], {"max_failures": 9}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.NO_OBSERVATIONS]),
    # lack of evidence
    (
        list("NN"),
        {"min": 0.5},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.NO_OBSERVATIONS, DecisionReason.INTERVAL_UNAVAILABLE],
    ),
    (list("MM"), {"min": 0.5}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.NO_OBSERVATIONS]),
    (
        list("MM"),
        {"min": 0.5, "max_missing_fraction": 0.5},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.NO_OBSERVATIONS, DecisionReason.MISSINGNESS_EXCEEDS_POLICY],
    ),
    (["PP"] * 19, {"min": 0.1}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.INSUFFICIENT_CLUSTERS]),
    (["PP"] * 19 + ["NN"] * 9, {"min": 0.1}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.INSUFFICIENT_CLUSTERS]),
    (["PN"] * 19, {"min": 0.1}, {}, "INSUFFICIENT_EVIDENCE", [DecisionReason.INSUFFICIENT_CLUSTERS]),
    (
        ["PPP"],
        {"min": 0.1},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.INSUFFICIENT_CLUSTERS, DecisionReason.INTERVAL_UNAVAILABLE],
    ),
    (UNEVEN, {"min": 0.1}, {}, "PASS", [DecisionReason.LOWER_BOUND_MEETS_MINIMUM]),
    (
        list("PPNM"),
        {"max_failures": 9, "min_eligible": 4},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.TOO_FEW_ELIGIBLE],
    ),
    (
        list("NN"),
        {"max_failures": 9, "min_eligible": 1},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.NO_OBSERVATIONS, DecisionReason.TOO_FEW_ELIGIBLE],
    ),
    (
        list("PPFM"),
        {"max_failures": 2, "min_eligible": 4},
        {},
        "PASS",
        [DecisionReason.OBSERVED_FAILURES_WITHIN_LIMIT],
    ),
    (
        list("PPPPM"),
        {"min": 0.1, "max_missing_fraction": 0.1},
        {},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.MISSINGNESS_EXCEEDS_POLICY],
    ),
    # a person
    (list("P" * 36), {"min": 0.9, **REVIEW}, {}, "MANUAL_REVIEW", [DecisionReason.POLICY_REQUIRES_REVIEW]),
    (
        ["PP"] * 30,
        {"min": 0.8},
        {"allow_approximate_methods": False},
        "MANUAL_REVIEW",
        [DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED],
    ),
    (
        ["PN"] * 30,
        {"min": 0.8},
        {"allow_approximate_methods": False},
        "PASS",
        [DecisionReason.LOWER_BOUND_MEETS_MINIMUM],
    ),
    (
        ["PP"] * 30,
        {"min": 0.8, **REVIEW},
        {"allow_approximate_methods": False},
        "MANUAL_REVIEW",
        [DecisionReason.POLICY_REQUIRES_REVIEW, DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED],
    ),
    (list("PF"), {"max_failures": 1, **REVIEW}, {}, "MANUAL_REVIEW", [DecisionReason.POLICY_REQUIRES_REVIEW]),
    # labels
    (
        list("P" * 36),
        {"min": 0.9},
        {"unchecked": LABELS_LACK},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.TRANSFORM_NOT_CHECKED],
    ),
    (
        list("PF"),
        {"max_failures": 1},
        {"unchecked": LABELS_LACK},
        "INSUFFICIENT_EVIDENCE",
        [DecisionReason.TRANSFORM_NOT_CHECKED],
    ),
]


@pytest.mark.parametrize(("clusters", "rule", "options", "state", "reasons"), CASES)
def test_the_first_tier_that_applies_gives_the_state_and_all_its_reasons(
    clusters: list[str], rule: dict[str, Any], options: dict[str, Any], state: State, reasons: list[DecisionReason]
) -> None:
    row = decided(clusters, rule, **options)
    assert (row.state, reasons_of(row)) == (state, reasons)


def test_every_reason_can_be_reached() -> None:
    reached = {reason for *_, reasons in CASES for reason in reasons}
    by_review = {DecisionReason.APPROVED_BY_REVIEW, DecisionReason.REJECTED_BY_REVIEW}  # see test_reviews
    assert reached == set(DecisionReason) - by_review


# ------------------------------------------------------------------------------------------------- order of the tiers


def test_an_unchecked_transform_comes_before_a_person_and_lists_the_evidence_that_is_lacking() -> None:
    row = decided(
        ["MM"] * 3,
        {"min": 0.5, "max_missing_fraction": 0.1, **REVIEW},
        unchecked=LABELS_LACK,
        allow_approximate_methods=False,
    )
    assert row.state == "INSUFFICIENT_EVIDENCE"
    assert reasons_of(row) == [
        DecisionReason.TRANSFORM_NOT_CHECKED,
        DecisionReason.NO_OBSERVATIONS,
        DecisionReason.INSUFFICIENT_CLUSTERS,
        DecisionReason.MISSINGNESS_EXCEEDS_POLICY,
    ]


def test_a_transform_that_another_criterion_rests_on_does_not_matter() -> None:
    assert decided(list("P" * 36), {"min": 0.9}, unchecked={"same_state_under_injected": "label more"}).state == "PASS"


def test_a_person_comes_before_lacking_evidence() -> None:
    row = decided(["MM"], {"min": 0.5}, allow_approximate_methods=False)
    assert (row.state, reasons_of(row)) == ("MANUAL_REVIEW", [DecisionReason.APPROXIMATE_METHOD_NOT_PERMITTED])


def test_lacking_evidence_comes_before_the_bar() -> None:
    plenty = {"min": 0.1, "max_missing_fraction": 0.0}
    assert decided(list("P" * 99), plenty).state == "PASS"
    assert decided(list("P" * 99 + "M"), plenty).state == "INSUFFICIENT_EVIDENCE"


# ------------------------------------------------------------------------------------------------- details of tiers


def test_a_suite_that_is_not_clustered_needs_no_permission_and_no_clusters() -> None:
    assert decided(list("P" * 10), {"min": 0.5}, allow_approximate_methods=False).state == "PASS"


def test_an_exact_metric_of_a_large_clustered_suite_may_have_few_clusters() -> None:
    assert decided(["PN"] * 10 + ["NN"] * 10, {"min": 0.5}).state == "PASS"


def test_min_clusters_is_the_policys() -> None:
    assert decided(["PP"] * 12, {"min": 0.5}, min_clusters=12).state == "PASS"
    assert decided(["PP"] * 12, {"min": 0.5}, min_clusters=13).state == "INSUFFICIENT_EVIDENCE"


def test_the_missing_fraction_is_of_the_eligible_and_may_equal_what_the_rule_accepts() -> None:
    rule = {"min": 0.1, "max_missing_fraction": 0.05}
    assert decided(list("P" * 19 + "M" + "N" * 50), rule).state == "PASS"
    assert decided(list("P" * 18 + "M" + "N" * 50), rule).state == "INSUFFICIENT_EVIDENCE"


@pytest.mark.parametrize(
    ("rule", "state"),
    [({"min": 1.0}, "INSUFFICIENT_EVIDENCE"), ({"min": 0.0}, "PASS"), ({"max": 1.0}, "PASS"), ({"max": 0.0}, "FAIL")],
)
def test_a_bound_on_the_bar_passes_it(rule: dict[str, Any], state: State) -> None:
    assert decided(list("P" * 50), rule).state == state


def test_a_count_rule_reads_no_interval() -> None:
    clusters = ["PPF"] * 3
    row = decided(clusters, {"max_failures": 3}, allow_approximate_methods=False)
    assert row.state == "PASS"
    assert (row.direction, row.threshold, row.estimate) == ("count", 3, 2 / 3)
    assert (row.lower, row.upper, row.method) == (None, None, None)
    assert decided([*UNEVEN], {"max_failures": 0}).state == "PASS"


def test_an_interval_rule_shows_the_metric_that_it_read_whatever_was_decided() -> None:
    clusters = ["PPM", "PFN"] * 15
    metric = measured(clusters)
    row = decided(clusters, {"min": 0.6, **REVIEW})
    assert (row.direction, row.threshold, row.rule_id, row.metric) == ("min", 0.6, "rule_0", "polite")
    shown = (
        "estimate",
        "lower",
        "upper",
        "method",
        "n_eligible",
        "n_observed",
        "n_passed",
        "n_missing",
        "n_excluded",
        "n_clusters",
    )
    assert [getattr(row, name) for name in shown] == [getattr(metric, name) for name in shown]


def test_advice_comes_with_undecided_rules_only() -> None:
    assert [decided(clusters, rule, **options).advice is not None for clusters, rule, options, *_ in CASES] == [
        state not in ("PASS", "FAIL") for *_, state, _ in CASES
    ]


def test_decisions_stand_in_the_policys_order() -> None:
    policy = policy_of({"id": "b", "min": 0.1}, {"id": "a", "max_failures": 3})
    rows = decide(policy, {"polite": measured(["P"])}, facts_of(["P"]), {})
    assert [row.rule_id for row in rows] == ["b", "a"]


def test_a_rule_on_a_criterion_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(EvidenceError, match="rule 'rule_0': 'polite' was not measured"):
        decide(policy_of({"min": 0.5}), {}, SuiteFacts(False, 3, False), {})


def test_metrics_by_the_method_of_an_earlier_release_decide_nothing() -> None:
    metrics = {"polite": replace(measured(["PP"] * 30), method="korn_graubard_guarded@1", clusters=None)}
    with pytest.raises(EvidenceError, match=r"measured by korn_graubard_guarded@1, .*; materialize the metrics again"):
        decide(policy_of({"min": 0.5}), metrics, facts_of(["PP"] * 30), {})


def test_metrics_of_another_confidence_level_decide_nothing() -> None:
    metrics = {"polite": measured(["P"], level=0.9)}
    with pytest.raises(EvidenceError, match=r"measured at confidence level 0\.9 and the policy asks 0\.95"):
        decide(policy_of({"min": 0.5}), metrics, facts_of(["P"]), {})


# ------------------------------------------------------------------------------------------------- the Gate

PASSING = (list("P" * 40), {"min": 0.5})
FAILING = (list("F" * 40), {"min": 0.5})
OVERLAPPING = (list("PF" * 5), {"min": 0.5})
UNOBSERVED = (list("MMM"), {"min": 0.5})
TOO_MUCH_MISSING = (list("P" * 40 + "M"), {"min": 0.5, "max_missing_fraction": 0.01})
REVIEWED = (list("P" * 40), {"min": 0.5, **REVIEW})


def gated(
    *rules: tuple[list[str], dict[str, Any]], partial: bool = False, **options: Any
) -> tuple[str, int, list[str]]:
    """The Gate's action, exit code and reasons over rules that each have a metric of their own."""
    policy = policy_of(*({**rule, "metric": f"metric_{place}"} for place, (_, rule) in enumerate(rules)), **options)
    metrics = {f"metric_{place}": measured(clusters) for place, (clusters, _) in enumerate(rules)}
    facts = SuiteFacts(False, 40, partial)
    row = settle(policy, decide(policy, metrics, facts, {}), facts)
    return row.action, row.exit_code, json.loads(row.reasons)


@pytest.mark.parametrize(("rule", "exit_code"), [(FAILING, 1), (OVERLAPPING, 3), (REVIEWED, 4)])
def test_a_state_in_block_on_blocks_with_its_exit_code(rule: tuple[list[str], dict[str, Any]], exit_code: int) -> None:
    assert gated(PASSING, rule) == ("BLOCK", exit_code, [])


def test_rules_that_all_pass_allow() -> None:
    assert gated(PASSING, PASSING) == ("ALLOW", 0, [])


@pytest.mark.parametrize(
    ("rule", "state"),
    [(FAILING, "FAIL"), (OVERLAPPING, "INSUFFICIENT_EVIDENCE"), (REVIEWED, "MANUAL_REVIEW"), (PASSING, "PASS")],
)
def test_a_state_in_warn_on_warns_and_never_sets_the_exit_code(
    rule: tuple[list[str], dict[str, Any]], state: State
) -> None:
    assert gated(rule, block_on=(), warn_on=(state,)) == ("WARN", 0, [])


def test_a_state_in_neither_list_allows() -> None:
    assert gated(FAILING, OVERLAPPING, REVIEWED, block_on=(), warn_on=()) == ("ALLOW", 0, [])


@pytest.mark.parametrize("rule", [UNOBSERVED, TOO_MUCH_MISSING])
def test_missing_evidence_blocks_whatever_the_policy_says(rule: tuple[list[str], dict[str, Any]]) -> None:
    assert gated(rule, block_on=(), warn_on=()) == ("BLOCK", 3, [GateReason.MISSING_EVIDENCE])
    assert gated(rule, block_on=(), warn_on=("INSUFFICIENT_EVIDENCE",)) == ("BLOCK", 3, [GateReason.MISSING_EVIDENCE])


@pytest.mark.parametrize("rule", [UNOBSERVED, TOO_MUCH_MISSING])
def test_missing_evidence_is_a_fact_whatever_tier_won(rule: tuple[list[str], dict[str, Any]]) -> None:
    clusters, bar = rule
    assert gated((clusters, {**bar, **REVIEW}), block_on=(), warn_on=("MANUAL_REVIEW",)) == (
        "BLOCK",
        3,
        [GateReason.MISSING_EVIDENCE],
    )


def test_an_unobserved_count_rule_blocks_as_missing_evidence() -> None:
    assert gated((list("NN"), {"max_failures": 5}), block_on=()) == ("BLOCK", 3, [GateReason.MISSING_EVIDENCE])


def test_a_partial_run_blocks_unless_the_policy_lets_it_pass() -> None:
    assert gated(PASSING, partial=True) == ("BLOCK", 5, [GateReason.PARTIAL_RUN])
    assert gated(PASSING, partial=True, block_on_partial_run=False) == ("ALLOW", 0, [])


def test_the_exit_code_goes_by_fail_then_partial_then_review_then_lacking_evidence() -> None:
    everything = [FAILING, REVIEWED, OVERLAPPING, UNOBSERVED]
    missing, both = [GateReason.MISSING_EVIDENCE], [GateReason.PARTIAL_RUN, GateReason.MISSING_EVIDENCE]
    assert gated(*everything, partial=True) == ("BLOCK", 1, both)
    assert gated(*everything[1:], partial=True) == ("BLOCK", 5, both)
    assert gated(*everything[1:]) == ("BLOCK", 4, missing)
    assert gated(*everything[2:]) == ("BLOCK", 3, missing)


def test_only_states_that_block_set_the_exit_code() -> None:
    kept: tuple[State, ...] = ("INSUFFICIENT_EVIDENCE",)
    assert gated(FAILING, REVIEWED, OVERLAPPING, block_on=kept, warn_on=("FAIL",)) == ("BLOCK", 3, [])
    assert gated(FAILING, REVIEWED, partial=True, block_on=kept) == ("BLOCK", 5, [GateReason.PARTIAL_RUN])


@given(
    st.lists(
        st.sampled_from([PASSING, FAILING, OVERLAPPING, UNOBSERVED, TOO_MUCH_MISSING, REVIEWED]), min_size=1, max_size=4
    ),
    st.sets(st.sampled_from(STATES)),
    st.booleans(),
    st.booleans(),
)
def test_the_command_fails_exactly_when_the_gate_blocks(
    rules: list[tuple[list[str], dict[str, Any]]], block_on: set[State], partial: bool, block_on_partial_run: bool
) -> None:
    action, exit_code, reasons = gated(
        *rules, partial=partial, block_on=tuple(block_on), block_on_partial_run=block_on_partial_run
    )
    assert (action == "BLOCK") == (exit_code in (1, 3, 4, 5)) == (exit_code != 0)
    assert exit_code or not reasons


@pytest.mark.parametrize("rules", [("rule_0",), ("rule_0", "rule_1", "rule_1"), ("rule_0", "rule_2")])
def test_decisions_that_are_not_one_for_each_rule_are_refused(rules: tuple[str, ...]) -> None:
    facts = facts_of(["P"])
    rows = decide(
        policy_of(*({"id": rule, "min": 0.0} for rule in dict.fromkeys(rules))), {"polite": measured(["P"])}, facts, {}
    )
    found = [row for rule in rules for row in rows if row.rule_id == rule]
    with pytest.raises(EvidenceError, match="not those of this policy's rules"):
        settle(policy_of({"min": 0.0}, {"min": 0.0}), found, facts)


def test_an_eligible_minimum_stands_beside_a_count_only() -> None:
    with pytest.raises(ValueError, match=r"goes with max_failures only, and rule 'rule_0' has min, .*; remove it"):
        policy_of({"min": 0.5, "min_eligible": 20})
