"""Trials: each case executed k times, a verdict for each, and rates whose clusters hold a case's own repeats."""

from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.decision.slices import memberships
from oloproof_dagster.project.slice_names import parse_slice
from oloproof_dagster.report.panels import case_panels
from tests.support.engine import AGENT, AGENT_SYSTEM, Engine, agent_case, contents
from tests.support.projects import write_project

RECOVERY = {"type": "fault_recovery", "tool": "pay", "fault": "error"}
RECOVERS = "recovers_from_error_at_pay"
SAME_OUTPUT = {"type": "metamorphic_relation", "relation": "same_output", "transform": "injected"}
INJECTED = {"name": "injected", "field": "text", "template": "{value} Quickly!"}
PAID = {"type": "tool_calls", "must": ["pay"]}


def write(
    root: Path, *cases: dict[str, Any], trials: int = 3, evaluators: list[dict[str, Any]] | None = None, **more: Any
) -> Engine:
    suite = {"system": AGENT_SYSTEM, "trials": trials, "evaluators": evaluators or [PAID], **more}
    release = suite.pop("release", None)
    return Engine(write_project(root, cases=cases, app=AGENT, suite=suite, release=release))


def in_trial(trial: int, **given: Any) -> dict[str, Any]:
    """What an agent's input says of one trial alone."""
    return {"by_trial": {str(trial): given}}


def replayed(root: Path) -> list[str]:
    """The replays that the agent made since this was last asked."""
    path = root / "replays.txt"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def verdicts(engine: Engine) -> dict[tuple[str, int, str], tuple[str, str | None]]:
    engine.judge()
    return {(row.case_id, row.trial, row.criterion): (row.status, row.reason) for row in engine.rows("verdicts")}


def test_each_case_is_executed_as_often_as_declared_and_rows_go_case_by_case(tmp_path: Path) -> None:
    cases = [agent_case(name, "pay") for name in ("b", "a")]
    engine = write(tmp_path, *cases, metamorphic={"transforms": [INJECTED]})
    counts = engine.execute()
    assert (counts.hit, counts.miss) == (0, 12)
    in_order = [(case_id, trial) for case_id in ("b", "b~injected", "a", "a~injected") for trial in range(3)]
    for table in ("trajectories", "environment_states"):
        assert [(row.case_id, row.trial) for row in engine.rows(table)] == in_order
    engine.replay()
    engine.judge()
    assert [(row.case_id, row.trial) for row in engine.rows("verdicts")] == in_order
    counts = engine.execute()
    assert (counts.hit, counts.miss) == (12, 0)


def test_every_trial_has_a_key_of_its_own_that_both_tables_bear(tmp_path: Path) -> None:
    engine = write(tmp_path, agent_case("a", "pay"), agent_case("b", "pay"))
    engine.execute()
    keys = [row.execution_key for row in engine.rows("trajectories")]
    assert len(set(keys)) == 6
    assert [row.execution_key for row in engine.rows("environment_states")] == keys


def test_the_system_knows_the_trial_and_each_trial_starts_in_a_world_that_is_reset(tmp_path: Path) -> None:
    engine = write(tmp_path, agent_case("a", "pay", **in_trial(1, output="second")))
    engine.execute()
    assert [row.output for row in engine.rows("trajectories")] == ['{"answer":"done"}', '"second"', '{"answer":"done"}']
    assert {row.state for row in engine.rows("environment_states")} == {'{"balance":0,"done":["pay"]}'}


def test_each_trial_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    calls_nothing, raises = in_trial(1, calls=[]), in_trial(2, raises=True)
    engine = write(tmp_path, agent_case("a", "pay", **calls_nothing), agent_case("b", "pay", **raises))
    engine.execute()
    found = verdicts(engine)
    assert [found["a", trial, "tool_calls"] for trial in range(3)] == [
        ("passed", None),
        ("failed", None),
        ("passed", None),
    ]
    assert [found["b", trial, "tool_calls"][1] for trial in range(3)] == [None, None, "execution_error"]


