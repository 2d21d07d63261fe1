"""Versions of a system: each keeps its evidence, is decided again from it, and is taken for no other."""

import json
import unicodedata
from pathlib import Path

import pytest

from oloproof_dagster import load_run
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, EXECUTED, TABLES, Home, Result, home, rule_states


def test_a_new_version_executes_everything_and_leaves_the_old_one_to_be_read_and_decided_again(ran: Home) -> None:
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    ran.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    assert not ran.run().success
    assert ran.noted() == EXECUTED
    assert rule_states(ran, "v1") == {"rule_0": "PASS"}
    assert rule_states(ran, "v2") == {"rule_0": "FAIL"}

    ran.edit("data/cases.jsonl", '"state": {"balance": 1,', '"state": {"balance": 2,')
    again = ran.run("v1", job="rejudge")
    assert (ran.noted(), again.failed_steps) == ([], {"till__gate"})
    assert again.materialized == {
        "cases", "transformed_cases", "verdicts", "metrics", "slices", "decisions", "gate"
    }  # fmt: skip
    assert rule_states(ran, "v1") == {"rule_0": "FAIL"}
    verdicts = ran.verdicts("v1")
    assert [verdicts[case_id, "state_matches"][0] for case_id in EXECUTED] == ["failed", "passed", "passed"]


def test_a_case_that_an_old_version_never_saw_is_missing_and_the_run_is_partial(ran: Home) -> None:
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    with (ran.root / "data/cases.jsonl").open("a") as stream:
        stream.write(json.dumps(case(4)) + "\n")
    ran.noted()
    ran.run("v1", job="rejudge")
    assert ran.noted() == []
    verdicts = ran.verdicts("v1")
    assert verdicts["c-004", "state_matches"] == ("missing", "system_version_not_loaded")
    assert verdicts["c-003", "state_matches"] == ("passed", None)
    gate = load_run(ran.root, "v1").gate
    assert gate == {"action": "BLOCK", "exit_code": 5, "reasons": ["partial_run"]}


def test_a_version_whose_tables_are_gone_is_judged_missing_and_never_passed(ran: Home) -> None:
    for table in ("trajectories", "environment_states", "fault_replays"):
        (ran.root / ".oloproof/evidence/v1" / f"{table}.parquet").unlink()
    ran.run("v1", job="rejudge")
    assert set(ran.verdicts("v1").values()) == {("missing", "system_version_not_loaded")}
    gate = load_run(ran.root, "v1").gate
    assert gate == {"action": "BLOCK", "exit_code": 5, "reasons": ["partial_run", "missing_evidence"]}


def test_an_edited_agent_under_its_old_version_is_executed_again_and_warned_of(ran: Home, first: Result) -> None:
    ran.edit("app.py", '+ request["amount"]', '+ request["amount"] + 1')
    result = ran.run()
    assert (ran.noted(), len(ran.noted("replays"))) == (EXECUTED, 6)
    assert "Bump system.version" in result.said("trajectories")["warnings"]
    changed = {table for table in TABLES if first.data_version(table) != result.data_version(table)}
    assert changed == set(TABLES) - {"cases", "transformed_cases"}
    assert "warnings" not in ran.run().said("trajectories")


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
        pytest.param(["v1/v2", "v1", "feature/x"], marks=pytest.mark.slow),
        ["V1", "v1"],
        pytest.param(["v" * 200, "v" * 199 + "w"], marks=pytest.mark.slow),
        [unicodedata.normalize("NFC", "é")],
        pytest.param(["..", "../v1", "a b", "a%20b", "con*"], marks=pytest.mark.slow),
    ],
    ids=["slashes", "letter case", "200 characters", "NFC and NFD", "specials"],
)
@pytest.mark.slow
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
    ids = ["a/b", "a|b", "a b", "../a", "x" * 300, "é", "A", "a", "<i>", "ナ", "\t"]
    root = write_project(tmp_path, app=COUNTED_TILL, cases=[case(n, id=id_) for n, id_ in enumerate(ids, 1)])
    with home(root) as till:
        assert till.run().success
        assert len(till.noted()) == len(ids)
        assert {key: status for (key, _), (status, _) in till.verdicts().items()} == dict.fromkeys(ids, "passed")
        till.run()
        assert till.noted() == []
    for id_ in ids:
        assert load_run(root).case(id_).case.case_id == id_
