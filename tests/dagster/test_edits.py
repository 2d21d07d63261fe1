"""Files edited while a code location lives or a run is under way."""

from pathlib import Path

import pytest

from oloproof_dagster import load_run
from tests.support.projects import NO_FAILURE, rules, write_project
from tests.support.runs import COUNTED_TILL, DECLARED, EXECUTED, Home, home


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_replays_materialised_alone_belong_to_the_recording_and_not_to_newer_files(ran: Home) -> None:
    before = ran.verdicts()
    ran.edit("app.py", '"done"', '"over"')
    ran.noted("replays")
    alone = ran.run(select=[ran.key("fault_replays")])
    assert alone.success
    assert ran.noted("replays") == []
    ran.run(job="rejudge")
    assert ran.verdicts() == before


def test_a_replay_is_never_made_by_other_code_than_the_recording(ran: Home) -> None:
    ran.edit("app.py", '"done"', '"over"')
    ran.edit("oloproof.yaml", '"fault": "error"', '"fault": "timeout"')
    ran.noted("replays")
    alone = ran.run(select=[ran.key("fault_replays")])
    assert alone.failed_steps == {"till__fault_replays"}
    assert "the system's files changed" in alone.why
    assert ran.noted("replays") == []


@pytest.mark.slow
def test_an_edited_rewrite_makes_its_copy_anew_and_what_lacks_one_is_said(tmp_path: Path) -> None:
    texts = '{"case": "c-001", "text": "Put one on it."}\n'
    transform = {"name": "reworded", "field": "note", "rewrites": "texts.jsonl"}
    suite = {
        "evaluators": [{"type": "metamorphic_relation", "relation": "same_state"}],
        "metamorphic": {"transforms": [transform]},
    }
    with home(write_project(tmp_path, suite=suite, files={"texts.jsonl": texts})) as till:
        first = till.run()
        assert first.said("transformed_cases")["warnings"] == (
            "transform 'reworded': 2 of 3 cases without a line in texts.jsonl and without a copy, the first: 'c-002'"
        )
        assert first.said("trajectories")["executed"] == 4
        assert till.run().said("transformed_cases")["reused"] is True
        till.edit("texts.jsonl", "Put one", "Lay one")
        assert till.run().said("trajectories")["executed"] == 1
