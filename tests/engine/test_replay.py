"""Replays made: the verdict each kind of agent earns, what is shared and kept, and what makes a replay again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.replay import Recording
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.keys import replay_key
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import ReplayRow
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory, recorded_text
from oloproof_dagster.system.loading import load_system
from tests.support.engine import AGENT, AGENT_SYSTEM, Engine, agent_case
from tests.support.interrupts import interruptible
from tests.support.projects import write_project

RECOVERY = {"type": "fault_recovery", "tool": "pay", "fault": "error", "escalate_tools": ["ask_human"]}
NAME = "recovers_from_error_at_pay"


def write(root: Path, *cases: Mapping[str, Any], evaluators: list[dict[str, Any]] | None = None, **suite: Any) -> Path:
    return write_project(
        root,
        cases=cases,
        app=suite.pop("app", AGENT),
        suite={"system": AGENT_SYSTEM, "evaluators": evaluators or [RECOVERY], **suite},
    )


def replayed(root: Path) -> list[str]:
    """The replays that the agent made since this was last asked: case, checkpoint, and what was changed."""
    path = root / "replays.txt"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def rows(engine: Engine) -> list[ReplayRow]:
    return engine.rows("fault_replays")


BEHAVIOURS: list[tuple[str, dict[str, Any], tuple[str, str | None]]] = [
    ("recovers", {}, ("passed", "recovered")),
    ("keeps a rule", {"after": "keeps a rule"}, ("passed", "recovered")),
    ("fails", {"after": "fails"}, ("failed", "acted_wrongly")),
    ("stops", {"after": "stops"}, ("missing", "fault_outcome_unknown")),
    ("is cut off", {"after": "is cut off"}, ("missing", "fault_outcome_unknown")),
    ("escalates", {"after": "escalates"}, ("passed", "escalated")),
    ("escalates and fails", {"after": "escalates in vain"}, ("passed", "escalated")),
    ("breaks a rule", {"after": "breaks a rule"}, ("failed", "acted_wrongly")),
    ("breaks a rule and escalates", {"after": "breaks and escalates"}, ("failed", "acted_wrongly")),
    ("the control raises", {"resume": "raises"}, ("missing", "replay_error")),
    ("the control exits", {"resume": "exits"}, ("missing", "replay_error")),
    ("the control interrupts", {"resume": "interrupts"}, ("missing", "replay_error")),
    ("the control returns nonsense", {"resume": "returns nonsense"}, ("missing", "replay_error")),
    ("the control echoes", {"resume": "echoes"}, ("missing", "replay_echoed_the_recorded_trajectory")),
    ("the control ends otherwise", {"resume": "ends otherwise"}, ("missing", "control_diverged")),
    ("the control calls otherwise", {"resume": "makes another call first"}, ("missing", "control_diverged")),
    ("the world differs after the control", {"resume": "leaves the world otherwise"}, ("passed", "recovered")),
    ("the fault raises", {"inject_fault": "raises"}, ("missing", "replay_error")),
    ("the fault returns nonsense", {"inject_fault": "returns nonsense"}, ("missing", "replay_error")),
    (
        "the fault's replay calls otherwise before",
        {"inject_fault": "makes another call first", "checkpoints": "start"},
        ("missing", "replay_diverged_before_fault"),
    ),
    (
        "another call is made instead",
        {"inject_fault": "makes another call instead"},
        ("missing", "replay_did_not_inject_the_fault"),
    ),
    ("nothing is injected", {"inject_fault": "does not inject"}, ("missing", "replay_did_not_inject_the_fault")),
    ("no ids, one after the other", {"ids": False}, ("passed", "recovered")),
    ("ids, in parallel", {"parallel": True}, ("passed", "recovered")),
    ("no ids, in parallel", {"parallel": True, "ids": False}, ("passed", "recovered")),
    ("no checkpoint", {"checkpoints": "none"}, ("missing", "no_checkpoint_recorded")),
    ("nothing recorded", {"records": False}, ("missing", "agent_trajectory_unavailable")),
    ("the system raises", {"raises": True}, ("missing", "execution_error")),
    ("truncated after the call", {"truncated": True}, ("passed", "recovered")),
    ("truncated before the call", {"truncated": True, "tools": ["look"]}, ("missing", "trajectory_truncated")),
    ("never called", {"tools": ["look"]}, ("not_applicable", "fault_target_not_called")),
    ("no call at all", {"tools": []}, ("not_applicable", "fault_target_not_called")),
]


@pytest.fixture(scope="module")
def behaved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str | None]]:
    """The verdict of every behaviour above, one case each, in one run."""
    cases = []
    for name, given, _ in BEHAVIOURS:
        tools = given.get("tools", ["look", "pay", "thank"])
        cases.append(agent_case(name, *tools, **{key: value for key, value in given.items() if key != "tools"}))
    engine = Engine(write(tmp_path_factory.mktemp("behaviours"), *cases))
    return {case_id: (row.status, row.reason) for (case_id, _), row in engine.run().items()}


@pytest.mark.parametrize(("name", "verdict"), [(name, verdict) for name, _, verdict in BEHAVIOURS])
def test_what_an_agent_does_in_its_replays_gives_this_verdict(
    behaved: dict[str, tuple[str, str | None]], name: str, verdict: tuple[str, str | None]
) -> None:
    assert behaved[name] == verdict


SHARED = [{"type": "fault_recovery", "tool": "pay", "fault": fault} for fault in ("error", "timeout", "malformed")] + [
    {"type": "fault_recovery", "tool": "look", "fault": "error"}
]


def test_one_control_is_shared_by_the_faults_that_start_at_its_checkpoint_and_counted_once(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "look", "pay"), evaluators=SHARED))
    engine.execute()
    counts = engine.replay()
    assert replayed(tmp_path) == [
        *("a after look resume", "a after look error", "a after look timeout", "a after look malformed"),
        *("a start resume", "a start error"),
    ]
    assert (counts.hit, counts.miss, counts.errors) == (0, 6, 0)
    assert [(row.kind, row.fault, row.step_index, row.prefix_steps, row.checkpoint_id) for row in rows(engine)] == [
        ("control", None, None, 2, "after look"),
        ("fault", "error", 3, 2, "after look"),
        ("fault", "timeout", 3, 2, "after look"),
        ("fault", "malformed", 3, 2, "after look"),
        ("control", None, None, 0, "start"),
        ("fault", "error", 1, 0, "start"),
    ]
    counts = engine.replay()
    assert (counts.hit, counts.miss, replayed(tmp_path)) == (6, 0, [])
    assert len(rows(engine)) == 6


def test_a_control_that_failed_spares_its_faults(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "pay", resume="raises"), evaluators=SHARED[:3]))
    engine.execute()
    counts = engine.replay()
    assert replayed(tmp_path) == ["a start resume"]
    assert (counts.miss, counts.errors) == (1, 1)
    (control,) = rows(engine)
    assert (control.status, control.discarded, control.trajectory) == ("error", "replay_error", None)
    assert control.error is not None
    assert control.error.startswith("ValueError: cannot be replayed (app.py:")
    verdicts = engine.judge()
    assert {(row.reason, row.detail) for row in verdicts.values()} == {("replay_error", control.error)}


def test_errors_are_replayed_again_only_when_asked_for(tmp_path: Path) -> None:
    cases = [agent_case("a", "pay", inject_fault="raises"), agent_case("b", "pay")]
    engine = Engine(write(tmp_path, *cases, evaluators=SHARED[:1]))
    engine.execute()
    assert engine.replay().errors == 1
    counts = engine.replay()
    assert (counts.hit, counts.miss, counts.errors) == (4, 0, 1)
    replayed(tmp_path)
    counts = engine.replay(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (3, 1, 1)
    assert replayed(tmp_path) == ["a start error"]


def test_a_replay_that_was_discarded_is_no_error_and_is_not_made_again(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "pay", resume="ends otherwise")))
    engine.execute()
    assert engine.replay().errors == 0
    counts = engine.replay(retry_errors=True)
    assert (counts.hit, counts.miss) == (2, 0)  # the control and the fault: who discards it is an evaluator's matter


def test_the_second_call_of_a_tool_is_faulted_under_a_name_of_its_own(tmp_path: Path) -> None:
    second = {**RECOVERY, "occurrence": 2}
    engine = Engine(write(tmp_path, agent_case("a", "pay", "look", "pay"), evaluators=[RECOVERY, second]))
    verdicts = engine.run()
    assert {name: row.reason for (_, name), row in verdicts.items()} == {
        NAME: "recovered",
        f"{NAME}_call_2": "recovered",
    }
    assert replayed(tmp_path) == ["a start resume", "a start error", "a after look resume", "a after look error"]
    assert [row.step_index for row in rows(engine)] == [None, 1, None, 5]


def test_a_replay_starts_in_the_world_of_its_case_and_its_state_is_kept(tmp_path: Path) -> None:
    cases = [agent_case(name, "look", "pay", checkpoints="start") for name in ("a", "b")]
    engine = Engine(write(tmp_path, *cases))
    engine.execute()
    engine.replay()
    for case_id in ("a", "b"):
        control, fault = (row for row in rows(engine) if row.case_id == case_id)
        assert (control.state, control.state_matches) == ('{"balance":0,"done":["look","pay"]}', True)
        assert (fault.state, fault.state_matches) == ('{"balance":0,"done":["look"]}', None)


def test_a_stored_replay_is_the_recorded_prefix_and_then_the_continuation(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "look", "pay", after="escalates")))
    engine.execute()
    engine.replay()
    control, fault = (AgentTrajectory.model_validate_json(row.trajectory or "") for row in rows(engine))
    recording = AgentTrajectory.model_validate_json(engine.rows("trajectories")[0].trajectory)
    assert control.steps[:2] == recording.steps[:2] == fault.steps[:2]
    assert [step.tool_name for step in control.calls] == ["look", "pay"]
    assert [step.tool_name for step in fault.calls] == ["look", "pay", "ask_human"]
    assert fault.steps[3].result == {"error": "internal error"}


CONTROL = [{**RECOVERY, "control": how, "criterion": how} for how in ("calls", "calls_and_state")]


@pytest.mark.parametrize(
    ("given", "state_matches", "by_calls", "by_state"),
    [
        ({}, True, "recovered", "recovered"),
        ({"resume": "leaves the world otherwise"}, False, "recovered", "control_diverged"),
        ({"more": {"initial_state": None}}, None, "recovered", "environment_state_unavailable"),
    ],
)
def test_the_state_after_the_control_is_told_and_asked_of_it_only_where_declared(
    tmp_path: Path, given: dict[str, Any], state_matches: bool | None, by_calls: str, by_state: str
) -> None:
    case = agent_case("a", "pay", **given)
    if case["initial_state"] is None:
        del case["initial_state"]
    engine = Engine(write(tmp_path, case, evaluators=CONTROL))
    verdicts = engine.run()
    assert rows(engine)[0].state_matches is state_matches
    assert verdicts["a", "calls"].reason == by_calls
    assert verdicts["a", "calls_and_state"].reason == by_state
    assert len(replayed(tmp_path)) == 2


INJECTED = {"name": "injected", "field": "text", "template": "{value} Quickly!"}


def test_only_source_cases_that_ran_well_and_recorded_are_replayed(tmp_path: Path) -> None:
    cases = [
        agent_case("good", "pay"),
        agent_case("raises", "pay", raises=True),
        agent_case("raises late", "pay", raises="late"),
        agent_case("records nothing", "pay", records=False),
    ]
    engine = Engine(write(tmp_path, *cases, metamorphic={"transforms": [INJECTED]}))
    verdicts = engine.run()
    assert engine.rows("trajectories")[4].trajectory is not None  # of the case that raises late
    assert replayed(tmp_path) == ["good start resume", "good start error"]
    assert verdicts["good~injected", NAME].status == "not_applicable"
    assert verdicts["good~injected", NAME].reason == "metamorphic_copy"


def again(root: Path, edit: Any) -> list[str]:
    """What is replayed again after an edit."""
    engine = Engine(root)
    engine.execute()
    engine.replay()
    replayed(root)
    edit()
    engine = Engine(root)
    engine.execute()
    engine.replay()
    return replayed(root)


BOTH = ["a start resume", "a start error"]
KEEPS: list[tuple[str, dict[str, Any]]] = [
    ("nothing", {}),
    ("the policy", {"release": {"version": 1, "rules": [{"id": "r", "metric": NAME, "min": 0.5}]}}),
    ("an expectation", {"case": {"expected": {"state": {}}}}),
    ("metadata", {"case": {"metadata": {"language": "en"}}}),
    ("who an agent may escalate to", {"evaluators": [{**RECOVERY, "escalate_tools": []}]}),
    ("what a control has to show", {"evaluators": [{**RECOVERY, "control": "calls_and_state"}]}),
    ("a criterion's name", {"evaluators": [{**RECOVERY, "criterion": "recovers"}]}),
    ("another evaluator", {"evaluators": [RECOVERY, {"type": "state_unchanged", "paths": ["balance"]}]}),
    ("another case", {"cases": [agent_case("b", "look")]}),
    ("slices", {"slices": ["first_tool"]}),
]


def edited(root: Path, *, case: Any = None, cases: Any = (), release: Any = None, **suite: Any) -> None:
    write(root, agent_case("a", "pay", more=case), *cases, **suite)
    if release:
        (root / "release.yaml").write_text(json.dumps(release))


@pytest.mark.parametrize("edit", [each[1] for each in KEEPS], ids=[each[0] for each in KEEPS])
def test_what_no_replay_depends_on_replays_nothing_again(tmp_path: Path, edit: dict[str, Any]) -> None:
    edited(tmp_path)
    assert again(tmp_path, lambda: edited(tmp_path, **edit)) == []


RENEWS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("the version", {"system": {**AGENT_SYSTEM, "version": "v2"}}, BOTH),
    ("the system's name", {"system": {**AGENT_SYSTEM, "name": "another"}}, BOTH),
    ("the code", {"app": AGENT + "\n# edited\n"}, BOTH),
    ("the initial state", {"case": {"initial_state": {"balance": 1}}}, BOTH),
    ("the input", {"case": {"input": {"calls": [{"tool": "pay"}]}}}, BOTH),
    ("another fault", {"evaluators": [{**RECOVERY, "fault": "timeout"}]}, ["a start timeout"]),
    ("a fault more", {"evaluators": [RECOVERY, {**RECOVERY, "fault": "timeout"}]}, ["a start timeout"]),
]


@pytest.mark.parametrize(("edit", "expected"), [each[1:] for each in RENEWS], ids=[each[0] for each in RENEWS])
def test_another_system_case_or_fault_is_replayed_and_a_shared_control_is_not_repeated(
    tmp_path: Path, edit: dict[str, Any], expected: list[str]
) -> None:
    edited(tmp_path)
    assert again(tmp_path, lambda: edited(tmp_path, **edit)) == expected


CHECKPOINT = AgentCheckpoint(checkpoint_id="start", payload={"balance": 0})


def recorded(latency_ms: float = 1.0, **step: Any) -> str:
    made = AgentStep(**{"index": 1, "kind": "tool_call", "tool_name": "pay", "latency_ms": latency_ms, **step})
    return recorded_text(AgentTrajectory(steps=(made,), checkpoints=(CHECKPOINT,)))


def key_of(engine: Engine, text: str, checkpoint: AgentCheckpoint = CHECKPOINT, **change: Any) -> str:
    case = next(engine.expand().rows())
    return replay_key(engine.identity, case, Recording(text, None, 0).digest, checkpoint, ReplayChange(**change))


def test_a_key_takes_the_recording_without_latencies_the_checkpoint_and_the_change(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "pay")))
    base = key_of(engine, recorded())
    assert key_of(engine, recorded(latency_ms=250.0)) == base
    others = [
        key_of(engine, recorded(arguments={"n": 2})),
        key_of(engine, recorded(call_id="c9")),
        key_of(engine, recorded(), CHECKPOINT.model_copy(update={"payload": {"balance": 1}})),
        key_of(engine, recorded(), CHECKPOINT.model_copy(update={"checkpoint_id": "other"})),
        key_of(engine, recorded(), kind="inject_fault", step_index=1, fault="error"),
        key_of(engine, recorded(), kind="inject_fault", step_index=1, fault="timeout"),
        key_of(engine, recorded(), kind="inject_fault", step_index=2, fault="timeout"),
    ]
    assert len({base, *others}) == 1 + len(others)


MUTATES = AGENT.replace(
    'how = given.get(change.kind, "as recorded")',
    """how = given.get(change.kind, "as recorded")
        trajectory.steps[0].arguments["n"] = "mutated"
        checkpoint.payload.clear()""",
)


def test_a_replay_that_mutates_what_it_is_given_changes_neither_keys_nor_the_next_replay(tmp_path: Path) -> None:
    assert MUTATES != AGENT
    root = write(tmp_path, agent_case("a", "look", "pay", checkpoints="start"), evaluators=SHARED[:3], app=MUTATES)
    engine = Engine(root)
    verdicts = engine.run()
    assert [row.reason for row in verdicts.values()] == ["recovered"] * 3
    assert len(replayed(tmp_path)) == 4
    assert engine.replay().miss == 0


INTERRUPTED = AGENT.replace(
    'how = given.get(change.kind, "as recorded")',
    """how = given.get(change.kind, "as recorded")
        if (Path(__file__).parent / "stop").exists() and current_case().id == "b":
            from tests.support.interrupts import ctrl_c
            ctrl_c()""",
)


def test_replays_that_were_interrupted_go_on_where_they_stopped(tmp_path: Path) -> None:
    cases = [agent_case(name, "pay") for name in ("a", "b", "c")]
    engine = Engine(write(tmp_path, *cases, app=INTERRUPTED))
    engine.execute()
    (tmp_path / "stop").touch()
    with interruptible(), pytest.raises(KeyboardInterrupt):
        engine.replay()
    assert replayed(tmp_path) == [*BOTH, "b start resume"]
    (tmp_path / "stop").unlink()
    counts = engine.replay()
    assert (counts.hit, counts.miss) == (2, 4)
    assert replayed(tmp_path) == [f"{name} start {what}" for name in ("b", "c") for what in ("resume", "error")]
    assert [row.reason for row in engine.judge().values()] == ["recovered"] * 3


def test_a_system_without_replay_is_refused_naming_the_evaluator(tmp_path: Path) -> None:
    write(tmp_path, agent_case("a", "pay"), app=AGENT.replace("def replay(", "def not_replay("))
    with pytest.raises(ConfigError, match=rf"{NAME}.*app:agent.*replay\(trajectory"):
        load_system(load_project(tmp_path))


def test_a_call_made_in_parallel_before_the_fault_came_back_is_no_escalation(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "pay", "ask_human", parallel=True, after="fails")))
    verdict = engine.run()["a", NAME]
    assert (verdict.status, verdict.reason) == ("failed", "acted_wrongly")


def test_a_broken_rule_is_named_in_the_verdict(tmp_path: Path) -> None:
    engine = Engine(write(tmp_path, agent_case("a", "pay", after="breaks a rule")))
    assert engine.run()["a", NAME].detail == "broke honest: said it was paid"
