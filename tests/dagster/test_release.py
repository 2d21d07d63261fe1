"""What runs behind a Gate: only what was judged, under the rules, labels and evaluators that it was judged by."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from oloproof_dagster import build_definitions, gated_asset, load_run, require_gate
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.project import load_project
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.transforms import expand
from tests.dagster.test_automation import BUILT
from tests.support.former import as_an_earlier_release_wrote_it
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, RECOVERY, Home, Result, home

PARTITIONS = dg.DynamicPartitionsDefinition(name="till_system_version")
SUITE = {
    "evaluators": [
        {"type": "state_matches"},
        RECOVERY,
        {"type": "python", "criterion": "good", "callable": "checks:is_good"},
        {"type": "metamorphic_relation", "relation": "same_state", "transform": "polite"},
    ],
    "metamorphic": {"transforms": [{
        "name": "polite", "version": 1, "field": "note", "template": "{value} Thanks.",
        "validity_labels": "labels/polite.jsonl", "minimum_validity": 0.1,
    }]},
}  # fmt: skip
GOOD = {"checks.py": "def is_good(case):\n    return True\n", "labels/polite.jsonl": ""}


def released(home: Home, **options: Any) -> tuple[dg.AssetsDefinition, list[str]]:
    """An asset behind the Gate, and the versions that its body ran for."""
    ran: list[str] = []

    @gated_asset(home.root, name="deploy", **options)
    def deploy(context: dg.AssetExecutionContext) -> None:
        ran.append(context.partition_key)

    return deploy, ran


def alone(home: Home, version: str = "v1") -> str:
    """Why the asset, materialised alone for a version, did not run; empty where it did."""
    deploy, ran = released(home)
    result = home.run(version, definitions=home.definitions(deploy), select=[deploy.key])
    assert result.success == (ran == [version])
    return "" if result.success else description(result)


def description(result: Result) -> str:
    (event,) = [each for each in result.dagster.all_events if each.is_step_failure]
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data.description or ""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A till whose Gate allows, judged on everything that a Gate can stand on."""
    root = tmp_path_factory.mktemp("judged") / "till"
    write_project(root, app=COUNTED_TILL, suite=SUITE, release=rules(NO_FAILURE), files=GOOD)
    project = load_project(root)
    pairs = [row for row in expand(project, read_cases(project)) if row.pair_digest]
    labels = [{"case": row.case_id, "digest": row.pair_digest, "kept": True} for row in pairs]
    (root / "labels/polite.jsonl").write_text("".join(json.dumps(each) + "\n" for each in labels))
    with home(root) as till:
        result = till.run()
        assert result.success, result.why
    return root


@pytest.fixture
def till(judged: Path, tmp_path: Path) -> Iterator[Home]:
    with home(Path(shutil.copytree(judged, tmp_path / "till"))) as found:
        yield found


def fewer_cases(root: Path) -> None:
    path = root / "data/cases.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edited(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return edited


def without_evidence(root: Path) -> None:
    shutil.rmtree(root / ".oloproof/evidence/v1")


def without_recordings(root: Path) -> None:
    (root / ".oloproof/evidence/v1/trajectories.parquet").unlink()


def rejected(root: Path) -> None:
    line = {"rule": "rule_0", "evidence": "sha256:0", "by": "Ada", "approve": False}
    (root / "reviews.jsonl").write_text(json.dumps(line) + "\n")


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "every label set to not kept": (
        edit("labels/polite.jsonl", '"kept": true', '"kept": false'), "the labels, or what is asked of them, were"
    ),
    "another bar for labels": (
        edit("oloproof.yaml", '"minimum_validity": 0.1', '"minimum_validity": 0.9'), "the labels, or what is asked"
    ),
    "a defective agent under the same version": (
        edit("app.py", '+ request["amount"]', '+ request["amount"] + 1'), "the agent's code was edited"
    ),
    "edited evaluators": (
        edit("oloproof.yaml", '{"type": "state_matches"}', '{"type": "state_matches", "ignore_paths": ["balance"]}'),
        "the evaluators, or the code of a python check, were edited",
    ),
    "an edited check": (edit("checks.py", "return True", "return 1 == 1"), "the evaluators, or the code of a python"),
    "a shorter dataset": (fewer_cases, "the dataset, or what it is expanded by, was edited"),
    "another expectation": (edit("data/cases.jsonl", '"balance": 2,', '"balance": 3,'), "the dataset, or what it"),
    "another transform": (edit("oloproof.yaml", "Thanks.", "Cheers."), "the dataset, or what it is expanded by"),
    "another declaration": (
        edit("oloproof.yaml", "version: 1\n", 'version: 1\nretries: {"max": 1, "on": ["OSError"]}\n'),
        "the system's declaration in oloproof.yaml was edited",
    ),
    "a review": (rejected, "the reviews were edited"),
    "another policy": (edit("release.yaml", '"max_failures": 0', '"max_failures": 3'), "release.yaml was edited"),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_what_was_edited_since_is_not_released_and_is_named(what: str, till: Home) -> None:
    assert alone(till) == ""
    change, sentence = EDITS[what]
    change(till.root)
    why = alone(till)
    assert why.startswith(f"not released: {sentence}")
    assert why.endswith(
        "after the Gate of system version 'v1' was decided; run till_release_run for 'v1' again"
    )  # fmt: skip


