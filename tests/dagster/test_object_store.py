"""Evidence on object storage: the same as in a folder, resumed after a kill, and held by one run at a time."""

import json
import os
import re
import signal
import subprocess
import sys
import time
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
from oloproof_dagster.evidence.object_lock import RENEWALS, Holder, Lease
from oloproof_dagster.evidence.object_parts import PUT_SECONDS, SEGMENT_BYTES
from oloproof_dagster.evidence.objects import Objects
from oloproof_dagster.evidence.parquet import stage
from oloproof_dagster.evidence.store import Busy, Store
from oloproof_dagster.records.tables import GATE, GateRow, JSONText
from tests.support.holding import another_holding
from tests.support.object_storage import BUCKET, Server, relay, running_server
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, QUIET, TABLES, home
from tests.support.spread import reconstructable

RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
SUITE = {"evaluators": [{"type": "state_matches"}, RECOVERY]}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    with running_server() as found:
        yield found


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


def test_a_run_leaves_the_same_tables_as_in_a_folder_is_reused_and_keeps_former_attempts(
    server: Server, tmp_path: Path
) -> None:
    contents, counts = [], []
    for name, store in (("folder", None), ("store", server.url())):
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


def test_every_command_finds_the_evidence(server: Server, tmp_path: Path) -> None:
    root = till(tmp_path / "till", "${TILL_STORE}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILL_STORE", f"{server.url()}/")
        done = oloproof(root, "run", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["gate"]["action"] == "ALLOW"
        assert [each["version"] for each in json.loads(oloproof(root, "versions", "--json").stdout)] == ["v1"]
        assert "c-002" in oloproof(root, "inspect").stdout
        exported = oloproof(root, "export", "--to", str(tmp_path / "exported"))
        assert exported.returncode == 0, exported.stderr
        found = pd.read_parquet(tmp_path / "exported" / "verdicts.parquet")
        assert len(found) == len(load_run(root).verdicts) > 0


def test_workers_and_shards_leave_the_same_evidence(server: Server, tmp_path: Path) -> None:
    contents = []
    for name, sandbox in (("one", {}), ("workers", {"workers": 2}), ("shards", {"shards": 3})):
        root = till(tmp_path / name, server.url(), n=6, sandbox=sandbox)
        with home(root) as found:
            result = found.run()
            assert result.success, result.why
        contents.append({table: load_run(root).table(table).content for table in TABLES})
    assert contents[0] == contents[1] == contents[2]


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
    assert lines[0].startswith(f"oloproof: cannot write evidence to {load_project(root).suite.store}/v1/parts/1/")
    assert "Traceback" not in told.decode()
    first = called(root)
    assert len(first) < 20
    assert oloproof(root, "run").returncode == 0
    assert set(called(root)[len(first) :]).isdisjoint(first[:4])


# Errors


def test_a_bucket_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://no-such-bucket/till")
    done = oloproof(root, "run")
    assert done.returncode == 2
    assert done.stderr.startswith("oloproof: cannot write evidence to s3://no-such-bucket/till/v1/")
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr


def test_a_server_that_cannot_be_reached_is_not_taken_for_one_without_evidence(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://evidence/till")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        for command in ("run", "inspect", "versions"):
            done = oloproof(root, command)
            assert done.returncode == 2
            assert re.match("oloproof: cannot (read evidence at|write evidence to) s3://evidence/till", done.stderr)
            assert done.stderr.count("\n") == 1


def test_what_is_no_table_is_named_by_its_url(server: Server) -> None:
    evidence = server.evidence()
    evidence.store.write("v1/gate.parquet", b"no table")
    with pytest.raises(EvidenceError, match=rf"{evidence.root}/v1/gate\.parquet cannot be read as Parquet"):
        list(evidence.table("gate", "v1").rows())
    evidence.store.write("v1/attempt.json", b"{}")
    with pytest.raises(EvidenceError, match=rf"{evidence.root}/v1/attempt\.json cannot be read"):
        evidence.attempt("v1")


def test_a_table_that_is_replaced_while_it_is_read_gives_no_mixture(server: Server) -> None:
    evidence = server.evidence()
    keep_gate(evidence)
    with evidence.path("gate", "v1").open() as reading:
        keep_gate(evidence, "BLOCK")
        with pytest.raises(EvidenceError, match=r"cannot read evidence at .*gate\.parquet"):
            reading.read()


def test_a_store_that_nothing_installed_can_reach_names_the_extra(tmp_path: Path) -> None:
    root = till(tmp_path / "till", "s3://evidence/never")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "s3fs", None)
        with pytest.raises(ConfigError, match=r"needs s3fs.*pip install 'oloproof-dagster\[s3\]'"):
            load_run(root)


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


def test_a_version_is_held_by_one_run_at_a_time_and_a_killed_one_lets_go_at_once(server: Server) -> None:
    evidence = server.evidence()
    with another_holding(evidence) as holder:
        told = rf"another run is executing version 'v1' at this moment \(process {holder.pid} on .*, until .* UTC"
        with pytest.raises(EvidenceError, match=told), evidence.held("v1"):
            pass
        with evidence.held("v2"):
            pass
    with evidence.held("v1"):
        pass


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


def test_a_lease_of_another_machine_counts_until_its_time_and_no_longer(server: Server) -> None:
    evidence = server.evidence()
    evidence.store.write("v1/.lock/00000007", elsewhere(time.time() + 60))
    with pytest.raises(EvidenceError, match="process 4711 on far-away"), evidence.held("v1"):
        pass
    evidence.store.write("v1/.lock/00000007", elsewhere(time.time() - 1))
    with evidence.held("v1"):
        assert evidence.store.names("v1/.lock") == ["00000008"]


def test_who_was_taken_over_writes_no_table_and_keeps_no_more_parts(server: Server) -> None:
    evidence = server.evidence()
    keep_gate(evidence)
    with suppress(EvidenceError), evidence.held("v1"):
        attempt = evidence.open_attempt("v1", fresh=False)
        parts = evidence.resume_log(attempt, "executions")
        Objects(str(evidence.root)).write("v1/.lock/00000002", elsewhere(time.time() + 60))
        with pytest.raises(EvidenceError, match=r"another run took over .*/v1 \(process 4711 on far-away"):
            keep_gate(evidence, "BLOCK")
        with pytest.raises(EvidenceError, match="took over"), parts:
            parts.append("k", [1])
        with pytest.raises(EvidenceError, match="took over"):
            evidence.complete(attempt)
    assert gate_of(evidence) == ["ALLOW"]
    assert not evidence.has_resume_log(attempt, "executions")
    with pytest.raises(EvidenceError, match="far-away"), evidence.held("v1"):
        pass


def test_a_lease_is_renewed_as_long_as_its_holder_lives(server: Server) -> None:
    url, seconds = server.url(), 0.8
    lease = Lease(Objects(url), "v1/.lock", seconds=seconds)
    lease.take()
    time.sleep(2 * seconds)
    with pytest.raises(Busy):
        Lease(Objects(url), "v1/.lock").take()
    lease.let_go()
    again = Lease(Objects(url), "v1/.lock")
    again.take()
    time.sleep(2 * seconds / RENEWALS)
    again.require()
    with pytest.raises(Busy):
        lease.require()
    again.let_go()


def test_of_many_that_begin_at_once_one_holds(server: Server) -> None:
    for round_ in range(5):
        url = server.url()
        leases = [Lease(Objects(url), "v1/.lock") for _ in range(8)]

        def taken(lease: Lease) -> bool:
            with suppress(Busy):
                lease.take()
                return True
            return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(taken, leases)) == 1, round_
        for lease in leases:
            lease.let_go()


