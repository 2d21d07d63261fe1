"""What a further release run uses again, and what an edit makes it execute, judge or decide again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from oloproof_dagster import load_run
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, EXECUTED, TABLES, Home, Result, home, rule_states


def test_a_second_run_executes_nothing_and_says_that_it_reused_every_table(till: Home) -> None:
    first = till.run()
    assert till.noted() == EXECUTED
    second = till.run()
    assert till.noted() == []
    for table in TABLES:
        assert first.said(table)["reused"] is False
        assert second.said(table)["reused"] is True
        assert second.data_version(table) == first.data_version(table)
        assert second.said(table)["dagster/row_count"] == first.said(table)["dagster/row_count"]
    assert second.said("trajectories")["answered_from_evidence"] == 3
    assert second.said("fault_replays")["answered_from_evidence"] == 6
    assert second.said("trajectories")["executed"] == second.said("fault_replays")["replayed"] == 0


def test_a_table_whose_file_is_gone_is_made_again(till: Home) -> None:
    first = till.run()
    gone = ["cases", "environment_states", "fault_replays", "verdicts"]
    for table in gone:
        load_run(till.root).table(table).path.unlink()
    after = till.run()
    assert after.success
    # Both tables of a pass are written together, and nothing that still holds is touched.
    assert {table for table in TABLES if not after.said(table)["reused"]} == {*gone, "trajectories"}
    assert [after.data_version(table) for table in TABLES] == [first.data_version(table) for table in TABLES]


def test_a_new_instance_beside_old_evidence_executes_nothing_again(ran: Home) -> None:
    assert ran.run().success
    assert ran.noted() == []


REDECIDED: dict[str, tuple[Callable[[Home], None], set[str]]] = {
    "a bar": (lambda home: home.edit("release.yaml", '"max_failures": 0', '"max_failures": 3'), {"decisions"}),
    "an expectation": (
        lambda home: home.edit("data/cases.jsonl", '"state": {"balance": 2', '"state": {"balance": 7'),
        {"cases", "transformed_cases", "verdicts", "metrics", "slices", "decisions", "gate"},
    ),
    "an evaluator": (
        lambda home: home.edit(
            "oloproof.yaml", '"type": "state_matches"', '"type": "state_matches", "paths": ["other"]'
        ),
        {"verdicts", "metrics", "decisions"},  # a review is of verdicts, not of numbers alone
    ),
}


@pytest.mark.parametrize("what", REDECIDED)
def test_what_is_not_given_to_the_system_is_decided_again_without_executing(
    ran: Home, first: Result, what: str
) -> None:
    edit, changed = REDECIDED[what]
    edit(ran)
    again = ran.run()
    assert (ran.noted(), ran.noted("replays")) == ([], [])
    assert again.said("trajectories")["executed"] == again.said("fault_replays")["replayed"] == 0
    assert {table for table in TABLES if first.data_version(table) != again.data_version(table)} == changed


def test_slices_are_measured_again_without_executing(till: Home) -> None:
    till.run()
    till.noted()
    till.edit("oloproof.yaml", '["first_tool"]', '["tool_calls:1"]')
    again = till.run()
    assert till.noted() == []
    assert set(load_run(till.root).slices.value) == {"le_1"}
    assert {table for table in TABLES if not again.said(table)["reused"]} == {"slices"}


def test_labels_are_counted_again_without_executing(tmp_path: Path) -> None:
    cases = [case(number, input={"amount": number, "note": "add"}) for number in range(1, 4)]
    transform = {"name": "t", "field": "note", "template": "x {value}"}
    root = write_project(
        tmp_path,
        app=COUNTED_TILL,
        cases=cases,
        suite={
            "metamorphic": {"transforms": [transform | {"validity_labels": "labels.jsonl", "minimum_validity": 0.2}]},
            "evaluators": [{"type": "metamorphic_relation", "relation": "same_state", "transform": "t"}],
        },
        release=rules({"metric": "same_state_under_t", "max_failures": 0}),
        files={"labels.jsonl": ""},
    )
    with home(root) as till:
        till.run()
        assert len(till.noted()) == 6
        assert rule_states(till) == {"rule_0": "INSUFFICIENT_EVIDENCE"}
        suite = load_run(root).table("transformed_cases")
        (root / "labels.jsonl").write_text(
            "".join(
                json.dumps({"case": case_id, "digest": pair, "kept": True}) + "\n"
                for case_id, pair in suite.columns("case_id", "pair_digest")
                if pair
            )
        )
        again = till.run()
        assert till.noted() == []
        assert rule_states(till) == {"rule_0": "PASS"}
        assert {table for table in TABLES if not again.said(table)["reused"]} == {"cases", "decisions", "gate"}


def test_a_new_case_executes_that_case_alone(ran: Home) -> None:
    with (ran.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4)) + "\n")
    result = ran.run()
    assert ran.noted() == ["c-004"]
    assert result.said("trajectories")["answered_from_evidence"] == 3


def test_an_edited_input_executes_that_case_alone(ran: Home) -> None:
    ran.edit("data/cases.jsonl", "Please add 2", "Do add 2")
    ran.run()
    assert ran.noted() == ["c-002"]
    assert ran.noted("replays") == ["c-002", "c-002"]


def test_the_agent_is_not_even_imported_for_evidence_that_is_there(tmp_path: Path) -> None:
    app = (
        COUNTED_TILL + 'with pathlib.Path(__file__).with_name("imports").open("a") as stream:\n    stream.write("x")\n'
    )
    with home(write_project(tmp_path, app=app, release=rules(NO_FAILURE))) as till:
        till.run()
        assert till.noted("imports") == ["x"]
        till.run()
        till.run(job="rejudge")
        assert till.noted("imports") == []


def test_a_review_holds_for_no_version_whose_outputs_are_others(tmp_path: Path) -> None:
    left_to_a_person = rules(NO_FAILURE | {"id": "read", "requires_manual_review": True})
    write_project(tmp_path, release=left_to_a_person)
    with home(tmp_path) as till:
        till.run()
        evidence = load_run(tmp_path).decisions.evidence[0]
        line = {"rule": "read", "evidence": evidence, "by": "Ada", "approve": True}
        (tmp_path / "reviews.jsonl").write_text(json.dumps(line) + "\n")
        till.run()
        assert load_run(tmp_path).decisions.state[0] == "PASS"
        till.edit("oloproof.yaml", '"v1"', '"v2"')
        till.edit("app.py", '"answer"', '"reply"')
        till.run()
        assert load_run(tmp_path).decisions.state[0] == "MANUAL_REVIEW"
        assert set(load_run(tmp_path).verdicts.status) == {"passed"}
