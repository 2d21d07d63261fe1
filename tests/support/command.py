"""The command line in this process: what a command answers, and the files that its tests run it on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oloproof_dagster
from tests.support.projects import case
from tests.support.runs import COUNTED_TILL

EXAMPLE = Path(oloproof_dagster.__file__).parent / "examples" / "stateful_agent"
WRONG = case(2, expected={"state": {"balance": 7, "other": "untouched"}})
NOISY = COUNTED_TILL.replace(
    'note("calls")\n',
    """note("calls")
        import os, subprocess, sys
        print("printed")
        sys.__stdout__.write("written")
        os.write(1, b"straight to the descriptor")
        subprocess.run(["echo", "from a child"], check=True)
        print("warned", file=sys.stderr)
""",
)


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
