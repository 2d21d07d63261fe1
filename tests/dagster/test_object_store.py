"""Evidence on object storage: the same as in a folder, resumed after a kill, and held by one run at a time."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oloproof_dagster import ConfigError, EvidenceError, load_project, load_run
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.local_folder import LocalFolder
from oloproof_dagster.evidence.object_client import connect
from oloproof_dagster.evidence.object_lock import RENEWALS, Holder, ObjectLock
from oloproof_dagster.evidence.object_parts import PUT_SECONDS, SEGMENT_BYTES
from oloproof_dagster.evidence.object_store import ObjectStore
from oloproof_dagster.evidence.objects import Objects, Tag
from oloproof_dagster.evidence.parquet import stage
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.evidence.store import Busy, Store
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import GATE, GateRow
from tests.support.holding import another_holding
from tests.support.object_storage import Server, relay, running_azurite, running_server
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, QUIET, TABLES, home
from tests.support.spread import reconstructable

RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
SUITE = {"evaluators": [{"type": "state_matches"}, RECOVERY]}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    """S3."""
    with running_server() as found:
        yield found


@pytest.fixture(scope="module")
def azure() -> Iterator[Server]:
    with running_azurite() as found:
        yield found


@pytest.fixture(scope="module", params=["server", pytest.param("azure", marks=pytest.mark.slow)], ids=["s3", "az"])
def cloud(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    found: Server = request.getfixturevalue(request.param)
    return found


def till(
    root: Path, store: str | None, *, app: str = COUNTED_TILL, n: int = 3, definitions: str | None = None, **suite: Any
) -> Path:
    """A till whose evidence lies in a store."""
    declared = SUITE | suite | ({"store": store} if store else {})
    files = {"definitions.py": definitions} if definitions else {}
    cases = [case(i + 1) for i in range(n)]
    return write_project(root, app=app, cases=cases, suite=declared, release=rules(NO_FAILURE), files=files)


def oloproof(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "oloproof_dagster.cli", *arguments, "--project", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def keep_gate(evidence: Evidence, action: str = "ALLOW", version: str = "v1") -> None:
    """Writes the smallest table there is."""
    rows = [GateRow(action, int(action == "BLOCK"), JSONText("[]"))]
    evidence.put(stage(evidence.staging("gate", version), GATE, rows, dict).path, "gate", version)


def gate_of(evidence: Evidence) -> list[str]:
    return [row.action for row in evidence.table("gate", "v1").rows()]


# A whole release run


@pytest.mark.slow
def test_a_run_leaves_the_same_tables_as_in_a_folder_is_reused_and_keeps_former_attempts(
    cloud: Server, tmp_path: Path
) -> None:
    contents, counts = [], []
    for name, store in (("folder", None), ("store", cloud.url())):
        root = till(tmp_path / name, store, n=12)
        with home(root) as found:
            for fresh in (False, False, True):
                result = found.run(fresh=fresh)
                assert result.success, result.why
                counts.append((len(found.noted()), len(found.noted("replays"))))
        run = load_run(root)
        assert run.gate is not None
        assert run.gate["action"] == "ALLOW"
        assert run.evidence.former_attempts("v1") == (1,)
        assert run.evidence.versions() == ("v1",)
        tables = [(table, attempt) for table in TABLES for attempt in (None, 1)]
        contents.append(
            {each: (run.evidence.table(each[0], "v1", each[1]).content, len(run.table(each[0]))) for each in tables}
        )
        frame = run.verdicts
        contents[-1] |= {("verdicts", "frame"): frame.to_csv()}
    assert contents[0] == contents[1]
    assert counts[:3] == counts[3:]
    assert counts[1] == (0, 0)
    assert not list((tmp_path / "store").rglob("*.parquet"))


@pytest.mark.slow
def test_every_command_finds_the_evidence(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", "${TILL_STORE}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILL_STORE", f"{server.url()}/")
        done = oloproof(root, "run", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["gate"]["action"] == "ALLOW"
        assert [each["version"] for each in json.loads(oloproof(root, "versions", "--json").stdout)] == ["v1"]
        assert "c-002" in oloproof(root, "inspect").stdout
        exported = oloproof(root, "export", "--to", str(tmp_path / "exported"))
        assert exported.returncode == 0, exported.stderr
        found = pd.read_parquet(tmp_path / "exported" / "verdicts.parquet")
        assert len(found) == len(load_run(root).verdicts) > 0


@pytest.mark.slow
def test_workers_and_shards_leave_the_same_evidence(server: Server, tmp_path: Path) -> None:
    contents = []
    for name, sandbox in (("one", {}), ("workers", {"workers": 2}), ("shards", {"shards": 3})):
        root = till(tmp_path / name, server.url(), n=6, sandbox=sandbox)
        with home(root) as found:
            result = found.run()
            assert result.success, result.why
        contents.append({table: load_run(root).table(table).content for table in TABLES})
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.slow
def test_an_asset_of_the_users_own_is_stored_beside_the_tables(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", server.url())
    options: dict[str, Any] = {
        "key_prefix": "till",
        "partitions_def": dg.DynamicPartitionsDefinition(name="till_system_version"),
        "io_manager_key": "till_tables",
    }
    seen = []

    @dg.asset(ins={"verdicts": dg.AssetIn(["till", "verdicts"])}, **options)
    def others(verdicts: pd.DataFrame) -> pd.DataFrame:
        return verdicts[verdicts.case_id != "c-002"]

    @dg.asset(ins={"others": dg.AssetIn(["till", "others"])}, **options)
    def counted(others: pd.DataFrame) -> None:
        seen.append(len(others))

    jobs = [dg.define_asset_job("all", "*", executor_def=dg.in_process_executor)]
    with home(root) as found:
        definitions = dg.Definitions.merge(found.definitions(others, counted), dg.Definitions(jobs=jobs))
        found.instance.add_dynamic_partitions("till_system_version", ["v1"])
        result = definitions.resolve_job_def("all").execute_in_process(
            instance=found.instance, partition_key="v1", run_config=QUIET
        )
        assert result.success
    with load_run(root).evidence.store.path("v1/others.parquet").open("rb") as stored:
        assert [len(pd.read_parquet(stored))] == seen
    assert seen[0] > 0


# Killed and resumed

SLOW_TILL = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        __import__("time").sleep(PAUSE)\n', 1)


def started(root: Path) -> subprocess.Popen[bytes]:
    """`oloproof run`, under way."""
    command = [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def called(root: Path) -> list[str]:
    path = root / "calls"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def wait_until(met: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


@pytest.mark.parametrize(("pause", "before", "lost"), [(0.1, 25, 14), (1.2, 3, 2)])
@pytest.mark.slow
def test_a_killed_run_executes_again_what_it_finished_in_its_last_second_and_what_was_in_flight(
    server: Server, tmp_path: Path, pause: float, before: int, lost: int
) -> None:
    n = before + 2
    root = till(tmp_path / "till", server.url(), app=SLOW_TILL.replace("PAUSE", str(pause)), n=n)
    process = started(root)
    try:
        wait_until(lambda: len(called(root)) >= before)
    finally:
        process.kill()
        process.communicate()
    first = called(root)
    done = oloproof(root, "run", "--json")
    assert done.returncode == 0, done.stderr
    again = called(root)[len(first) :]
    assert set(again).isdisjoint(first[:-lost])
    assert sorted({*first, *again}) == sorted(f"c-{i + 1:03d}" for i in range(n))
    assert json.loads(done.stdout)["cache"]["executions"] == {"hit": n - len(again), "miss": len(again)}
    assert not Evidence(str(load_project(root).suite.store)).store.names("v1/parts")


DYING_TILL = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        import os, signal
        if current_case().id == "c-004" and os.environ.get("OLOPROOF_SHARD_INDEX") and not (
            died := pathlib.Path(__file__).with_name("died")
        ).exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
""",
    1,
)
IN_PROCESSES = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions

