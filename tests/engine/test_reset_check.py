"""Resets held against the case's initial state: what a reset forgets is never the next case's pass."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.cli.check import check_project
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.execute import PassOptions
from oloproof_dagster.execution.passes import ExecutionPass
from oloproof_dagster.execution.reset_advice import OTHER_SHAPE, advice
from oloproof_dagster.project.project import load_project
from tests.support.engine import Engine
from tests.support.projects import write_project

WORLD = '''
import itertools

clock = itertools.count()


class World:
    """Logs each request in a list, and pays the first time only that the list is empty. RESET and SNAPSHOT vary."""

    def __init__(self):
        self.log = []

    def reset(self, state):
        RESET

    def snapshot(self):
        SNAPSHOT

    def __call__(self, given):
        self.state["paid"] = self.state["paid"] or given["n"] > 0
        self.log.append(given["n"])
        return {"paid": self.state["paid"]}


world = World()
'''
GOOD_RESET = "self.state, self.log = dict(state), []"
ALL = "return {**self.state, 'log': list(self.log)}"
SYSTEM = {"name": "world", "version": "v1", "callable": "app:world"}


def project(
    root: Path, reset: str = GOOD_RESET, snapshot: str = ALL, verify: Any = True, n: int = 3, **state: Any
) -> Path:
    cases = [{"id": f"c-{i}", "input": {"n": i + 1}, "initial_state": {"paid": False, **state}} for i in range(n)]
    return write_project(
        root,
        app=WORLD.replace("RESET", reset).replace("SNAPSHOT", snapshot),
        cases=cases,
        suite={"system": SYSTEM, "sandbox": {"verify_reset": verify}},
    )


def errors(root: Path) -> list[str | None]:
    engine = Engine(root)
    engine.execute()
    return [row.error for row in engine.rows("trajectories")]


def found(root: Path) -> Mapping[str, str]:
    return {each.text: each.kind for each in check_project(load_project(root))}


def test_a_reset_that_makes_the_world_what_the_case_says_is_right(tmp_path: Path) -> None:
    assert errors(project(tmp_path)) == [None] * 3
    assert found(tmp_path)["reset leaves the same world before a case and after it"] == "ok"


def test_a_value_that_reset_forgets_is_the_cases_error_with_path_value_and_expectation(tmp_path: Path) -> None:
    forgets = "self.state, self.log = getattr(self, 'state', None) or dict(state), []"
    told = "reset: paid is true right after reset, initial_state says false"
    assert errors(project(tmp_path, forgets)) == [None, told, told]


def test_a_list_that_no_initial_state_names_is_watched_too(tmp_path: Path) -> None:
    root = project(tmp_path, "self.state = dict(state)", n=20)
    told = errors(root)
    assert told[0] is None
    assert told[1] == "reset: log is [1] right after reset, after this sandbox's first reset it was []"
    assert None not in told[1:]
    problems = [text for text, kind in found(root).items() if kind == "problem"]
    assert any("once a case has run, reset: log is" in text for text in problems)


def test_a_reset_that_adds_to_the_former_world_leaks(tmp_path: Path) -> None:
    merges = "self.log = []; self.state = {**getattr(self, 'state', {}), **state}"
    root = project(tmp_path, merges)
    cases = (root / "data/cases.jsonl").read_text().replace('"paid": false', '"paid": false, "only": 1', 1)
    (root / "data/cases.jsonl").write_text(cases)
    told = errors(root)
    assert told[0] is None
    assert told[1] is None, "what the first state names is not beside it, and the first state gives it again"


def test_a_world_that_derives_values_from_its_initial_state_is_not_blamed(tmp_path: Path) -> None:
    root = project(tmp_path, snapshot="return {**self.state, 'log': self.log, 'derived': [self.state['n'] * 2]}", n=2)
    lines = (root / "data/cases.jsonl").read_text().splitlines()
    lines = [line.replace('"paid": false', f'"paid": false, "n": {i}') for i, line in enumerate(lines)]
    (root / "data/cases.jsonl").write_text("\n".join(lines) + "\n")
    assert errors(root) == [None, None]


def test_ignored_paths_and_unordered_lists_narrow_the_check(tmp_path: Path) -> None:
    clocked = "return {**self.state, 'log': self.log, 'at': {'now': next(clock)}}"
    assert "at.now is" in str(errors(project(tmp_path, snapshot=clocked))[1])
    assert errors(project(tmp_path, snapshot=clocked, verify={"ignore_paths": ["at.now"]})) == [None] * 3
    turned = "return {**self.state, 'log': [], 'tags': self.state['tags'][::-1]}"
    assert "tags" in str(errors(project(tmp_path, snapshot=turned, tags=["a", "b"]))[0])
    verify = {"unordered_paths": ["tags"]}
    assert errors(project(tmp_path, snapshot=turned, verify=verify, tags=["a", "b"])) == [None] * 3


def test_without_verification_check_compares_the_worlds_around_a_case(tmp_path: Path) -> None:
    root = project(tmp_path, "self.state = dict(state)", verify=False)
    assert errors(root) == [None] * 3
    assert found(root)["once a case has run, reset: log is [1] right after reset, before a case has run it is []"] == (
        "problem"
    )


def test_the_error_of_a_reset_is_never_answered_from_evidence(tmp_path: Path) -> None:
    root = project(tmp_path, "self.state = dict(state)")
    engine = Engine(root)
    assert engine.execute().n_unreset == 2
    assert engine.stored("trajectories").facts()["n_unreset"] == 2
    again = engine.execute()
    assert (again.hit, again.miss) == (1, 2)


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        (("$",), OTHER_SHAPE),
        (("orders.o-1.at", "orders.o-2.at", "now"), '["now", "orders.*.at"]'),
    ],
)
def test_the_advice_can_be_pasted(paths: tuple[str, ...], line: str) -> None:
    assert line in advice(paths)


def test_a_snapshot_of_another_shape_is_advised_to_go_without(tmp_path: Path) -> None:
    root = project(tmp_path, snapshot="return [self.state]")
    counts = Engine(root).execute()
    assert counts.resets.advice(counts.miss, 1) == OTHER_SHAPE
    assert found(root)[OTHER_SHAPE] == "note"


@pytest.mark.parametrize("written", ["maybe", 1, [], None])
def test_verify_reset_is_true_false_or_a_block(written: Any, tmp_path: Path) -> None:
    project(tmp_path, verify=written)
    with pytest.raises(ConfigError, match=r"oloproof.yaml:6: sandbox.verify_reset: must be true, false, or a block"):
        load_project(tmp_path)


def test_executions_that_nobody_verified_are_counted_until_they_are_executed_afresh(tmp_path: Path) -> None:
    project(tmp_path, verify=False)
    engine = Engine(tmp_path)
    engine.evidence.open_attempt("v1", fresh=False)
    suite = engine.expand()
    attempt = engine.evidence.attempt("v1")
    assert attempt is not None
    engine._write(ExecutionPass(suite), attempt, PassOptions(3, verifies=False))
    engine.evidence.complete(attempt)
    assert engine.stored("trajectories").facts()["n_unverified"] == 3
    for _ in range(2):
        assert Engine(tmp_path).execute().n_unverified == 3
    assert Engine(tmp_path).execute(fresh=True).n_unverified == 0
    assert "n_unverified" not in engine.stored("trajectories").facts()
