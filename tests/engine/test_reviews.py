"""People's reviews: which rule they decide, on which evidence, and what a review that decides nothing is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster import ConfigError, load_project
from oloproof_dagster.decision.decide import SuiteFacts, decide
from oloproof_dagster.decision.metrics import measure
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.release_yaml import Policy
from oloproof_dagster.project.reviews import read_reviews, reviews_digest, unused_lines
from oloproof_dagster.records.tables import DecisionRow, MetricRow, VerdictRow
from tests.support.projects import rules, write_project

FACTS = SuiteFacts(False, 3, False)
RULE = {"id": "bar", "metric": "state_matches", "max_failures": 0, "requires_manual_review": True}


def measured(letters: str = "PPF", detail: str | None = None) -> MetricRow:
    status = {"P": "passed", "F": "failed"}
    rows = [
        VerdictRow(f"c{number}", 0, "state_matches", status[letter], None, detail, None, None)
        for number, letter in enumerate(letters)
    ]
    clusters = {row.case_id: row.case_id for row in rows}
    (metric,) = measure(rows, clusters, ["state_matches"], clustered=False, confidence_level=0.95, min_clusters=20)
    return metric


def reviewed(root: Path, *lines: dict[str, Any] | str, rule: dict[str, Any] | None = None) -> Project:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return load_project(write_project(root, release=rules(rule or RULE), files={"reviews.jsonl": text}))


def decided(project: Project, metric: MetricRow, unchecked: dict[str, str] | None = None) -> DecisionRow:
    assert project.policy is not None
    (row,) = decide(project.policy, {"state_matches": metric}, FACTS, unchecked or {}, read_reviews(project))
    return row


def evidence_of(metric: MetricRow, **rule: Any) -> str:
    policy = Policy.model_validate({"version": 1, "rules": (RULE | rule,)})
    (row,) = decide(policy, {"state_matches": metric}, FACTS, {})
    assert row.evidence is not None
    return row.evidence


def line(evidence: str, *, approve: bool = True, **more: Any) -> dict[str, Any]:
    return {"rule": "bar", "evidence": evidence, "by": "Ada", "approve": approve} | more


def test_a_review_of_this_very_evidence_decides_the_rule(tmp_path: Path) -> None:
    metric = measured()
    for approve, state, reason in ((True, "PASS", "approved_by_review"), (False, "FAIL", "rejected_by_review")):
        row = decided(reviewed(tmp_path, line(evidence_of(metric), approve=approve, note="read all")), metric)
        assert (row.state, json.loads(row.reasons), row.advice) == (state, [reason], None)


@pytest.mark.parametrize(
    "edited", [measured("PPP"), measured("PPFF"), measured(detail="another text")], ids=["rate", "cases", "verdict"]
)
def test_a_review_of_other_evidence_decides_nothing_and_is_named(tmp_path: Path, edited: MetricRow) -> None:
    project = reviewed(tmp_path, line(evidence_of(measured())))
    row = decided(project, edited)
    assert row.state == "MANUAL_REVIEW"
    assert list(unused_lines(read_reviews(project), [row], ["bar"])) == [
        "reviews.jsonl, line 1: the review of 'bar' by 'Ada' is of other evidence and decides nothing"
    ]


def test_a_review_of_the_same_numbers_under_another_bar_is_of_other_evidence() -> None:
    assert evidence_of(measured()) != evidence_of(measured(), max_failures=1)


def test_no_review_lets_a_relation_pass_whose_transform_nobody_checked(tmp_path: Path) -> None:
    metric = measured()
    row = decided(reviewed(tmp_path, line(evidence_of(metric))), metric, {"state_matches": "label the pairs"})
    assert row.state == "INSUFFICIENT_EVIDENCE"


def test_a_rule_that_numbers_decide_heeds_no_review(tmp_path: Path) -> None:
    metric, rule = measured(), {key: value for key, value in RULE.items() if key != "requires_manual_review"}
    project = reviewed(tmp_path, line(evidence_of(metric)), rule=rule)
    row = decided(project, metric)
    assert row.state == "FAIL"
    assert list(unused_lines(read_reviews(project), [row], [])) == [
        "reviews.jsonl, line 1: rule 'bar' does not say requires_manual_review, so the review decides nothing"
    ]


def test_a_review_of_a_rule_that_is_not_there_is_named(tmp_path: Path) -> None:
    project = reviewed(tmp_path, line(evidence_of(measured()), rule="bars"))
    assert list(unused_lines(read_reviews(project), [decided(project, measured())], ["bar"])) == [
        "reviews.jsonl, line 1: there is no rule 'bars'; did you mean 'bar'?"
    ]


def test_a_metric_without_a_digest_of_its_verdicts_can_not_be_reviewed(tmp_path: Path) -> None:
    metric = replace(measured(), verdicts=None)
    row = decided(reviewed(tmp_path, line(evidence_of(measured()))), metric)
    assert (row.state, row.evidence) == ("MANUAL_REVIEW", None)


def test_reviews_count_by_what_they_decide(tmp_path: Path) -> None:
    first = reviews_digest(reviewed(tmp_path, line("x"), line("y")))
    assert reviews_digest(reviewed(tmp_path, line("y", note="late", by="Bo"), line("x"), line("x"))) == first
    assert reviews_digest(reviewed(tmp_path, line("x"), line("y", approve=False))) != first


MISTAKES = {
    "no object": ("[]", "reviews.jsonl:1: a review is an object with `rule`, `evidence`, `by` and `approve`, found"),
    "a key too few": ({"rule": "bar"}, "reviews.jsonl:1: `evidence` is required and not there"),
    "a key mistyped": (line("x", aprove=True), "reviews.jsonl:1: `aprove` is no key of a review; did you mean"),
    "a text for true": (line("x") | {"approve": "yes"}, "reviews.jsonl:1: `approve` must be true or false, found"),
    "nobody": (line("x", by=""), "reviews.jsonl:1: `by` must be a text that is not empty, found"),
    "no text": (line("x", note=1), "reviews.jsonl:1: `note` must be a text, found"),
}


@pytest.mark.parametrize(("written", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_review_is_named_with_its_line(tmp_path: Path, written: Any, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        read_reviews(reviewed(tmp_path, written))
    assert str(found.value).startswith(message)


def test_two_reviews_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reviews.jsonl:2: rejects what line 1 approves: keep one of the two"):
        read_reviews(reviewed(tmp_path, line("x"), line("x", approve=False, by="Bo")))
