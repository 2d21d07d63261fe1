"""The release run as assets: partitions, what each asset's versions stand for, what is reused, and what is refused."""

import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from oloproof_dagster import EvidenceError, build_definitions, load_project, load_run
from oloproof_dagster.evidence.parquet import Index
from oloproof_dagster.execution.execute import RecordedExecutions
from oloproof_dagster.project.evidence_place import evidence_of
from tests.support.interrupts import interruptible
from tests.support.projects import case, write_project
from tests.support.runs import COUNTED_TILL, NO_FAILURE, TABLES, Home, home, rules

RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
DECLARED: dict[str, Any] = {"evaluators": [{"type": "state_matches"}, RECOVERY], "slices": ["first_tool"]}
EXECUTED = [case(number)["id"] for number in range(1, 4)]


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Home]:
    """Three cases of a till that notes its calls, judged on state and on recovery, with a rule that passes."""
    write_project(tmp_path / "till", app=COUNTED_TILL, suite=DECLARED, release=rules(NO_FAILURE))
    with home(tmp_path / "till") as found:
        yield found


def rule_states(home: Home, version: str | None = None) -> dict[str, str]:
    frame = load_run(home.root, version).decisions
    return dict(zip(frame.rule_id, frame.state, strict=True))


# Partitions and what the pages show


def test_a_release_run_is_one_partition_of_every_asset(till: Home) -> None:
    assert till.run().success
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    assert till.run().success
    for table in TABLES:
        assert till.instance.get_materialized_partitions(till.key(table)) == {"v1", "v2"}


def test_every_asset_says_what_its_rows_are_and_how_many_it_holds(till: Home) -> None:
    result = till.run()
    graph = till.definitions().resolve_asset_graph()
    assert {key.path[-1] for key in graph.get_all_asset_keys()} == set(TABLES)
    for table in TABLES:
        node = graph.get(till.key(table))
        assert node.description
        assert node.kinds == {"parquet"}
        assert node.group_name in {"suite", "execution", "judgment", "release"}
        assert node.partitions_def == dg.DynamicPartitionsDefinition(name="till_system_version")
        columns = {column.name for column in node.metadata["dagster/column_schema"].columns}
        stored = load_run(till.root).table(table)
        assert columns == set(stored.frame().columns)
        assert result.said(table)["dagster/row_count"] == len(stored)


def test_the_numbers_that_plot_across_versions_are_numbers(till: Home) -> None:
    said = till.run().said("metrics")
    assert said["rate/state_matches"] == 1.0
    assert said["upper/state_matches"] == 1.0
    assert 0 < said["lower/state_matches"] < 1
    assert said["n_missing/state_matches"] == said["n_missing"] == 0
    assert (said["executed"], said["replayed"], said["answered_from_evidence"]) == (3, 6, 0)
    assert said["seconds"] > 0


