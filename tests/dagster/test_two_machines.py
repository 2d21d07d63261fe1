"""One project's releases on two machines that have only PostgreSQL and a bucket in common.

Each machine is a checkout at a path of its own, a HOME, a DAGSTER_HOME and, where the system lets a process have one, a
host name; every command is a process whose environment holds nothing else.
"""

import functools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from oloproof_dagster.evidence.objects import Objects
from tests.support import ROOT, object_storage, postgres
from tests.support.command import Answer, assert_one_line
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, DECLARED, TABLES
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.slow

CASES = [case(number) for number in range(1, 9)]
IDS = [str(each["id"]) for each in CASES]
ALL = IDS + [f"{each} replayed" for each in IDS for _ in ("control", "fault")]
HELD_TILL = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        import time
        while current_case().id == "c-004" and pathlib.Path(__file__).with_name("hold").exists():
            time.sleep(0.05)
""",
    1,
)
"""The till, which does not get through its fourth case while there is a file named hold beside it."""
DEPLOY = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions, gated_asset

here = Path(__file__).parent


@gated_asset(here, name="deploy")
def deploy(context):
    with (here / "deployed").open("a", encoding="utf-8") as stream:
        stream.write(context.partition_key + "\\n")


defs = dg.Definitions.merge(build_definitions(here), dg.Definitions(assets=[deploy]))
"""
ANNOUNCE = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import require_gate

here = Path(__file__).parent


@dg.asset(deps=[["till", "gate"]], partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"))
def announce(context: dg.AssetExecutionContext):
    require_gate(context, project=here)
    with (here / "deployed").open("a", encoding="utf-8") as stream:
        stream.write("announced " + context.partition_key + "\\n")


defs = dg.Definitions(assets=[announce])
"""
"""A code location that knows of the gate no more than its key: where the evidence is says A's materialisation."""


@dataclass(frozen=True)
class Machine:
    """A machine by its host name: where its checkout is, and all of its environment."""

    host: str
    root: Path
    environment: dict[str, str]

    def oloproof(self, *arguments: str) -> Answer:
        return self._answer("oloproof_dagster.cli", *arguments)

    def materialize(self, asset: str, file: str) -> Answer:
        """Materialises v1 of what stands behind the Gate, alone."""
        options = ("-f", file, "--select", asset, "--partition", "v1")
        return self._answer("dagster", "asset", "materialize", *options)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a module's command."""
        return subprocess.Popen(
            [*_on_host(self.host), sys.executable, "-m", *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def noted(self, name: str) -> list[str]:
        path = self.root / name
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def deployed(self) -> list[str]:
        return self.noted("deployed")

    def executed(self) -> list[str]:
        """The cases that the agent was called with since this was last asked; a replay counts as one."""
        found = self.noted("calls") + [f"{each} replayed" for each in self.noted("replays")]
        for name in ("calls", "replays"):
            (self.root / name).unlink(missing_ok=True)
        return found

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text("utf-8")
        assert old in text
        (self.root / name).write_text(text.replace(old, new), encoding="utf-8")

    def declare(self, version: str) -> None:
        """Makes another version the project's own."""
        declared = self.root / "oloproof.yaml"
        text = re.sub('"version": "v."', f'"version": "{version}"', declared.read_text("utf-8"))
        declared.write_text(text, encoding="utf-8")

    def _answer(self, *arguments: str) -> Answer:
        with self.begin(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Answer(process.returncode, out, err)


@functools.cache
def _on_host(host: str) -> tuple[str, ...]:
    """What starts a command under a host name of its own; nothing where that is not permitted."""
    prefix = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host)
    can = shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if can else ()


@dataclass(frozen=True)
class Site:
    """Both machines, where their evidence is, and the instance that their runs are recorded in."""

    a: Machine
    b: Machine
    store: str
    instance: dg.DagsterInstance


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        postgres.running_server() as server,
        object_storage.running_server() as bucket,
        pytest.MonkeyPatch.context() as patch,
    ):
        shared = server.environment | bucket.environment
        store = bucket.url()
        first = _machine(tmp_path_factory.mktemp("a"), "machine-a", "home/ann/work/desk", store, shared)
        second = _machine(tmp_path_factory.mktemp("b"), "machine-b", "srv/checkouts/17/till", store, shared)
        for name, value in first.environment.items():
            if name in server.environment or name == "DAGSTER_LOGS":
                patch.setenv(name, value)
        with dg.DagsterInstance.from_config(first.environment["DAGSTER_HOME"]) as instance:
            yield Site(first, second, store, instance)


def _machine(folder: Path, host: str, place: str, store: str, shared: dict[str, str]) -> Machine:
    root, home, dagster_home = folder / place, folder / "home" / host, folder / "dagster"
    for each in (root, home, dagster_home):
        each.mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "dagster.yaml", dagster_home)
    write_project(
        root,
        cases=CASES,
        app=HELD_TILL,
        suite=DECLARED | {"store": store},
        release=rules(NO_FAILURE),
        files={"deploy.py": DEPLOY, "announce.py": ANNOUNCE},
    )
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "DAGSTER_HOME": str(dagster_home),
        "DAGSTER_LOGS": str(dagster_home / "logs"),
    }
    return Machine(host if _on_host(host) else platform.node(), root, own | shared)


# What one machine executed and decided


@dataclass(frozen=True)
class Story:
    """A version that A runs, B releases and runs again, and that B's release refuses once its agent was edited."""

    run_on_a: Answer
    executed_on_a: list[str]
    released: tuple[Answer, Answer]
    deployed: list[str]
    run_on_b: Answer
    executed_on_b: list[str]
    refused: Answer
    deployed_in_all: list[str]


