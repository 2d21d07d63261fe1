"""Release runs recorded in PostgreSQL, with the instance settings of deploy/ and the services of its compose file."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
import yaml

from oloproof_dagster import load_run
from oloproof_dagster.definitions import EXAMPLE
from tests.support import ROOT
from tests.support.postgres import Server, free_port, running_server
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, TABLES, Home, Result, home
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.slow

DEPLOY = ROOT / "deploy"

RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
EXECUTED = ["c-001", "c-002", "c-003"]


@dataclass(frozen=True)
class Deployed:
    """A DAGSTER_HOME with the settings of deploy/, and the instance that it opens."""

    home: Path
    instance: dg.DagsterInstance
    environment: dict[str, str]

    def project(self, root: Path, **more: Any) -> Home:
        """A till in a folder; its project's name keeps it apart from the other tests' on the instance."""
        suite = {"evaluators": [{"type": "state_matches"}, RECOVERY]} | more.pop("suite", {})
        write_project(root, app=more.pop("app", COUNTED_TILL), suite=suite, release=rules(NO_FAILURE), **more)
        return Home(root, self.instance)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as found:
        yield found


@pytest.fixture(scope="module")
def deployed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("home")
    shutil.copy(DEPLOY / "dagster.yaml", folder)
    environment = {**server.environment, "DAGSTER_LOGS": str(folder / "logs")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            yield Deployed(folder, instance, {**environment, "DAGSTER_HOME": str(folder)})


def frames(root: Path) -> dict[str, pd.DataFrame]:
    """Every table of the current version, without what differs between two runs: durations, and retries."""
    run = load_run(root)
    return {name: run.table(name).frame().drop(columns=["duration_ms", "retried"], errors="ignore") for name in TABLES}


def assert_equal_tables(root: Path, other: Path) -> None:
    found, expected = frames(root), frames(other)
    for name in TABLES:
        pd.testing.assert_frame_equal(found[name], expected[name], obj=name)


# The instance


def test_the_settings_load_and_every_storage_is_postgres(deployed: Deployed) -> None:
    storages = (deployed.instance.run_storage, deployed.instance.event_log_storage, deployed.instance.schedule_storage)
    assert {type(storage).__module__.partition(".")[0] for storage in storages} == {"dagster_postgres"}
    assert type(deployed.instance.run_coordinator).__name__ == "QueuedRunCoordinator"
    assert type(deployed.instance.run_launcher).__name__ == "DefaultRunLauncher"
    assert deployed.instance.run_monitoring_enabled
    assert not deployed.instance.telemetry_enabled
    assert not deployed.instance.nux_enabled


def test_a_pool_that_nobody_configured_holds_one_step_at_a_time(deployed: Deployed) -> None:
    pools = deployed.instance.get_concurrency_config().pool_config
    assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "op")
    log = deployed.instance.event_log_storage
    log.initialize_concurrency_limit_to_default("some_sandbox")
    first, second = (dg.DagsterRun(job_name="till").run_id for _ in range(2))
    assert log.claim_concurrency_slot("some_sandbox", first, "execution").is_claimed
    assert not log.claim_concurrency_slot("some_sandbox", second, "execution").is_claimed
    log.free_concurrency_slots_for_run(first)
    assert log.claim_concurrency_slot("some_sandbox", second, "execution").is_claimed
    log.free_concurrency_slots_for_run(second)


# Runs


@dataclass(frozen=True)
class Story:
    """A version's run, the same again, and the next version's run, each with the cases that it executed."""

    till: Home
    first: Result
    again: Result
    executed: tuple[list[str], ...]


@pytest.fixture(scope="module")
def story(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Story:
    till = deployed.project(tmp_path_factory.mktemp("till"))
    first, executed = till.run(), till.noted()
    again, executed_again = till.run(), till.noted()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    assert till.run().success
    return Story(till, first, again, (executed, executed_again, till.noted()))


def test_a_run_gives_the_tables_that_it_gives_on_sqlite(story: Story, deployed: Deployed, tmp_path: Path) -> None:
    deployed.project(tmp_path, suite={"system": {"name": "till", "version": "v2", "callable": "app:till"}})
    with home(tmp_path) as on_sqlite:
        assert on_sqlite.run().success
    assert_equal_tables(story.till.root, tmp_path)


def test_what_is_recorded_is_used_again(story: Story) -> None:
    assert story.first.success
    assert story.again.success
    for table in TABLES:
        assert (story.first.said(table)["reused"], story.again.said(table)["reused"]) == (False, True)
    assert story.executed == (EXECUTED, [], EXECUTED)


def test_two_versions_are_two_partitions_of_every_asset(story: Story) -> None:
    instance = story.till.instance
    assert set(instance.get_dynamic_partitions("till_system_version")) == {"v1", "v2"}
    for table in TABLES:
        assert instance.get_materialized_partitions(story.till.key(table)) == {"v1", "v2"}


def test_a_killed_run_goes_on_where_it_stopped_and_ends_like_an_undisturbed_one(
    deployed: Deployed, tmp_path: Path
) -> None:
    slow = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        import time; time.sleep(0.1)\n')
    cases = [case(number) for number in range(1, 21)]
    killed, undisturbed = (
        deployed.project(tmp_path / name, app=slow, cases=cases, suite={"project": "killed"})
        for name in ("killed", "undisturbed")
    )
    process = oloproof_run(deployed, killed.root)
    noted = killed.root / "calls"
    until(lambda: noted.exists() and len(noted.read_text().split()) >= 5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = killed.noted()
    assert 5 <= len(before) < len(cases)

    assert oloproof_run(deployed, killed.root).wait(timeout=PATIENCE_SECONDS) == 0
    ids = [each["id"] for each in cases]
    assert killed.noted() in (ids[len(before) - 1 :], ids[len(before) :])
    runs = deployed.instance.get_runs(dg.RunsFilter(job_name="killed_release_run"))
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
    with home(undisturbed.root) as elsewhere:
        assert elsewhere.run().success
    assert_equal_tables(killed.root, undisturbed.root)


def oloproof_run(deployed: Deployed, root: Path) -> subprocess.Popen[bytes]:
    """The command, in a process of its own, on the instance."""
    return subprocess.Popen(
        [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **deployed.environment},
        cwd=root,
    )


# The services


class Services:
    """The compose file's own commands, started here: its ports and folders are this machine's."""

    def __init__(self, deployed: Deployed, project: Path) -> None:
        self._declared = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
        code, pages = str(free_port()), str(free_port())
        self._here = {"4000": code, "3000": pages, "/dagster": str(deployed.home), "0.0.0.0": "127.0.0.1"}
        self._environment = {
            **os.environ,
            **deployed.environment,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "CODE_SERVER_HOST": "127.0.0.1",
            "CODE_SERVER_PORT": code,
        }
        self._project, self._folder = project, deployed.home
        self.pages = f"http://127.0.0.1:{pages}"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._as_here(command), env=self._environment, cwd=self._project, capture_output=True, text=True
        )

    def _as_here(self, command: list[str]) -> list[str]:
        words = []
        for word in command:
            for theirs, ours in self._here.items():
                word = word.replace(theirs, ours)
            words.append(word)
        return words

    def once(self, service: str) -> None:
        """Runs a service that ends by itself."""
        self.command(self._declared[service]["command"])

    def command(self, command: list[str]) -> None:
        """Runs a command in the image's folder and environment."""
        done = self._run(command)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextlib.contextmanager
    def up(self, *names: str) -> Iterator[None]:
        """Starts services, waits until their own health checks are content, and stops them as Docker does."""
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(self._started(name)) for name in names]
            for name, process in zip(names, running, strict=True):
                self._wait_until_healthy(name, process)
            yield

    @contextlib.contextmanager
    def _started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                self._as_here(self._declared[name]["command"]),
                env=self._environment,
                cwd=self._project,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()
                process.wait()

    def _wait_until_healthy(self, name: str, process: subprocess.Popen[bytes]) -> None:
        kind, *check = self._declared[name]["healthcheck"]["test"]
        assert kind == "CMD"

        def is_healthy() -> bool:
            assert process.poll() is None, self._log(name).read_text()
            return self._run(check).returncode == 0

        until(is_healthy, why=self._log(name).read_text, pause=0.5)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def test_the_services_of_the_compose_file_execute_a_release_run(deployed: Deployed, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    shutil.copytree(EXAMPLE, desk, ignore=shutil.ignore_patterns(".oloproof", "__pycache__"))
    shutil.copy(DEPLOY / "workspace.yaml", deployed.home)
    services = Services(deployed, desk)
    services.once("migrate")
    with services.up("code"), services.up("daemon", "webserver"):
        services.command(["oloproof", "versions", "--register"])
        workspace = ["--workspace", "/dagster/workspace.yaml", "--location", "definitions.py"]
        tags = json.dumps({"dagster/partition": "scripted-1"})
        launch = ["dagster", "job", "launch", *workspace, "--job", "refund_desk_release_run", "--tags", tags]
        services.command(launch)
        launched = deployed.instance.get_runs(dg.RunsFilter(job_name="refund_desk_release_run"))[0]
        until(lambda: deployed.instance.get_run_by_id(launched.run_id).is_finished)
        with urllib.request.urlopen(f"{services.pages}/server_info") as answer:
            assert json.loads(answer.read())["dagster_version"] == dg.__version__
    assert load_run(desk).gate["action"] == "BLOCK"
    kinds = {event.dagster_event_type for event in deployed.instance.all_logs(launched.run_id)}
    assert dg.DagsterEventType.RUN_ENQUEUED in kinds  # the daemon has started it, no one else