@pytest.mark.parametrize("odd", range(3))
def test_a_relation_compares_the_same_trial_of_source_and_copy(tmp_path: Path, odd: int) -> None:
    both = {"by_trial": {str(trial): {"output": trial} for trial in range(3)}}
    cases = [
        agent_case("alike", "pay", **both),
        agent_case("source fails", "pay", **in_trial(odd, raises="case source fails")),
        agent_case("copy fails", "pay", **in_trial(odd, raises="case copy fails Quickly!")),
    ]
    engine = write(tmp_path, *cases, evaluators=[SAME_OUTPUT], metamorphic={"transforms": [INJECTED]})
    engine.execute()
    found, name = verdicts(engine), "same_output_under_injected"
    for trial in range(3):
        told = {case["id"]: found[f"{case['id']}~injected", trial, name] for case in cases}
        assert told == {
            "alike": ("passed", None),
            "source fails": ("missing", "metamorphic_source_missing") if trial == odd else ("passed", None),
            "copy fails": ("missing", "execution_error") if trial == odd else ("passed", None),
        }


def test_a_copy_that_differs_from_its_source_in_one_trial_fails_in_that_one_alone(tmp_path: Path) -> None:
    app = AGENT.replace(
        '        return given.get("output", {"answer": "done"})\n',
        "        trial = current_case().trial\n"
        '        return trial if given["text"].endswith("!") else given["answers"][trial]\n',
    )
    assert app != AGENT
    engine = write(
        tmp_path,
        agent_case("a", answers=[2, 1, 0]),
        evaluators=[SAME_OUTPUT],
        metamorphic={"transforms": [INJECTED]},
    )
    (tmp_path / "app.py").write_text(app)
    engine.execute()
    found = verdicts(engine)
    statuses = [found["a~injected", trial, "same_output_under_injected"][0] for trial in range(3)]
    assert statuses == ["failed", "passed", "failed"]


MADE = ["a start resume", "a start error"]


def test_trials_whose_recordings_are_equal_share_a_replay(tmp_path: Path) -> None:
    engine = write(tmp_path, agent_case("a", "pay", **in_trial(1, latency_ms=250.0)), evaluators=[RECOVERY])
    engine.execute()
    assert len({row.trajectory for row in engine.rows("trajectories")}) == 2
    counts = engine.replay()
    assert (counts.miss, replayed(tmp_path)) == (2, MADE)
    found = verdicts(engine)
    assert [found["a", trial, RECOVERS] for trial in range(3)] == [("passed", "recovered")] * 3


def test_trials_whose_recordings_differ_are_replayed_apart_each_as_itself(tmp_path: Path) -> None:
    tools = [{"tool": "pay"}, {"tool": "look"}]
    cases = [agent_case("a", "pay", **in_trial(1, calls=tools, after="fails"))]
    engine = write(tmp_path, *cases, evaluators=[RECOVERY])
    engine.execute()
    counts = engine.replay()
    assert (counts.miss, counts.errors, replayed(tmp_path)) == (4, 0, MADE * 2)
    assert len({row.replay_key for row in engine.rows("fault_replays")}) == 4
    found = verdicts(engine)
    assert [found["a", trial, RECOVERS] for trial in range(3)] == [
        ("passed", "recovered"),
        ("failed", "acted_wrongly"),
        ("passed", "recovered"),
    ]
    assert engine.replay().miss == 0


def test_a_trial_that_ended_in_an_error_is_not_replayed_and_the_others_are(tmp_path: Path) -> None:
    engine = write(tmp_path, agent_case("a", "pay", **in_trial(0, raises="late")), evaluators=[RECOVERY])
    engine.execute()
    engine.replay()
    assert replayed(tmp_path) == MADE
    found = verdicts(engine)
    assert [found["a", trial, RECOVERS][1] for trial in range(3)] == ["execution_error", "recovered", "recovered"]


