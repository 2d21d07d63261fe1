"""New project folders: a packaged example copied, or the files around a system of the user's own."""

import json
import os
import re
import shutil
from pathlib import Path

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.evaluator_keys import CALLABLE
from oloproof_dagster.project.oloproof_yaml import slug_of
from oloproof_dagster.wording import shortened

EXAMPLES = Path(__file__).parents[1] / "examples"


def examples() -> dict[str, str]:
    """The packaged examples by name, each with its one-line summary (its README's first sentence)."""
    found = {}
    for folder in sorted(EXAMPLES.iterdir()):
        if (folder / "oloproof.yaml").is_file():
            text = (folder / "README.md").read_text("utf-8")
            paragraph = next(part for part in text.split("\n\n") if not part.startswith("#"))
            found[folder.name.replace("_", "-")] = re.split(r"(?<=\.)\s", " ".join(paragraph.split()))[0]
    return found


def copy_example(name: str, path: Path) -> None:
    """Copies an example into a folder that is not there yet or is empty.

    Raises:
        ConfigError: there is no such example, or the folder holds something.
    """
    if name not in examples():
        raise ConfigError(f"there is no example {name!r}; there are: {', '.join(examples())}")
    try:
        if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path}: is there already and not empty; nothing was written. Name another folder")
        shutil.copytree(
            EXAMPLES / name.replace("-", "_"),
            path,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", ".oloproof"),
        )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def write_project(system: str, path: Path) -> list[Path]:
    """Writes a project around `module:attribute` into a folder; files that are there are never touched.

    Raises:
        ConfigError: the name is none, or a file that would be written is there already.
    """
    if not CALLABLE.fullmatch(system):
        raise ConfigError(f"--system {shortened(system)}: must read module:attribute, such as app:desk")
    name = Path(os.path.realpath(path)).name
    project = name if re.fullmatch(r"\w[\w. -]*", name) and slug_of(name) else "my-agent"
    project = project if re.fullmatch(r"\w[\w-]*", project) else json.dumps(project, ensure_ascii=False)
    names = {"PROJECT": project, "SYSTEM": system}
    files = {
        path / file: re.sub("PROJECT|SYSTEM", lambda found: names[found[0]], text) for file, text in _FILES.items()
    }
    there = [str(file) for file in files if os.path.lexists(file)]
    if there:
        raise ConfigError(f"{', '.join(there)}: there already; nothing was written. Name another folder")
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return list(files)


_FILES = {
    "oloproof.yaml": """\
version: 1
project: PROJECT
dataset: data/cases.jsonl

system:
  name: PROJECT
  version: "1"                  # bump it with every release; ${GIT_SHA:-dev} takes it from the environment
  callable: SYSTEM              # called with each case's input; reset(state) and snapshot() make it a sandbox

evaluators:
  - {type: state_matches, mode: subset}     # the state left behind against expected.state
  # - {type: state_unchanged, criterion: others_untouched, paths: [orders.other]}
  # - {type: exact_match, criterion: right_answer, field: answer}
  # - {type: tool_calls, must: [lookup], must_not: [delete]}
  # needs replay():
  # - {type: fault_recovery, tool: lookup, fault: error, escalate_tools: [escalate], require_state: expected}

slices: []
""",
    "release.yaml": """\
version: 1
confidence_level: 0.95
rules:
  - {id: right_state, metric: state_matches, min: 0.8}      # 24 of 24 passed reach a lower bound of 0.857
""",
    "data/cases.jsonl": (
        '{"id": "case-001", "input": {"message": "write a request of yours here"},'
        ' "initial_state": {"orders": {}}, "expected": {"state": {"orders": {}}}}\n'
    ),
    "definitions.py": """\
from pathlib import Path

import oloproof_dagster

defs = oloproof_dagster.build_definitions(Path(__file__).parent)
""",
    "workspace.yaml": "load_from:\n  - python_file: definitions.py\n",
}
