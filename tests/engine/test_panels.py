"""The case panel and the recorded run: what programs and people read of a run that is over."""

import json
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.decision.slices import memberships
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.project.slice_names import parse_slice
from oloproof_dagster.report.documents import panels
from oloproof_dagster.report.panels import case_panels
from oloproof_dagster.report.runs import load_run
from tests.support.engine import AGENT, AGENT_SYSTEM, Engine, agent_case
from tests.support.projects import write_project

EVALUATORS = [
    {"type": "state_matches", "expected_field": "state"},
    {"type": "exact_match", "criterion": "answer", "field": "answer", "expected_field": "answer"},
    {"type": "fault_recovery", "tool": "pay", "fault": "error"},
    {"type": "metamorphic_relation", "relation": "same_actions"},
]
INJECTED = {"name": "injected", "field": "text", "template": "{value} Quickly!"}
WANTED = {"expected": {"state": {"balance": 1, "done": ["pay"]}, "answer": "done"}}
GOOD = {"expected": {"state": {"balance": 0, "done": ["pay"]}, "answer": "done"}}
CASES = [
    agent_case("wrong", "pay", more=WANTED),
    agent_case("good", "pay", more=GOOD),
    agent_case("raises", "pay", raises=True, more=GOOD),
]


def write(root: Path, *cases: Any, **suite: Any) -> Engine:
    declared = {"system": AGENT_SYSTEM, "evaluators": EVALUATORS, "metamorphic": {"transforms": [INJECTED]}, **suite}
    return Engine(write_project(root, cases=cases or CASES, app=AGENT, suite=declared))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    made = write(tmp_path_factory.mktemp("panels"))
    made.run()
    return made


def document(engine: Engine, **chosen: Any) -> dict[str, Any]:
    run = load_run(engine.project)
    found = panels(run, case_panels(run.table, **chosen))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_the_document_has_just_the_keys_that_programs_were_promised(engine: Engine) -> None:
    found = document(engine)
    assert list(found) == ["schema", "system", "cases"]
    assert found["schema"] == "case_panels/v1"
    assert found["system"] == {"name": "agent", "version": "v1"}
    for each in found["cases"]:
        assert list(each) == [
            *("case_id", "trial", "cluster", "source_case", "transform", "execution", "output", "verdicts"),
            *("replays", "trajectory", "left_tasks", "left_threads"),
        ]
        assert list(each["execution"]) == ["status", "error", "duration_ms"]
        for verdict in each["verdicts"]:
            assert list(verdict) == ["criterion", "status", "reason", "compared"]
            for row in verdict["compared"]:
                assert list(row)[:6] == ["path", "expected", "actual", "absent", "unexpected", "matches"]
                assert set(list(row)[6:]) <= {"n_differing", "cut", "expected_digest", "actual_digest"}
        for replay in each["replays"]:
            assert list(replay) == ["criterion", "control", "fault", "diverged"]


def test_cases_stand_in_the_suites_order_each_source_before_its_copies(engine: Engine) -> None:
    shown = [
        (each["case_id"], each["cluster"], each["source_case"], each["transform"]) for each in document(engine)["cases"]
    ]
    assert shown == [
        row
        for name in ("wrong", "good", "raises")
        for row in ((name, name, None, None), (f"{name}~injected", name, name, "injected"))
    ]


def test_a_case_shows_its_output_its_verdicts_and_each_compared_path(engine: Engine) -> None:
    wrong = document(engine, ids={"wrong"})["cases"][0]
    assert wrong["output"] == {"answer": "done"}
    assert (wrong["trial"], wrong["execution"]["status"], wrong["execution"]["error"]) == (0, "ok", None)
    assert wrong["execution"]["duration_ms"] >= 0
    differs = {"absent": False, "unexpected": False, "matches": False}
    assert wrong["verdicts"] == [
        {
            "criterion": "state_matches",
            "status": "failed",
            "reason": None,
            "compared": [
                {"path": "$", "expected": None, "actual": None, **differs, "n_differing": 1},
                {"path": "balance", "expected": 1, "actual": 0, **differs},
            ],
        },
        {
            "criterion": "answer",
            "status": "passed",
            "reason": None,
            "compared": [
                {
                    "path": "answer",
                    "expected": "done",
                    "actual": "done",
                    "absent": False,
                    "unexpected": False,
                    "matches": True,
                }
            ],
        },
        {"criterion": "recovers_from_error_at_pay", "status": "passed", "reason": "recovered", "compared": []},
        {
            "criterion": "same_actions_under_transform",
            "status": "not_applicable",
            "reason": "not_a_metamorphic_pair",
            "compared": [],
        },
    ]


def test_a_case_shows_its_replays_by_criterion_and_its_recording_without_what_only_a_replay_reads(
    engine: Engine,
) -> None:
    good, raised = (document(engine, ids={name})["cases"][0] for name in ("good", "raises"))
    assert good["replays"] == [
        {"criterion": "recovers_from_error_at_pay", "control": "ok", "fault": "ok", "diverged": None}
    ]
    assert raised["replays"] == []
    assert [step["tool_name"] for step in good["trajectory"]["steps"] if step["kind"] == "tool_call"] == ["pay"]
    assert all("payload" not in each for each in good["trajectory"]["checkpoints"])
    assert "answers" not in good["trajectory"]
    assert (good["left_tasks"], good["left_threads"]) == (0, 0)


def test_a_case_that_raised_shows_why_and_no_output(engine: Engine) -> None:
    (raised,) = document(engine, ids={"raises"})["cases"]
    assert raised["execution"]["status"] == "error"
    assert raised["execution"]["error"].startswith("ValueError: told to raise (app.py:")
    assert raised["output"] is None


