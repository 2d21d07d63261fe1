"""What a release run refuses before the first case."""

import pytest

from oloproof_dagster import load_run
from tests.support.runs import Home


def test_a_version_that_is_not_the_current_one_is_refused_before_the_first_case(till: Home) -> None:
    result = till.run("v0")
    assert result.failed_steps == {"till_execution"}
    assert "'v0'" in result.why
    assert "'v1'" in result.why
    assert till.noted() == []
    assert "gate" not in result.materialized


def test_a_version_that_is_not_registered_is_refused_before_the_first_case(till: Home) -> None:
    till.run()
    till.noted()
    result = till.run("v2", register=False)
    assert result.failed_steps == {"till__cases"}
    assert "'v2' is not registered" in result.why
    assert "'v1'" in result.why
    assert till.noted() == []
    assert not load_run(till.root).evidence.folder("v2").exists()


@pytest.mark.parametrize(
    ("asset", "step"), [("trajectories", "till_execution"), ("fault_replays", "till__fault_replays")]
)
def test_executing_and_replaying_refuse_an_old_version_each_for_itself(ran: Home, asset: str, step: str) -> None:
    ran.edit("oloproof.yaml", '"v1"', '"v2"')
    keys = [ran.key("trajectories"), ran.key("environment_states")] if asset == "trajectories" else [ran.key(asset)]
    result = ran.run("v1", select=keys)
    assert result.failed_steps == {step}
    assert "'v1'" in result.why
    assert "'v2'" in result.why


BROKEN: dict[str, tuple[str, str, str]] = {
    "a case that is no case": ("data/cases.jsonl", '"input"', '"inputs"'),
    "an agent that cannot be imported": ("app.py", "class Till:", "import nowhere\nclass Till:"),
    "a system without the replay that an evaluator needs": ("app.py", "def replay", "def replayed"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_users_mistake_fails_the_first_step_and_executes_nothing(till: Home, what: str) -> None:
    till.edit(*BROKEN[what])
    result = till.run()
    assert result.failed_steps == {"till__cases"}
    assert "ConfigError" in result.why
    assert till.noted() == []
