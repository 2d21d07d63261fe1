"""The tables of the pages: every one is the code's own, and every number in them is computed again."""

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import oloproof_dagster
from benchmarks.coverage_cells import cells
from oloproof_dagster.cli.main import cli
from oloproof_dagster.decision.intervals import clopper_pearson_missing_bounded
from oloproof_dagster.decision.spacing import spacing_bound
from oloproof_dagster.definitions import EXAMPLE
from oloproof_dagster.project.evaluator_keys import EvaluatorDeclaration
from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records import trajectory
from oloproof_dagster.records.faults import FAULT_RESULTS
from oloproof_dagster.records.reasons import DecisionReason, GateReason, VerdictReason
from oloproof_dagster.records.tables import TABLES
from oloproof_dagster.report.documents import DECISION, METRIC, SLICE
from oloproof_dagster.suite.cases import KEYS
from oloproof_dagster.wording import outwards
from tests.support.pages import REFERENCE, VERDICTS, table, tables
from tests.support.reader import forget_modules, oloproof


def column(name: str, at: int = 0) -> list[str]:
    return [row[at] for row in table(name)]


def models() -> dict[str, list[type[BaseModel]]]:
    """The models of the user's files and of recordings, by the tables that describe them."""
    project = load_project(EXAMPLE)
    suite, policy = type(project.suite), type(project.policy)
    assert project.policy is not None
    assert issubclass(policy, BaseModel)
    evaluators = {
        get_args(each.model_fields["type"].annotation)[0]: each for each in get_args(get_args(EvaluatorDeclaration)[0])
    }
    schedule = next(each for each in get_args(suite.model_fields["schedule"].annotation) if each is not type(None))
    found: dict[str, list[type[BaseModel]]] = {
        "keys of oloproof.yaml": [suite],
        "keys of system": [type(project.suite.system)],
        "keys of sandbox": [type(project.suite.sandbox)],
        "keys of retries": [Retries],
        "keys of transforms": [type(project.transforms[0])],
        "keys of schedule": [schedule],
        "keys of release.yaml": [policy],
        "keys of rules": [type(project.policy.rules[0])],
        "keys of every evaluator": [evaluators["python"].__mro__[1]],
        "keys of exact_match, contains": [evaluators.pop("exact_match"), evaluators.pop("contains")],
    }
    found |= {f"keys of {name}": [model] for name, model in evaluators.items()}
    for name in ("Trajectory", "Step", "ConstraintCheck", "Checkpoint", "Answer", "Usage"):
        found[f"fields of Agent{name}"] = [getattr(trajectory, f"Agent{name}")]
    return found