@pytest.fixture(scope="module")
def story(site: Site) -> Story:
    run_on_a = site.a.oloproof("run", "--json")
    executed_on_a = site.a.executed()
    released = site.b.materialize("till/deploy", "deploy.py"), site.b.materialize("announce", "announce.py")
    deployed = site.b.deployed()
    run_on_b = site.b.oloproof("run", "--json")
    executed_on_b = site.b.executed()
    site.b.edit("app.py", '"failed"', '"not added"')
    refused, after = site.b.materialize("till/deploy", "deploy.py"), site.b.deployed()
    site.b.edit("app.py", '"not added"', '"failed"')
    return Story(run_on_a, executed_on_a, released, deployed, run_on_b, executed_on_b, refused, after)


def materializations(site: Site, table: str, version: str) -> list[dg.AssetMaterialization]:
    """What was said of a version's table, latest first."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(["till", table]), asset_partitions=[version])
    records = site.instance.fetch_materializations(wanted, limit=10).records
    return [found for record in records if (found := record.asset_materialization)]


def test_what_one_machine_executed_is_answered_from_evidence_on_the_other_with_the_same_gate(story: Story) -> None:
    assert story.run_on_a.code == 0, story.run_on_a.err
    assert story.run_on_b.code == 0, story.run_on_b.err
    assert (story.executed_on_a, story.executed_on_b) == (ALL, [])
    here, there = story.run_on_a.document, story.run_on_b.document
    assert there["cache"] == {"executions": {"hit": 8, "miss": 0}, "replays": {"hit": 16, "miss": 0}}
    assert {**here, "cache": None} == {**there, "cache": None}
    assert here["gate"]["action"] == "ALLOW"


def test_every_table_is_reused_on_the_other_machine_and_keeps_its_data_version(story: Story, site: Site) -> None:
    assert story.run_on_b.code == 0, story.run_on_b.err
    for table in TABLES:
        on_b, on_a = materializations(site, table, "v1")
        assert (on_a.metadata["reused"].value, on_b.metadata["reused"].value) == (False, True), table
        assert (on_a.tags or {})["dagster/data_version"] == (on_b.tags or {})["dagster/data_version"], table


def test_what_is_behind_the_gate_goes_on_for_what_the_other_machine_decided(story: Story) -> None:
    assert [each.code for each in story.released] == [0, 0], story.released
    assert story.deployed == ["v1", "announced v1"]


def test_what_is_behind_the_gate_refuses_once_the_agent_was_edited_on_that_machine_alone(story: Story) -> None:
    assert story.refused.code != 0
    assert story.deployed_in_all == story.deployed
    why = "the agent's code was edited after the Gate of system version 'v1' was decided"
    assert why in story.refused.err + story.refused.out


def test_a_version_that_one_machine_ran_is_seen_and_judged_by_the_other(story: Story, site: Site) -> None:
    site.b.declare("v2")
    run = site.b.oloproof("run", "--json")
    assert run.code == 0, run.err
    assert site.b.executed() == ALL
    listed = {each["version"]: each for each in site.a.oloproof("versions", "--json").document}
    assert set(listed) == {"v1", "v2"}
    decided = site.a.oloproof("history", "--version", "v2", "--json").document
    assert [each["action"] for each in decided] == ["ALLOW"]
    judged = site.a.oloproof("run", "--version", "v2", "--json")
    assert judged.code == 0, judged.err
    assert judged.document["system"]["version"] == "v2"
    assert judged.document["gate"] == run.document["gate"]
    assert site.a.executed() == []


# Two machines at one version


@dataclass(frozen=True)
class Interrupted:
    """A version that A is at until it is killed, and that B tries meanwhile, and once A's lock is past its time."""

    before: list[str]
    meanwhile: Answer
    after: Answer
    executed_after: list[str]


@pytest.fixture(scope="module")
def interrupted(site: Site) -> Interrupted:
    for machine in (site.a, site.b):
        machine.declare("v3")
        machine.executed()
    (site.a.root / "hold").touch()
    process = site.a.begin("oloproof_dagster.cli", "run")

    def is_at_the_fourth_case() -> bool:
        assert process.poll() is None, process.communicate()
        return site.a.noted("calls") == IDS[:4] and n_kept(site) == 3

    try:
        until(is_at_the_fourth_case, pause=0.1)
        meanwhile = site.b.oloproof("run")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECONDS)
    before = site.a.executed()
    assert site.b.executed() == []
    time.sleep(max(0.0, lock(site)["until"] - time.time()))
    after = site.b.oloproof("run", "--json")
    return Interrupted(before, meanwhile, after, site.b.executed())


def n_kept(site: Site) -> int:
    """How many executions of the version the bucket has that are in no table yet."""
    objects, folder = Objects(site.store), "v3/parts/1/executions"
    return sum((objects.read(f"{folder}/{name}") or b"").count(b"\n") for name in objects.names(folder))


def lock(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Objects(site.store).read("v3/.lock.json") or b"{}")
    return found


def test_a_version_that_one_machine_is_at_is_refused_on_the_other_in_one_line_with_the_hosts_name(
    interrupted: Interrupted, site: Site
) -> None:
    assert_one_line(interrupted.meanwhile)
    assert f" on {site.a.host}" in interrupted.meanwhile.err


def test_what_a_killed_machine_left_the_other_goes_on_with(interrupted: Interrupted) -> None:
    assert interrupted.after.code == 0, interrupted.after.err
    assert interrupted.after.document["gate"]["action"] == "ALLOW"
    assert interrupted.before == IDS[:4]
    assert interrupted.executed_after == IDS[3:] + ALL[len(IDS) :]
    assert interrupted.after.document["cache"]["executions"] == {"hit": 3, "miss": 5}
