"""A scripted project of any size: one tool call a case, one transform, one fault replay, a state of some size."""

import json
from pathlib import Path

APP = """
from oloproof_dagster import AgentCheckpoint, AgentStep, AgentTrajectory, current_case

START = AgentCheckpoint(checkpoint_id="start")


class Till:
    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, request):
        recording = self.work(request, None)
        current_case().agent_trajectory(recording)
        return {"answer": "added"}

    def work(self, request, fault):
        if fault is None:
            self.state["balance"] += request["amount"]
        asked = {"amount": request["amount"]}
        steps = (
            AgentStep(index=1, kind="tool_call", tool_name="add", call_id="c1", arguments=asked),
            AgentStep(index=2, kind="tool_result", tool_name="add", call_id="c1", result=fault or {"status": "ok"}),
            AgentStep(index=3, kind="final", result="added"),
        )
        return AgentTrajectory(steps=steps, terminal_status="success", checkpoints=(START,))

    def replay(self, trajectory, *, checkpoint, change):
        return self.work(current_case().input, change.fault_result)


till = Till()
"""

SUITE = {
    "version": 1,
    "project": "till",
    "dataset": "data/cases.jsonl",
    "system": {"name": "till", "version": "v1", "callable": "app:till"},
    "metamorphic": {"transforms": [{"name": "polite", "field": "note", "template": "Kindly: {value}"}]},
    "evaluators": [
        {"type": "state_matches"},
        {"type": "fault_recovery", "tool": "add", "fault": "error"},
        {"type": "metamorphic_relation", "relation": "same_state", "transform": "polite"},
    ],
    "slices": ["tool_calls:1,2"],
}

RELEASE = {
    "version": 1,
    "allow_approximate_methods": True,
    "rules": [{"id": "right", "metric": "state_matches", "min": 0.8}],
}


def write(root: Path, n_cases: int, state_bytes: int = 200) -> Path:
    """Writes a project of `n_cases` cases, half of them derived, with states of about `state_bytes` bytes."""
    ballast = {f"k{i:06d}": "x" * 40 for i in range(max(0, state_bytes - 60) // 52)}
    (root / "data").mkdir(parents=True, exist_ok=True)
    with (root / "data/cases.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(n_cases // 2):
            case = {
                "id": f"c-{number:06d}",
                "input": {"amount": number, "note": f"Please add {number}"},
                "initial_state": {"balance": 0, "ballast": ballast},
                "expected": {"state": {"balance": number, "ballast": ballast}},
            }
            stream.write(json.dumps(case) + "\n")
    (root / "app.py").write_text(APP, encoding="utf-8")
    (root / "oloproof.yaml").write_text(json.dumps(SUITE), encoding="utf-8")
    (root / "release.yaml").write_text(json.dumps(RELEASE), encoding="utf-8")
    return root
