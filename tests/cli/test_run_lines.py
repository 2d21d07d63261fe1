"""The lines of a run that say what its verdicts rest on."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command
from tests.support.engine import AGENT, AGENT_SYSTEM, agent_case
from tests.support.projects import write_project

RECOVERY = {"type": "fault_recovery", "tool": "pay", "fault": "error"}
NAME = "recovers_from_error_at_pay"
PAID = {"expected": {"state": {"balance": 0, "done": ["pay"]}}}


def project(root: Path, **declared: Any) -> Path:
    suite = {"system": AGENT_SYSTEM, "evaluators": [{**RECOVERY, **declared}, {"type": "state_matches"}]}
    return write_project(root, cases=[agent_case("a", "pay", more=PAID)], app=AGENT, suite=suite)


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_a_recovery_that_rests_on_the_agents_own_word_is_said_by_run_and_check(
    oloproof: Command, tmp_path: Path
) -> None:
    root = project(tmp_path)
    line = (
        f"{NAME}: the verdict rests on the agent's own word, as recordings hold no constraint; write"
        " require_state: expected or a check on the evaluator"
    )
    for _ in ("executed", "from evidence"):
        assert oloproof("run", "--project", root).err == f"warning: {line}\n"
    assert line in oloproof("check", "--project", root).out
    root = project(tmp_path, require_state="expected")
    answer = oloproof("run", "--json", "--project", root)
    assert "warning" not in answer.err
    (recovers,) = (each for each in answer.document["metrics"] if each["metric"] == NAME)
    assert (recovers["n_passed"], recovers["n_observed"]) == (0, 1)
    assert answer.document["cache"]["replays"] == {"hit": 2, "miss": 0}
    assert "own word" not in oloproof("check", "--project", root).out


@pytest.mark.usefixtures("in_shared_home")
def test_a_run_names_what_an_agent_that_does_nothing_passes_mostly(oloproof: Command, tmp_path: Path) -> None:
    cases = [agent_case(f"c{n}", more={"expected": {"state": {"balance": 0}}}) for n in range(3)]
    evaluators = [
        {"type": "state_matches", "mode": "subset"},
        {"type": "state_unchanged", "paths": ["balance"]},
        {"type": "metamorphic_relation", "relation": "same_output", "transform": "shouted"},
        {"type": "metamorphic_relation", "relation": "same_state", "require_action": True, "criterion": "acted_alike"},
    ]
    transforms = [{"name": "shouted", "field": "text", "template": "{value}!"}]
    suite = {"system": AGENT_SYSTEM, "evaluators": evaluators, "metamorphic": {"transforms": transforms}}
    answer = oloproof("run", "--json", "--project", write_project(tmp_path, cases=cases, app=AGENT, suite=suite))
    assert answer.err.startswith(
        "warning: an agent that does nothing passes more than half as often as this one: state_matches (it 3,"
        " this agent 3), same_output_under_shouted (it 3, this agent 3); add cases in which something has to be done\n"
    )
    metrics = {each["metric"]: each for each in answer.document["metrics"]}
    assert metrics["same_output_under_shouted"]["noop_passed"] == 3
    assert metrics["acted_alike"]["excluded"] == {"no_action_taken": 3, "not_a_metamorphic_pair": 3}
