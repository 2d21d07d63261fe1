"""What a command leaves in Dagster's own run history, and what it costs."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster._core.storage.event_log import SqliteEventLogStorage

from oloproof_dagster import ConfigError, load_project
from oloproof_dagster.local_run.instance import DAGSTER_YAML, dagster_home, open_instance
from oloproof_dagster.local_run.release_run import materialize
from oloproof_dagster.project.project import Project
from tests.support.projects import NO_FAILURE, TILL, case, rules, write_project

MOST_EVENTS = 120
"""Of a first run with one rule: about twelve a step and a few of the run itself."""


def run(root: Path) -> dg.DagsterRun:
    project = load_project(root)
    with open_instance(project) as instance:
        assert materialize(project, instance, version=project.version).failure is None
        return instance.get_runs(limit=1)[0]


@contextmanager
def as_dagster_opens_it(project: Project) -> Iterator[dg.DagsterInstance]:
    """The same folder by Dagster's own classes, as its pages have it."""
    with dg.DagsterInstance.from_config(str(dagster_home(project))) as instance:
        yield instance


def test_dagster_finds_the_run_its_events_and_its_materializations(tmp_path: Path) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    made = run(root)
    with as_dagster_opens_it(load_project(root)) as instance:
        found = instance.get_run_by_id(made.run_id)
        assert found is not None
        assert found.status == dg.DagsterRunStatus.SUCCESS
        assert instance.all_logs(made.run_id)[-1].message
        gate = instance.fetch_materializations(dg.AssetKey(["till", "gate"]), limit=1).records[0]
        assert gate.run_id == made.run_id
        assert instance.get_latest_materialization_event(dg.AssetKey(["till", "verdicts"])) is not None


def test_dagster_and_a_command_go_on_in_each_others_history(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path, release=rules(NO_FAILURE)))
    name = "till_system_version"
    with as_dagster_opens_it(project) as instance:  # the files are Dagster's make
        instance.add_dynamic_partitions(name, ["made by dagster"])
    with open_instance(project) as ours, as_dagster_opens_it(project) as dagsters:
        ours.add_dynamic_partitions(name, ["made by a command"])
        dagsters.add_dynamic_partitions(name, ["made meanwhile"])
        expected = {"made by dagster", "made by a command", "made meanwhile"}
        assert set(ours.get_dynamic_partitions(name)) == set(dagsters.get_dynamic_partitions(name)) == expected
        for storage in ("run_storage", "event_log_storage", "schedule_storage"):
            assert getattr(ours, storage).alembic_version() == getattr(dagsters, storage).alembic_version()


@pytest.mark.slow
def test_commands_that_make_a_history_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    root = write_project(tmp_path)
    command = [sys.executable, "-m", "oloproof_dagster.cli", "versions", "--register", "--project", str(root)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(4)]
    told = [process.communicate()[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("is registered now" in text for text in told) >= 1


def test_a_history_that_a_killed_process_left_half_made_is_finished(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path))
    index = dagster_home(project) / "history" / "runs" / "index.db"
    index.parent.mkdir(parents=True)
    index.touch()
    with open_instance(project) as ours, as_dagster_opens_it(project) as dagsters:
        ours.add_dynamic_partitions("versions", ["v1"])
        assert dagsters.get_dynamic_partitions("versions") == ["v1"]
        assert dagsters.event_log_storage.has_secondary_index("asset_key_table")


@pytest.mark.parametrize("name", ["history/runs.db", "history/runs/index.db", "schedules/schedules.db"])
def test_a_damaged_history_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path))
    path = dagster_home(project) / name
    path.parent.mkdir(parents=True)
    path.write_text("This is no database, and it is long enough to be looked at.")
    with pytest.raises(ConfigError, match=r"cannot be opened .*not a database.*DAGSTER_HOME"), open_instance(project):
        pass


def test_dagsters_pages_are_told_of_an_event_while_the_command_goes_on(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path))
    job = dg.GraphDefinition(name="nothing").to_job()
    told: list[str] = []
    with open_instance(project) as ours, as_dagster_opens_it(project) as dagsters:
        one = ours.create_run_for_job(job)
        ours.report_engine_event("the first", one)
        dagsters.watch_event_logs(one.run_id, None, lambda event, _: told.append(event.message))
        for _ in range(10):  # few enough that SQLite does not write its log back by itself
            ours.report_engine_event("a later one", one)
            time.sleep(0.5)
            if told:
                break
    assert "a later one" in told


