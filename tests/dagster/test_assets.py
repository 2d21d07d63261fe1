"""The release run as assets: partitions, what the pages show, and what each asset's versions stand for."""

import json
from pathlib import Path

import dagster as dg
import pytest

from oloproof_dagster import build_definitions, load_run
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, DECLARED, RECOVERY, TABLES, Home, home


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


@pytest.mark.slow
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
    "a transform's bar": ("oloproof.yaml", '"minimum_validity": 0.5', '"minimum_validity": 0.6', {"decisions"}),
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


@pytest.mark.parametrize("job", ["release_run", "rejudge"])
def test_the_jobs_are_never_retried(till: Home, job: str) -> None:
    assert till.definitions().resolve_job_def(f"till_{job}").tags["dagster/max_retries"] == "0"