def test_failures_are_the_cases_with_a_failed_verdict_alone(engine: Engine) -> None:
    assert [each["case_id"] for each in document(engine, failures=True)["cases"]] == ["wrong"]
    assert [each["case_id"] for each in document(engine, failures=True, ids={"good"})["cases"]] == []


def test_a_panel_brings_together_the_case_its_source_its_state_and_its_replays(engine: Engine) -> None:
    run = load_run(engine.project)
    source, derived = run.case("good"), run.case("good~injected")
    assert (source.source, derived.source) == (None, source.case)
    assert source.state is not None
    assert source.state.state == '{"balance":0,"done":["pay"]}'
    assert [row.kind for row in source.replays] == ["control", "fault"]
    assert derived.replays == ()
    assert (source.failed, run.case("wrong").failed) == (False, True)


def test_a_case_that_is_not_in_the_suite_is_said_to_be_none(engine: Engine) -> None:
    with pytest.raises(EvidenceError, match="no case 'nobody' is recorded for version 'v1'"):
        load_run(engine.project).case("nobody")


def test_an_edited_case_shows_no_execution_of_the_case_it_was(tmp_path: Path) -> None:
    """Verdicts are reached on the execution under the case's key; the panel shows that one or none."""
    write(tmp_path).run()
    engine = write(tmp_path, CASES[0], agent_case("good", "look", "pay", more=GOOD), agent_case("new", "pay"))
    engine.expand()
    verdicts = engine.judge()
    assert engine.stored("verdicts").facts()["n_unreached"] == 4  # both and their copies
    assert verdicts["good", "answer"].reason == "system_version_not_loaded"
    for case_id in ("good", "new"):
        panel = load_run(engine.project).case(case_id)
        assert (panel.execution, panel.state, panel.replays) == (None, None, ())
        (shown,) = document(engine, ids={case_id})["cases"]
        assert (shown["execution"], shown["output"], shown["trajectory"], shown["replays"]) == (None, None, None, [])
    assert load_run(engine.project).case("wrong").execution is not None


def test_the_tables_of_a_run_are_frames_with_a_row_for_each_of_their_kind(engine: Engine) -> None:
    run = load_run(engine.project.root)
    assert len(run.verdicts) == 6 * len(EVALUATORS)
    counted = run.verdicts.groupby(["criterion", "status"]).size()
    assert counted["state_matches", "failed"] == 1
    assert counted["state_matches", "not_applicable"] == 3
    shown = run.verdicts.set_index(["case_id", "criterion"]).loc[("wrong", "state_matches"), "compared"]
    assert json.loads(str(shown))[1]["path"] == "balance"
    for frame in (run.metrics, run.slices, run.decisions):
        assert len(frame) == 0
        assert len(frame.columns) > 0
    assert run.gate is None


def test_a_version_without_evidence_is_refused_naming_those_that_have_some(engine: Engine) -> None:
    with pytest.raises(EvidenceError, match="nothing is recorded for version 'v9'; recorded versions: 'v1'"):
        load_run(engine.project, "v9")


def test_a_project_that_never_ran_has_no_run(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="nothing is recorded for version 'v1'; recorded versions: none"):
        load_run(write(tmp_path).project)


def test_former_attempts_are_read_by_their_number_and_so_is_the_one_in_force(tmp_path: Path) -> None:
    engine = write(tmp_path)
    engine.run()
    write(tmp_path, *CASES[:1])
    fresh = Engine(tmp_path)
    fresh.execute(fresh=True)
    fresh.replay()
    fresh.judge()
    assert [len(load_run(tmp_path, attempt=attempt).verdicts) for attempt in (None, 1, 2)] == [8, 24, 8]
    assert load_run(tmp_path, attempt=1).case("good").execution is not None
    with pytest.raises(EvidenceError, match="nothing is recorded for attempt 3 of version 'v1'"):
        load_run(tmp_path, attempt=3)


def test_slices_are_joined_by_metadata_and_by_the_cases_own_recording(tmp_path: Path) -> None:
    cases = [
        agent_case("a", "look", "pay", more={"metadata": {"language": "en"}}),
        agent_case("b", more={"metadata": {"language": 7}}),
        agent_case("c", "pay", raises=True),
        agent_case("d", "pay", truncated=True),
    ]
    engine = write(tmp_path, *cases, metamorphic=None, evaluators=EVALUATORS[:3])
    engine.execute()
    declared = ("metadata.language", "tool_calls:1", "trajectory_length:3", "first_tool")

    def joined(*slices: str) -> Any:
        parsed = tuple(parse_slice(text) for text in slices)
        return memberships(parsed, engine.stored("transformed_cases"), engine.stored("trajectories"))

    assert joined(*declared) == {
        ("a", 0): (
            ("metadata.language", "en"),
            ("tool_calls:1", "gt_1"),
            ("trajectory_length:3", "gt_3"),
            ("first_tool", "look"),
        ),
        ("b", 0): (("metadata.language", "7"), ("tool_calls:1", "le_1"), ("trajectory_length:3", "le_3")),
        ("c", 0): (("tool_calls:1", "unrecorded"), ("trajectory_length:3", "unrecorded")),
        ("d", 0): (("tool_calls:1", "unrecorded"), ("trajectory_length:3", "unrecorded"), ("first_tool", "pay")),
    }
    assert joined("metadata.language")["a", 0] == (("metadata.language", "en"),)
    assert joined() == {}