def test_what_is_written_survives_the_death_of_the_process_at_once(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path))
    home = dagster_home(project)
    with open_instance(project) as instance:
        instance.add_dynamic_partitions("versions", ["v1"])
        with sqlite3.connect(f"file:{home}/history/runs/index.db?mode=ro", uri=True) as other:
            assert other.execute("SELECT partition FROM dynamic_partitions").fetchall() == [("v1",)]
        other.close()


def test_a_new_home_ends_runs_after_a_day_and_one_that_has_settings_keeps_them(tmp_path: Path) -> None:
    project = load_project(write_project(tmp_path))
    with open_instance(project) as instance:
        assert instance.get_settings("run_monitoring")["max_runtime_seconds"] == 86400
    settings = dagster_home(project) / "dagster.yaml"
    settings.write_text("telemetry:\n  enabled: false\n")
    with open_instance(project) as instance:
        assert instance.get_settings("run_monitoring") == {}
    assert "run_monitoring" not in settings.read_text()


def kinds(instance: dg.DagsterInstance) -> list[type]:
    return [type(each) for each in (instance.event_log_storage, instance.run_storage, instance.compute_log_manager)]


@pytest.mark.parametrize("configured", ["nothing", "storage", "compute_logs"])
def test_what_dagster_yaml_configures_is_left_as_it_is(configured: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    lines = {
        "nothing": "",
        "storage": f"storage:\n  sqlite:\n    base_dir: {elsewhere}\n",
        "compute_logs": "compute_logs:\n  module: dagster._core.storage.noop_compute_log_manager\n"
        "  class: NoOpComputeLogManager\n",
    }
    project = load_project(write_project(tmp_path / "project"))
    home = dagster_home(project)
    (home / "dagster.yaml").write_text(DAGSTER_YAML + lines[configured])
    with open_instance(project) as ours, as_dagster_opens_it(project) as dagsters:
        same = [one is other for one, other in zip(kinds(ours), kinds(dagsters), strict=True)]
    assert same == [configured == "storage", True, True]


@pytest.mark.slow
def test_a_dagster_of_other_private_names_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SqliteEventLogStorage._connect
    monkeypatch.setattr(SqliteEventLogStorage, "_connect", lambda self, shard_name: connect(self, shard_name))
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    made = run(root)
    project = load_project(root)
    with open_instance(project) as ours, as_dagster_opens_it(project) as dagsters:
        assert kinds(ours) == kinds(dagsters)
        assert ours.get_runs(limit=1)[0].run_id == made.run_id


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_a_home_of_ones_own_whose_name_no_url_holds_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = load_project(write_project(tmp_path / "till", release=rules(NO_FAILURE)))
    home = tmp_path / name
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    if sa.make_url(f"sqlite:///{home}").database != str(home):  # before SQLAlchemy 2.1 a % is no escape
        with pytest.raises(ConfigError, match=r"rename the folder, or set DAGSTER_HOME"), open_instance(project):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"till", name}


@pytest.mark.slow
def test_a_run_writes_a_bounded_number_of_events_whatever_the_number_of_cases(tmp_path: Path) -> None:
    numbers = []
    for n_cases in (3, 60):
        root = tmp_path / str(n_cases)
        write_project(root, cases=[case(number) for number in range(1, n_cases + 1)], release=rules(NO_FAILURE))
        made = run(root)
        with as_dagster_opens_it(load_project(root)) as instance:
            numbers.append(len(instance.all_logs(made.run_id)))
    assert numbers[0] == numbers[1] <= MOST_EVENTS


@pytest.mark.slow
def test_what_a_system_prints_stands_where_dagsters_pages_look_for_it(tmp_path: Path) -> None:
    app = TILL.replace(
        "        recording = self.work(request, None)\n",
        """        import os, subprocess, sys
        os.write(1, b"to one\\n")
        os.write(2, b"to two\\n")
        subprocess.run(["echo", "from a child"], check=True)
        recording = self.work(request, None)
""",
    )
    root = write_project(tmp_path, cases=[case(1)], app=app, release=rules(NO_FAILURE))
    command = [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)]
    subprocess.run(command, check=True, capture_output=True)
    with as_dagster_opens_it(load_project(root)) as instance:
        (made,) = instance.get_runs()
        (captured,) = (
            event.dagster_event.logs_captured_data
            for event in instance.all_logs(made.run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)
            if event.dagster_event is not None
        )
        key = [made.run_id, "compute_logs", captured.file_key]
        logs = instance.compute_log_manager
        assert logs.is_capture_complete(key)
        assert logs.get_log_data_for_type(key, ComputeIOType.STDOUT, 0, None)[0] == b"to one\nfrom a child\n"
        assert logs.get_log_data_for_type(key, ComputeIOType.STDERR, 0, None)[0] == b"to two\n"
