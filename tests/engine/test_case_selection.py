"""Which cases an evaluator judges, and pairs in which neither side acted."""

from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory
from tests.support.evidence import NOTHING, evidence, judge
from tests.support.projects import write_project

R = VerdictReason
SOURCE = evidence(initial={"a": 1}, state={"a": 1})
COPY = evidence(initial={"a": 1}, state={"a": 2}, source=SOURCE)  # by the transform `injected`
PASSED, FAILED = ("passed", None), ("failed", None)
COPY_OUT = ("not_applicable", R.METAMORPHIC_COPY.value)
OUT = ("not_applicable", R.CASE_NOT_SELECTED.value)


@pytest.mark.parametrize(
    ("cases", "of_source", "of_copy"),
    [
        (None, PASSED, COPY_OUT),
        ("sources", PASSED, COPY_OUT),
        ("copies", OUT, FAILED),
        ("all", PASSED, FAILED),
        (["injected"], OUT, FAILED),
        (["reworded"], OUT, OUT),
        (["reworded", "injected"], OUT, FAILED),
    ],
)
def test_an_evaluator_judges_the_cases_that_it_selects(cases: Any, of_source: Any, of_copy: Any) -> None:
    declared = {"type": "state_unchanged", "paths": ["a"], **({} if cases is None else {"cases": cases})}
    found = [judge(declared, case) for case in (SOURCE, COPY)]
    assert [(row.status, row.reason) for row in found] == [of_source, of_copy]


TRANSFORM = {"name": "injected", "field": "text", "template": "{value} Quickly!"}


@pytest.mark.parametrize(
    ("evaluator", "transforms", "told"),
    [
        (
            {"type": "state_matches", "cases": "some"},
            [TRANSFORM],
            "must be sources, copies, all or a list of transforms",
        ),
        ({"type": "state_matches", "cases": []}, [TRANSFORM], "must be sources, copies, all or a list of transforms"),
        ({"type": "state_matches", "cases": ["injectd"]}, [TRANSFORM], "did you mean 'injected'"),
        ({"type": "state_matches", "cases": "copies"}, [], "there is no copy without a transform"),
        (
            {"type": "metamorphic_relation", "relation": "same_state", "cases": "all"},
            [TRANSFORM],
            "compares copies with their sources always",
        ),
        (
            {"type": "fault_recovery", "tool": "t", "fault": "error", "cases": "all"},
            [TRANSFORM],
            "replays are made of source cases alone",
        ),
    ],
)
def test_a_selection_that_selects_nothing_is_refused(
    tmp_path: Path, evaluator: dict[str, Any], transforms: list[Any], told: str
) -> None:
    suite = {"evaluators": [evaluator], "metamorphic": {"transforms": transforms}}
    with pytest.raises(ConfigError, match=told):
        load_project(write_project(tmp_path, suite=suite))


CALLED = AgentTrajectory(steps=(AgentStep(index=1, kind="tool_call", tool_name="look"),))
SILENT = AgentTrajectory(steps=(AgentStep(index=1, kind="final", result="sorry"),))


def side(trajectory: AgentTrajectory | None, state: Any, source: CaseEvidence | None = None) -> CaseEvidence:
    return evidence(output="sorry", initial={"a": 1}, state=state, trajectory=trajectory, source=source)


@pytest.mark.parametrize(
    ("source", "copy", "noop"),
    [
        ((SILENT, {"a": 1}), (SILENT, {"a": 1}), True),
        ((SILENT, {"a": 1}), (CALLED, {"a": 1}), False),
        ((SILENT, {"a": 2}), (SILENT, {"a": 1}), False),
        ((None, {"a": 1}), (SILENT, NOTHING), True),
        ((None, NOTHING), (SILENT, {"a": 1}), None),
    ],
)
def test_a_pair_in_which_neither_side_acted_is_counted_and_can_be_left_out(source: Any, copy: Any, noop: Any) -> None:
    pair = side(*copy, side(*source))
    relation = {"type": "metamorphic_relation", "relation": "same_output"}
    row = judge(relation, pair)
    assert (row.status, row.noop) == ("passed", noop)
    strict = judge({**relation, "require_action": True}, pair)
    assert strict.reason == (R.NO_ACTION_TAKEN.value if noop else None)


def test_only_passed_pairs_are_counted_as_passed_without_acting() -> None:
    pair = evidence(output="no", initial={"a": 1}, state={"a": 1}, source=side(SILENT, {"a": 1}))
    row = judge({"type": "metamorphic_relation", "relation": "same_output"}, pair)
    assert (row.status, row.noop) == ("failed", False)