def test_what_was_not_observed_is_left_out_of_the_plots_and_never_zero(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", cases=[case(1, expected={"answer": "added"})])
    with home(root) as till:
        said = till.run().said("metrics")
    assert not {name for name in said if name.partition("/")[0] in {"rate", "lower", "upper"}}


def test_text_of_the_agent_is_escaped_where_pages_show_it(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'self.state["balance"] = self', 'self.state["<b>x</b> | [y](http://z)"] = 1; self.state["balance"] = self'
    )
    with home(write_project(tmp_path / "p", app=app)) as till:
        shown = till.run().said("verdicts")["failing_cases"]
    assert "<b>" not in shown
    assert "](http" not in shown
    assert "x" in shown


# Data versions


def test_equal_evidence_has_equal_data_versions_in_another_folder_and_another_attempt(
    till: Home, tmp_path: Path
) -> None:
    first = till.run()
    again = till.run(fresh=True)
    other = write_project(tmp_path / "other", app=COUNTED_TILL, suite=DECLARED, release=rules(NO_FAILURE))
    with home(other) as elsewhere:
        copied = elsewhere.run()
    for table in TABLES:
        assert first.data_version(table) == again.data_version(table) == copied.data_version(table)


# Code versions: what marks which assets as changed

SUITE = {
    "metamorphic": {
        "transforms": [
            {
                "name": "please",
                "version": 1,
                "field": "note",
                "template": "Please: {value}",
                "validity_labels": "labels.jsonl",
                "minimum_validity": 0.5,
            }
        ]
    },
    "evaluators": [
        {"type": "state_matches"},
        {**RECOVERY, "escalate_tools": []},
        {"type": "python", "criterion": "checked", "callable": "checks:is_good"},
    ],
    "slices": ["first_tool"],
    "min_slice_support": 30,
    "schedule": {"cron": "0 2 * * *", "timezone": "UTC"},
}
EDITS: dict[str, tuple[str, str, str, set[str]]] = {
    "the dataset": ("data/cases.jsonl", "untouched", "unchanged", {"cases"}),
    "a transform": ("oloproof.yaml", "Please: {value}", "Kindly: {value}", {"transformed_cases"}),
    "a transform's bar": ("oloproof.yaml", '"minimum_validity": 0.5', '"minimum_validity": 0.6', set()),
    "labels": ("labels.jsonl", "true", "false", {"decisions"}),
    "the system's version": ("oloproof.yaml", '"v1"', '"v2"', set()),
    "the system's files": ("app.py", "done", "over", set()),
    "a plan of faults": ("oloproof.yaml", '"fault": "error"', '"fault": "timeout"', {"fault_replays", "verdicts"}),
    "what an evaluator makes of a replay": (
        "oloproof.yaml",
        '"escalate_tools": []',
        '"escalate_tools": ["call"]',
        {"verdicts"},
    ),
    "an evaluator": (
        "oloproof.yaml",
        '{"type": "state_matches"}',
        '{"type": "state_matches", "tolerance": 1}',
        {"verdicts"},
    ),
    "a criterion's name": (
        "oloproof.yaml",
        '{"type": "state_matches"}',
        '{"type": "state_matches"}, {"type": "contains"}',
        {"verdicts"},
    ),
    "a python check": ("checks.py", "True", "False", {"verdicts"}),
    "slices": ("oloproof.yaml", '["first_tool"]', '["metadata.kind"]', {"slices"}),
    "the support of slices": ("oloproof.yaml", "min_slice_support: 30", "min_slice_support: 3", {"slices"}),
    "the schedule": ("oloproof.yaml", "0 2 * * *", "0 3 * * *", set()),
    "a bar": ("release.yaml", '"max_failures": 0', '"max_failures": 1', {"decisions", "gate"}),
    "a rule's name": ("release.yaml", "rule_0", "rule_1", {"decisions", "gate"}),
    "what blocks": ("release.yaml", '"block_on": ["FAIL"]', '"block_on": []', {"decisions", "gate"}),
    "the confidence level": ("release.yaml", "0.95", "0.9", {"metrics", "slices", "decisions", "gate"}),
    "the least number of clusters": (
        "release.yaml",
        '"min_clusters": 20',
        '"min_clusters": 10',
        {"metrics", "slices", "decisions", "gate"},
    ),
}


def code_versions(root: Path) -> dict[str, str]:
    graph = build_definitions(root).resolve_asset_graph()
    return {key.path[-1]: str(graph.get(key).code_version) for key in graph.get_all_asset_keys()}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_marks_just_the_assets_that_it_changes(edit: str, tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        suite=SUITE,
        release=rules(NO_FAILURE, confidence_level=0.95, min_clusters=20, block_on=["FAIL"]),
        files={
            "checks.py": "def is_good(case):\n    return True\n",
            "labels.jsonl": json.dumps({"case": "c-001~please", "digest": "sha256:" + "0" * 64, "kept": True}),
        },
    )
    before = code_versions(root)
    name, old, new, marked = EDITS[edit]
    Home(root, None).edit(name, old, new)  # type: ignore[arg-type]
    after = code_versions(root)
    assert {table for table in TABLES if before[table] != after[table]} == marked


# Reuse


def test_a_second_run_executes_nothing_and_says_that_it_reused_every_table(till: Home) -> None:
    first = till.run()
    assert till.noted() == EXECUTED
    second = till.run()
    assert till.noted() == []
    for table in TABLES:
        assert first.said(table)["reused"] is False
        assert second.said(table)["reused"] is True
        assert second.data_version(table) == first.data_version(table)
        assert second.said(table)["dagster/row_count"] == first.said(table)["dagster/row_count"]
    assert second.said("trajectories")["answered_from_evidence"] == 3
    assert second.said("fault_replays")["answered_from_evidence"] == 6
    assert second.said("trajectories")["executed"] == second.said("fault_replays")["replayed"] == 0


def test_a_table_whose_file_is_gone_is_made_again(till: Home) -> None:
    before = till.run()
    gone = ["cases", "environment_states", "fault_replays", "verdicts"]
    for table in gone:
        load_run(till.root).table(table).path.unlink()
    after = till.run()
    assert after.success
    # Both tables of a pass are written together, and nothing that still holds is touched.
    assert {table for table in TABLES if not after.said(table)["reused"]} == {*gone, "trajectories"}
    assert [after.data_version(table) for table in TABLES] == [before.data_version(table) for table in TABLES]


def test_a_new_instance_beside_old_evidence_executes_nothing_again(till: Home) -> None:
    till.run()
    till.noted()
    with home(till.root) as newcomer:
        assert newcomer.run().success
    assert till.noted() == []


REDECIDED: dict[str, tuple[Callable[[Home], None], set[str]]] = {
    "a bar": (lambda home: home.edit("release.yaml", '"max_failures": 0', '"max_failures": 3'), {"decisions"}),
    "an expectation": (
        lambda home: home.edit("data/cases.jsonl", '"state": {"balance": 2', '"state": {"balance": 7'),
        {"cases", "transformed_cases", "verdicts", "metrics", "slices", "decisions", "gate"},
    ),
    "an evaluator": (
        lambda home: home.edit(
            "oloproof.yaml", '"type": "state_matches"', '"type": "state_matches", "paths": ["other"]'
        ),
        {"verdicts", "metrics"},
    ),
}


@pytest.mark.parametrize("what", REDECIDED)
def test_what_is_not_given_to_the_system_is_decided_again_without_executing(till: Home, what: str) -> None:
    first = till.run()
    till.noted(), till.noted("replays")
    edit, changed = REDECIDED[what]
    edit(till)
    again = till.run()
    assert (till.noted(), till.noted("replays")) == ([], [])
    assert again.said("trajectories")["executed"] == again.said("fault_replays")["replayed"] == 0
    assert {table for table in TABLES if first.data_version(table) != again.data_version(table)} == changed


def test_slices_are_measured_again_without_executing(till: Home) -> None:
    till.run()
    till.noted()
    till.edit("oloproof.yaml", '["first_tool"]', '["tool_calls:1"]')
    again = till.run()
    assert till.noted() == []
    assert set(load_run(till.root).slices.value) == {"le_1"}
    assert {table for table in TABLES if not again.said(table)["reused"]} == {"slices"}


def test_labels_are_counted_again_without_executing(tmp_path: Path) -> None:
    cases = [case(number, input={"amount": number, "note": "add"}) for number in range(1, 4)]
    transform = {"name": "t", "field": "note", "template": "x {value}"}
    root = write_project(
        tmp_path,
        app=COUNTED_TILL,
        cases=cases,
        suite={
            "metamorphic": {"transforms": [transform | {"validity_labels": "labels.jsonl", "minimum_validity": 0.2}]},
            "evaluators": [{"type": "metamorphic_relation", "relation": "same_state", "transform": "t"}],
        },
        release=rules({"metric": "same_state_under_t", "max_failures": 0}),
        files={"labels.jsonl": ""},
    )
    with home(root) as till:
        till.run()
        assert len(till.noted()) == 6
        assert rule_states(till) == {"rule_0": "INSUFFICIENT_EVIDENCE"}
        suite = load_run(root).table("transformed_cases")
        (root / "labels.jsonl").write_text(
            "".join(
                json.dumps({"case": case_id, "digest": pair, "kept": True}) + "\n"
                for case_id, pair in suite.columns("case_id", "pair_digest")
                if pair
            )
        )
        again = till.run()
        assert till.noted() == []
        assert rule_states(till) == {"rule_0": "PASS"}
        assert {table for table in TABLES if not again.said(table)["reused"]} == {"cases", "decisions", "gate"}


def test_a_new_case_executes_that_case_alone(till: Home) -> None:
    till.run()
    till.noted()
    with (till.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4)) + "\n")
    result = till.run()
    assert till.noted() == ["c-004"]
    assert result.said("trajectories")["answered_from_evidence"] == 3


