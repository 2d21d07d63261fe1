"""The Gate in Dagster: its checks, what they hold back, what guards itself, and who else may read the tables."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

import oloproof_dagster
from oloproof_dagster import build_definitions, gated_asset, load_run, require_gate
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.project import load_project
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, Home, Result, home

EXAMPLE = Path(oloproof_dagster.__file__).parent / "examples" / "stateful_agent"
WRONG = [case(1), case(2, expected={"state": {"balance": 7, "other": "untouched"}}), case(3)]
RIGHT = [case(number) for number in range(1, 4)]


def deployed(home: Home, *, allow_warn: bool = False, guarded: bool = True) -> tuple[dg.AssetsDefinition, list[str]]:
    """An asset behind the Gate, and the versions that its body ran for."""
    ran: list[str] = []
    if guarded:

        @gated_asset(home.root, allow_warn=allow_warn, name="deploy")
        def behind_the_gate(context: dg.AssetExecutionContext) -> None:
            ran.append(context.partition_key)

        return behind_the_gate, ran

    @dg.asset(
        key=home.key("deploy"),
        deps=[home.key("gate")],
        partitions_def=dg.DynamicPartitionsDefinition(name=f"{home.slug}_system_version"),
    )
    def downstream(context: dg.AssetExecutionContext) -> None:
        ran.append(context.partition_key)

    return downstream, ran


# The example: the agent with its two defects, and the mended one


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    root = tmp_path_factory.mktemp("example") / "desk"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns(".oloproof", "__pycache__"))
    folder = tmp_path_factory.mktemp("dagster")
    with dg.DagsterInstance.local_temp(str(folder), overrides={"telemetry": {"enabled": False}}) as instance:
        yield Home(root, instance)


@pytest.fixture(scope="module")
def blocked(desk: Home) -> Result:
    """The first run of the example, as it is shipped."""
    return desk.run(definitions=project_definitions(load_project(desk.root)))


@pytest.fixture(scope="module")
def allowed(desk: Home, blocked: Result) -> Result:
    """The mended agent as the version after it."""
    desk.edit("oloproof.yaml", "version: scripted-1", "version: scripted-2")
    desk.edit("oloproof.yaml", "callable: app:desk", "callable: mended:desk")
    return desk.run(definitions=project_definitions(load_project(desk.root)))


def test_the_defective_agent_is_blocked_and_the_gate_is_kept(desk: Home, blocked: Result) -> None:
    assert not blocked.success
    assert blocked.failed_steps == {"refund_desk__gate"}
    assert {name for name, check in blocked.checks.items() if not check.passed} == {
        "honest_about_failed_refunds",
        "pasted_orders_do_not_matter",
        "release",
    }
    assert blocked.said("gate")["action"] == "BLOCK"
    assert load_run(desk.root, "scripted-1").gate == {"action": "BLOCK", "exit_code": 1, "reasons": []}


def test_what_is_behind_a_red_gate_does_not_run(blocked: Result) -> None:
    assert "promote" not in blocked.materialized
    assert "refund_desk__promote" not in blocked.failed_steps


def test_the_mended_agent_is_allowed_and_promoted(desk: Home, allowed: Result) -> None:
    assert allowed.success
    assert all(check.passed for check in allowed.checks.values())
    assert "promote" in allowed.materialized
    assert load_run(desk.root).gate == {"action": "ALLOW", "exit_code": 0, "reasons": []}
    assert allowed.said("trajectories")["executed"] == 72


def test_the_pages_show_the_failing_cases_and_the_rules(blocked: Result) -> None:
    assert "same\\_state\\_under\\_injected" in blocked.said("verdicts")["failing_cases"]
    shown = blocked.said("gate")["rules"]
    assert "pasted\\_orders\\_do\\_not\\_matter" in shown
    assert "0\\.291" in shown


def test_promoting_alone_after_a_red_gate_is_refused_by_the_asset_itself(desk: Home, allowed: Result) -> None:
    definitions = project_definitions(load_project(desk.root))
    alone = desk.run("scripted-1", definitions=definitions, select=[desk.key("promote")])
    assert alone.failed_steps == {"refund_desk__promote"}
    assert "the Gate of system version 'scripted-1' says BLOCK" in alone.why
    assert desk.run("scripted-2", definitions=definitions, select=[desk.key("promote")]).success


# The checks

POLICIES: dict[str, tuple[dict[str, Any], dict[str, tuple[bool, str]], str]] = {
    "passed": (rules(NO_FAILURE, {"metric": "state_matches", "max_failures": 3}),
               {"rule_0": (False, "ERROR"), "rule_1": (True, "ERROR"), "release": (False, "ERROR")}, "BLOCK"),
    "failed": (rules(NO_FAILURE),
               {"rule_0": (False, "ERROR"), "release": (False, "ERROR")}, "BLOCK"),
    "warned": (rules(NO_FAILURE, block_on=[], warn_on=["FAIL"]),
               {"rule_0": (False, "WARN"), "release": (True, "ERROR")}, "WARN"),
    "neither blocked nor warned": (rules(NO_FAILURE, block_on=[]),
               {"rule_0": (False, "WARN"), "release": (True, "ERROR")}, "ALLOW"),
    "undecided": (rules({"metric": "state_matches", "min": 0.5}),
               {"rule_0": (False, "ERROR"), "release": (False, "ERROR")}, "BLOCK"),
    "left to a person": (rules(NO_FAILURE | {"requires_manual_review": True}),
               {"rule_0": (False, "ERROR"), "release": (False, "ERROR")}, "BLOCK"),
}  # fmt: skip


@pytest.mark.parametrize("what", POLICIES)
def test_every_rule_has_a_check_that_reports_and_release_alone_holds_back(what: str, tmp_path: Path) -> None:
    policy, expected, action = POLICIES[what]
    with home(write_project(tmp_path, cases=WRONG, release=policy)) as till:
        deploy, ran = deployed(till, guarded=False)
        definitions = till.definitions(deploy)
        result = till.run(definitions=definitions)
        graph = definitions.resolve_asset_graph()
    assert {name: (check.passed, check.severity.value) for name, check in result.checks.items()} == expected
    assert result.said("gate")["action"] == action
    specs = {key.name: graph.get(key) for key in graph.asset_check_keys}
    assert {name: node.blocking for name, node in specs.items()} == {name: name == "release" for name in expected}
    assert ran == ([] if action == "BLOCK" else ["v1"])
    assert result.success is (action != "BLOCK")


def test_missing_evidence_holds_back_though_no_state_blocks(tmp_path: Path) -> None:
    cases = [case(1, expected={"answer": "added"})]
    with home(write_project(tmp_path, cases=cases, release=rules(NO_FAILURE, block_on=[]))) as till:
        deploy, ran = deployed(till, guarded=False)
        result = till.run(definitions=till.definitions(deploy))
        assert load_run(till.root).gate == {"action": "BLOCK", "exit_code": 3, "reasons": ["missing_evidence"]}
    assert not result.checks["release"].passed
    assert ran == []


def test_a_partial_run_holds_back_though_no_state_blocks(tmp_path: Path) -> None:
    policy = rules({"metric": "state_matches", "max_failures": 3}, block_on=[])
    root = write_project(tmp_path, cases=[case(1)], release=policy)
    with home(root) as till:
        deploy, ran = deployed(till, guarded=False)
        assert till.run().checks["release"].passed
        till.edit("oloproof.yaml", '"v1"', '"v2"')
        write_project(root, cases=RIGHT, suite={"system": {
            "name": "till", "version": "v2", "callable": "app:till"
        }}, release=policy)  # fmt: skip
        again = till.run("v1", job="rejudge", definitions=till.definitions(deploy))
    assert again.checks["rule_0"].passed
    assert not again.checks["release"].passed
    assert load_run(root, "v1").gate == {"action": "BLOCK", "exit_code": 5, "reasons": ["partial_run"]}
    assert ran == []


def test_the_checks_know_the_versions_that_they_are_of(tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        graph = till.definitions().resolve_asset_graph()
        assert {graph.get(key).partitions_def for key in graph.asset_check_keys} == {
            dg.DynamicPartitionsDefinition(name="till_system_version")
        }
        assert {check.partition for check in till.run().checks.values()} == {"v1"}


def test_a_reused_gate_reports_its_checks_again(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=WRONG, release=rules(NO_FAILURE))) as till:
        till.run()
        again = till.run()
    assert again.said("gate")["reused"] is True
    assert not again.success
    assert set(again.checks) == {"rule_0", "release"}


@pytest.mark.parametrize("table", ["verdicts", "metrics", "decisions"])
def test_a_crash_in_judging_fails_its_step_and_reports_no_check(table: str, tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        deploy, ran = deployed(till, guarded=False)
        till.run()
        load_run(till.root).table(table).path.write_bytes(b"torn")
        readers = ["metrics", "decisions", "gate"][["verdicts", "metrics", "decisions"].index(table) :]
        result = till.run(definitions=till.definitions(deploy), select=[*map(till.key, readers), deploy.key])
    assert result.failed_steps == {f"till__{readers[0]}"}
    assert result.checks == {}
    assert ran == []


# Without release.yaml


def test_without_a_policy_the_run_is_green_decides_nothing_and_goes_no_further(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=WRONG)) as till:
        deploy, ran = deployed(till, guarded=False)
        result = till.run(definitions=till.definitions(deploy))
    assert result.success
    assert result.checks == {}
    assert not {"gate", "deploy"} & result.materialized
    assert ran == []
    run = load_run(till.root)
    assert run.gate is None
    assert run.decisions.empty
    assert run.metrics.n_passed.tolist() == [2]


def test_taking_the_policy_away_takes_its_decision_away(tmp_path: Path) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    with home(root) as till:
        till.run()
        assert load_run(root).gate is not None
        (root / "release.yaml").unlink()
        deploy, ran = deployed(till)
        till.run(definitions=till.definitions(deploy))
        assert load_run(root).gate is None
        alone = till.run(definitions=till.definitions(deploy), select=[deploy.key])
    assert not alone.success
    assert ran == []


# The guard


def test_a_guarded_asset_is_of_the_gates_partitions_and_downstream_of_it(tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        deploy, ran = deployed(till)
        assert deploy.key == till.key("deploy")
        assert deploy.asset_deps[deploy.key] == {till.key("gate")}
        assert till.run(definitions=till.definitions(deploy)).success
        assert ran == ["v1"]


def test_a_guarded_asset_refuses_a_version_whose_gate_was_never_decided(tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        deploy, ran = deployed(till)
        alone = till.run(definitions=till.definitions(deploy), select=[deploy.key])
    assert "no Gate was decided for system version 'v1'" in alone.why
    assert ran == []


@pytest.mark.parametrize("allow_warn", [False, True])
def test_a_warning_lets_a_guarded_asset_run_only_where_it_says_so(allow_warn: bool, tmp_path: Path) -> None:
    policy = rules(NO_FAILURE, block_on=[], warn_on=["FAIL"])
    with home(write_project(tmp_path, cases=WRONG, release=policy)) as till:
        deploy, ran = deployed(till, allow_warn=allow_warn)
        result = till.run(definitions=till.definitions(deploy))
    assert ran == (["v1"] if allow_warn else [])
    assert result.success is allow_warn
    if not allow_warn:
        assert "says WARN; pass allow_warn=True" in result.why


def test_a_refusal_is_not_retried(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=WRONG, release=rules(NO_FAILURE))) as till:

        @gated_asset(till.root, name="deploy", retry_policy=dg.RetryPolicy(max_retries=1))
        def deploy(context: dg.AssetExecutionContext) -> None:
            raise AssertionError("the body ran behind a red gate")

        till.run()
        alone = till.run(definitions=till.definitions(deploy), select=[deploy.key])
    kinds = [event.event_type for event in alone.dagster.all_events]
    assert kinds.count(dg.DagsterEventType.STEP_FAILURE) == 1
    assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds


def test_the_guard_can_be_called_by_an_asset_of_any_make(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=WRONG, release=rules(NO_FAILURE))) as till:
        partitions = dg.DynamicPartitionsDefinition(name="till_system_version")

        @dg.asset(partitions_def=partitions, deps=[till.key("gate")])
        def by_its_dependency(context: dg.AssetExecutionContext) -> None:
            require_gate(context)

        @dg.asset(partitions_def=partitions)
        def by_a_key(context: dg.AssetExecutionContext) -> None:
            require_gate(context, gate=till.key("gate"))

        @dg.asset(partitions_def=partitions)
        def lost(context: dg.AssetExecutionContext) -> None:
            require_gate(context)

        till.run()
        partition = till.instance.get_dynamic_partitions("till_system_version")[0]
        for asset, why in (
            (by_its_dependency, "says BLOCK"),
            (by_a_key, "says BLOCK"),
            (lost, "pass gate=AssetKey"),
        ):
            result = dg.materialize(
                [asset], instance=till.instance, partition_key=partition, raise_on_error=False, selection=[asset]
            )
            failure = result.filter_events(lambda event: event.is_step_failure)[0].step_failure_data
            assert why in failure.user_failure_data.description


# Other readers, other projects


def test_an_asset_of_the_users_reads_tables_as_frames(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=WRONG, release=rules(NO_FAILURE, block_on=[]))) as till:
        read: dict[str, list[Any]] = {}

        @dg.asset(
            partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"),
            ins={"verdicts": dg.AssetIn(till.key("verdicts")), "metrics": dg.AssetIn(till.key("metrics"))},
            io_manager_key="till_tables",
        )
        def failures(verdicts: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
            read["estimate"] = metrics.estimate.tolist()
            return verdicts[verdicts.status == "failed"]

        @dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"))
        def printed(failures: pd.DataFrame) -> None:
            read["failed"] = failures.case_id.tolist()

        definitions = till.definitions(failures, printed)
        assert till.run(definitions=definitions).success
        job = definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            instance=till.instance, partition_key="v1", asset_selection=[failures.key, printed.key]
        )
    assert result.success
    assert read == {"estimate": [2 / 3], "failed": ["c-002"]}


@pytest.mark.slow
def test_two_projects_live_in_one_code_location_and_keep_apart(tmp_path: Path) -> None:
    other_app = COUNTED_TILL.replace('+ request["amount"]', '+ request["amount"] + 1')
    one = write_project(tmp_path / "one", app=COUNTED_TILL, release=rules(NO_FAILURE))
    two = write_project(tmp_path / "two", app=other_app, suite={"project": "Other Till"}, release=rules(NO_FAILURE))
    both = dg.Definitions.merge(build_definitions(one, executor=None), build_definitions(two, executor=None))
    dg.Definitions.validate_loadable(both)
    with home(one) as till:
        other = Home(two, till.instance)
        for _ in range(2):
            assert till.run(definitions=both, fresh=True).said("gate")["action"] == "ALLOW"
            assert other.run(definitions=both, fresh=True).said("gate")["action"] == "BLOCK"
            assert len(till.noted()) == len(other.noted()) == 3
        other.edit("oloproof.yaml", '"v1"', '"v2"')
        other.run()
        assert till.instance.get_dynamic_partitions("till_system_version") == ["v1"]
        assert till.instance.get_materialized_partitions(till.key("gate")) == {"v1"}
        assert till.instance.get_materialized_partitions(other.key("gate")) == {"v1", "v2"}
    assert load_run(one).gate == {"action": "ALLOW", "exit_code": 0, "reasons": []}


def test_the_host_of_several_projects_chooses_the_executor(tmp_path: Path) -> None:
    root = write_project(tmp_path)
    assert build_definitions(root).executor is dg.in_process_executor
    hosted = dg.Definitions.merge(
        build_definitions(root, executor=None), dg.Definitions(executor=dg.multiprocess_executor)
    )
    assert hosted.resolve_job_def("till_release_run").executor_def is dg.multiprocess_executor
    assert build_definitions(root).resolve_job_def("till_release_run").executor_def is dg.in_process_executor


def test_an_asset_of_a_users_own_cannot_replace_a_table_of_the_release_run(tmp_path: Path) -> None:
    with home(write_project(tmp_path, release=rules(NO_FAILURE))) as till:
        till.run()

        @dg.asset(
            key=["mine", "verdicts"],
            partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"),
            io_manager_key="till_tables",
        )
        def verdicts() -> pd.DataFrame:
            return pd.DataFrame({"a": [1]})

        before = till.verdicts()
        definitions = till.definitions(verdicts)
        result = Result(
            definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=till.instance,
                partition_key="v1",
                asset_selection=[dg.AssetKey(["mine", "verdicts"])],
                raise_on_error=False,
            )
        )
        assert "give your asset another name" in result.why
        assert till.verdicts() == before


def test_a_gate_alone_never_settles_decisions_of_another_policy(tmp_path: Path) -> None:
    with home(write_project(tmp_path, cases=RIGHT, release=rules({"metric": "state_matches", "min": 0.2}))) as till:
        assert till.run().success
        (till.root / "release.yaml").write_text(json.dumps(rules({"metric": "state_matches", "min": 0.9})))
        alone = till.run(select=[till.key("gate")])
        assert "materialize the decisions again" in alone.why
        assert "gate" not in alone.materialized
        both = till.run(select=[till.key("decisions"), till.key("gate")])
        assert both.failed_steps == {"till__gate"}
        assert "gate" in both.materialized