def default_of(field: Any) -> str:
    """A field's default as the pages write it."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return "defaults below"
    return "none" if default is None else json.dumps(default)


@pytest.mark.parametrize("name", models())
def test_a_table_of_keys_has_the_models_keys_and_defaults(name: str) -> None:
    is_evaluator = name == "keys of every evaluator" or any("type" in each.model_fields for each in models()[name])
    shared = models()["keys of every evaluator"][0].model_fields
    written = {row[0]: row[2] if name.startswith("keys") else row[1] for row in table(name)}
    for model in models()[name]:
        left_out = {"type", *(() if name == "keys of every evaluator" or not is_evaluator else shared)}
        named = {field.alias or key: field for key, field in model.model_fields.items()}
        fields = {key: default_of(field) for key, field in named.items() if key not in left_out}
        assert written == fields


def test_the_keys_of_a_case_are_those_that_are_read() -> None:
    assert tuple(column("keys of a case")) == KEYS


@pytest.mark.parametrize(
    ("name", "reasons"),
    [("verdict reasons", VerdictReason), ("decision reasons", DecisionReason), ("gate reasons", GateReason)],
)
def test_a_table_of_reason_codes_is_the_enumeration(name: str, reasons: Any) -> None:
    assert table(name) == [[reason.value, reason.meaning] for reason in reasons]


def test_the_faults_results_are_those_that_an_agent_sees() -> None:
    assert {fault: json.loads(result) for fault, result in table("fault results")} == FAULT_RESULTS


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield " ".join(path), command


COMMON = {"--project", "--debug", "--help"}


@pytest.mark.parametrize(("name", "command"), list(leaves(cli)), ids=lambda each: each if isinstance(each, str) else "")
def test_every_option_of_a_command_is_named(name: str, command: click.Command) -> None:
    options = {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)}
    assert set(column(f"options of {name}")) == options - COMMON
    assert "--debug" in options
    assert ("--project" in options) == (name != "init")


def test_no_command_is_described_that_is_not_there() -> None:
    described = {name.removeprefix("options of ") for name in tables(REFERENCE) if name.startswith("options of ")}
    assert described == {name for name, _ in leaves(cli)}


TYPES = {
    "string": "text",
    "large_string": "JSON text",
    "int64": "integer",
    "double": "number",
    "bool": "true or false",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_columns_is_the_tables_schema(name: str) -> None:
    schema = TABLES[name].schema
    assert [row[:3] for row in table(f"columns of {name}")] == [
        [each.name, TYPES[str(each.type)], "yes" if each.nullable else ""] for each in schema
    ]
    assert all(row[3] for row in table(f"columns of {name}"))


def test_the_public_names_are_listed() -> None:
    assert sorted(column("public names")) == sorted(oloproof_dagster.__all__)


def test_the_attributes_of_a_case_view_are_listed() -> None:
    from oloproof_dagster.evaluators.case import CaseEvidence
    from oloproof_dagster.records.schema import JSONText
    from oloproof_dagster.records.tables import SuiteRow

    empty = JSONText("{}")
    row = SuiteRow("c", "sha256:0", 1, empty, empty, empty, None, None, cluster="c")
    view = oloproof_dagster.CaseView(CaseEvidence(row, 0, None, None))
    assert set(column("attributes of CaseView")) == {name for name in dir(view) if not name.startswith("_")}


def test_the_exit_codes_are_all_there_are() -> None:
    from oloproof_dagster.cli.exit_codes import BROKEN_PIPE, CRASH, HUNG_UP, INTERRUPTED, TERMINATED, USAGE

    own = {USAGE, CRASH, BROKEN_PIPE, HUNG_UP, INTERRUPTED, TERMINATED}
    assert {int(code) for code in column("exit codes")} == VERDICTS | own


COUNTED_BY_REASON = (".missing", ".excluded")
ANY_JSON = (".output", ".expected", ".actual", ".trajectory", ".diverged")


def members(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of a document's members, a list's items under `[]`."""
    if isinstance(value, dict) and not path.endswith(COUNTED_BY_REASON + ANY_JSON):
        for key, member in value.items():
            yield from members(member, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict) and not path.endswith(ANY_JSON):
        for member in value:
            yield from members(member, f"{path}[]")
    else:
        yield path


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both documents of a run of the packaged example."""
    folder = tmp_path_factory.mktemp("documents") / "desk"
    shutil.copytree(EXAMPLE, folder)
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, args in (("release_run/v1", ["run", "--json"]), ("case_panels/v1", ["inspect", "--json"])):
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                oloproof(patch, [*args, "--project", str(folder)])
            printed[name] = json.loads(shown.getvalue())
    path = str(folder)
    if path in sys.path:
        sys.path.remove(path)
    forget_modules(folder)
    return printed


@pytest.mark.parametrize("schema", ["release_run/v1", "case_panels/v1"])
def test_a_documents_members_are_those_that_are_listed(schema: str, documents: dict[str, Any]) -> None:
    document = documents[schema]
    assert document["schema"] == schema
    listed = set(column(f"members of {schema}"))
    # What holds further members is listed where it may be null, and is met by itself where it is an empty list.
    holders = {name for name in listed if any(each.startswith((f"{name}.", f"{name}[]")) for each in listed)}
    empty = {name for name in members(document) if any(each.startswith(f"{name}[]") for each in listed)}
    rows = "cases[].verdicts[].compared[]"
    where_set = {"metrics[].caution", "slices[].caution"}
    where_set |= {f"{rows}.{name}" for name in ("n_differing", "cut", "expected_digest", "actual_digest")}
    where_set = (where_set & listed) - set(members(document))
    assert set(members(document)) - empty == listed - holders - where_set


def test_rows_of_the_release_run_have_the_listed_members_in_order() -> None:
    listed = column("members of release_run/v1")
    metric, piece = (*METRIC, "caution"), (*SLICE, "caution")
    for prefix, names in (("decisions[].", DECISION), ("metrics[].", metric), ("slices[].", piece)):
        assert [name.removeprefix(prefix) for name in listed if name.startswith(prefix)] == list(names)


# Numbers, computed again.


def test_the_lower_bounds_of_n_of_n_are_the_intervals() -> None:
    for n, *bounds in table("lower bounds", "statistics.md"):
        for fails, bound in enumerate(bounds):
            exact = clopper_pearson_missing_bounded(int(n) - fails, int(n), 0, 0.95)
            assert bound == outwards(exact.lower, "lower")


def test_the_number_of_cases_for_a_bar_is_the_smallest_that_reaches_it() -> None:
    for bar, *numbers in table("cases for a bar", "statistics.md"):
        for fails, number in enumerate(map(int, numbers)):
            reached = [clopper_pearson_missing_bounded(n - fails, n, 0, 0.95).lower for n in (number - 1, number)]
            assert reached[0] < float(bar) <= reached[1]


def test_the_lower_bounds_of_clusters_are_spacing_bounds() -> None:
    for pairs, alone, bound in table("lower bounds of clusters", "statistics.md"):
        found = spacing_bound({(2, 0, 0): int(pairs), (1, 0, 0): int(alone)}, 0.95)
        assert found is not None
        assert bound == outwards(found.lower, "lower")


def test_the_table_of_the_page_has_the_groups_of_the_grid() -> None:
    listed = [(group, list(members)) for group, members in groupby(cells(), key=lambda cell: cell.group)]
    assert [row[:3] for row in table("coverage", "statistics.md")] == [
        [group, f"{len(members):,}", f"{members[0].promised:g}"] for group, members in listed
    ]
