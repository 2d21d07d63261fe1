"""What a system is made of beside its code: prompts and variables that are declared, and files that are not."""

from pathlib import Path

import pytest

from oloproof_dagster import load_run
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.suite.preflight import own_files
from tests.support.projects import write_project
from tests.support.runs import COUNTED_TILL, EXECUTED, Home, home

SYSTEM = {"name": "till", "version": "v1", "callable": "app:till"}


def made(root: Path, **system: object) -> Path:
    files = {"prompts/system.txt": "Be kind.", "notes.md": "nothing"}
    return write_project(root, app=COUNTED_TILL, suite={"system": SYSTEM | system}, files=files)


@pytest.mark.slow
def test_an_edited_prompt_or_variable_is_a_new_attempt_and_the_former_one_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "small")
    with home(made(tmp_path, files=["prompts/*.txt"], env=["MODEL", "UNSET"])) as till:
        till.run()
        till.noted()
        (tmp_path / "prompts/system.txt").write_text("Be terse.")
        result = till.run()
        assert till.noted() == EXECUTED
        assert "as a new attempt. Bump system.version" in result.said("trajectories")["warnings"]
        monkeypatch.setenv("MODEL", "large")
        till.run()
        assert till.noted() == EXECUTED
        assert till.run().said("trajectories")["reused"] is True
        assert attempts(till) == ["1", "2"]


def attempts(till: Home) -> list[str]:
    return sorted(each.name for each in (till.root / ".oloproof/evidence/v1/attempts").iterdir() if each.name.isdigit())


@pytest.mark.slow
def test_other_files_that_changed_since_the_version_was_recorded_are_named_in_one_line(tmp_path: Path) -> None:
    with home(made(tmp_path)) as till:
        till.run()
        assert "warnings" not in till.run().said("trajectories")
        (tmp_path / "prompts/system.txt").write_text("Be terse.")
        for _ in range(2):
            warning = till.run().said("trajectories")["warnings"]
            assert warning.startswith("changed since the version was recorded, and in no key of its evidence: prompts")
        assert till.noted() == EXECUTED, "nothing was executed again"
        assert load_run(tmp_path, "v1") is not None


def test_a_changed_file_that_stands_in_some_key_is_not_named(tmp_path: Path) -> None:
    files = {
        "data/world.json": '{"balance": 0}',
        "texts.json": '{"case": "a", "text": "Put one on it."}',
        "kind.py": "def is_kind(case):\n    return True\n",
        "typos.py": "def swap(text, case_id):\n    return text[::-1]\n",
    }
    suite = {
        "system": SYSTEM,
        "evaluators": [{"type": "python", "criterion": "kind", "callable": "kind:is_kind"}],
        "metamorphic": {
            "transforms": [
                {"name": "typos", "field": "note", "callable": "typos:swap"},
                {"name": "reworded", "field": "note", "rewrites": "texts.json"},
            ]
        },
    }
    cases = [{"id": "a", "input": {"amount": 1, "note": "Please"}, "initial_state_file": "world.json"}]
    with home(write_project(tmp_path, app=COUNTED_TILL, cases=cases, suite=suite, files=files)) as till:
        till.run()
        for name, content in files.items():
            (tmp_path / name).write_text(content.replace("True", "False").replace("0", "5").replace("-1", "-2") + "\n")
        assert "warnings" not in till.run().said("trajectories")
        assert load_run(tmp_path, "v1").verdicts.status.tolist() == ["failed", "not_applicable", "not_applicable"]


def test_a_project_that_declares_nothing_has_the_code_digest_that_it_had(tmp_path: Path) -> None:
    project = load_project(made(tmp_path))
    assert own_files(project).declared == ()


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ({"files": ["../secret.txt"]}, "system.files.0: '../secret.txt' must be a path or a glob within the project"),
        ({"files": ["prompts/*.j2"]}, "system.files.0: no file of the project fits 'prompts/"),
        ({"env": ["MY MODEL"]}, "system.env.0: 'MY MODEL' is no variable's name; write one such as MODEL"),
    ],
)
def test_what_cannot_be_declared_is_refused(system: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        own_files(load_project(made(tmp_path, **system)))
    assert said in str(caught.value)
