"""Worlds that many cases share, and patches: what a case starts from, and what it should change and nothing else."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.patches import patched
from oloproof_dagster.records.tables import CaseRow
from oloproof_dagster.suite.cases import dataset_digest, read_cases
from tests.support.engine import Engine
from tests.support.projects import write_project

WORLD = {"orders": {"o-1": {"status": "open", "note": "x"}, "o-2": {"status": "open"}}, "log": ["a", "b"]}
CLOSES = '''
class Desk:
    """Closes the orders that it is told to close."""

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, given):
        for order in given:
            self.state["orders"][order]["status"] = "closed"
        return None


desk = Desk()
'''


def project(root: Path, *cases: Mapping[str, Any], **suite: Any) -> Path:
    system = {"name": "desk", "version": "v1", "callable": "app:desk"}
    lines = [{"id": f"c-{n}", "input": ["o-1"]} | dict(each) for n, each in enumerate(cases)]
    files = {"data/worlds/shop.json": json.dumps(WORLD, indent=1)}
    return write_project(root, app=CLOSES, cases=lines, suite={"system": system, **suite}, files=files)


def read(root: Path) -> list[CaseRow]:
    return list(read_cases(load_project(root)))


SHOP = {"initial_state_file": "worlds/shop.json"}


def test_a_case_that_names_a_file_is_the_case_that_holds_its_state(tmp_path: Path) -> None:
    changed = WORLD | {"log": ["c"]}
    named, held, patch, same = read(
        project(
            tmp_path,
            SHOP,
            {"initial_state": WORLD},
            SHOP | {"initial_state_patch": {"log": ["c"]}},
            {"initial_state": changed},
        )
    )
    assert (named.digest, named.initial_state) == (held.digest, held.initial_state)
    assert (patch.digest, patch.initial_state) == (same.digest, same.initial_state)


def test_an_edit_of_the_file_is_an_edit_of_the_dataset(tmp_path: Path) -> None:
    root = project(tmp_path, SHOP)
    before = dataset_digest(load_project(root))
    (root / "data/worlds/shop.json").write_text("{}")
    assert dataset_digest(load_project(root)) != before


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (SHOP | {"initial_state": {}}, "`initial_state` and `initial_state_file` both say what the case starts from"),
        ({"initial_state_patch": {}}, "`initial_state_patch` goes with `initial_state_file`, which is not there"),
        ({"initial_state_file": 7}, "`initial_state_file` must be the path of a JSON file, found the number 7"),
        ({"initial_state_file": "../../x.json"}, "'../../x.json' lies outside of the project's folder"),
        ({"initial_state_file": "no.json"}, "data/no.json: there is no such file"),
        ({"initial_state_file": "cases.jsonl"}, "data/cases.jsonl:2: not JSON at column 1: extra data"),
        (SHOP | {"initial_state_patch": 1}, "must be an object (JSON Merge Patch) or a list of operations"),
        (
            SHOP | {"initial_state_patch": [{"op": "remove", "path": "/orders/o-9"}]},
            "cases.jsonl:1: case 'c-0': `initial_state_patch`: operation 0: there is no 'o-9' where the path leads",
        ),
        (
            SHOP | {"expected": {"state": {}, "state_patch": {}}},
            "`expected.state` and `expected.state_patch` both say what state is expected; remove one",
        ),
        ({"expected": {"state_patch": {}}}, "changes the initial state, and the case declares none"),
        (
            SHOP | {"expected": {"state_patch": [{"op": "put"}]}},
            "`expected.state_patch`: operation 0: must be an object",
        ),
    ],
)
def test_what_cannot_be_a_state_is_refused_with_its_place(case: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(project(tmp_path, case, SHOP))
    assert said in str(caught.value)


def test_an_expected_patch_says_what_changes_and_that_nothing_else_does(tmp_path: Path) -> None:
    closed = {"state_patch": {"orders": {"o-1": {"status": "closed"}}}}
    listed = {"state_patch": [{"op": "replace", "path": "/orders/o-1/status", "value": "closed"}]}
    root = project(
        tmp_path,
        SHOP | {"expected": closed},
        SHOP | {"expected": listed},
        SHOP | {"expected": closed, "input": ["o-1", "o-2"]},
        SHOP | {"expected": closed, "input": []},
        SHOP,
        evaluators=[{"type": "state_matches", "mode": "subset"}],
    )
    verdicts = Engine(root).run()
    assert [verdicts[f"c-{n}", "state_matches"].status for n in range(5)] == [
        "passed",
        "passed",
        "failed",
        "failed",
        "not_applicable",
    ]
    assert "orders.o-2.status" in str(verdicts["c-2", "state_matches"].compared)
    assert verdicts["c-0", "state_matches"].noop is False


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [  # the examples of RFC 7396
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # and of RFC 6902
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["bar", "q", "baz"]}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": None}}], {"b": None}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["x"]}], {"foo": ["bar", ["x"]]}),
    ],
)
def test_patches_do_what_their_rfcs_say_and_leave_the_value_as_it_was(value: Any, patch: Any, result: Any) -> None:
    before = json.dumps(value)
    assert patched(value, patch) == result
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "replace", "path": "/list/01", "value": 1},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "a"},
        {"op": "add", "path": "/x"},
    ],
)
def test_an_operation_that_leads_nowhere_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="operation 0: "):
        patched({"a": 1, "list": [0, 1]}, [operation])
