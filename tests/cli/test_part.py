"""Part of a suite, for a first try: executed, recorded and shown; nothing is decided."""

from pathlib import Path

import pytest

from oloproof_dagster.evidence.evidence import Evidence
from tests.support.command import Command, assert_one_line, calls
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL

pytestmark = pytest.mark.usefixtures("in_shared_home")

LOUD = {"name": "loud", "field": "note", "template": "{value}!"}


def made(root: Path, n: int = 12) -> Path:
    cases = [case(number) for number in range(1, n + 1)]
    wrong = case(2, expected={"state": {"balance": 99}})
    suite = {"metamorphic": {"transforms": [LOUD]}}
    return write_project(
        root, app=COUNTED_TILL, cases=[cases[0], wrong, *cases[2:]], release=rules(NO_FAILURE), suite=suite
    )


@pytest.mark.slow
def test_part_of_a_suite_is_executed_and_shown_and_nothing_is_decided(oloproof: Command, tmp_path: Path) -> None:
    root = made(tmp_path)
    answer = oloproof("run", "--case", "c-00[23]", "--case", "c-011~loud", "--project", root)
    assert answer.code == 5
    assert sorted(calls(root)) == ["c-002", "c-002~loud", "c-003", "c-003~loud", "c-011", "c-011~loud"]
    assert "6 of 24 cases: executed 6 (0 from evidence)" in answer.out
    assert "c-002  state_matches: failed" in answer.out
    assert "Gate:" not in answer.out
    whole = oloproof("run", "--json", "--project", root)
    assert whole.document["cache"]["executions"] == {"hit": 6, "miss": 18}


def test_the_first_cases_alone_and_once(oloproof: Command, tmp_path: Path) -> None:
    root = made(tmp_path)
    for executions in ({"hit": 0, "miss": 4}, {"hit": 4, "miss": 0}):
        document = oloproof("run", "--limit", "2", "--json", "--project", root).document
        assert document["cache"]["executions"] == executions
        assert (document["gate"], document["decisions"]) == (None, [])
        assert document["part"] == {"cases": 4, "of": 24}
        assert [(row["case_id"], row["status"]) for row in document["verdicts"]][:2] == [
            ("c-001", "passed"),
            ("c-001~loud", "not_applicable"),
        ]


@pytest.mark.slow
def test_no_table_of_a_recorded_version_changes(oloproof: Command, tmp_path: Path) -> None:
    root = made(tmp_path)
    oloproof("run", "--project", root)
    evidence = Evidence(root / ".oloproof/evidence")
    before = {name: evidence.path(name, "v1").read_bytes() for name in ("trajectories", "verdicts", "gate")}
    assert oloproof("run", "--limit", "1", "--project", root).code == 5
    assert {name: evidence.path(name, "v1").read_bytes() for name in before} == before
    assert oloproof("run", "--json", "--project", root).document["cache"]["executions"]["miss"] == 0


def test_a_glob_that_fits_no_case_is_refused(oloproof: Command, tmp_path: Path) -> None:
    answer = oloproof("run", "--case", "d-*", "--project", made(tmp_path))
    assert answer.code == 2
    assert "--case 'd-*': fits the id of no case" in answer.err
    assert_one_line(answer)
