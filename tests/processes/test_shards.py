"""A release run spread over shards: the same evidence, whatever their number, also when one of them fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from oloproof_dagster import EvidenceError, SandboxResource, build_definitions, load_project
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.execution.progress import listening
from oloproof_dagster.project.evidence_place import evidence_of
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, QUIET, Home, Result, home
from tests.support.spread import reconstructable

RECORDED = ("trajectories", "environment_states", "fault_replays")
SUITE: dict[str, Any] = {
    "trials": 2,
    "evaluators": [{"type": "state_matches"}, {"type": "fault_recovery", "tool": "add", "fault": "error"}],
    "metamorphic": {
        "transforms": [{"name": "kindly", "field": "note", "replace": [["Please", "Kindly"]]}],
    },
}
CASES = [case(number) for number in range(1, 9)]
EXECUTED = sorted(2 * [f"{each['id']}{copy}" for each in CASES for copy in ("", "~kindly")])
REPLAYED = sorted(2 * [each["id"] for each in CASES])
"""The control and the fault; of equal recordings the first stands for all."""

TILL = COUNTED_TILL.replace(
    '        note("calls")\n',
    """        note("calls")
        import os, signal
        here = pathlib.Path(__file__).parent
        with (here / "shards").open("a") as stream:
            stream.write(f"{os.environ.get('OLOPROOF_SHARD_INDEX')} {current_case().id}\\n")
        if (here / "breaks").exists():
            raise ValueError(f"told to raise for {current_case().id}")
        if (here / "dies").exists() and (here / "dies").read_text() == current_case().id:
            (here / "dies").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
""",
)
IN_PROCESSES = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions

forked = {"forkserver": {"preload_modules": ["oloproof_dagster.resources.preloaded"]}}
executor = dg.multiprocess_executor.configured({"max_concurrent": 2, "start_method": forked})
defs = build_definitions(Path(__file__).parent, executor=executor)
"""


def spread(root: Path, shards: int, workers: int = 1, **files: str) -> Path:
    """The project, with its sandbox as told."""
    sandbox = {"shards": shards, "workers": workers}
    written = {name.replace("_", "."): text for name, text in files.items()}
    suite = SUITE | {"sandbox": sandbox}
    return write_project(root, cases=CASES, app=TILL, suite=suite, release=rules(NO_FAILURE), files=written)


@contextmanager
def spread_home(root: Path, shards: int, workers: int = 1) -> Iterator[Home]:
    with home(spread(root, shards, workers)) as found:
        yield found


def steps(result: Result | dg.JobExecutionResult, kind: str = "STEP_SUCCESS") -> list[str]:
    """The steps of execution and replays that ended well, or otherwise, without the slug."""
    events = (result.dagster if isinstance(result, Result) else result).all_events
    found = [
        str(event.step_key).removeprefix("till_").lstrip("_") for event in events if event.event_type_value == kind
    ]
    return sorted(each for each in found if each.startswith(("execution", "fault_replays")))


def told(root: Path) -> list[Path]:
    """What steps have told others and nobody has cleared away."""
    return list((evidence_of(load_project(root)).root / ".steps").rglob("*.json"))


def facts(home: Home) -> dict[str, dict[str, Any]]:
    """What each table of evidence says of itself, the digest of its rows among it."""
    evidence = evidence_of(load_project(home.root))
    return {table: evidence.table(table, "v1").facts() for table in (*RECORDED, "verdicts")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Result]]:
    """A run that is not spread, which the others are compared with."""
    with spread_home(tmp_path_factory.mktemp("whole"), 1) as found:
        result = found.run()
        assert result.success, result.why
        yield found, result


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Home]:
    """Eight cases and a copy of each, in three shards."""
    with spread_home(tmp_path, 3) as found:
        yield found


# The same evidence


@pytest.mark.parametrize(("shards", "workers"), [(2, 2), (5, 1)])
@pytest.mark.slow
def test_evidence_and_what_is_said_of_it_are_equal_however_a_run_is_spread(
    whole: tuple[Home, Result], tmp_path: Path, shards: int, workers: int
) -> None:
    alone, at_once = whole
    with spread_home(tmp_path, shards, workers) as found:
        result = found.run()
        assert result.success, result.why
        assert [each for each in steps(result) if "execution.shard" in each] == [
            f"execution.shard[{index}]" for index in range(shards)
        ]
        assert sorted(found.noted()) == EXECUTED
        assert sorted(found.noted("replays")) == REPLAYED
        assert facts(found) == facts(alone)
        for table in (*RECORDED, "verdicts"):
            assert result.data_version(table) == at_once.data_version(table)
            differ = {"path", "seconds"}
            says, said = result.said(table), at_once.said(table)
            assert {name: says[name] for name in says if name not in differ} == {
                name: said[name] for name in said if name not in differ
            }
        assert not told(found.root)


