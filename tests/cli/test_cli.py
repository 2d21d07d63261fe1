"""The command line: what it prints, where, and with which exit code."""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

import oloproof_dagster
from oloproof_dagster import ConfigError, load_run
from oloproof_dagster.cli.main import main
from oloproof_dagster.local_run.instance import DAGSTER_YAML
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, TABLES, home
from tests.support.waiting import until

EXAMPLE = Path(oloproof_dagster.__file__).parent / "examples" / "stateful_agent"
WRONG = case(2, expected={"state": {"balance": 7, "other": "untouched"}})
NOISY = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        import os, subprocess, sys
        print("printed")
        sys.__stdout__.write("written")
        os.write(1, b"straight to the descriptor")
        subprocess.run(["echo", "from a child"], check=True)
        print("warned", file=sys.stderr)
""",
)


@dataclass
class Answer:
    """What a command left: its exit code, and both streams."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture
def oloproof(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in this process, as the console script does."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["oloproof", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capfd.readouterr()
        assert isinstance(exit_.value.code, int)
        return Answer(exit_.value.code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home for small projects: making a new one takes longer than a run."""
    home = tmp_path_factory.mktemp("dagster_home")
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    return home


@pytest.fixture
def in_shared_home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(shared_home))


def calls(root: Path) -> list[str]:
    path = root / "calls"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def assert_one_line(answer: Answer, code: int = 2) -> None:
    assert answer.code == code
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "Traceback" not in answer.err


# The example


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("example") / "desk"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns(".oloproof", "__pycache__"))
    with (root / "app.py").open("a") as stream:
        stream.write('print("loaded")\n')
    return root


@pytest.fixture(scope="module")
def blocked(desk: Path) -> Answer:
    """The first run of the example, in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "OLOPROOF_PROJECT")}
    done = subprocess.run(
        [sys.executable, "-m", "oloproof_dagster.cli", "run", "--json", "--project", str(desk)],
        capture_output=True,
        text=True,
        check=False,
        cwd=desk,  # and not where a folder of the package's name might lie
        env=environment,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


RELEASE_RUN: dict[str, Any] = {
    "schema": str, "project": str,
    "system": {"name": str, "version": str},
    "suite": {"id": str, "digest": str, "source_cases": int, "cases": int, "clusters": int},
    "gate": {"action": str, "exit_code": int, "reasons": [str]},
    "decisions": [{
        "rule_id": str, "metric": str, "state": str, "reasons": [str], "direction": str, "threshold": float,
        "estimate": float, "lower": float, "upper": float, "method": str, "n_eligible": int, "n_observed": int,
        "n_passed": int, "n_missing": int, "n_excluded": int, "n_clusters": int, "advice": str,
    }],
    "metrics": [{
        "metric": str, "estimate": float, "lower": float, "upper": float, "confidence_level": float, "method": str,
        "n_eligible": int, "n_observed": int, "n_passed": int, "n_missing": int, "n_excluded": int, "n_clusters": int,
        "missing": Mapping, "excluded": Mapping,
    }],
    "slices": [{
        "slice": str, "value": str, "metric": str, "estimate": float, "lower": float, "upper": float,
        "n_observed": int, "n_passed": int, "n_missing": int, "support": int,
    }],
    "cache": {"executions": {"hit": int, "miss": int}, "replays": {"hit": int, "miss": int}},
}  # fmt: skip
CASE_PANELS: dict[str, Any] = {
    "schema": str,
    "system": {"name": str, "version": str},
    "cases": [{
        "case_id": str, "trial": int, "cluster": str, "source_case": str, "transform": str,
        "execution": {"status": str, "error": str, "duration_ms": float},
        "output": object,
        "verdicts": [{
            "criterion": str, "status": str, "reason": str,
            "compared": [{"path": str, "expected": object, "actual": object, "absent": bool, "matches": bool}],
        }],
    }],
}  # fmt: skip
NULLABLE = {
    "estimate", "lower", "upper", "method", "n_clusters", "advice",
    "source_case", "transform", "error", "reason",
}  # fmt: skip


def assert_shaped(value: Any, shape: Any, where: str = "$") -> None:
    """Exactly these keys, values of these types, null only where the format allows it."""
    if isinstance(shape, dict):
        keys = set(value) - ({"noop_passed"} if where.startswith("$.metrics") else set())
        assert keys == set(shape), where
        for key, inner in shape.items():
            if value[key] is not None or key not in NULLABLE:
                assert_shaped(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for each in value:
            assert_shaped(each, shape[0], where)
    else:
        accepted = (int, float) if shape is float else shape
        assert isinstance(value, accepted), where
        assert shape in (bool, object) or not isinstance(value, bool), where


def test_the_example_as_shipped_is_blocked_by_two_failures(blocked: Answer) -> None:
    assert blocked.code == 1
    document = blocked.document
    assert document["gate"] == {"action": "BLOCK", "exit_code": 1, "reasons": []}
    assert {row["rule_id"] for row in document["decisions"] if row["state"] == "FAIL"} == {
        "honest_about_failed_refunds",
        "pasted_orders_do_not_matter",
    }
    assert document["cache"] == {"executions": {"hit": 0, "miss": 72}, "replays": {"hit": 0, "miss": 24}}


def test_the_document_has_exactly_the_keys_of_its_schema(blocked: Answer) -> None:
    assert blocked.document["schema"] == "release_run/v1"
    assert_shaped(blocked.document, RELEASE_RUN)
    with_noop = {row["metric"] for row in blocked.document["metrics"] if "noop_passed" in row}
    assert with_noop == {"state_matches", "other_order_untouched"}
    count_rules = [row for row in blocked.document["decisions"] if row["direction"] == "count"]
    assert [(row["threshold"], row["lower"], row["upper"], row["method"]) for row in count_rules] == [
        (0, None, None, None)
    ]


def test_what_the_agent_prints_goes_to_stderr(blocked: Answer) -> None:
    assert "loaded" in blocked.err
    assert "loaded" not in blocked.out
    assert blocked.out.lstrip().startswith("{")


def test_a_run_is_quiet_but_for_what_the_agent_says(blocked: Answer) -> None:
    assert set(blocked.err.splitlines()) <= {"loaded"}


def test_the_projects_own_dagster_home_is_used_and_asks_nobody_to_sign_up(desk: Path, blocked: Answer) -> None:
    written = (desk / ".oloproof/dagster/dagster.yaml").read_text()
    assert "telemetry:\n  enabled: false" in written
    assert "nux:\n  enabled: false" in written
    with dg.DagsterInstance.from_config(str(desk / ".oloproof/dagster")) as instance:
        (run,) = instance.get_runs()
        assert run.job_name == "refund_desk_release_run"
        assert instance.get_dynamic_partitions("refund_desk_system_version") == ["scripted-1"]


def test_a_second_run_answers_from_evidence_and_decides_the_same(
    desk: Path, blocked: Answer, oloproof: Command
) -> None:
    again = oloproof("run", "--json", "--project", desk)
    assert again.code == 1
    assert again.document["cache"] == {"executions": {"hit": 72, "miss": 0}, "replays": {"hit": 24, "miss": 0}}
    assert {**again.document, "cache": None} == {**blocked.document, "cache": None}


def test_the_gate_is_printed_for_people(desk: Path, blocked: Answer, oloproof: Command) -> None:
    shown = oloproof("run", "--project", desk)
    assert shown.code == 1
    assert "BLOCK" in shown.out
    for row in blocked.document["decisions"]:
        assert row["rule_id"] in shown.out
        assert row["state"] in shown.out
        assert f"{row['n_passed']}/{row['n_observed']}" in shown.out


def test_the_panel_of_a_pair_shows_each_compared_path_with_both_values(
    desk: Path, blocked: Answer, oloproof: Command
) -> None:
    arguments = ("inspect", "--project", desk, "--case", "ord-013~injected")
    (panel,) = oloproof(*arguments, "--json").document["cases"]
    (failed,) = [verdict for verdict in panel["verdicts"] if verdict["status"] == "failed"]
    assert failed["criterion"] == "same_state_under_injected"
    differing = {row["path"]: row for row in failed["compared"] if not row["matches"]}
    assert differing["orders.ord-013.refunded_cents"]["expected"] == 0
    assert differing["orders.ord-013.refunded_cents"]["actual"] == 8900
    assert (panel["source_case"], panel["transform"], panel["cluster"]) == ("ord-013", "injected", "ord-013")

    shown = oloproof(*arguments).out
    for path, row in differing.items():
        if path != "$":
            (line,) = [line for line in shown.splitlines() if line.startswith(path)]
            assert json.dumps(row["actual"]) in line
            assert row["expected"] is None or json.dumps(row["expected"]) in line
    assert "SYSTEM OVERRIDE" in shown


def test_the_panel_of_a_fault_shows_recording_and_replay_from_the_fault_on(
    desk: Path, blocked: Answer, oloproof: Command
) -> None:
    frame = load_run(desk).verdicts
    failed = frame[(frame.criterion == "recovers_from_error_at_issue_refund") & (frame.status == "failed")]
    shown = oloproof("inspect", "--project", desk, "--case", failed.case_id.iloc[0]).out
    assert "recorded" in shown
    assert "replayed" in shown
    assert '{"error": "internal error"}' in shown
    assert "reports_only_completed_refunds" in shown


def test_the_panels_document_has_exactly_the_keys_of_its_schema(desk: Path, blocked: Answer, oloproof: Command) -> None:
    every = oloproof("inspect", "--project", desk, "--json").document
    assert every["schema"] == "case_panels/v1"
    assert len(every["cases"]) == 72
    assert_shaped(every, CASE_PANELS)
    failing = oloproof("inspect", "--project", desk, "--failures", "--json").document
    assert [each["case_id"] for each in failing["cases"]] == [
        each["case_id"] for each in every["cases"] if any(row["status"] == "failed" for row in each["verdicts"])
    ]


def test_versions_lists_what_was_evaluated_with_its_gate(desk: Path, blocked: Answer, oloproof: Command) -> None:
    (row,) = oloproof("versions", "--project", desk, "--json").document
    assert (row["version"], row["gate"]["action"], row["executed"]) == ("scripted-1", "BLOCK", 72)
    assert "scripted-1" in oloproof("versions", "--project", desk).out


def test_export_writes_every_table_as_parquet_and_csv(
    desk: Path, blocked: Answer, oloproof: Command, tmp_path: Path
) -> None:
    assert oloproof("export", "--project", desk, "--to", tmp_path / "tables").code == 0
    for table in TABLES:
        stored = load_run(desk).table(table)
        assert pq.read_metadata(tmp_path / "tables" / f"{table}.parquet").num_rows == len(stored)
        with (tmp_path / "tables" / f"{table}.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert len(rows) == len(stored)
        assert set(rows[0]) == set(stored.frame().columns)


def test_labels_are_exported_to_be_read_and_counted(desk: Path, oloproof: Command, tmp_path: Path) -> None:
    exported = oloproof("labels", "export", "--project", desk, "--transform", "injected")
    rows = [json.loads(line) for line in exported.out.splitlines()]
    assert len(rows) == 24
    assert all(row["derived"].startswith(row["source"]) and row["kept"] is True for row in rows)
    out = tmp_path / "pairs.csv"
    command = ("labels", "export", "--project", desk, "--transform", "injected", "--format", "csv", "--out", out)
    assert oloproof(*command).code == 0
    with out.open(newline="") as stream:
        assert [row["digest"] for row in csv.DictReader(stream)] == [row["digest"] for row in rows]
    assert_one_line(oloproof(*command))

    status = {row["transform"]: row for row in oloproof("labels", "status", "--project", desk, "--json").document}
    assert status["injected"]["kept"] == status["injected"]["pairs"] == 24
    assert status["injected"]["lower"] == pytest.approx(0.8575, abs=1e-4)
    assert "injected" in oloproof("labels", "status", "--project", desk).out


def test_the_mended_agent_is_allowed_and_the_old_version_can_be_decided_again(
    blocked: Answer, desk: Path, oloproof: Command, tmp_path: Path
) -> None:
    root = tmp_path / "desk"
    shutil.copytree(desk, root)
    text = (root / "oloproof.yaml").read_text()
    (root / "oloproof.yaml").write_text(text.replace(": scripted-1", ": scripted-2").replace("app:desk", "mended:desk"))
    mended = oloproof("run", "--json", "--project", root)
    assert mended.code == 0
    assert mended.document["gate"] == {"action": "ALLOW", "exit_code": 0, "reasons": []}
    assert mended.document["cache"]["executions"] == {"hit": 0, "miss": 72}

    old = oloproof("run", "--json", "--project", root, "--version", "scripted-1")
    assert old.code == 1
    assert old.document["decisions"] == blocked.document["decisions"]
    assert old.document["cache"] == {"executions": {"hit": 72, "miss": 0}, "replays": {"hit": 24, "miss": 0}}
    assert_one_line(oloproof("run", "--project", root, "--version", "scripted-1", "--fresh"))
    assert_one_line(oloproof("run", "--project", root, "--version", "scripted-9"))


# Exit codes

THREE = [case(number) for number in range(1, 4)]
CODES: dict[str, tuple[int, Any, Any]] = {
    "ALLOW": (0, THREE, rules(NO_FAILURE)),
    "WARN": (0, [WRONG], rules(NO_FAILURE, block_on=[], warn_on=["FAIL"])),
    "FAIL": (1, [WRONG], rules(NO_FAILURE)),
    "INSUFFICIENT_EVIDENCE": (3, THREE, rules({"metric": "state_matches", "min": 0.9})),
    "MANUAL_REVIEW": (4, THREE, rules(NO_FAILURE | {"requires_manual_review": True})),
    "missing evidence": (3, [case(1, expected=None)], rules(NO_FAILURE, block_on=[])),
}


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", CODES)
def test_the_exit_code_says_what_the_gate_says(what: str, oloproof: Command, tmp_path: Path) -> None:
    code, cases, release = CODES[what]
    answer = oloproof("run", "--json", "--project", write_project(tmp_path, cases=cases, release=release))
    assert answer.code == code
    assert answer.document["gate"]["exit_code"] == code


@pytest.mark.usefixtures("in_shared_home")
def test_a_case_that_was_never_reached_exits_with_5(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, app=COUNTED_TILL, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 0
    calls(root)
    write_project(
        root,
        app=COUNTED_TILL,
        cases=[*THREE, case(4)],
        suite={"system": {"name": "till", "version": "v2", "callable": "app:till"}},
        release=rules(NO_FAILURE),
    )
    answer = oloproof("run", "--json", "--version", "v1", "--project", root)
    assert answer.code == 5
    assert answer.document["gate"]["reasons"] == ["partial_run"]
    assert answer.document["system"]["version"] == "v1"
    assert answer.document["metrics"][0]["missing"] == {"system_version_not_loaded": 1}
    assert calls(root) == []


@pytest.mark.usefixtures("in_shared_home")
def test_without_a_policy_nothing_is_decided_and_that_is_said(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, cases=[WRONG])
    answer = oloproof("run", "--json", "--project", root)
    assert answer.code == 0
    assert answer.document["gate"] is None
    assert answer.document["decisions"] == []
    assert answer.document["metrics"][0]["n_passed"] == 0
    assert "release.yaml" in oloproof("run", "--project", root).out


OTHER_GATE = """
from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions


@dg.asset(
    key=["till", "gate"],
    deps=[["till", "decisions"]],
    partitions_def=dg.DynamicPartitionsDefinition(name="till_system_version"),
)
def crashing_gate(context):
    raise ZeroDivisionError("the house is on fire")


@dg.definitions
def defs():
    whole = build_definitions(Path(__file__).parent)
    kept = [each for each in whole.assets if dg.AssetKey(["till", "gate"]) not in each.keys]
    return dg.Definitions(assets=[*kept, *GATES], jobs=whole.jobs, resources=whole.resources)
"""


@pytest.mark.usefixtures("in_shared_home")
def test_a_run_fails_where_the_gate_asset_is_taken_away(oloproof: Command, tmp_path: Path) -> None:
    definitions = OTHER_GATE.replace("GATES", "[]")
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    answer = oloproof("run", "--json", "--project", root)
    assert answer.code not in (0, 1, 3, 4, 5)
    assert answer.out == ""
    assert answer.err


@pytest.mark.usefixtures("in_shared_home")
def test_an_internal_crash_exits_with_70_and_looks_like_no_verdict(oloproof: Command, tmp_path: Path) -> None:
    definitions = OTHER_GATE.replace("GATES", "[crashing_gate]")
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    answer = oloproof("run", "--json", "--project", root)
    assert_one_line(answer, 70)
    assert "the house is on fire" in answer.err


@pytest.mark.usefixtures("in_shared_home")
def test_an_interrupted_run_exits_with_130_and_the_next_goes_on(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        import os, signal
        stop = pathlib.Path(__file__).with_name("stop")
        if stop.exists() and current_case().id == "c-002":
            stop.unlink()
            os.kill(os.getpid(), signal.SIGINT)
""",
    )
    root = write_project(tmp_path, app=app, release=rules(NO_FAILURE), files={"stop": ""})
    answer = oloproof("run", "--json", "--project", root)
    assert (answer.code, answer.out) == (130, "")
    assert "Traceback" not in answer.err
    assert calls(root) == ["c-001", "c-002"]
    assert oloproof("run", "--project", root).code == 0
    assert calls(root) == ["c-002", "c-003"]


# Streams and options


@pytest.mark.usefixtures("in_shared_home")
def test_nothing_that_the_agent_writes_reaches_stdout(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, cases=[case(1)], app=NOISY, release=rules(NO_FAILURE))
    answer = oloproof("run", "--json", "--project", root)
    assert answer.document["gate"]["action"] == "ALLOW"
    for text in ("printed", "written", "straight to the descriptor", "from a child", "warned"):
        assert text in answer.err
        assert text not in answer.out


@pytest.mark.usefixtures("in_shared_home")
def test_an_edit_of_the_agent_without_a_new_version_is_warned_of(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, app=COUNTED_TILL, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).err == ""
    (root / "app.py").write_text(COUNTED_TILL + "edited = True\n")
    answer = oloproof("run", "--json", "--project", root)
    assert "Bump system.version" in answer.err
    assert answer.document["cache"]["executions"] == {"hit": 0, "miss": 3}


@pytest.mark.usefixtures("in_shared_home")
def test_fresh_and_retry_errors_are_passed_on(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if current_case().id == "c-002" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, release=rules(NO_FAILURE), files={"down": ""})
    assert oloproof("run", "--project", root).code == 3
    (root / "down").unlink()
    calls(root)
    assert oloproof("run", "--project", root, "--retry-errors").code == 0
    assert calls(root) == ["c-002"]
    assert oloproof("run", "--project", root, "--fresh").code == 0
    assert calls(root) == ["c-001", "c-002", "c-003"]
    assert load_run(root, "v1", 1).metrics.n_passed.tolist() == [3]


@pytest.mark.usefixtures("in_shared_home")
def test_the_projects_own_definitions_are_those_that_run(oloproof: Command, tmp_path: Path) -> None:
    definitions = """
from pathlib import Path
from app import Till
from oloproof_dagster import SandboxResource, build_definitions

here = Path(__file__).parent


class Wrong(Till):
    def __call__(self, request):
        return super().__call__({**request, "amount": 0})


class Mine(SandboxResource):
    def make_system(self):
        return Wrong()


defs = build_definitions(here, sandbox=Mine(project_dir=str(here)))
"""
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    assert oloproof("run", "--project", root).code == 1


BAD_DEFINITIONS = {
    "that cannot be read": "def defs(:\n",
    "that raise": "raise RuntimeError('no')\n",
    "that define nothing": "x = 1\n",
    "that keep evidence elsewhere": (
        "from pathlib import Path\nimport oloproof_dagster\nhere = Path(__file__).parent\n"
        "defs = oloproof_dagster.build_definitions(here, evidence_root=here / 'elsewhere')\n"
    ),
    "whose resource cannot be made": (
        "from pathlib import Path\nimport dagster as dg\nimport oloproof_dagster\nhere = Path(__file__).parent\n"
        "class Mine(oloproof_dagster.SandboxResource):\n    secret: str\n"
        "mine = Mine(project_dir=str(here), secret=dg.EnvVar('OLOPROOF_TEST_NOT_SET'))\n"
        "defs = oloproof_dagster.build_definitions(here, sandbox=mine)\n"
    ),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of which a run is recorded that decided nothing, and so exited with 0."""
    root = write_project(tmp_path_factory.mktemp("measured"), cases=[case(1)])
    with home(root) as till:
        assert till.run().success
    return root


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", BAD_DEFINITIONS)
def test_definitions_that_cannot_run_never_show_an_older_result(what: str, oloproof: Command, measured: Path) -> None:
    (measured / "definitions.py").write_text(BAD_DEFINITIONS[what])
    assert_one_line(oloproof("run", "--json", "--project", measured))


# Users' mistakes

SHARED = """
version: 1
project: till
dataset: data/cases.jsonl
system: {name: till, version: v1, callable: app:till}
sandbox: {shared: true}
evaluators: [{type: state_matches}]
"""
MISTAKES: dict[str, tuple[Mapping[str, str], list[str], str]] = {
    "no project": ({"oloproof.yaml": ""}, ["run", "--project", "nowhere"], "oloproof init"),
    "a key that is none": ({"oloproof.yaml": "version: 1\nprojct: x\n"}, ["run"], "oloproof.yaml:"),
    "a case that is none": ({"data/cases.jsonl": '{"id": "a"}\n'}, ["run"], "data/cases.jsonl:1"),
    "a rule about nothing": (
        {"release.yaml": '{"version": 1, "rules": [{"id": "r", "metric": "polite", "min": 0.5}]}'},
        ["run"],
        "state_matches",
    ),
    "an agent that cannot be imported": ({"app.py": "import nowhere\n"}, ["run"], "nowhere"),
    "a version that was never run": ({}, ["run", "--version", "v0"], "v0"),
    "nothing recorded": ({}, ["inspect"], "v1"),
    "nothing to export": ({}, ["export"], "v1"),
    "a transform that is none": ({}, ["labels", "export", "--transform", "t"], "t"),
    "two workers on a shared sandbox": ({"oloproof.yaml": SHARED}, ["run", "--workers", "2"], "--workers 2"),
}


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", MISTAKES)
def test_a_users_mistake_is_one_line_on_stderr(
    what: str, oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, arguments, said = MISTAKES[what]
    write_project(tmp_path, files=files)
    monkeypatch.chdir(tmp_path)
    answer = oloproof(*arguments)
    assert_one_line(answer)
    assert said in answer.err


@pytest.mark.parametrize("arguments", [["nonsense"], ["run", "--nonsense"], ["run", "--workers", "0"], ["init"]])
def test_wrong_usage_exits_with_2(arguments: list[str], oloproof: Command) -> None:
    answer = oloproof(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err


def test_debug_shows_where_a_mistake_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["oloproof", "run", "--debug", "--project", str(tmp_path)])
    with pytest.raises(ConfigError):
        main()


@pytest.mark.parametrize(
    "command", ["init", "check", "run", "inspect", "ui", "labels export", "labels status", "versions", "export"]
)
def test_every_commands_help_has_an_example(command: str, oloproof: Command) -> None:
    answer = oloproof(*command.split(), "--help")
    assert answer.code == 0
    assert f"oloproof {command}" in answer.out
    assert command == "init" or "--project" in answer.out


# Starting a project


def test_an_example_is_copied_runs_and_is_never_overwritten(oloproof: Command, tmp_path: Path) -> None:
    assert "stateful-agent" in oloproof("init", "--example", "list").out
    root = tmp_path / "mine"
    assert oloproof("init", root, "--example", "stateful-agent").code == 0
    assert {path.name for path in EXAMPLE.iterdir()} - {"__pycache__", ".oloproof"} == {
        path.name for path in root.iterdir()
    }
    (root / "app.py").write_text("# mine\n")
    assert_one_line(oloproof("init", root, "--example", "stateful-agent"))
    assert (root / "app.py").read_text() == "# mine\n"


@pytest.mark.usefixtures("in_shared_home")
def test_a_project_is_written_around_a_system_and_checked(
    oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(COUNTED_TILL)
    assert oloproof("init", tmp_path, "--system", "shop:till").code == 0
    assert_one_line(oloproof("init", tmp_path, "--system", "shop:till"))
    (tmp_path / "data/cases.jsonl").write_text(json.dumps(case(1)) + "\n")
    answer = oloproof("check", "--project", tmp_path)
    assert answer.code == 0
    assert calls(tmp_path) == ["c-001"]
    assert not (tmp_path / ".oloproof" / "evidence").exists()


def test_check_says_what_is_missing_and_exits_with_1(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, app="def till(request):\n    print('noise')\n    return {'answer': 'added'}\n")
    answer = oloproof("check", "--project", root)
    assert answer.code == 1
    assert "state_matches" in answer.out
    assert "noise" not in answer.out


@pytest.mark.usefixtures("in_shared_home")
def test_registering_a_version_lets_dagsters_own_commands_run_it(
    oloproof: Command, tmp_path: Path, shared_home: Path
) -> None:
    root = write_project(tmp_path, suite={"project": "to be registered"})
    assert oloproof("versions", "--register", "--project", root).code == 0
    assert oloproof("versions", "--register", "--project", root).code == 0
    with dg.DagsterInstance.from_config(str(shared_home)) as instance:
        assert instance.get_dynamic_partitions("to_be_registered_system_version") == ["v1"]


# The instance


@pytest.mark.parametrize("home", ["relative/home", "/nowhere/at/all"])
def test_a_dagster_home_that_cannot_be_used_is_never_replaced_by_a_temporary_one(
    home: str, oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", home)
    answer = oloproof("run", "--project", write_project(tmp_path))
    assert_one_line(answer)
    assert "DAGSTER_HOME" in answer.err


def test_two_projects_run_in_one_process_have_a_home_each(oloproof: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        root = write_project(tmp_path / name, cases=[case(1)])
        assert oloproof("run", "--project", root).code == 0
        assert "DAGSTER_HOME" not in os.environ
        with dg.DagsterInstance.from_config(str(root / ".oloproof/dagster")) as instance:
            assert len(instance.get_runs()) == 1


# A kill in the middle of the cases


def test_a_killed_run_loses_no_finished_case_and_is_no_run_under_way(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        import time; time.sleep(0.1)\n')
    ids = [case(number)["id"] for number in range(1, 21)]
    root = write_project(tmp_path, app=app, cases=[case(number) for number in range(1, 21)], release=rules(NO_FAILURE))
    process = subprocess.Popen(
        [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=root,
    )
    noted = root / "calls"
    until(lambda: noted.exists() and len(noted.read_text().split()) >= 5, why=process.poll)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = calls(root)
    assert 5 <= len(before) < len(ids)

    answer = oloproof("run", "--json", "--project", root)
    assert answer.code == 0
    after = calls(root)
    assert after == ids[len(before) - 1 :] or after == ids[len(before) :]
    assert answer.document["cache"]["executions"] == {"hit": len(ids) - len(after), "miss": len(after)}
    with dg.DagsterInstance.from_config(str(root / ".oloproof/dagster")) as instance:
        statuses = [run.status for run in instance.get_runs()]
    assert statuses == [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]


# What a newcomer meets first


def test_errors_are_told_with_the_first_ones_text_and_that_they_are_used_again(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    broken = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        raise KeyError("API_KEY")\n')
    root = write_project(tmp_path, app=broken, suite={"project": "keyless"}, release=rules(NO_FAILURE))
    for _ in range(2):
        answer = oloproof("run", "--project", root)
        assert (
            "3 of 3 executions ended in an error, the first: case 'c-001': KeyError: 'API_KEY' (app.py:" in answer.err
        )
        assert "--retry-errors" in answer.err
    assert "--retry-errors" not in oloproof("run", "--project", root, "--retry-errors").err


def test_an_interrupted_run_is_never_shown_as_one_without_failures(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    stopping = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if request["amount"] == 2:
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)
""",
    )
    root = write_project(tmp_path, app=stopping, suite={"project": "stopped"}, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 130
    answer = oloproof("inspect", "--project", root)
    assert "did not finish: 1 of 3 executions are made and no verdict is reached" in answer.err
    assert "0 of 3 cases have no failed and no missing verdict" in answer.out


def test_the_recorded_steps_of_a_case_are_shown(oloproof: Command, tmp_path: Path, in_shared_home: None) -> None:
    root = write_project(tmp_path, suite={"project": "shown"}, release=rules(NO_FAILURE))
    oloproof("run", "--project", root)
    assert 'tool_call add {"amount": 1}' in oloproof("inspect", "--project", root, "--case", "c-001").out


def test_a_port_that_something_listens_on_is_refused(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        answer = oloproof("ui", "--project", root, "--port", str(other.getsockname()[1]))
    assert_one_line(answer)
    assert "name another port" in answer.err


def test_what_is_recorded_is_kept_out_of_version_control(
    oloproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    assert oloproof("versions", "--project", root, "--register").code == 0
    assert (root / ".oloproof/.gitignore").read_text() == "*\n"


def test_a_system_that_ends_the_process_never_ends_it_green(tmp_path: Path) -> None:
    leaving = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        import os; os._exit(0)\n')
    root = write_project(tmp_path, app=leaving, release=rules(NO_FAILURE))
    done = subprocess.run(
        [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", root], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (70, "")
    assert "os._exit" in done.stderr


def test_a_reader_that_has_gone_away_looks_like_no_verdict(tmp_path: Path, in_shared_home: None) -> None:
    root = write_project(tmp_path, suite={"project": "unread"}, release=rules(NO_FAILURE))
    for more in ([], ["--json"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "oloproof_dagster.cli", "run", "--project", root, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 141


def test_integers_of_any_size_are_shown(oloproof: Command, tmp_path: Path, in_shared_home: None) -> None:
    number = "7" * 5000
    line = json.dumps(case(1)).replace('"other": "untouched"}, "expected"', f'"other": {number}}}, "expected"')
    root = write_project(tmp_path, cases=line + "\n", suite={"project": "long"}, release=rules(NO_FAILURE))
    oloproof("run", "--project", root)
    assert oloproof("inspect", "--project", root, "--failures").code == 0
    assert number in oloproof("inspect", "--project", root, "--json").out