defs = build_definitions(Path(__file__).parent, executor=dg.multiprocess_executor)
"""


@pytest.mark.slow
def test_a_killed_shard_in_a_process_of_its_own_is_executed_again_alone(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", server.url(), app=DYING_TILL, n=8, sandbox={"shards": 2}, definitions=IN_PROCESSES)
    whole = till(tmp_path / "whole", None, app=DYING_TILL, n=8)
    tables = ("cases", "transformed_cases", "trajectories", "environment_states")
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        instance.add_dynamic_partitions("till_system_version", ["v1"])
        options: dict[str, Any] = {
            "tags": {"dagster/partition": "v1"},
            "run_config": QUIET,
            "asset_selection": [dg.AssetKey(["till", table]) for table in tables],
        }
        with dg.execute_job(reconstructable(root), instance, **options) as result:  # type: ignore[arg-type]
            (killed,) = [event.step_key for event in result.all_events if event.is_step_failure]
            assert str(killed).startswith("till_execution.shard")
        again = dg.ReexecutionOptions.from_failure(result.run_id, instance)
        with dg.execute_job(reconstructable(root), instance, reexecution_options=again, **options) as result:  # type: ignore[arg-type]
            assert result.success
            assert killed in [event.step_key for event in result.all_events if event.is_step_success]
    with home(whole) as found:
        assert found.run().success
    contents = [{table: load_run(each).table(table).content for table in tables} for each in (root, whole)]
    assert contents[0] == contents[1]
    assert load_run(root).evidence.store.names(".steps") == []


@pytest.mark.slow
def test_ctrl_c_keeps_all_that_is_finished(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", server.url(), app=SLOW_TILL.replace("PAUSE", "0.1"), n=20)
    process = started(root)
    wait_until(lambda: len(called(root)) >= 8)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    first = called(root)
    assert oloproof(root, "run").returncode == 0
    assert set(called(root)[len(first) :]).isdisjoint(first[:-1])


@pytest.mark.slow
def test_a_store_that_goes_away_is_one_line_and_what_was_put_is_kept(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", server.url(), app=SLOW_TILL.replace("PAUSE", "0.3"), n=20)
    with pytest.MonkeyPatch.context() as patch, relay(server) as (endpoint, cut):
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        with started(root) as process:
            try:
                wait_until(lambda: len(called(root)) >= 8)
                cut()
                _, told = process.communicate(timeout=60)
            finally:
                process.kill()
    lines = [line for line in told.decode().splitlines() if line.startswith("oloproof: ")]
    assert process.returncode == 2, told
    assert len(lines) == 1
    store = load_project(root).suite.store
    assert re.match(rf"oloproof: cannot (write evidence to|read evidence at) {store}/v1/", lines[0])
    assert lines[0].endswith("Connection refused")
    assert "Traceback" not in told.decode()
    first = called(root)
    assert len(first) < 20
    assert oloproof(root, "run").returncode == 0
    assert set(called(root)[len(first) :]).isdisjoint(first[:4])


# Errors


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://no-such-bucket/till")
    done = oloproof(root, "run")
    assert done.returncode == 2
    assert re.match("oloproof: cannot (read evidence at|write evidence to) s3://no-such-bucket/till/v1", done.stderr)
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_not_taken_for_one_without_evidence(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://evidence/till")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        for command in ("run", "inspect", "versions"):
            done = oloproof(root, command)
            assert done.returncode == 2
            assert re.match("oloproof: cannot (read evidence at|write evidence to) s3://evidence/till", done.stderr)
            assert done.stderr.count("\n") == 1


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that holds none and names a folder for AWS's files, which are not there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "aws"
    folder.mkdir()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    return folder


def test_a_profile_gives_keys_region_and_endpoint(
    server: Server, no_credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_credentials / "credentials").write_text("[night]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (no_credentials / "config").write_text(f"[profile night]\nregion = eu-west-3\nendpoint_url = {server.endpoint}\n")
    monkeypatch.setenv("AWS_PROFILE", "night")
    evidence = server.evidence()
    keep_gate(evidence)
    assert gate_of(evidence) == ["ALLOW"]
    store: Any = connect(str(evidence.root))
    assert (store.config["region"], store.config["endpoint"]) == ("eu-west-3", server.endpoint)


def test_a_program_that_gives_credentials_is_asked(server: Server, no_credentials: Path) -> None:
    keys = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c"}
    program = no_credentials / "program"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(keys)}'\n")
    program.chmod(0o755)
    (no_credentials / "config").write_text(f"[default]\ncredential_process = {program}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        evidence = server.evidence()
        keep_gate(evidence)
        assert gate_of(evidence) == ["ALLOW"]


@pytest.mark.parametrize(
    ("config", "profile", "why"),
    [
        ("", "", "no AWS credentials were found; set AWS_PROFILE"),
        ("", "nobody", r"The config profile \(nobody\) could not be found"),
        ("[default]\ncredential_process = /bin/false\n", "", "Error when retrieving credentials from custom-process"),
        (
            "[default]\nsso_session = x\nsso_account_id = 1\nsso_role_name = r\n"
            "[sso-session x]\nsso_region = us-east-1\nsso_start_url = https://x.example\n",
            "",
            "SSO|sso",
        ),
    ],
)
def test_credentials_that_are_not_there_are_one_line(
    server: Server, no_credentials: Path, monkeypatch: pytest.MonkeyPatch, config: str, profile: str, why: str
) -> None:
    (no_credentials / "config").write_text(config)
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    evidence = server.evidence()
    with pytest.raises(
        EvidenceError, match=rf"cannot read evidence at {evidence.root}/v1/attempt.json: .*{why}"
    ) as error:
        evidence.attempt("v1")
    assert "\n" not in str(error.value)


def test_what_is_no_table_is_named_by_its_url(cloud: Server) -> None:
    evidence = cloud.evidence()
    evidence.store.write("v1/gate.parquet", b"no table")
    with pytest.raises(EvidenceError, match=rf"{evidence.root}/v1/gate\.parquet cannot be read as Parquet"):
        list(evidence.table("gate", "v1").rows())
    evidence.store.write("v1/attempt.json", b"{}")
    with pytest.raises(EvidenceError, match=rf"{evidence.root}/v1/attempt\.json cannot be read"):
        evidence.attempt("v1")


def test_a_table_that_is_replaced_while_it_is_read_gives_no_mixture(cloud: Server) -> None:
    evidence = cloud.evidence()
    keep_gate(evidence)
    with evidence.path("gate", "v1").open() as reading:
        keep_gate(evidence, "BLOCK")
        with pytest.raises(EvidenceError, match=r"cannot read evidence at .*gate\.parquet"):
            reading.read()


def test_an_asset_run_loads_no_other_library_for_object_storage(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://evidence/till")
    with home(root) as found:
        assert found.run().success
    assert not {"s3fs", "gcsfs", "adlfs"} & set(sys.modules)


def attempt_at(url: str) -> object:
    return Evidence(url).attempt("v1")


def test_a_forked_process_is_refused_and_not_left_hanging(server: Server) -> None:
    evidence = server.evidence()
    keep_gate(evidence)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        reading = pool.apply_async(attempt_at, [str(evidence.root)])
        with pytest.raises(EvidenceError, match="this process was forked from one that uses object storage"):
            reading.get(timeout=30)


def test_a_store_that_nothing_installed_can_reach_names_the_extra(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://evidence/never")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "boto3", None)
        with pytest.raises(ConfigError, match=r"needs boto3, .*pip install boto3, or .*whl\[s3\]"):
            load_run(root)
        patch.setitem(sys.modules, "obstore", None)
        with pytest.raises(ConfigError, match=r"needs obstore and boto3, .*pip install obstore boto3, or .*\[s3\]"):
            load_run(root)
        for url, extra in (("gs://evidence", "gs"), ("abfs://evidence", "az")):
            with pytest.raises(ConfigError, match=rf"needs obstore, .*pip install obstore, or .*\[{extra}\]"):
                Evidence(url)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("${NO_SUCH_NAME:-gs://bucket/a}", "gs://bucket/a"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("file:///srv/evidence", "file:///srv/evidence"),
        ("${NO_SUCH_NAME:-}", None),
        ("", None),
    ],
)
def test_a_store_is_a_url_or_nothing(written: str, read: str | None, tmp_path: Path) -> None:
    assert load_project(write_project(tmp_path, suite={"store": written})).suite.store == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("evidence", "is no URL; leave `store` out"),
        ("/srv/evidence", "or file:///srv/evidence"),
        ("s3:bucket", "is no URL"),
        ("ftp://host/a", "no evidence is kept at 'ftp'; write one of s3"),
        ("memory://a", "no evidence is kept at 'memory'"),
        ("s3://", "names no place; write one such as s3://bucket/prefix"),
        ("s3:///prefix", "names no place"),
        ("file://srv/evidence", "write one such as file:///srv/evidence"),
        ("file:///", "names no place"),
        ("s3://bucket/a b", "without spaces"),
        ("s3://bucket/*", "without spaces and *"),
        ("s3://bucket/a//b", "has an empty part"),
        ("gs://bucket/../b", "or . or .. as one"),
        ("s3://key:secret@bucket/a", "credentials come from the environment"),
        ("${NO_SUCH_NAME}", "the environment has no NO_SUCH_NAME"),
    ],
)
def test_a_store_that_is_none_is_refused_with_what_to_write(written: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"oloproof\.yaml:\d+: store: ") as refused:
        load_project(write_project(tmp_path, suite={"store": written}))
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_folder_as_a_url_is_that_folder(tmp_path: Path) -> None:
    assert Evidence(f"file://{tmp_path}/evidence").root == Evidence(tmp_path / "evidence").root == tmp_path / "evidence"


# One run at a time


def test_a_version_is_held_by_one_run_at_a_time_and_a_killed_one_lets_go_at_once(cloud: Server) -> None:
    evidence = cloud.evidence()
    with another_holding(evidence) as holder:
        told = rf"another run is executing version 'v1' at this moment \(process {holder.pid} on .*, until .* UTC"
        with pytest.raises(EvidenceError, match=told), evidence.held("v1"):
            pass
        assert (evidence.is_held("v1"), evidence.is_held("v2")) == (True, False)
        with evidence.held("v2"):
            pass
    assert not evidence.is_held("v1")
    with evidence.held("v1"):
        pass


@pytest.mark.slow
def test_a_second_run_refuses_and_says_who_is_at_it(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", server.url())
    with Evidence(str(load_project(root).suite.store)).held("v1"):
        done = oloproof(root, "run")
    assert done.returncode == 2
    assert f"process {os.getpid()} on" in done.stderr
    assert called(root) == []


def elsewhere(until: float) -> bytes:
    """What a process of another machine writes that holds a lock until then."""
    holder = Holder("another", "far-away", 4711, "another machine", "1", until)
    return json.dumps({name: getattr(holder, name) for name in holder.__slots__}).encode()


def test_a_lock_of_another_machine_counts_until_its_time_and_no_longer(cloud: Server) -> None:
    evidence = cloud.evidence()
    evidence.store.write("v1/.lock.json", elsewhere(time.time() + 60))
    with pytest.raises(EvidenceError, match="process 4711 on far-away"), evidence.held("v1"):
        pass
    evidence.store.write("v1/.lock.json", elsewhere(time.time() - 1))
    with evidence.held("v1"):
        assert f'"pid": {os.getpid()}' in (evidence.store.read("v1/.lock.json") or b"").decode()
    assert '"until": 0.0' in (evidence.store.read("v1/.lock.json") or b"").decode()


@pytest.mark.parametrize("shard", [None, 2])
def test_a_lock_of_an_earlier_release_counts_until_its_time_and_is_removed_after_it(
    server: Server, shard: int | None
) -> None:
    store = server.evidence().store
    for held in (".lock", ".lock.2"):
        store.write(f"v1/{held}/00000009", elsewhere(time.time() - 1))
        store.write(f"v1/{held}/00000010", elsewhere(time.time() + 60))
        with pytest.raises(Busy, match="process 4711 on far-away"), store.held("v1", shard):
            pass
        store.write(f"v1/{held}/00000010", elsewhere(time.time() - 1))
        with store.held("v1", shard):
            assert store.names("v1") == [".lock.json" if shard is None else ".lock.2.json"]


def test_a_lock_that_cannot_be_read_is_named_and_held_by_nobody(server: Server) -> None:
    evidence = server.evidence()
    evidence.store.write("v1/.lock.json", b"{}")
    with pytest.raises(EvidenceError, match=r"v1/\.lock\.json was not written by Oloproof"), evidence.held("v1"):
        pass


def test_who_was_taken_over_writes_no_table_and_keeps_no_more_parts(server: Server) -> None:
    evidence = server.evidence()
    keep_gate(evidence)
    with suppress(EvidenceError), evidence.held("v1"):
        attempt = evidence.open_attempt("v1", fresh=False)
        parts = evidence.resume_log(attempt, "executions")
        Objects(str(evidence.root)).write("v1/.lock.json", elsewhere(time.time() + 60))
        with pytest.raises(EvidenceError, match=r"another run took over .*/v1 \(process 4711 on far-away"), parts:
            parts.append("k", [1])
        with pytest.raises(EvidenceError, match="took over"):
            keep_gate(evidence, "BLOCK")
        with pytest.raises(EvidenceError, match="took over"):
            evidence.complete(attempt)
    assert gate_of(evidence) == ["ALLOW"]
    assert not evidence.has_resume_log(attempt, "executions")
    with pytest.raises(EvidenceError, match="far-away"), evidence.held("v1"):
        pass


def test_a_lock_that_was_removed_or_is_another_ones_is_lost(server: Server) -> None:
    evidence = server.evidence()
    with evidence.held("v1"):
        Objects(str(evidence.root)).write("v1/.lock.json", elsewhere(0.0))
        with pytest.raises(EvidenceError, match=r"took over .*/v1 \(process 4711 on far-away, which has let it go"):
            keep_gate(evidence)
    with evidence.held("v1"):
        Objects(str(evidence.root)).remove("v1/.lock.json")
        with pytest.raises(EvidenceError, match=r"took over .*/v1 \(whoever removed it\)"):
            keep_gate(evidence)
    assert evidence.store.read("v1/.lock.json") is None


@pytest.mark.slow
def test_a_lock_is_renewed_as_long_as_its_holder_lives(server: Server) -> None:
    url, seconds = server.url(), 0.8
    lock = ObjectLock(Objects(url), "v1/.lock.json", seconds=seconds)
    lock.acquire()
    time.sleep(2 * seconds)
    with pytest.raises(Busy):
        ObjectLock(Objects(url), "v1/.lock.json").acquire()
    lock.release()
    again = ObjectLock(Objects(url), "v1/.lock.json")
    again.acquire()
    time.sleep(2 * seconds / RENEWALS)
    again.require()
    with pytest.raises(Busy):
        lock.require()
    again.release()


class LostAnswers(Objects):
    """Objects on a server whose answers to conditional puts do not arrive: each is sent again, and does not hold."""

    def create(self, name: str, data: bytes) -> Tag | None:
        super().create(name, data)
        return super().create(name, data)

    def replace(self, name: str, data: bytes, tag: Tag) -> Tag | None:
        super().replace(name, data, tag)
        return super().replace(name, data, tag)


@pytest.mark.slow
def test_a_holder_whose_put_was_answered_to_nobody_knows_its_own_lock(server: Server) -> None:
    url, seconds = server.url(), 0.8
    for _ in range(2):
        lock = ObjectLock(LostAnswers(url), "v1/.lock.json", seconds=seconds)
        lock.acquire()
        time.sleep(1.5 * seconds)
        lock.require()
        with pytest.raises(Busy):
            ObjectLock(Objects(url), "v1/.lock.json").acquire()
        lock.release()
        assert b'"until": 0.0' in (Objects(url).read("v1/.lock.json") or b"")


def test_of_many_that_begin_at_once_one_holds(cloud: Server) -> None:
    url = cloud.url()
    for round_ in range(5):  # the first creates the lock, the others take one over
        locks = [ObjectLock(Objects(url), "v1/.lock.json") for _ in range(8)]

        def taken(lock: ObjectLock) -> bool:
            with suppress(Busy):
                lock.acquire()
                return True
            return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(taken, locks)) == 1, round_
        for lock in locks:
            lock.release()


# The same operations, whatever the store


def stores(server: Server, folder: Path) -> list[Store]:
    """A folder, objects in memory, and objects on a server, all empty."""
    from obstore.store import MemoryStore

    return [LocalFolder(folder), ObjectStore(Objects("memory://a", MemoryStore())), server.evidence().store]


def walk(store: Store, folder: str = "") -> dict[str, bytes]:
    """Every file by its name."""
    found: dict[str, bytes] = {}
    for each in store.names(folder):
        name = f"{folder}/{each}" if folder else each
        data = store.read(name)
        found |= walk(store, name) if data is None else {name: data}
    return found


NAMES = st.sampled_from(
    ["a.json", "v1/a.json", "v1/b.parquet", "v1/c/1/b.parquet", "v1/c/2/b.parquet", "v10/b.parquet"]
)
PLACES = NAMES | st.sampled_from(["v1", "v1/c", "v1/c/1", "none"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "put"]), NAMES, st.binary(max_size=20))
    | st.tuples(st.just("copy"), NAMES, NAMES)
    | st.tuples(st.just("remove"), PLACES, st.none()),
    max_size=12,
)


@settings(max_examples=25)
@given(STEPS)
@pytest.mark.slow
def test_stores_agree(tmp_path_factory: pytest.TempPathFactory, cloud: Server, steps: list[Any]) -> None:
    model: dict[str, bytes] = {}
    every = stores(cloud, tmp_path_factory.mktemp("store"))
    for step, name, more in steps:
        if step == "copy" and (name not in model or more == name):
            continue
        for store in every:
            if step == "write":
                store.write(name, more)
            elif step == "put":
                staged = store.staging(name)
                staged.parent.mkdir(parents=True, exist_ok=True)
                staged.write_bytes(more)
                store.put(staged, name)
                assert not staged.exists()
            elif step == "copy":
                store.copy(name, more)
            else:
                store.remove(name)
        if step == "remove":
            model = {each: data for each, data in model.items() if each != name and not each.startswith(f"{name}/")}
        else:
            model[more if step == "copy" else name] = model[name] if step == "copy" else more
    for store in every:
        assert walk(store) == model
        for name in ("v1/b.parquet", "none"):
            assert store.path(name).exists() == (store.modified(name) is not None) == (name in model)
            if name in model:
                with store.path(name).open("rb") as stored:
                    stored.seek(3)
                    assert stored.read() == model[name][3:]
                if not isinstance(file := store.path(name), Path):
                    assert [file.end(n) for n in (4, 100)] == [model[name][-4:], model[name]]
            else:
                with pytest.raises(FileNotFoundError):
                    store.path(name).open("rb")


@settings(max_examples=20)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.text(max_size=5)), max_size=5), max_size=4))
@pytest.mark.slow
def test_parts_agree(tmp_path_factory: pytest.TempPathFactory, cloud: Server, writers: list[Any]) -> None:
    model: dict[str, str] = {}
    every = stores(cloud, tmp_path_factory.mktemp("parts"))
    for records in writers:
        for store in every:
            with store.resume_log("v1/parts") as parts:
                assert {key: parts.get(key) for key in "abcd"} == {
                    key: [model[key]] if key in model else None for key in "abcd"
                }
                for key, value in records:
                    parts.append(key, [value])
        model |= dict(records)
    for store in every:
        with store.resume_log("v1/parts") as parts:
            assert len(parts) == len(model)
        assert len(store.names("v1/parts")) == sum(map(bool, writers))


@pytest.mark.slow
def test_holds_agree(cloud: Server, tmp_path: Path) -> None:
    for store in stores(cloud, tmp_path):
        with store.held("v1"), store.held("v2"):
            for shard in (None, 0):
                with pytest.raises(Busy), store.held("v1", shard):
                    pass
        with store.held("v1", 0), store.held("v1", 1):
            for shard in (None, 0, 1):
                with pytest.raises(Busy), store.held("v1", shard):
                    pass
        with pytest.raises(ZeroDivisionError), store.held("v1"):
            raise ZeroDivisionError
        with store.held("v1"):
            pass


# Parts


def test_what_is_kept_is_put_within_a_second_though_nothing_follows(server: Server) -> None:
    store = server.evidence().store
    with store.resume_log("parts") as parts:
        parts.append("a", [1])
        wait_until(lambda: bool(store.names("parts")), PUT_SECONDS + 2)
        with store.resume_log("parts") as seen:
            assert seen.get("a") == [1]


def test_objects_stay_few_and_none_grows_far_beyond_its_size(server: Server) -> None:
    store = server.evidence().store
    record = ["x" * (SEGMENT_BYTES // 10)]
    with store.resume_log("parts") as parts:
        for number in range(45):
            parts.append(str(number), record)
    sizes = [len(store.read(f"parts/{name}") or b"") for name in store.names("parts")]
    assert len(sizes) == 5
    assert max(sizes) < 1.2 * SEGMENT_BYTES
    with store.resume_log("parts") as parts:
        assert len(parts) == 45
        assert parts.get("44") == record


def parts_of_a_bucket_that_is_gone() -> ResumeLog:
    """Parts that could be read, and can be written no more."""
    import boto3

    bucket = f"bucket-{uuid.uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    parts = Evidence(f"s3://{bucket}/a").store.resume_log("parts")
    boto3.client("s3").delete_bucket(Bucket=bucket)
    return parts


@pytest.mark.slow
def test_a_put_that_fails_is_an_error_of_the_next_record_or_of_the_end() -> None:
    with (
        pytest.raises(EvidenceError, match="cannot write evidence to s3://"),
        parts_of_a_bucket_that_is_gone() as parts,
    ):
        parts.append("a", [1])
    parts = parts_of_a_bucket_that_is_gone()
    parts.append("a", [1])
    time.sleep(PUT_SECONDS + 2)
    with pytest.raises(EvidenceError, match="does not exist"):
        parts.append("b", [1])
    with pytest.raises(EvidenceError, match="does not exist"):
        parts.close()


def test_a_put_that_fails_at_the_end_does_not_hide_what_went_wrong_before() -> None:
    def broken() -> None:
        with parts_of_a_bucket_that_is_gone() as parts:
            parts.append("a", [1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()


def test_nothing_of_the_copies_is_left(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = server.evidence().store
    with ExitStack() as opened:
        opened.enter_context(store.resume_log("parts")).append("a", [1])
        opened.enter_context(store.resume_log("parts"))
    assert list(tmp_path.iterdir()) == []
