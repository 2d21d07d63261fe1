"""What runs without a hand: the nightly schedule, the two sensors, killed runs, and systems built from resources."""

import datetime
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent

from oloproof_dagster import ConfigError, SandboxResource, build_definitions, load_project, load_run
from oloproof_dagster.assets import automation
from oloproof_dagster.definitions import defs
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.resources.processes import TAG, living, report_killed
from oloproof_dagster.suite.preflight import project_digest
from tests.support.projects import NO_FAILURE, rules, write_project
from tests.support.runs import COUNTED_TILL, TABLES, Home, Result, home

SCHEDULE = {"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Paris"}}
EXECUTED = ["c-001", "c-002", "c-003"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("automation")


@pytest.fixture(scope="module")
def instance(folder: Path) -> Iterator[dg.DagsterInstance]:
    """One instance for all tests here, as sensors need one that other processes could open."""
    (folder / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(folder / "home"), overrides={"telemetry": {"enabled": False}}) as made:
        yield made


@pytest.fixture
def till(instance: dg.DagsterInstance, tmp_path: Path, request: pytest.FixtureRequest) -> Home:
    """A scheduled project of a name of its own, so that tests share the instance and nothing else."""
    name = f"till {abs(hash(request.node.name))}"
    write_project(tmp_path, app=COUNTED_TILL, suite={"project": name, **SCHEDULE}, release=rules(NO_FAILURE))
    return Home(tmp_path, instance)


def tick(home: Home, sensor: str, definitions: dg.Definitions | None = None) -> Any:
    """What a sensor asks for at one tick."""
    definitions = definitions or home.definitions()
    context = dg.build_sensor_context(
        instance=home.instance, instance_ref=home.instance.get_ref(), definitions=definitions
    )
    return definitions.resolve_sensor_def(f"{home.slug}_{sensor}")(context)


def evaluating(home: Home, definitions: dg.Definitions | None = None) -> Any:
    return tick(home, "evaluate_new_system_version", definitions)


def nightly(home: Home, definitions: dg.Definitions | None = None) -> Any:
    time = datetime.datetime(2030, 1, 1, 2, 30, tzinfo=datetime.UTC)
    definitions = definitions or home.definitions()
    context = dg.build_schedule_context(
        instance=home.instance, scheduled_execution_time=time, repository_def=definitions.get_repository_def()
    )
    schedule = definitions.resolve_schedule_def(f"{home.slug}_nightly_evaluation")
    (request,) = schedule.evaluate_tick(context).run_requests
    return request


def carried_out(home: Home, request: Any) -> Result:
    """The requested run, as the daemon would launch it."""
    return Result(
        home.definitions()
        .resolve_job_def(f"{home.slug}_release_run")
        .execute_in_process(
            instance=home.instance,
            partition_key=request.partition_key,
            asset_selection=request.asset_selection,
            run_config=request.run_config,
            tags=request.tags,
            raise_on_error=False,
        )
    )


def registered(home: Home) -> list[str]:
    return list(home.instance.get_dynamic_partitions(f"{home.slug}_system_version"))


# The schedule


@pytest.mark.slow
def test_the_nightly_run_is_fresh_of_the_current_version_which_it_registers_first(till: Home) -> None:
    request = nightly(till)
    assert registered(till) == ["v1"]
    assert request.partition_key == "v1"
    assert request.tags["dagster/max_retries"] == "0"
    assert {key.path[-1] for key in request.asset_selection} == set(TABLES)
    for expected in (0, 3):
        result = carried_out(till, request)
        assert result.said("gate")["action"] == "ALLOW"
        assert (result.said("trajectories")["executed"], till.noted()) == (3, EXECUTED)
        assert len(load_run(till.root).evidence.former_attempts("v1")) == expected // 3


def test_the_schedule_has_the_declared_time_and_zone(till: Home) -> None:
    schedule = till.definitions().resolve_schedule_def(f"{till.slug}_nightly_evaluation")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 2 * * *", "Europe/Paris")


def test_a_project_without_a_schedule_has_none(tmp_path: Path) -> None:
    assert not list(build_definitions(write_project(tmp_path)).schedules or ())


@pytest.mark.parametrize("cron", ["at night", "0 25 * * *", "* * *", ""])
def test_a_cron_line_that_cannot_run_is_the_users_mistake(cron: str, tmp_path: Path) -> None:
    root = write_project(tmp_path, suite={"schedule": {"cron": cron}})
    with pytest.raises(ConfigError, match=r"oloproof\.yaml.*cron"):
        build_definitions(root)


# The sensors


def test_registering_adds_the_current_version_once(till: Home) -> None:
    result = tick(till, "register_system_version")
    (request,) = result.dynamic_partitions_requests
    assert request.partition_keys == ["v1"]
    assert not result.run_requests
    assert result.skip_reason.skip_message == "added the partition of system version 'v1'"
    till.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
    assert isinstance(tick(till, "register_system_version"), dg.SkipReason)


def test_registering_runs_by_default_and_evaluating_does_not(till: Home) -> None:
    statuses = {sensor.name: sensor.default_status for sensor in till.definitions().sensors or ()}
    assert statuses == {
        f"{till.slug}_register_system_version": dg.DefaultSensorStatus.RUNNING,
        f"{till.slug}_evaluate_new_system_version": dg.DefaultSensorStatus.STOPPED,
    }


@pytest.mark.slow
def test_evaluating_registers_and_requests_a_new_version_under_one_key_until_its_gate_is_decided(till: Home) -> None:
    request = evaluating(till)
    assert registered(till) == ["v1"]
    assert request.partition_key == "v1"
    assert evaluating(till).run_key == request.run_key
    assert carried_out(till, request).said("gate")["action"] == "ALLOW"
    assert isinstance(evaluating(till), dg.SkipReason)
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    assert evaluating(till).partition_key == "v2"


@pytest.mark.slow
def test_a_red_gate_is_decided_and_not_asked_for_again(till: Home) -> None:
    till.edit("data/cases.jsonl", '"balance": 2,', '"balance": 7,')
    result = carried_out(till, evaluating(till))
    assert (result.success, result.said("gate")["action"]) == (False, "BLOCK")
    assert isinstance(evaluating(till), dg.SkipReason)


@pytest.mark.slow
def test_a_version_that_was_measured_without_a_policy_is_not_asked_for_again(till: Home) -> None:
    (till.root / "release.yaml").unlink()
    assert carried_out(till, evaluating(till)).success
    assert isinstance(evaluating(till), dg.SkipReason)


@pytest.mark.parametrize("of_the_job", [True, False], ids=["the job", "the asset graph"])
def test_evaluating_waits_while_a_run_of_the_version_is_under_way(till: Home, of_the_job: bool) -> None:
    definitions = till.definitions()
    name = f"{till.slug}_release_run"
    job = definitions.resolve_job_def(name) if of_the_job else definitions.resolve_implicit_global_asset_job_def()
    keys = {till.key("trajectories"), till.key("environment_states")}
    run = till.instance.create_run_for_job(
        job_def=job.get_subset(asset_selection=None if of_the_job else keys),
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": "v1"},
        asset_selection=None if of_the_job else frozenset(keys),
    )
    assert "under way" in evaluating(till).skip_message
    till.instance.report_run_canceled(run)
    assert isinstance(evaluating(till), dg.RunRequest)


def test_a_run_of_another_projects_equal_version_is_not_waited_for(till: Home, tmp_path: Path) -> None:
    write_project(tmp_path / "other", suite={"project": f"other of {till.slug}"})
    other = Home(tmp_path / "other", till.instance)
    other.instance.create_run_for_job(
        job_def=other.definitions().resolve_job_def(f"{other.slug}_release_run"),
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": "v1"},
    )
    assert isinstance(evaluating(till), dg.RunRequest)


@pytest.mark.slow
def test_a_failed_run_is_asked_for_again_once_its_cause_is_gone(till: Home) -> None:
    till.edit("data/cases.jsonl", '"input"', '"inputs"')
    first = evaluating(till)
    assert carried_out(till, first).failed_steps
    assert "failed" in evaluating(till).skip_message
    till.edit("data/cases.jsonl", '"inputs"', '"input"')
    second = evaluating(till)
    assert second.run_key != first.run_key
    assert carried_out(till, second).said("gate")["action"] == "ALLOW"
    assert isinstance(evaluating(till), dg.SkipReason)


@pytest.mark.slow
def test_a_cause_that_comes_back_is_asked_about_again(till: Home) -> None:
    keys = set()
    for good, bad in (('"input"', '"inputs"'), ('"inputs"', '"innput"'), ('"innput"', '"inputs"')):
        till.edit("data/cases.jsonl", good, bad)
        request = evaluating(till)
        keys.add(request.run_key)
        assert not carried_out(till, request).success
    assert len(keys) == 3


def test_a_failure_whose_cause_lies_outside_the_project_is_asked_for_again_after_a_while(
    till: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    till.edit("data/cases.jsonl", '"input"', '"inputs"')
    first = evaluating(till)
    carried_out(till, first)
    assert isinstance(evaluating(till), dg.SkipReason)
    monkeypatch.setattr(automation, "RETRIED_AFTER_SECONDS", -1)
    assert evaluating(till).run_key != first.run_key


def test_what_a_person_cancelled_is_not_asked_for_again(till: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automation, "RETRIED_AFTER_SECONDS", -1)
    request = evaluating(till)
    run = till.instance.create_run_for_job(
        job_def=till.definitions().resolve_job_def(f"{till.slug}_release_run"),
        status=dg.DagsterRunStatus.STARTED,
        tags={**request.tags, "dagster/partition": "v1"},
    )
    till.instance.report_run_canceled(run)
    assert isinstance(evaluating(till), dg.SkipReason)


def test_a_code_location_loaded_long_ago_follows_the_version_that_the_files_declare(till: Home) -> None:
    loaded = till.definitions()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    result = tick(till, "register_system_version", loaded)
    assert [request.partition_keys for request in result.dynamic_partitions_requests] == [["v2"]]
    assert nightly(till, loaded).partition_key == "v2"
    assert evaluating(till, loaded).partition_key == "v2"
    assert registered(till) == ["v2"]


def test_a_renamed_project_is_said_and_never_mixed_with_the_old_name(till: Home) -> None:
    loaded = till.definitions()
    till.edit("oloproof.yaml", 'project: "till', 'project: "renamed till')
    for sensor in ("register_system_version", "evaluate_new_system_version"):
        context = dg.build_sensor_context(
            instance=till.instance, instance_ref=till.instance.get_ref(), definitions=loaded
        )
        found = [each for each in loaded.sensors or () if each.name.endswith(sensor)]
        with pytest.raises(ConfigError, match="reload the code location"):
            found[0](context)


# The code location of the repository


def test_the_repositorys_code_location_serves_the_example_and_keeps_its_evidence_out_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    store = (definitions.resources or {})["refund_desk_evidence"]
    assert Path(store.root).is_relative_to(tmp_path)


def test_the_repositorys_code_location_serves_the_project_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLOPROOF_PROJECT", str(write_project(tmp_path)))
    assert defs().resolve_job_def("till_release_run").name == "till_release_run"


# Killed runs


def started(home: Home, tags: dict[str, str]) -> dg.DagsterRun:
    return home.instance.create_run_for_job(
        job_def=home.definitions().resolve_job_def(f"{home.slug}_release_run"),
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": "v1", **tags},
    )


def status(home: Home, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = home.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_a_run_whose_process_was_killed_is_reported_as_failed_and_asked_for_again(till: Home) -> None:
    with living() as tags:
        where, pid, since, mark = tags[TAG].split("/")
    before = f"{float(since) - 60}"  # a later process has its id now
    asked = {automation.PROJECT_TAG: project_digest(load_project(till.root))}
    run = started(till, {TAG: "/".join([where, pid, before, mark]), **asked})
    assert isinstance(evaluating(till), dg.RunRequest)
    assert status(till, run) == dg.DagsterRunStatus.FAILURE


def test_a_run_whose_process_lives_and_a_run_of_dagsters_own_are_left_alone(till: Home) -> None:
    elsewhere = started(till, {TAG: "another-machine/1/0.0/mark"})
    with living() as tags:
        ours, dagsters = started(till, tags), started(till, {})
        assert not {ours.run_id, dagsters.run_id, elsewhere.run_id} & set(report_killed(till.instance))
        assert status(till, ours) == status(till, dagsters) == dg.DagsterRunStatus.STARTED
    assert report_killed(till.instance) == [ours.run_id]
    for run in (dagsters, elsewhere):
        till.instance.report_run_canceled(run)


def at_a_step(home: Home, step: str, seconds_ago: float) -> dg.DagsterRun:
    """A run that the sensor asked for and Dagster launched, with a step under way since then."""
    run = started(home, {automation.PROJECT_TAG: project_digest(load_project(home.root))})
    began = DagsterEvent(event_type_value=dg.DagsterEventType.STEP_START.value, job_name=run.job_name, step_key=step)
    at = time.time() - seconds_ago
    home.instance.store_event(dg.EventLogEntry(
        error_info=None, level="debug", user_message="", run_id=run.run_id, timestamp=at, step_key=step,
        job_name=run.job_name, dagster_event=began,
    ))  # fmt: skip
    return run


@pytest.mark.parametrize("step", ["{}_execution", "{}__fault_replays", "{}_execution.shard[1]"])
def test_a_run_that_died_with_its_daemon_is_reported_as_failed_and_asked_for_again(till: Home, step: str) -> None:
    run = at_a_step(till, step.format(till.slug), 120)
    assert isinstance(evaluating(till), dg.RunRequest)
    assert status(till, run) == dg.DagsterRunStatus.FAILURE


def test_the_nightly_tick_ends_a_run_that_died_with_its_daemon(till: Home) -> None:
    run = at_a_step(till, f"{till.slug}_execution", 120)
    assert nightly(till).partition_key == "v1"
    assert status(till, run) == dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize("shard", [None, 1])
def test_a_run_whose_version_somebody_holds_is_waited_for(till: Home, shard: int | None) -> None:
    run = at_a_step(till, f"{till.slug}_execution", 120)
    with Evidence(till.root / ".oloproof/evidence").held("v1", shard=shard):
        assert "under way" in evaluating(till).skip_message
    assert isinstance(evaluating(till), dg.RunRequest)
    assert status(till, run) == dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize(("step", "seconds_ago"), [("{}_execution", 5), ("{}__verdicts", 3000)])
def test_a_run_that_does_not_have_to_hold_its_version_is_waited_for(till: Home, step: str, seconds_ago: float) -> None:
    run = at_a_step(till, step.format(till.slug), seconds_ago)
    assert "under way" in evaluating(till).skip_message
    till.instance.report_run_canceled(run)


# Systems that are built from resources


BUILT = """
import dagster as dg
from pathlib import Path
from app import Till
from oloproof_dagster import SandboxResource, build_definitions

here = Path(__file__).parent


class Prices(dg.ConfigurableResource):
    surcharge: int


class PricedTill(Till):
    def __init__(self, surcharge):
        super().__init__()
        self.surcharge = surcharge

    def __call__(self, request):
        return super().__call__({**request, "amount": request["amount"] + self.surcharge})


class TillOfPrices(SandboxResource):
    prices: Prices

    def make_system(self):
        return PricedTill(self.prices.surcharge)


defs = build_definitions(here, sandbox=TillOfPrices(project_dir=str(here), prices=Prices(surcharge=1)))
"""


# Dagster calls what it deprecates itself when a resource holds another one.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
def test_a_system_is_built_from_other_resources_and_the_file_that_builds_it_is_its_code(till: Home) -> None:
    (till.root / "definitions.py").write_text(BUILT)

    def run() -> Result:
        return till.run(definitions=project_definitions(load_project(till.root)))

    assert run().said("gate")["action"] == "BLOCK"
    assert till.noted() == EXECUTED
    assert {row.state for row in load_run(till.root).table("environment_states").rows()} == {
        f'{{"balance":{number + 1},"other":"untouched"}}' for number in range(1, 4)
    }
    run()
    assert till.noted() == []
    till.edit("definitions.py", "surcharge=1", "surcharge=0")
    assert run().said("gate")["action"] == "ALLOW"
    assert till.noted() == EXECUTED


class Unmakeable(SandboxResource):
    """A resource whose database is down."""

    def make_system(self) -> Any:
        raise ConnectionError("no route to the staging store")


def test_a_resource_that_cannot_make_the_system_is_said_before_the_first_case(till: Home) -> None:
    sandbox = Unmakeable(project_dir=str(till.root))
    result = till.run(definitions=build_definitions(till.root, sandbox=sandbox))
    assert result.failed_steps == {f"{till.slug}__cases"}
    assert "Unmakeable.make_system: ConnectionError: no route to the staging store" in result.why
    assert till.noted() == []


@pytest.mark.parametrize(("option", "here"), [({}, True), ({"workers": 2}, False), ({"timeout_s": 60.0}, False)])
@pytest.mark.slow
def test_an_option_of_a_resource_goes_before_what_oloproof_yaml_declares(
    option: dict[str, Any], here: bool, till: Home
) -> None:
    noting = "import os\n        pathlib.Path(__file__).with_name(str(os.getpid())).touch()\n"
    till.edit("app.py", 'note("calls")\n', noting)
    sandbox = SandboxResource(project_dir=str(till.root), **option)
    result = till.run(definitions=build_definitions(till.root, sandbox=sandbox))
    assert result.success, result.why
    assert (till.root / str(os.getpid())).exists() == here


@pytest.mark.parametrize("declared", [True, False])
def test_a_resource_says_whether_a_sandbox_is_shared_and_else_oloproof_yaml_does(
    declared: bool, tmp_path: Path
) -> None:
    project = load_project(write_project(tmp_path, suite={"sandbox": {"shared": declared}}))
    for option in (True, False, None):
        sandbox = SandboxResource(project_dir=str(tmp_path), shared=option)
        assert sandbox.is_shared(project) == (declared if option is None else option)


@pytest.mark.slow
def test_a_resource_may_name_another_system_whose_files_then_count(till: Home) -> None:
    (till.root / "other.py").write_text(
        (till.root / "app.py").read_text().replace('"answer": "added"', '"answer": "o"')
    )
    definitions = build_definitions(
        till.root, sandbox=SandboxResource(project_dir=str(till.root), callable="other:till")
    )
    assert till.run(definitions=definitions).success
    assert {row.output for row in load_run(till.root).table("trajectories").rows()} == {'{"answer":"o"}'}
    till.noted()
    till.edit("app.py", "done", "over")
    till.run(definitions=definitions)
    assert till.noted() == []
    till.edit("other.py", "done", "over")
    till.run(definitions=definitions)
    assert till.noted() == EXECUTED


def test_judging_a_version_that_nothing_is_recorded_of_is_refused_and_leaves_it_to_be_evaluated(tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        judged = till.run("v1", job="rejudge")
        assert "nothing is recorded of system version 'v1'" in judged.why
        assert "gate" not in judged.materialized
        request = automation.request_for(till.instance, load_project(till.root), load_run(till.root).evidence)
        assert isinstance(request, dg.RunRequest)
