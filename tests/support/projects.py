"""Project folders written for tests: a small till whose agent, cases and rules each test varies."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TILL = '''
from oloproof_dagster import (
    AgentCheckpoint, AgentConstraintCheck, AgentStep, AgentTrajectory, ReplayChange, current_case,
)


class Till:
    """Adds what the input asks for to a balance, through one tool; replays from its start."""

    def __init__(self):
        self.state = {}

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, request):
        recording = self.work(request, None)
        current_case().agent_trajectory(recording)
        return {"answer": "added" if recording.terminal_status == "success" else "failed"}

    def work(self, request, fault):
        arguments = {"amount": request["amount"]}
        if fault is None:
            self.state["balance"] = self.state.get("balance", 0) + request["amount"]
            result = {"balance": self.state["balance"]}
        else:
            result = fault
        steps = (
            AgentStep(index=1, kind="tool_call", tool_name="add", call_id="c1", arguments=arguments),
            AgentStep(index=2, kind="tool_result", tool_name="add", call_id="c1", result=result),
            AgentStep(index=3, kind="final", result="done"),
        )
        status = "success" if fault is None else "failure"
        start = AgentCheckpoint(checkpoint_id="start")
        return AgentTrajectory(steps=steps, terminal_status=status, checkpoints=(start,))

    def replay(self, trajectory, *, checkpoint, change):
        return self.work(current_case().input, change.fault_result)


till = Till()
'''

EVALUATORS: list[dict[str, Any]] = [{"type": "state_matches"}]


def case(number: int, **more: Any) -> dict[str, Any]:
    """Case `c-001` and so on: adds its number to a balance of 0 and expects just that."""
    return {
        "id": f"c-{number:03d}",
        "input": {"amount": number, "note": f"Please add {number}"},
        "initial_state": {"balance": 0, "other": "untouched"},
        "expected": {"state": {"balance": number, "other": "untouched"}, "answer": "added"},
        "metadata": {},
    } | more


def write_project(
    root: Path,
    *,
    cases: Sequence[Mapping[str, Any]] | str | None = None,
    app: str = TILL,
    suite: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | str | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Writes a project folder. `suite` is laid over a working oloproof.yaml key by key (None takes a key out); text is
    written as it is. JSON is YAML, so models are written as JSON on lines of their own."""
    declared: dict[str, Any] = {
        "version": 1,
        "project": "till",
        "dataset": "data/cases.jsonl",
        "system": {"name": "till", "version": "v1", "callable": "app:till"},
        "evaluators": EVALUATORS,
    } | dict(suite or {})
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in declared.items() if value is not None]
    written = {"oloproof.yaml": "\n".join(lines) + "\n", "app.py": textwrap.dedent(app)}
    if cases is None:
        cases = [case(number) for number in range(1, 4)]
    written["data/cases.jsonl"] = (
        cases if isinstance(cases, str) else "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in cases)
    )
    if release is not None:
        written["release.yaml"] = release if isinstance(release, str) else json.dumps(release)
    for name, text in (written | dict(files or {})).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def rules(*declared: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A release.yaml; each rule is named by its position unless it bears an id."""
    return {
        "version": 1,
        "rules": [{"id": f"rule_{position}"} | dict(rule) for position, rule in enumerate(declared)],
    } | more


NO_FAILURE = {"metric": "state_matches", "max_failures": 0}