def test_an_edited_input_executes_that_case_alone(till: Home) -> None:
    till.run()
    till.noted(), till.noted("replays")
    till.edit("data/cases.jsonl", "Please add 2", "Do add 2")
    till.run()
    assert till.noted() == ["c-002"]
    assert till.noted("replays") == ["c-002", "c-002"]


# Versions


def test_a_new_version_executes_everything_and_leaves_the_old_one_to_be_read_and_decided_again(till: Home) -> None:
    till.run()
    till.noted()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    till.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    assert not till.run().success
    assert till.noted() == EXECUTED
    assert rule_states(till, "v1") == {"rule_0": "PASS"}
    assert rule_states(till, "v2") == {"rule_0": "FAIL"}

    till.edit("data/cases.jsonl", '"state": {"balance": 1,', '"state": {"balance": 2,')
    again = till.run("v1", job="rejudge")
    assert (till.noted(), again.failed_steps) == ([], {"till__gate"})
    assert again.materialized == {
        "cases", "transformed_cases", "verdicts", "metrics", "slices", "decisions", "gate"
    }  # fmt: skip
    assert rule_states(till, "v1") == {"rule_0": "FAIL"}
    verdicts = till.verdicts("v1")
    assert [verdicts[case_id, "state_matches"][0] for case_id in EXECUTED] == ["failed", "passed", "passed"]


