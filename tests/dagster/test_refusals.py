"""What a release run refuses before the first case, and how its page says so."""

import json

import dagster as dg
import pytest

from oloproof_dagster import load_run
from oloproof_dagster.evidence.evidence import Evidence
from tests.support.projects import case
from tests.support.runs import Home, Result


def failure(result: Result) -> tuple[str, str]:
    """What a run's page shows of its failed step: the error, and the description of a dagster.Failure."""
    (event,) = [each for each in result.dagster.all_events if each.is_step_failure]
    data = event.step_failure_data
    assert data.error is not None
    assert data.error.cause is None
    assert data.user_failure_data is not None
    return data.error.cls_name or "", data.user_failure_data.description or ""


@pytest.mark.parametrize("job", ["release_run", "rejudge"])
def test_a_version_that_is_neither_declared_nor_recorded_is_refused_before_anything_is_materialised(
    ran: Home, job: str
) -> None:
    result = ran.run("v1x", job=job)
    assert result.failed_steps == {"till__cases"}
    assert failure(result) == (
        "Failure",
        "system version 'v1x' is neither declared nor recorded: oloproof.yaml declares 'v1'; recorded: 'v1'",
    )
    assert ran.noted() == []
    assert result.materialized == set()
    assert not load_run(ran.root).evidence.folder("v1x").exists()


def test_a_version_that_is_not_registered_is_refused_before_the_first_case(till: Home) -> None:
    till.run()
    till.noted()
    result = till.run("v2", register=False)
    assert result.failed_steps == {"till__cases"}
    assert "'v2' is not registered" in result.why
    assert "'v1'" in result.why
    assert till.noted() == []
    assert not load_run(till.root).evidence.folder("v2").exists()


@pytest.mark.parametrize(
    ("asset", "step"), [("trajectories", "till_execution"), ("fault_replays", "till__fault_replays")]
)
def test_executing_and_replaying_refuse_an_unrecorded_version_each_for_itself(ran: Home, asset: str, step: str) -> None:
    keys = [ran.key("trajectories"), ran.key("environment_states")] if asset == "trajectories" else [ran.key(asset)]
    result = ran.run("v0", select=keys)
    assert result.failed_steps == {step}
    assert "'v0' is neither declared nor recorded: oloproof.yaml declares 'v1'" in failure(result)[1]


def test_a_run_that_cannot_have_the_versions_lock_fails_with_the_sentence_of_it(ran: Home) -> None:
    with Evidence(ran.root / ".oloproof/evidence").held("v1"):
        result = ran.run(fresh=True)
    assert result.failed_steps == {"till_execution"}
    assert failure(result) == (
        "Failure",
        "another run is executing version 'v1' at this moment; wait for it to end, then run again: what it finished is"
        " kept",
    )


def test_a_damaged_table_is_the_failure_of_the_step_that_reads_it(ran: Home) -> None:
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    path = load_run(ran.root, "v1").table("trajectories").path
    path.write_bytes(b"torn")
    result = ran.run("v1", job="rejudge")
    assert failure(result)[0] == "Failure"
    assert str(path) in failure(result)[1]


def test_a_place_that_cannot_be_written_is_the_failure_of_the_step_that_stores_a_table(ran: Home) -> None:
    @dg.asset(
        key=ran.key("verdicts"), partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"),
        io_manager_key="till_tables",
    )  # fmt: skip
    def verdicts() -> list[int]:
        return [1]

    ran.instance.add_dynamic_partitions("till_system_version", ["v1"])
    resources = dict(ran.definitions().resources or {})
    result = Result(
        dg.materialize(
            [verdicts],
            instance=ran.instance,
            partition_key="v1",
            raise_on_error=False,
            resources={"till_tables": resources["till_tables"]},
        )
    )
    assert failure(result) == ("Failure", "verdicts is a table of the release run; give your asset another name")


def test_a_case_that_does_not_fit_an_evaluator_is_the_failure_of_the_first_step(till: Home) -> None:
    till.edit("data/cases.jsonl", json.dumps(case(2))[:12], '{"ids": "c-2')
    result = till.run()
    assert failure(result)[0] == "Failure"
    assert failure(result)[1].startswith("data/cases.jsonl:")


BROKEN: dict[str, tuple[str, str, str]] = {
    "a case that is no case": ("data/cases.jsonl", '"input"', '"inputs"'),
    "an agent that cannot be imported": ("app.py", "class Till:", "import nowhere\nclass Till:"),
    "a system without the replay that an evaluator needs": ("app.py", "def replay", "def replayed"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_users_mistake_fails_the_first_step_and_executes_nothing(till: Home, what: str) -> None:
    till.edit(*BROKEN[what])
    result = till.run()
    assert result.failed_steps == {"till__cases"}
    assert failure(result)[0] == "Failure"
    assert till.noted() == []