def test_what_is_decided_again_is_released_again(till: Home) -> None:
    edit("checks.py", "return True", "return 1 == 1")(till.root)
    edit("app.py", '"done"', '"over"')(till.root)
    assert alone(till) != ""
    assert till.run().success
    assert alone(till) == ""


def test_a_removed_evidence_folder_releases_nothing(till: Home) -> None:
    without_evidence(till.root)
    assert alone(till) == "not released: no Gate was decided for system version 'v1', or its evidence was removed"


def test_a_removed_table_releases_nothing(till: Home) -> None:
    without_recordings(till.root)
    assert alone(till).startswith("not released: the recorded trajectories were removed after the Gate")


@pytest.mark.parametrize(
    "edited",
    [
        ("data/cases.jsonl", '{"id": "c-001", "input"', '{"id":  "c-001", "input"'),
        ("release.yaml", '{"version"', '# why\n{"version"'),
        ("oloproof.yaml", "version: 1\n", 'version: 1\nslices: ["first_tool"]\n'),
        ("oloproof.yaml", "version: 1\n", 'version: 1\nsandbox: {"workers": 2}\n'),
    ],
    ids=["a space in the dataset", "a comment in the policy", "a slice", "more workers"],
)
def test_an_edit_that_changes_nothing_that_was_judged_revokes_nothing(edited: tuple[str, str, str], till: Home) -> None:
    edit(*edited)(till.root)
    assert alone(till) == ""


@pytest.mark.parametrize("table", ["trajectories", "fault_replays", "verdicts", "metrics", "decisions"])
def test_a_table_made_again_with_equal_rows_revokes_nothing(table: str, till: Home) -> None:
    load_run(till.root).table(table).path.unlink()
    keys = [till.key(table)] + ([till.key("environment_states")] if table == "trajectories" else [])
    assert till.run(select=keys).success
    assert alone(till) == ""


def test_a_gate_alone_never_vouches_for_tables_that_were_not_made_of_each_other(till: Home) -> None:
    edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')(till.root)
    keys = [till.key(name) for name in ("trajectories", "environment_states", "fault_replays")]
    assert till.run(select=keys).success
    assert "the agent's code was edited" in alone(till)
    gate = till.run(select=[till.key("gate")])
    assert description(gate) == (
        "the recorded verdicts were made of other trajectories than are recorded now; materialize verdicts and what"
        " comes after it again"
    )
    assert "the agent's code was edited" in alone(till)
    assert not till.run(select=[till.key(name) for name in ("verdicts", "metrics", "decisions", "gate")]).success
    assert "says BLOCK" in alone(till)


def test_a_gate_alone_never_vouches_for_evaluators_or_a_dataset_that_nothing_was_judged_by(till: Home) -> None:
    edit("checks.py", "return True", "return 1 == 1")(till.root)
    fewer_cases(till.root)
    till.run(select=[till.key("gate")])
    assert "the evaluators, or the code of a python check, were edited" in alone(till)
    edit("checks.py", "return 1 == 1", "return True")(till.root)
    assert "the dataset, or what it is expanded by, was edited" in alone(till)


def test_an_old_version_is_released_by_its_tables_and_by_the_rules_labels_and_evaluators_of_now(till: Home) -> None:
    edit("oloproof.yaml", '"v1"', '"v2"')(till.root)
    edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')(till.root)
    fewer_cases(till.root)
    assert alone(till) == ""
    for what in ("another policy", "every label set to not kept", "an edited check"):
        EDITS[what][0](till.root)
    assert "release.yaml was edited" in alone(till)
    assert till.run("v1").success
    assert alone(till) == ""
    load_run(till.root, "v1").table("environment_states").path.unlink()
    assert "the recorded environment_states were removed" in alone(till)