def test_the_assets_are_the_same_ones_however_a_run_is_spread(whole: tuple[Home, Result], till: Home) -> None:
    def shown(home: Home) -> dict[dg.AssetKey, Any]:
        return {
            spec.key: (
                {each.asset_key for each in spec.deps},
                *(spec.code_version, spec.group_name, spec.description, spec.tags, spec.partitions_def),
                spec.metadata["dagster/column_schema"],
            )
            for spec in home.definitions().resolve_all_asset_specs()
        }

    assert shown(till) == shown(whole[0])


def test_a_cluster_is_in_one_shard_and_the_system_is_told_which(till: Home) -> None:
    assert till.run().success
    shards: dict[str, set[str]] = {}
    for line in (till.root / "shards").read_text().splitlines():
        shard, case_id = line.split()
        shards.setdefault(case_id.removesuffix("~kindly"), set()).add(shard)
    assert all(len(each) == 1 for each in shards.values())
    assert set().union(*shards.values()) == {"0", "1", "2"}


@pytest.mark.slow
def test_a_reused_stage_has_no_shard_and_its_tables_stay_as_they_are(till: Home) -> None:
    first = till.run()
    tables = [evidence_of(load_project(till.root)).path(table, "v1") for table in RECORDED]
    written = [path.stat() for path in tables]
    again = till.run()
    assert again.success
    assert steps(again) == ["execution.collect", "execution.plan", "fault_replays.collect", "fault_replays.plan"]
    assert [(each.st_ino, each.st_mtime_ns) for each in written] == [
        (each.st_ino, each.st_mtime_ns) for each in (path.stat() for path in tables)
    ]
    for table in RECORDED:
        assert again.data_version(table) == first.data_version(table)
        assert again.said(table)["reused"]
    assert again.said("trajectories")["answered_from_evidence"] == len(EXECUTED)


@pytest.mark.slow
def test_run_config_asks_the_same_of_a_spread_run(till: Home) -> None:
    (till.root / "breaks").touch()
    assert till.run().said("trajectories")["n_errors"] == len(EXECUTED)
    (till.root / "breaks").unlink()
    assert till.run().said("trajectories")["executed"] == 0
    repeated = till.run(retry_errors=True)
    assert repeated.said("trajectories")["executed"] == len(EXECUTED)
    assert repeated.said("trajectories")["n_errors"] == 0
    fresh = till.run(fresh=True)
    assert fresh.said("trajectories")["executed"] == len(EXECUTED)
    assert fresh.said("fault_replays")["replayed"] == len(REPLAYED)
    attempt = evidence_of(load_project(till.root)).attempt("v1")
    assert attempt is not None
    assert (attempt.number, attempt.complete) == (2, True)


def test_a_sandbox_that_is_shared_after_all_is_used_by_one_step_at_a_time(till: Home) -> None:
    shared = build_definitions(till.root, sandbox=SandboxResource(project_dir=str(till.root), shared=True))
    execution = shared.resolve_job_def("till_release_run").graph.node_named("till_execution").definition
    assert isinstance(execution, dg.OpDefinition)
    assert execution.pool == "till_sandbox"


# One shard fails


def execute(home: Home, of: str | None = None, last: str = "fault_replays") -> dg.JobExecutionResult:
    """A run up to some table, of the job as Dagster finds it by its name; `of` is a failed run that is taken up."""
    tables = ("cases", "transformed_cases", *RECORDED)
    again = None if of is None else dg.ReexecutionOptions.from_failure(of, home.instance)
    home.instance.add_dynamic_partitions("till_system_version", ["v1"])
    return dg.execute_job(
        reconstructable(home.root),  # type: ignore[arg-type]
        home.instance,
        tags={"dagster/partition": "v1"},
        run_config=QUIET,
        reexecution_options=again,
        asset_selection=[home.key(table) for table in tables[: tables.index(last) + 1]],
    )


def data_versions(home: Home, *tables: str) -> list[str]:
    found = []
    for table in tables:
        wanted = dg.AssetRecordsFilter(asset_key=home.key(table), asset_partitions=["v1"])
        (record, *_) = home.instance.fetch_materializations(wanted, limit=1).records
        assert record.asset_materialization is not None
        found.append((record.asset_materialization.tags or {})["dagster/data_version"])
    return found


