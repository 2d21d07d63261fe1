"""New project folders: examples copied, files written around a system of the user's own, nothing ever overwritten."""

import os
from pathlib import Path

import pytest

import oloproof_dagster
from oloproof_dagster.cli.scaffold import copy_example, examples, write_project
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.preflight import check_files, readable_by_all
from oloproof_dagster.suite.transforms import expand
from oloproof_dagster.system.loading import load_system

EXAMPLES = Path(oloproof_dagster.__file__).parent / "examples"
WRITTEN = ["data/cases.jsonl", "definitions.py", "oloproof.yaml", "release.yaml", "workspace.yaml"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Examples.


def test_every_packaged_example_is_listed_with_a_sentence() -> None:
    assert "stateful-agent" in examples()
    for name, summary in examples().items():
        assert (EXAMPLES / name.replace("-", "_") / "oloproof.yaml").is_file()
        assert summary.endswith(".")
        assert "\n" not in summary


def test_a_copied_example_is_the_example_without_what_runs_leave_behind(tmp_path: Path) -> None:
    copy_example("stateful-agent", tmp_path / "new" / "agent")
    packaged = {
        name: content
        for name, content in files_of(EXAMPLES / "stateful_agent").items()
        if "__pycache__" not in name and ".oloproof" not in name
    }
    assert files_of(tmp_path / "new" / "agent") == packaged


def test_a_copied_example_passes_everything_that_a_run_checks_first(tmp_path: Path) -> None:
    copy_example("stateful-agent", tmp_path / "agent")
    project = load_project(tmp_path / "agent")
    check_files(project)
    load_system(project)
    suite = list(expand(project, readable_by_all(project, read_cases(project))))
    assert len(suite) == 3 * sum(row.source_case is None for row in suite) == 72


def test_an_example_may_be_copied_into_a_folder_that_is_there_and_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy_example("stateful-agent", tmp_path / "empty")
    assert load_project(tmp_path / "empty").suite.project == "refund-desk"


@pytest.mark.parametrize("kind", ["a folder with a file", "a file", "a link to nowhere"])
def test_an_example_is_never_copied_over_anything(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "there"
    if kind == "a folder with a file":
        target.mkdir()
        (target / "mine").write_text("mine")
    elif kind == "a file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    before = files_of(tmp_path)
    with pytest.raises(ConfigError) as caught:
        copy_example("stateful-agent", target)
    assert str(caught.value) == f"{target}: is there already and not empty; nothing was written. Name another folder"
    assert files_of(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["stateful_agent", "nope", "", "../stateful-agent", "."])
def test_an_example_that_is_none_is_refused_with_the_ones_there_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no example .*; there are: .*stateful-agent"):
        copy_example(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# A project around the user's own system.

APP = """
class Desk:
    def reset(self, state): self.state = state
    def snapshot(self): return self.state
    def __call__(self, request): return {"answer": request["message"]}


desk = Desk()
"""


def test_a_written_project_passes_everything_that_a_run_checks_first(tmp_path: Path) -> None:
    folder = tmp_path / "my-agent"
    assert sorted(str(path.relative_to(folder)) for path in write_project("app:desk", folder)) == WRITTEN
    assert sorted(files_of(folder)) == WRITTEN
    (folder / "app.py").write_text(APP)
    project = load_project(folder)
    assert (project.suite.project, project.suite.system.name, project.suite.system.callable) == (
        *("my-agent", "my-agent"),
        "app:desk",
    )
    assert project.policy is not None
    assert project.policy.rules[0].metric in project.criteria
    check_files(project)
    load_system(project)
    assert len(list(expand(project, readable_by_all(project, read_cases(project))))) == 1


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("plain", "plain"),
        ("refund desk", "refund desk"),
        ("agent.v2", "agent.v2"),
        ("on", "on"),
        ("null", "null"),
        ("2026-11-30", "2026-11-30"),
        ("1.10", "1.10"),
        ("café", "café"),
        ("a: b", "my-agent"),
        ("agent #2", "my-agent"),
        ("'quoted'", "my-agent"),
        ("- dash", "my-agent"),
        ("{braces}", "my-agent"),
        ("*star", "my-agent"),
        ("SYSTEM", "SYSTEM"),
        ("PROJECT", "PROJECT"),
        ("___", "my-agent"),
        ("日本", "my-agent"),
        ("line\nbreak", "my-agent"),
    ],
)
def test_whatever_the_folder_is_called_the_project_can_be_loaded(tmp_path: Path, folder: str, project: str) -> None:
    write_project("app:desk", tmp_path / folder)
    suite = load_project(tmp_path / folder).suite
    assert (suite.project, suite.system.name, suite.system.callable) == (project, project, "app:desk")


def test_a_project_can_be_written_beside_the_files_of_a_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    write_project("app:desk", Path())
    assert (tmp_path / "app.py").read_text() == APP
    assert load_system(load_project(tmp_path)).call({"message": "x"}) == {"answer": "x"}
    assert load_project(tmp_path).suite.project == tmp_path.name


@pytest.mark.parametrize("file", WRITTEN)
@pytest.mark.parametrize("linked", [False, True], ids=["a file", "a link to nowhere"])
def test_a_file_that_is_there_is_never_touched_and_no_other_is_written(tmp_path: Path, file: str, linked: bool) -> None:
    folder = tmp_path / "desk"
    (folder / file).parent.mkdir(parents=True)
    if linked:
        (folder / file).symlink_to(tmp_path / "nowhere")
    else:
        (folder / file).write_text("mine")
    with pytest.raises(ConfigError) as caught:
        write_project("app:desk", folder)
    assert str(caught.value) == f"{folder / file}: there already; nothing was written. Name another folder"
    assert files_of(tmp_path) == ({} if linked else {f"desk/{file}": b"mine"})
    assert os.path.lexists(folder / file)


def test_a_project_is_never_written_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(ConfigError, match="there: cannot be written: "):
        write_project("app:desk", tmp_path / "there")
    assert files_of(tmp_path) == {"there": b"mine"}


def test_a_folder_name_that_no_folder_can_bear_is_told(tmp_path: Path) -> None:
    for write in (write_project, copy_example):
        with pytest.raises(ConfigError, match="cannot be written: File name too long"):
            write("stateful-agent" if write is copy_example else "app:desk", tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    "system", ["app", "app.desk", "./app.py:desk", "app:", ":desk", "app:desk:x", "a b:c", "app:desk()"]
)
def test_a_system_that_is_no_module_and_attribute_is_refused(tmp_path: Path, system: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_project(system, tmp_path / "new")
    assert str(caught.value) == f"--system '{system}': must read module:attribute, such as app:desk"
    assert not (tmp_path / "new").exists()