def test_a_case_that_an_old_version_never_saw_is_missing_and_the_run_is_partial(till: Home) -> None:
    till.run()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    with (till.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4)) + "\n")
    till.noted()
    till.run("v1", job="rejudge")
    assert till.noted() == []
    verdicts = till.verdicts("v1")
    assert verdicts["c-004", "state_matches"] == ("missing", "system_version_not_loaded")
    assert verdicts["c-003", "state_matches"] == ("passed", None)
    gate = load_run(till.root, "v1").gate
    assert gate == {"action": "BLOCK", "exit_code": 5, "reasons": ["partial_run"]}


def test_a_version_of_which_nothing_is_recorded_is_refused_and_never_passed(till: Home) -> None:
    result = till.run("v0", job="rejudge")
    assert result.failed_steps == {"till__verdicts"}
    assert "nothing is recorded of system version 'v0'" in result.why
    assert till.noted() == []
    assert load_run(till.root, "v0").gate is None


def test_a_version_whose_tables_are_gone_is_judged_missing_and_never_passed(till: Home) -> None:
    till.run()
    for table in ("trajectories", "environment_states", "fault_replays"):
        (till.root / ".oloproof/evidence/v1" / f"{table}.parquet").unlink()
    till.run("v1", job="rejudge")
    assert set(till.verdicts("v1").values()) == {("missing", "system_version_not_loaded")}
    gate = load_run(till.root, "v1").gate
    assert gate == {"action": "BLOCK", "exit_code": 5, "reasons": ["partial_run", "missing_evidence"]}


def test_an_edited_agent_under_its_old_version_is_executed_again_and_warned_of(till: Home) -> None:
    first = till.run()
    till.noted(), till.noted("replays")
    till.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    result = till.run()
    assert (till.noted(), len(till.noted("replays"))) == (EXECUTED, 6)
    assert "Bump system.version" in result.said("trajectories")["warnings"]
    changed = {table for table in TABLES if first.data_version(table) != result.data_version(table)}
    assert changed == set(TABLES) - {"cases", "transformed_cases"}
    assert "warnings" not in till.run().said("trajectories")


def test_a_file_that_the_agent_imports_counts_as_the_agent(tmp_path: Path) -> None:
    app = COUNTED_TILL + "import prices\n"
    root = write_project(tmp_path, app=app, files={"prices.py": "one = 1\n", "unrelated.py": "two = 2\n"})
    with home(root) as till:
        till.run()
        till.noted()
        till.edit("unrelated.py", "2", "3")
        till.run()
        assert till.noted() == []
        till.edit("prices.py", "1", "2")
        till.run()
        assert till.noted() == EXECUTED


