"""The packaged example on the command line: every command that reads a run, and both documents."""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from oloproof_dagster import load_run
from tests.support.command import EXAMPLE, Answer, Command, assert_one_line, in_a_process
from tests.support.runs import TABLES


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("example") / "desk"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns(".oloproof", "__pycache__"))
    with (root / "app.py").open("a") as stream:
        stream.write('print("loaded")\n')
    return root


@pytest.fixture(scope="module")
def blocked(desk: Path) -> Answer:
    """The first run of the example; not where a folder of the package's name might lie."""
    return in_a_process("run", "--json", "--project", desk, cwd=desk)


RELEASE_RUN: dict[str, Any] = {
    "schema": str, "project": str,
    "system": {"name": str, "version": str},
    "suite": {"id": str, "digest": str, "source_cases": int, "cases": int, "clusters": int},
    "gate": {"action": str, "exit_code": int, "reasons": [str]},
    "decisions": [{
        "rule_id": str, "metric": str, "state": str, "reasons": [str], "direction": str, "threshold": float,
        "estimate": float, "lower": float, "upper": float, "method": str, "n_eligible": int, "n_observed": int,
        "n_passed": int, "n_missing": int, "n_excluded": int, "n_clusters": int, "advice": str,
        "evidence": str,
    }],
    "metrics": [{
        "metric": str, "estimate": float, "lower": float, "upper": float, "confidence_level": float, "method": str,
        "n_eligible": int, "n_observed": int, "n_passed": int, "n_missing": int, "n_excluded": int, "n_clusters": int,
        "missing": Mapping, "excluded": Mapping, "noop_passed": int, "n_unexposed": int,
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
            "compared": [{
                "path": str, "expected": object, "actual": object, "absent": bool, "unexpected": bool, "matches": bool,
            }],
        }],
        "replays": [{"criterion": str, "control": str, "fault": str, "diverged": object}],
        "trajectory": object, "left_tasks": int, "left_threads": int,
    }],
}  # fmt: skip
WHERE_SET = {"$.cases.verdicts.compared": {"n_differing"}}
NULLABLE = {
    "estimate", "lower", "upper", "method", "n_clusters", "advice",
    "source_case", "transform", "error", "reason", "fault", "noop_passed", "n_unexposed",
}  # fmt: skip


def assert_shaped(value: Any, shape: Any, where: str = "$") -> None:
    """Exactly these keys, values of these types, null only where the format allows it."""
    if isinstance(shape, dict):
        keys = set(value) - WHERE_SET.get(where, set())
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
    with_noop = {row["metric"] for row in blocked.document["metrics"] if row["noop_passed"] is not None}
    relations = {"same_state_under_injected", "same_state_under_paraphrase"}
    assert with_noop == {"state_matches", "other_order_untouched", *relations}
    count_rules = [row for row in blocked.document["decisions"] if row["direction"] == "count"]
    assert [(row["threshold"], row["lower"], row["upper"], row["method"]) for row in count_rules] == [
        (0, None, None, None)
    ]


def test_what_the_agent_prints_goes_to_stderr(blocked: Answer) -> None:
    assert "loaded" in blocked.err
    assert "loaded" not in blocked.out
    assert blocked.out.lstrip().startswith("{")


def test_a_run_is_quiet_but_for_what_the_agent_says(blocked: Answer) -> None:
    before, _, _ = blocked.err.partition("Rules\n")
    assert set(before.split()) <= {"loaded"}


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
            (line,) = [line for line in shown.splitlines() if line.startswith(f"  {path}")]
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
    mended = in_a_process("run", "--json", "--project", root)
    assert mended.code == 0
    assert mended.document["gate"] == {"action": "ALLOW", "exit_code": 0, "reasons": []}
    assert mended.document["cache"]["executions"] == {"hit": 0, "miss": 72}

    old = oloproof("run", "--json", "--project", root, "--version", "scripted-1")
    assert old.code == 1
    assert old.document["decisions"] == blocked.document["decisions"]
    assert old.document["cache"] == {"executions": {"hit": 72, "miss": 0}, "replays": {"hit": 24, "miss": 0}}
    assert_one_line(oloproof("run", "--project", root, "--version", "scripted-1", "--fresh"))
    assert_one_line(oloproof("run", "--project", root, "--version", "scripted-9"))
