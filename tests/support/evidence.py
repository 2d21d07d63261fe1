"""What is recorded of one case, made by hand, and the verdict of one evaluator on it."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from oloproof_dagster.digests import canonical_json
from oloproof_dagster.evaluators.case import CaseEvidence, CaseView
from oloproof_dagster.evaluators.criterion import Criterion, build
from oloproof_dagster.evaluators.volatile import NOTHING_VOLATILE, Volatile
from oloproof_dagster.project.evaluator_keys import EvaluatorDeclaration
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow
from oloproof_dagster.records.trajectory import AgentTrajectory, recorded_text

NOTHING = object()


def text_of(value: Any) -> JSONText | None:
    return None if value is NOTHING else JSONText(canonical_json(value))


def evidence(
    *,
    expected: Any = None,
    initial: Any = NOTHING,
    output: Any = NOTHING,
    state: Any = NOTHING,
    trajectory: AgentTrajectory | None = None,
    status: str | None = "ok",
    trial: int = 0,
    source: CaseEvidence | None = None,
    replays: Callable[..., ReplayRow | None] | None = None,
) -> CaseEvidence:
    """What is recorded of a case; `status` None where nothing is. With a source the case is derived from it."""
    case = SuiteRow(
        case_id="a~injected" if source else "a",
        digest="",
        line=1,
        input=JSONText('{"n":1}'),
        expected=JSONText(canonical_json(expected)),
        metadata=JSONText('{"language":"en"}'),
        group_id=None,
        initial_state=text_of(initial),
        cluster="a",
        source_case="a" if source else None,
        transform="injected" if source else None,
    )
    execution = ExecutionRow(
        case_id=case.case_id,
        trial=trial,
        execution_key="k",
        status=status or "",
        error=None if status == "ok" else "ValueError: told to",
        duration_ms=1.0,
        output=text_of(output),
        trajectory=JSONText(recorded_text(trajectory)) if trajectory else None,
    )
    left = StateRow(case.case_id, trial, "k", None, text_of(state))
    return CaseEvidence(case, trial, execution if status else None, left if status else None, source, replays)


def criterion(
    declared: dict[str, Any],
    check: Callable[[CaseView], Any] | None = None,
    volatile: Volatile = NOTHING_VOLATILE,
) -> Criterion:
    """The criterion of one evaluator, as oloproof.yaml declares it; `check` stands for a python check's function."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in declared.items()}
    declaration = TypeAdapter(EvaluatorDeclaration).validate_python(given)

    def load_check(name: str) -> Any:
        return check, lambda error: f"{type(error).__name__}: {error}"

    (built,) = build((declaration,), load_check, volatile)
    return built


def judge(declared: dict[str, Any], case: CaseEvidence | None = None, **of_case: Any) -> VerdictRow:
    return criterion(declared).row(case or evidence(**of_case))


def compared(row: VerdictRow) -> list[tuple[str, Any, Any, bool, bool]]:
    found = json.loads(row.compared or "[]")
    return [tuple(each[key] for key in ("path", "expected", "actual", "absent", "matches")) for each in found]