@pytest.mark.parametrize(
    "versions",
    [
        ["v1/v2", "v1", "feature/x"],
        ["V1", "v1"],
        ["v" * 200, "v" * 199 + "w"],
        [unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")],
        ["..", "../v1", "a b", "a%20b", "con*"],
    ],
    ids=["slashes", "letter case", "200 characters", "NFC and NFD", "specials"],
)
def test_versions_that_look_alike_to_a_file_system_are_kept_apart(tmp_path: Path, versions: list[str]) -> None:
    root = write_project(tmp_path / "project", cases=[case(1)], app=COUNTED_TILL, release=rules(NO_FAILURE))
    with home(root) as till:
        for number, version in enumerate(versions):
            write_project(root, cases=[case(1)], app=COUNTED_TILL, suite={"system": {
                "name": "till", "version": version, "callable": "app:till"
            }}, release=rules(NO_FAILURE))  # fmt: skip
            till.edit("app.py", 'return {"answer": "added"', f'return {{"answer": "{number}"')
            assert till.run().success
            assert till.noted() == ["c-001"]
        for number, version in enumerate(versions):
            assert list(load_run(root, version).table("trajectories").frame().output) == [f'{{"answer":"{number}"}}']
        assert till.run(versions[0], job="rejudge").success
        assert till.instance.get_materialized_partitions(till.key("gate")) == set(versions)
    inside = (root / ".oloproof/evidence").resolve()
    assert all(path.resolve().is_relative_to(inside) for path in tmp_path.rglob("*.parquet"))
    assert len({path.name.casefold() for path in inside.iterdir()}) == len(versions)


def test_ids_of_any_characters_are_kept_apart(tmp_path: Path) -> None:
    ids = ["a/b", "a|b", "a b", "../a", "x" * 300, "é", unicodedata.normalize("NFD", "é"), "A", "a", "<i>", "ナ", "\t"]
    root = write_project(tmp_path, app=COUNTED_TILL, cases=[case(n, id=id_) for n, id_ in enumerate(ids, 1)])
    with home(root) as till:
        assert till.run().success
        assert len(till.noted()) == len(ids)
        assert {key: status for (key, _), (status, _) in till.verdicts().items()} == dict.fromkeys(ids, "passed")
        till.run()
        assert till.noted() == []
    for id_ in ids:
        assert load_run(root).case(id_).case.case_id == id_


@pytest.mark.parametrize("job", ["release_run", "rejudge"])
def test_the_jobs_are_never_retried(till: Home, job: str) -> None:
    assert till.definitions().resolve_job_def(f"till_{job}").tags["dagster/max_retries"] == "0"


# Refused before the first case


def test_a_version_that_is_not_the_current_one_is_refused_before_the_first_case(till: Home) -> None:
    result = till.run("v0")
    assert result.failed_steps == {"till_execution"}
    assert "'v0'" in result.why
    assert "'v1'" in result.why
    assert till.noted() == []
    assert "gate" not in result.materialized


def test_a_version_that_is_not_registered_is_refused_before_the_first_case(till: Home) -> None:
    till.run()
    till.noted()
    result = till.run("v2", register=False)
    assert result.failed_steps == {"till__cases"}
    assert "'v2' is not registered" in result.why
    assert "'v1'" in result.why
    assert till.noted() == []
    assert not load_run(till.root).evidence.folder("v2").exists()


@pytest.mark.parametrize(
    ("asset", "step"), [("trajectories", "till_execution"), ("fault_replays", "till__fault_replays")]
)
def test_executing_and_replaying_refuse_an_old_version_each_for_itself(till: Home, asset: str, step: str) -> None:
    till.run()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    keys = [till.key("trajectories"), till.key("environment_states")] if asset == "trajectories" else [till.key(asset)]
    result = till.run("v1", select=keys)
    assert result.failed_steps == {step}
    assert "'v1'" in result.why
    assert "'v2'" in result.why


BROKEN: dict[str, tuple[str, str, str]] = {
    "a case that is no case": ("data/cases.jsonl", '"input"', '"inputs"'),
    "an agent that cannot be imported": ("app.py", "class Till:", "import nowhere\nclass Till:"),
    "a system without the replay that an evaluator needs": ("app.py", "def replay", "def replayed"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_users_mistake_fails_the_first_step_and_executes_nothing(till: Home, what: str) -> None:
    till.edit(*BROKEN[what])
    result = till.run()
    assert result.failed_steps == {"till__cases"}
    assert "ConfigError" in result.why
    assert till.noted() == []


# Attempts


def test_a_fresh_run_executes_and_replays_everything_and_keeps_the_former_attempt_readable(till: Home) -> None:
    first = till.run()
    till.noted(), till.noted("replays")
    result = till.run(fresh=True)
    assert (till.noted(), len(till.noted("replays"))) == (EXECUTED, 6)
    assert result.said("trajectories")["executed"] == 3
    for attempt in (None, 1):
        run = load_run(till.root, "v1", attempt)
        assert till.verdicts("v1", attempt)["c-001", "state_matches"] == ("passed", None)
        assert len(run.table("fault_replays")) == 6
        assert run.table("trajectories").content == first.data_version("trajectories")
    assert load_run(till.root, "v1", 1).table("trajectories").path != load_run(till.root).table("trajectories").path
    with pytest.raises(EvidenceError, match="attempt 3"):
        load_run(till.root, "v1", 3)


FAILING_ONCE = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        stop = pathlib.Path(__file__).with_name("stop")
        if stop.exists() and current_case().id == "c-002":
            from tests.support.interrupts import ctrl_c
            stop.unlink()
            ctrl_c()
""",
)


@pytest.mark.parametrize("fresh_again", [True, False])
def test_an_attempt_that_was_interrupted_is_resumed_by_the_next_run_fresh_or_not(
    tmp_path: Path, fresh_again: bool
) -> None:
    root = write_project(tmp_path, app=FAILING_ONCE)
    with home(root) as till:
        till.run()
        till.noted()
        (root / "stop").touch()
        with interruptible():
            assert not till.run(fresh=True).success
        assert till.noted() == ["c-001", "c-002"]
        assert till.run(fresh=fresh_again).success
        assert till.noted() == ["c-002", "c-003"]
        assert load_run(root, "v1", 1).metrics.n_passed.tolist() == [3]
        till.run()
        assert till.noted() == []


def test_recorded_errors_are_evidence_until_they_are_asked_to_be_repeated(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if current_case().id == "c-002" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, files={"down": ""})
    with home(root) as till:
        till.run()
        assert till.verdicts()["c-002", "state_matches"] == ("missing", "execution_error")
        till.noted()
        (root / "down").unlink()
        assert till.run().said("trajectories")["n_errors"] == 1
        assert till.noted() == []
        result = till.run(retry_errors=True)
        assert till.noted() == ["c-002"]
        assert result.said("trajectories")["n_errors"] == 0
        assert till.verdicts()["c-002", "state_matches"] == ("passed", None)
        till.run(retry_errors=True)
        assert till.noted() == []


def test_recorded_errors_of_replays_are_repeated_when_asked(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("replays")\n',
        """note("replays")
        if change.kind == "inject_fault" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, suite={"evaluators": [RECOVERY]}, files={"down": ""})
    with home(root) as till:
        till.run()
        assert set(till.verdicts().values()) == {("missing", "replay_error")}
        (root / "down").unlink()
        till.noted(), till.noted("replays")
        till.run()
        assert till.noted("replays") == []
        assert till.run(retry_errors=True).said("fault_replays")["replayed"] == 3
        assert (till.noted(), till.noted("replays")) == ([], EXECUTED)
        assert {reason for _, reason in till.verdicts().values()} == {"acted_wrongly"}


# Files edited while a code location lives


def test_a_code_location_older_than_the_declared_system_does_not_execute(till: Home) -> None:
    loaded = till.definitions()
    till.edit("oloproof.yaml", '"app:till"', '"other:till"')
    (till.root / "other.py").write_text("from app import till\n")
    result = till.run(definitions=loaded)
    assert not result.success
    assert "reload the code location" in result.why
    assert till.noted() == []


def test_a_code_location_older_than_the_version_refuses_to_execute_for_either(till: Home) -> None:
    loaded = till.definitions()
    till.edit("oloproof.yaml", '"v1"', '"v2"')
    old, new = till.run("v1", definitions=loaded), till.run("v2", definitions=loaded)
    assert not old.success
    assert not new.success
    assert "reload the code location" in new.why
    assert till.noted() == []


def test_a_code_location_reads_the_agents_files_as_they_are_and_records_whose_evidence_it_is(till: Home) -> None:
    loaded = till.definitions()
    till.run(definitions=loaded)
    till.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    till.noted()
    result = till.run(definitions=loaded)
    assert till.noted() == EXECUTED
    assert "Bump" in result.said("trajectories")["warnings"]
    assert till.verdicts()["c-001", "state_matches"] == ("failed", None)
    assert till.run().said("trajectories")["reused"] is True


def test_a_check_edited_after_loading_is_asked_again_and_its_former_answers_come_back_with_it(tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        suite={"evaluators": [{"type": "python", "criterion": "good", "callable": "checks:is_good"}]},
        files={"checks.py": "def is_good(case):\n    return True\n"},
    )
    with home(root) as till:
        loaded = till.definitions()
        till.run(definitions=loaded)
        till.edit("checks.py", "True", "False")
        till.run(definitions=loaded)
        assert {status for status, _ in till.verdicts().values()} == {"failed"}
        till.edit("checks.py", "False", "True")
        till.run()
        assert {status for status, _ in till.verdicts().values()} == {"passed"}


def test_what_is_edited_while_a_run_is_under_way_is_the_next_runs(tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        declared = pathlib.Path(__file__).with_name("oloproof.yaml")
        if current_case().id == "c-003":
            declared.write_text(declared.read_text().replace('"v1"', '"v2"'))
            pathlib.Path(__file__).write_text(pathlib.Path(__file__).read_text().replace("done", "over"))
""",
    )
    with home(write_project(tmp_path, app=app, suite=DECLARED, release=rules(NO_FAILURE))) as till:
        first = till.run()
        assert first.success
        assert (till.noted(), len(till.noted("replays"))) == (EXECUTED, 6)
        assert "done" in load_run(till.root, "v1").table("trajectories").frame().trajectory.iloc[0]
        assert {reason for _, reason in till.verdicts("v1").values()} == {None, "acted_wrongly"}
        second = till.run()
        assert till.noted() == EXECUTED
        assert "over" in load_run(till.root, "v2").table("trajectories").frame().trajectory.iloc[0]
        assert "warnings" not in second.said("trajectories")


def test_replays_materialised_alone_belong_to_the_recording_and_not_to_newer_files(till: Home) -> None:
    till.run()
    before = till.verdicts()
    till.edit("app.py", '"done"', '"over"')
    till.noted("replays")
    alone = till.run(select=[till.key("fault_replays")])
    assert alone.success
    assert till.noted("replays") == []
    till.run(job="rejudge")
    assert till.verdicts() == before


def test_a_replay_is_never_made_by_other_code_than_the_recording(till: Home) -> None:
    till.run()
    till.edit("app.py", '"done"', '"over"')
    till.edit("oloproof.yaml", '"fault": "error"', '"fault": "timeout"')
    till.noted("replays")
    alone = till.run(select=[till.key("fault_replays")])
    assert alone.failed_steps == {"till__fault_replays"}
    assert "the system's files changed" in alone.why
    assert till.noted("replays") == []


# A kill between the two tables of one pass

KILLED = """
import os, sys
import dagster as dg
from oloproof_dagster import build_definitions

root, fresh = sys.argv[1], sys.argv[2] == "fresh"
replace = os.replace

def killed(source, target, **more):
    if str(target).endswith(os.path.join("v1", "environment_states.parquet")):
        os._exit(9)
    replace(source, target, **more)

os.replace = killed
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions("till_system_version", ["v1"])
    build_definitions(root).resolve_job_def("till_release_run").execute_in_process(
        instance=instance,
        partition_key="v1",
        run_config={"ops": {"till_execution": {"config": {"fresh": fresh}}}},
    )
"""


@pytest.mark.parametrize("before", ["nothing", "the same agent", "another agent"])
def test_a_kill_between_the_two_tables_of_a_pass_loses_nothing_and_pairs_nothing_wrongly(
    till: Home, before: str
) -> None:
    if before != "nothing":
        till.run()
    if before == "another agent":
        till.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    till.noted(), till.noted("replays")
    fresh = "fresh" if before == "the same agent" else "not"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(till.root), fresh], capture_output=True, check=False, cwd=till.root
    )
    assert done.returncode == 9
    assert till.noted() == EXECUTED

    if before == "another agent":  # recordings of the new agent lie beside states of the old one
        till.run(job="rejudge")
        assert {till.verdicts()[case_id, "state_matches"] for case_id in EXECUTED} == {
            ("missing", "environment_state_unavailable")
        }
    result = till.run()
    assert till.noted() == []
    assert result.said("trajectories")["answered_from_evidence"] == 3
    status = "failed" if before == "another agent" else "passed"
    assert {till.verdicts()[case_id, "state_matches"] for case_id in EXECUTED} == {(status, None)}
    till.run()
    assert till.noted() == []


def test_the_agent_is_not_even_imported_for_evidence_that_is_there(tmp_path: Path) -> None:
    app = (
        COUNTED_TILL + 'with pathlib.Path(__file__).with_name("imports").open("a") as stream:\n    stream.write("x")\n'
    )
    with home(write_project(tmp_path, app=app, release=rules(NO_FAILURE))) as till:
        till.run()
        assert till.noted("imports") == ["x"]
        till.run()
        till.run(job="rejudge")
        assert till.noted("imports") == []


def test_tables_of_two_attempts_are_never_judged_as_one(till: Home) -> None:
    (till.root / "mode").write_text("0")
    till.edit("app.py", 'self.state.get("balance", 0) + request["amount"]', "request['amount'] + more()")
    till.edit(
        "app.py",
        "class Till:",
        "def more():\n    return int(pathlib.Path(__file__).with_name('mode').read_text())\n\n\nclass Till:",
    )
    till.run()
    states = till.root / ".oloproof/evidence/v1/environment_states.parquet"
    first = states.read_bytes()
    (till.root / "mode").write_text("7")
    till.run(fresh=True)
    states.write_bytes(first)  # as a kill between the two tables leaves them
    till.edit("oloproof.yaml", '"version": "v1"', '"version": "v2"')
    till.run("v1", job="rejudge")
    assert till.verdicts("v1")["c-001", "state_matches"] == ("missing", "environment_state_unavailable")


def test_a_run_that_was_partial_is_so_no_longer_once_the_case_is_executed(till: Home) -> None:
    till.run()
    with (till.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4) | {"expected": {}}) + "\n")
    till.edit("oloproof.yaml", '"version": "v1"', '"version": "v2"')
    till.run("v1", job="rejudge")
    assert (load_run(till.root, "v1").gate or {})["reasons"] == ["partial_run"]
    till.edit("oloproof.yaml", '"version": "v2"', '"version": "v1"')
    till.run()
    assert (load_run(till.root, "v1").gate or {})["action"] == "ALLOW"


def test_what_a_killed_retry_has_finished_is_kept_by_a_plain_run(till: Home) -> None:
    (till.root / "broken").write_text("")
    stop = '        if pathlib.Path(__file__).with_name("broken").exists(): raise OSError\n'
    till.edit("app.py", 'note("calls")\n', 'note("calls")\n' + stop)
    till.run()
    (till.root / "broken").unlink()
    evidence = evidence_of(load_project(till.root))
    attempt = evidence.attempt("v1")
    assert attempt is not None
    executions, states = (evidence.table(name, "v1") for name in ("trajectories", "environment_states"))
    finished = replace(next(executions.rows()), status="ok", error=None, output='{"answer":"added"}')
    with (
        closing(evidence.resume_log(attempt, "executions")) as parts,
        closing(Index(executions)) as former,
        closing(Index(states)) as left,
    ):
        RecordedExecutions(parts, former, left).keep(finished, next(states.rows()))
    till.run()
    assert [row.status for row in evidence.table("trajectories", "v1").rows()] == ["ok", "error", "error"]