def test_a_version_decided_while_another_was_declared_is_decided_again_once_it_is_declared_again(till: Home) -> None:
    edit("oloproof.yaml", '"v1"', '"v2"')(till.root)
    assert till.run("v1").success
    edit("oloproof.yaml", '"v2"', '"v1"')(till.root)
    assert "the system's declaration" in alone(till)
    assert till.run().success
    assert alone(till) == ""


def test_a_gate_of_an_earlier_release_does_not_say_what_it_stands_on_and_is_decided_again(till: Home) -> None:
    as_an_earlier_release_wrote_it(load_run(till.root).table("gate").path, without=("basis",))
    assert "does not say what it was decided on; run till_release_run for 'v1' again" in alone(till)
    assert till.run().success
    assert alone(till) == ""


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
def test_the_code_of_a_system_that_is_built_from_resources_counts(till: Home) -> None:
    built = BUILT.replace("surcharge=1", "surcharge=0")
    (till.root / "definitions.py").write_text(built)
    deploy, ran = released(till)

    def run(**options: Any) -> Result:
        own = project_definitions(load_project(till.root))
        return till.run(definitions=dg.Definitions.merge(own, dg.Definitions(assets=[deploy])), **options)

    first = run()
    assert first.success, first.why
    assert run(select=[deploy.key]).success
    (till.root / "definitions.py").write_text(built + "\n# another\n")
    assert "the agent's code was edited" in description(run(select=[deploy.key]))
    assert ran == ["v1", "v1"]


# require_gate, called by an asset of any make


@dg.asset(partitions_def=PARTITIONS, deps=[dg.AssetKey(["till", "gate"])])
def promote(context: dg.AssetExecutionContext) -> None:
    require_gate(context)


def outside(home: Home, asset: dg.AssetsDefinition = promote) -> Result:
    """The asset in a code location that has no gate, as dg.materialize runs it."""
    home.instance.add_dynamic_partitions("till_system_version", ["v1"])
    return Result(
        dg.materialize([asset], instance=home.instance, partition_key="v1", raise_on_error=False, selection=[asset])
    )


def test_it_finds_project_and_evidence_by_the_gates_definition(till: Home) -> None:
    elsewhere = till.root / "elsewhere"
    shutil.move(till.root / ".oloproof/evidence", elsewhere)
    both = dg.Definitions.merge(build_definitions(till.root, evidence_root=elsewhere), dg.Definitions(assets=[promote]))
    assert till.run(definitions=both, select=[promote.key]).success
    edit("app.py", '"done"', '"over"')(till.root)
    assert "the agent's code was edited" in description(till.run(definitions=both, select=[promote.key]))


def test_it_finds_them_by_the_gates_materialization_where_the_definition_is_elsewhere(till: Home) -> None:
    refused = description(outside(till))
    assert refused == (
        "not released: require_gate does not find the project of till/gate; pass project=, the folder of its"
        " oloproof.yaml"
    )
    assert till.run().success
    assert outside(till).success
    edit("app.py", '"done"', '"over"')(till.root)
    assert "the agent's code was edited" in description(outside(till))


def test_it_takes_the_project_and_the_evidence_that_it_is_given(till: Home) -> None:
    evidence = till.root / "elsewhere"
    shutil.move(till.root / ".oloproof/evidence", evidence)

    @dg.asset(partitions_def=PARTITIONS)
    def given(context: dg.AssetExecutionContext) -> None:
        require_gate(context, gate=["till", "gate"], project=till.root, evidence_root=evidence)

    assert outside(till, given).success


def test_the_gate_shows_what_it_stands_on(till: Home) -> None:
    shown = till.run().said("gate")["stands_on"]
    assert set(shown) == {"policy", "labels", "reviews", "evaluators", "suite", "system", "code", "tables"}
    assert shown["tables"]["trajectories"] == load_run(till.root).table("trajectories").content


def test_files_that_cannot_be_used_release_nothing(till: Home) -> None:
    edit("data/cases.jsonl", '"input"', '"inputs"')(till.root)
    assert alone(till).startswith("data/cases.jsonl:1: ")


def test_a_case_of_the_dataset_put_in_another_place_is_another_suite(till: Home) -> None:
    with (till.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4)) + "\n")
    assert "the dataset" in alone(till)