# The same operations, whatever the store


def stores(server: Server, folder: Path) -> list[Store]:
    """A folder, objects in memory, and objects on a server, all empty."""
    url = server.url()
    return [LocalFolder(folder), Evidence(f"memory://{url.rpartition('/')[2]}").store, Evidence(url).store]


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
def test_stores_agree(tmp_path_factory: pytest.TempPathFactory, server: Server, steps: list[Any]) -> None:
    model: dict[str, bytes] = {}
    every = stores(server, tmp_path_factory.mktemp("store"))
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
def test_parts_agree(tmp_path_factory: pytest.TempPathFactory, server: Server, writers: list[Any]) -> None:
    model: dict[str, str] = {}
    every = stores(server, tmp_path_factory.mktemp("parts"))
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


def test_holds_agree(server: Server, tmp_path: Path) -> None:
    for store in stores(server, tmp_path):
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


# Segments


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


def test_a_put_that_fails_is_told_at_the_next_record_or_at_the_end(server: Server) -> None:
    store = Evidence(f"s3://{BUCKET}-that-is-not-there/a").store
    with pytest.raises(EvidenceError, match="cannot write evidence to s3://"), store.resume_log("parts") as parts:
        parts.append("a", [1])
    parts = store.resume_log("other parts")
    parts.append("a", [1])
    time.sleep(PUT_SECONDS + 2)
    with pytest.raises(EvidenceError, match="does not exist"):
        parts.append("b", [1])
    with pytest.raises(EvidenceError, match="does not exist"):
        parts.close()


def test_a_put_that_fails_at_the_end_does_not_hide_what_went_wrong_before(server: Server) -> None:
    store = Evidence(f"s3://{BUCKET}-that-is-not-there/a").store

    def broken() -> None:
        with store.resume_log("parts") as parts:
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