def failed(home: Home) -> str:
    """A run whose shard 1 failed once its first case was executed; its id."""

    def listener(stage: str, done: int, n_cases: int) -> None:
        if stage == "executing, shard 2 of 3" and done == 1:
            raise OSError("told to fail")

    with listening(listener), execute(home) as result:
        assert steps(result, "STEP_FAILURE") == ["execution.shard[1]"]
        assert steps(result) == ["execution.plan", "execution.shard[0]", "execution.shard[2]"]
        return result.run_id


def test_a_failed_shard_is_executed_again_alone(till: Home, whole: tuple[Home, Result]) -> None:
    run_id = failed(till)
    before = till.noted()
    assert before
    with execute(till, run_id) as result:
        assert result.success
        assert steps(result)[:2] == ["execution.collect", "execution.shard[1]"]
    assert sorted(before + till.noted()) == EXECUTED
    assert data_versions(till, *RECORDED) == [whole[1].data_version(table) for table in RECORDED]
    assert not told(till.root)


@pytest.mark.slow
def test_an_ordinary_run_after_a_failed_one_executes_what_is_missing(till: Home, whole: tuple[Home, Result]) -> None:
    failed(till)
    before = till.noted()
    result = till.run()
    assert result.success, result.why
    assert result.said("trajectories")["executed"] == len(EXECUTED) - len(before)
    assert sorted(before + till.noted()) == EXECUTED
    assert facts(till) == facts(whole[0])


def why(result: dg.JobExecutionResult) -> str:
    error = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message if error else ""


@pytest.mark.slow
def test_a_failed_run_is_not_taken_up_once_another_attempt_is_in_force(till: Home) -> None:
    run_id = failed(till)
    assert till.run().success
    assert till.run(fresh=True).success
    till.noted()
    with execute(till, run_id) as result:
        assert "attempt 1 of version 'v1' is not in force any more" in why(result)
    assert not till.noted()


def test_a_failed_run_is_not_taken_up_with_other_cases(till: Home) -> None:
    run_id = failed(till)
    till.noted()
    till.edit("data/cases.jsonl", "Please add 1", "Please add one")
    assert till.run(select=[till.key("cases"), till.key("transformed_cases")]).success
    with execute(till, run_id) as result:
        assert "changed while the shards were at work" in why(result)
    assert not till.noted()


def test_a_shard_executes_nothing_with_other_files_than_it_was_planned_for(till: Home) -> None:
    run_id = failed(till)
    till.noted()
    till.edit("app.py", '"failed"', '"failed "')
    with execute(till, run_id) as result:
        assert "the system's files changed after this run began" in why(result)
    assert not till.noted()


@pytest.mark.slow
def test_a_killed_shard_is_executed_again_alone_in_processes_of_their_own(
    tmp_path: Path, whole: tuple[Home, Result]
) -> None:
    root = spread(tmp_path / "till", 2, definitions_py=IN_PROCESSES)
    (tmp_path / "home").mkdir()
    (root / "dies").write_text("c-007")
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), overrides={"telemetry": {"enabled": False}}) as instance:
        found = Home(root, instance)
        with execute(found, last="environment_states") as result:
            (killed,) = steps(result, "STEP_FAILURE")
            assert killed.startswith("execution.shard")
        before = found.noted()
        with execute(found, result.run_id, last="environment_states") as again:
            assert again.success, why(again)
            assert steps(again) == ["execution.collect", killed]
        assert sorted([*before, *found.noted()]) == sorted([*EXECUTED, "c-007"])
        tables = ("trajectories", "environment_states")
        assert data_versions(found, *tables) == [whole[1].data_version(table) for table in tables]
        assert not told(root)


# Locks


def test_a_version_that_is_held_whole_has_no_shard_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oloproof_dagster.evidence.folder_lock.SECONDS_TO_WAIT", 0.1)
    one, other = Evidence(tmp_path), Evidence(tmp_path)
    with one.held("v1", shard=0):
        with other.held("v1", shard=1), pytest.raises(EvidenceError, match="another run"), one.held("v1"):
            pass
        with pytest.raises(EvidenceError, match="another run"), other.held("v1", shard=0):
            pass
    with one.held("v1"), pytest.raises(EvidenceError, match="another run"), other.held("v1", shard=1):
        pass
    with one.held("v1"):
        pass