def test_more_trials_execute_those_that_are_missing_and_fewer_execute_nothing(tmp_path: Path) -> None:
    cases = [agent_case("a", "pay"), agent_case("b", "look")]

    def counted(trials: int) -> tuple[int, int]:
        engine = write(tmp_path, *cases, trials=trials, evaluators=[RECOVERY])
        counts = engine.execute()
        engine.replay()
        return counts.hit, counts.miss

    assert counted(1) == (0, 2)
    alone = contents(Engine(tmp_path))
    replayed(tmp_path)
    assert counted(3) == (2, 4)
    assert replayed(tmp_path) == []
    assert counted(3) == (6, 0)
    assert counted(1) == (2, 0)
    assert contents(Engine(tmp_path)) == alone


def test_trials_that_are_not_executed_yet_are_missing_and_not_the_others(tmp_path: Path) -> None:
    write(tmp_path, agent_case("a", "pay"), trials=1).run()
    engine = write(tmp_path, agent_case("a", "pay"), trials=3)
    found = verdicts(engine)
    unreached = ("missing", "system_version_not_loaded")
    assert [found["a", trial, "tool_calls"] for trial in range(3)] == [("passed", None), unreached, unreached]
    assert engine.stored("verdicts").facts()["n_unreached"] == 2


def test_of_recorded_errors_only_the_trial_in_error_is_repeated(tmp_path: Path) -> None:
    app = AGENT.replace(
        '        if given.get("raises", False) in',
        '        if given.get("until") and not (Path(__file__).parent / "mended").exists():\n'
        '            raise ConnectionError("no route")\n'
        '        if given.get("raises", False) in',
    )
    assert app != AGENT
    engine = write(tmp_path, agent_case("a", "pay", **in_trial(1, until="mended")), agent_case("b", "pay"))
    (tmp_path / "app.py").write_text(app)
    assert engine.execute().errors == 1
    (tmp_path / "mended").touch()
    counts = engine.execute()
    assert (counts.hit, counts.miss, counts.errors) == (6, 0, 1)
    counts = engine.execute(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (5, 1, 0)
    assert [row.status for row in engine.rows("trajectories")] == ["ok"] * 6


def test_each_trial_joins_the_slices_of_its_own_recording_and_of_its_cases_metadata(tmp_path: Path) -> None:
    case = agent_case("a", "pay", more={"metadata": {"kind": "sum"}}, **in_trial(1, calls=[{"tool": "look"}]))
    engine = write(tmp_path, case)
    engine.execute()
    slices = tuple(map(parse_slice, ("metadata.kind", "first_tool")))
    found = memberships(slices, engine.stored("transformed_cases"), engine.stored("trajectories"), 3)
    assert found == {
        ("a", trial): (("metadata.kind", "sum"), ("first_tool", "look" if trial == 1 else "pay")) for trial in range(3)
    }


def test_there_is_one_panel_for_each_trial_with_what_is_recorded_of_it(tmp_path: Path) -> None:
    cases = [agent_case("a", "pay", **in_trial(1, calls=[], output="second")), agent_case("b", "pay")]
    engine = write(tmp_path, *cases)
    engine.run()
    panels = list(case_panels(engine.stored))
    assert [(each.case.case_id, each.trial) for each in panels] == [(name, n) for name in ("a", "b") for n in range(3)]
    for each in panels:
        assert each.execution is not None
        assert each.state is not None
        assert {each.execution.trial, each.state.trial, *(row.trial for row in each.verdicts)} == {each.trial}
    assert [each.execution and each.execution.output for each in panels[:3]] == [
        *('{"answer":"done"}', '"second"', '{"answer":"done"}')
    ]
    assert [(each.case.case_id, each.trial) for each in case_panels(engine.stored, failures=True)] == [("a", 1)]
    assert [each.trial for each in case_panels(engine.stored, ids={"b"})] == [0, 1, 2]
