"""The release run of a version that is recorded and not declared any more: it takes what is recorded and decides it."""

import json
from pathlib import Path

import pytest

from oloproof_dagster import load_run
from oloproof_dagster.assets.automation import evaluation_selection, fresh_run
from oloproof_dagster.assets.recorded import KEPT, SCHEDULE_TAG
from oloproof_dagster.project.project import load_project
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, DECLARED, QUIET, TABLES, Home, Result, home, rule_states


@pytest.fixture
def bumped(ran: Home) -> Home:
    """The till, recorded as v1 in this instance too, after its bump to v2."""
    assert ran.run().success
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    ran.noted()
    ran.noted("replays")
    return ran


def contents(home: Home, version: str) -> dict[str, str]:
    return {name: load_run(home.root, version).table(name).content for name in TABLES}


def test_its_recorded_tables_are_reported_as_reused_and_nothing_is_executed(bumped: Home) -> None:
    before = contents(bumped, "v1")
    result = bumped.run("v1")
    assert result.success, result.why
    assert (bumped.noted(), bumped.noted("replays")) == ([], [])
    assert {name: result.said(name)["reused"] for name in KEPT} == dict.fromkeys(KEPT, True)
    assert result.said("trajectories")["executed"] == 0
    assert result.said("trajectories")["answered_from_evidence"] == 3
    assert result.said("fault_replays")["answered_from_evidence"] == 6
    assert contents(bumped, "v1") == before


def test_an_agent_that_cannot_be_imported_any_more_is_not_asked_for(bumped: Home) -> None:
    (bumped.root / "app.py").write_text("import nowhere\n")
    assert bumped.run("v1").success


@pytest.mark.parametrize("what", ["a case more", "another expectation", "no dataset that can be read"])
def test_it_is_judged_on_the_recorded_suite_and_rejudge_alone_judges_on_todays(bumped: Home, what: str) -> None:
    if what == "a case more":
        with (bumped.root / "data/cases.jsonl").open("a") as stream:
            stream.write(json.dumps(case(4)) + "\n")
    else:
        old, new = ('"balance": 2,', '"balance": 7,') if what == "another expectation" else ('"input"', '"inputs"')
        bumped.edit("data/cases.jsonl", old, new)
    assert bumped.run("v1").success
    assert rule_states(bumped, "v1") == {"rule_0": "PASS"}
    assert not bumped.run("v1", job="rejudge").success


def test_it_is_decided_by_the_rules_and_evaluators_of_now(bumped: Home) -> None:
    never = rules({"metric": "answer_is_it", "max_failures": 0})
    (bumped.root / "release.yaml").write_text(json.dumps(never))
    bumped.edit("oloproof.yaml", '{"type": "state_matches"}', json.dumps({
        "type": "exact_match", "criterion": "answer_is_it", "field": "answer"
    }))  # fmt: skip
    assert bumped.run("v1").said("gate")["action"] == "ALLOW"
    bumped.edit("oloproof.yaml", '"field": "answer"', '"field": "answer", "expected_field": "state.balance"')
    assert bumped.run("v1").said("gate")["action"] == "BLOCK"


def test_it_keeps_its_number_of_trials(bumped: Home) -> None:
    bumped.edit("oloproof.yaml", "version: 1\n", "version: 1\ntrials: 2\n")
    assert bumped.run("v1").success
    assert len(load_run(bumped.root, "v1").verdicts) == 6


def test_an_instance_that_never_saw_the_version_takes_what_is_recorded_too(ran: Home) -> None:
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    result = ran.run("v1")
    assert result.success, result.why
    assert {name: result.said(name)["dagster/row_count"] for name in KEPT} == {
        "cases": 3, "transformed_cases": 3, "trajectories": 3, "environment_states": 3, "fault_replays": 6
    }  # fmt: skip


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.slow
def test_runs_over_all_versions_turn_nothing_red_that_was_not(tmp_path: Path, shards: int) -> None:
    suite = {**DECLARED, "sandbox": {"shards": shards}}
    root = write_project(tmp_path, app=COUNTED_TILL, suite=suite, release=rules(NO_FAILURE))
    with home(root) as till:
        actions = []
        for number in (1, 2, 3):
            actions.append(till.run().said("gate")["action"])
            till.edit("oloproof.yaml", f'"v{number}"', f'"v{number + 1}"')
            if number == 1:
                till.edit("data/cases.jsonl", '"state": {"balance": 2,', '"state": {"balance": 7,')
        till.edit("oloproof.yaml", '"v4"', '"v3"')
        till.noted()
        again = [till.run(version).said("gate")["action"] for version in ("v1", "v2", "v3")]
        assert again == actions == ["ALLOW", "BLOCK", "BLOCK"]
        assert till.noted() == []


def test_a_version_that_was_not_recorded_whole_is_refused_by_the_first_asset(bumped: Home) -> None:
    load_run(bumped.root, "v1").table("fault_replays").path.unlink()
    result = bumped.run("v1")
    assert result.failed_steps == {"till__cases"}
    assert "'v1' was not executed to its end (fault_replays not recorded)" in result.why
    assert result.materialized == set()


def test_a_person_who_wants_it_fresh_is_refused_by_the_first_asset(bumped: Home) -> None:
    result = bumped.run("v1", fresh=True)
    assert result.failed_steps == {"till__cases"}
    assert "fresh: only the declared version, 'v2', can be executed" in result.why
    assert load_run(bumped.root, "v1").evidence.former_attempts("v1") == ()


def test_recorded_errors_are_not_repeated_of_it_and_where_there_are_none_nothing_was_to_be(bumped: Home) -> None:
    assert bumped.run("v1", retry_errors=True).success


def scheduled(home: Home, version: str) -> Result:
    """What the nightly schedule launched for a version."""
    project = load_project(home.root)
    return Result(
        home.definitions()
        .resolve_job_def("till_release_run")
        .execute_in_process(
            instance=home.instance,
            partition_key=version,
            asset_selection=evaluation_selection(project),
            raise_on_error=False,
            run_config={**fresh_run(project), **QUIET},
            tags={SCHEDULE_TAG: "till_nightly_evaluation"},
        )
    )


def test_a_schedules_fresh_is_ignored_with_one_line_once_the_version_was_bumped(bumped: Home) -> None:
    result = scheduled(bumped, "v1")
    assert result.success, result.why
    assert bumped.noted() == []
    assert result.said("trajectories")["warnings"] == (
        "the schedule's fresh is ignored: oloproof.yaml declares 'v2' by now, and what is recorded of 'v1' is decided"
        " again"
    )
    assert load_run(bumped.root, "v1").evidence.former_attempts("v1") == ()
    bumped.instance.add_dynamic_partitions("till_system_version", ["v2"])
    assert scheduled(bumped, "v2").success
    assert len(bumped.noted()) == 3


def test_what_a_later_run_resumes_from_is_not_taken_away(bumped: Home) -> None:
    evidence = load_run(bumped.root, "v1").evidence
    evidence.open_attempt("v1", fresh=True)  # a fresh run that was killed before its first table
    assert bumped.run("v1").success
    attempt = evidence.attempt("v1")
    assert attempt is not None
    assert not attempt.complete


def test_its_runs_do_not_keep_each_other_away(bumped: Home) -> None:
    with load_run(bumped.root, "v1").evidence.held("v1"):
        assert bumped.run("v1").success


def test_its_run_waits_for_no_turn_at_a_shared_sandbox(bumped: Home) -> None:
    bumped.edit("oloproof.yaml", "version: 1\n", 'version: 1\nsandbox: {"shared": true}\n')
    assert bumped.run("v1").success
