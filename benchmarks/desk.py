"""The packaged refund desk with as many cases as asked for: a scripted agent with three or so tool calls a case."""

import json
import shutil
from pathlib import Path

import oloproof_dagster

EXAMPLE = Path(oloproof_dagster.__file__).parent / "examples" / "stateful_agent"
CASES_OF_A_SOURCE = 3
"""Each source case and its two transformed copies."""


def write(root: Path, n_cases: int, state_bytes: int = 0) -> Path:
    """Writes the example with its requests repeated until there are `n_cases` cases, copies included.

    Each initial state holds about `state_bytes` bytes more, which nothing changes.
    """
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("__pycache__", ".oloproof"), dirs_exist_ok=True)
    requests = [json.loads(line) for line in (root / "data/refunds.jsonl").read_text("utf-8").splitlines()]
    ballast = {f"page-{number:05d}": "x" * 1000 for number in range(state_bytes // 1016)}
    with (root / "data/refunds.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(-(-n_cases // CASES_OF_A_SOURCE)):
            case = dict(requests[number % len(requests)])
            case["id"] = f"{case['id']}-{number:06d}"
            if ballast:
                case["initial_state"] = {**case["initial_state"], "archive": ballast}
            stream.write(json.dumps(case) + "\n")
    suite = (root / "oloproof.yaml").read_text("utf-8")
    for line in ("validity_labels: labels/paraphrase.jsonl", "validity_labels: labels/injected.jsonl"):
        suite = suite.replace(line, "")
    (root / "oloproof.yaml").write_text(suite, "utf-8")
    return root
