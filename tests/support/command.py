"""The command line in this process and in its own: what a command answers, and the files its tests run it on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oloproof_dagster
from tests.support.projects import case

EXAMPLE = Path(oloproof_dagster.__file__).parent / "examples" / "stateful_agent"
WRONG = case(2, expected={"state": {"balance": 7, "other": "untouched"}})


@dataclass
class Answer:
    """What a command left: its exit code, and both streams."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


def in_a_process(*arguments: str | Path, cwd: Path | None = None) -> Answer:
    """Runs a command as a person does; what the agent prints never reaches its stdout."""
    environment = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "OLOPROOF_PROJECT")}
    done = subprocess.run(
        [sys.executable, "-m", "oloproof_dagster.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def calls(root: Path) -> list[str]:
    path = root / "calls"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def assert_one_line(answer: Answer, code: int = 2) -> None:
    assert answer.code == code
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "Traceback" not in answer.err
