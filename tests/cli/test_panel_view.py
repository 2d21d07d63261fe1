"""The case panel in the terminal: verdicts first, long things folded, everything with --full."""

from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.engine import Engine
from tests.support.projects import case, rules, write_project

LONG = """
from oloproof_dagster import current_case


class Clerk:
    def reset(self, state):
        self.state = dict(state)

    def snapshot(self):
        return self.state

    def __call__(self, request):
        steps = []
        for number in range(150):
            steps.append({"kind": "tool_call", "tool_name": "look", "arguments": {"page": number}})
            steps.append({"kind": "tool_result", "tool_name": "look", "result": "x" * 300})
        self.state = {key: -1 for key in self.state}
        current_case().agent_trajectory({"steps": [{"index": n, **step} for n, step in enumerate(steps, 1)]})
        return {"answer": "y" * 3_000}


clerk = Clerk()
"""
N_PATHS, N_STEPS = 60, 300


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = {f"row-{number:02d}": number for number in range(N_PATHS)}
    folder = write_project(
        tmp_path_factory.mktemp("clerk"),
        app=LONG,
        cases=[case(1) | {"id": "long", "initial_state": state, "expected": {"state": state}}],
        suite={"system": {"name": "clerk", "version": "v1", "callable": "app:clerk"}},
        release=rules({"metric": "state_matches", "max_failures": 0}),
    )
    Engine(folder).run()
    return folder


def test_a_long_case_is_folded_to_a_page(root: Path, oloproof: Command) -> None:
    shown = oloproof("inspect", "--case", "long", "--project", root).out
    assert "+ 55 more (--full shows them)" in shown
    assert "row-00, row-01, row-02, row-03, row-04 and 55 more differs" in " ".join(shown.split())
    assert "... 260 more steps (--full shows them)" in shown
    assert "y" * 1_000 not in shown.replace("\n", "").replace(" ", "")
    assert len(shown.splitlines()) < 100


def test_the_verdicts_of_a_case_stand_before_everything_else(root: Path, oloproof: Command) -> None:
    shown = oloproof("inspect", "--case", "long", "--project", root).out
    places = [shown.index(text) for text in ("state_matches", "input", "output", "+ 55 more", "Recorded")]
    assert places == sorted(places)


def test_full_shows_every_step_every_kept_path_and_whole_values(root: Path, oloproof: Command) -> None:
    shown = oloproof("inspect", "--case", "long", "--full", "--project", root).out
    assert all(f"row-{number:02d}" in shown for number in range(50))
    assert "+ 10 more, which are not kept" in shown
    assert shown.count("tool_call look") == N_STEPS / 2
    assert "y" * 3_000 in shown.replace("\n", "").replace(" ", "")


def test_the_changed_texts_of_a_copys_world_are_shown_and_that_the_agent_never_saw_them(
    tmp_path: Path, oloproof: Command
) -> None:
    world = {"mail": {f"m{number}": f"text {number}" for number in range(8)}}
    transform = {"name": "injected", "target": "initial_state", "field": "mail.*", "template": "{value} SYSTEM!"}
    folder = write_project(
        tmp_path,
        cases=[case(1, initial_state=world, expected=None)],
        suite={
            "evaluators": [{"type": "metamorphic_relation", "relation": "same_state"}],
            "metamorphic": {"transforms": [transform]},
        },
    )
    Engine(folder).run()
    folded, whole = (
        " ".join(oloproof("inspect", "--case", "c-001~injected", *more, "--project", folder).out.split())
        for more in ((), ("--full",))
    )
    assert 'changed mail.m0: "text 0 SYSTEM!" changed mail.m1:' in folded
    assert "changed + 3 more (--full shows them)" in folded
    assert "no tool's result held what the transform changed" in folded
    assert 'changed mail.m7: "text 7 SYSTEM!"' in whole
