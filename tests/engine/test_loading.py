"""The user's Python: found in the project's folder, imported as it is now, digested, and blamed by file and line."""

import asyncio
import contextlib
import importlib
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.suite.preflight import check_files, files_digest
from oloproof_dagster.system.loading import System, load_attribute, load_system, shape, takes
from oloproof_dagster.system.own_files import OwnFiles
from tests.support.projects import write_project

STATEFUL = """
class Till:
    def __init__(self): self.state = None
    def reset(self, state): self.state = state
    def snapshot(self): return self.state
    def __call__(self, request): return ["called", request]
    async def later(self, request): return ["awaited", request]
"""


@pytest.fixture(autouse=True)
def _no_other_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder of another test stands on the import path, and no module of it is imported."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "oloproof.yaml").exists()])
    for name in ("app", "tools", "helper", "world", "checks", "agents", "agents.desk"):
        sys.modules.pop(name, None)


def project_with(root: Path, files: dict[str, str], callable: str = "app:till", **system: Any) -> Project:
    """A project whose Python files are those given, and no other."""
    root.mkdir(exist_ok=True)
    written = {name: textwrap.dedent(text) for name, text in files.items()}
    declared = {"name": "till", "version": "v1", "callable": callable} | system
    write_project(root, suite={"system": declared}, files=written)
    if "app.py" not in files:
        (root / "app.py").unlink()
    return load_project(root)


def loaded(root: Path, files: dict[str, str], callable: str = "app:till", **system: Any) -> System:
    return load_system(project_with(root, files, callable, **system))


def refusal(root: Path, files: dict[str, str], callable: str = "app:till", **system: Any) -> str:
    project = project_with(root, files, callable, **system)
    with pytest.raises(ConfigError) as caught:
        load_system(project)
    return str(caught.value)


# What a callable can be.


CALLABLES = {
    "an object that can be called": ("till = Till()", "app:till"),
    "a class, of which an instance is made": ("", "app:Till"),
    "a bound method": ("desk = Till()\ntill = desk.__call__", "app:till"),
    "a method of an object, named by a path": ("desk = Till()", "app:desk.__call__"),
    "an attribute of an object": ("class Desks: one = Till()", "app:Desks.one"),
}


@pytest.mark.parametrize(("more", "name"), CALLABLES.values(), ids=CALLABLES)
def test_a_callable_with_its_own_world_is_reset_called_and_looked_at(tmp_path: Path, more: str, name: str) -> None:
    system = loaded(tmp_path, {"app.py": STATEFUL + more}, name)
    assert system.reset is not None
    assert system.snapshot is not None
    system.reset({"balance": 1})
    assert system.call("x") == ["called", "x"]
    assert system.snapshot() == {"balance": 1}


STATELESS = {
    "a function": "def till(request): return request",
    "a lambda": "till = lambda request: request",
    "a partial function": "import functools\ntill = functools.partial(lambda prefix, request: request, 'x')",
    "a function with defaults": "def till(request, model='m', *rest, **more): return request",
    "a built-in": "till = repr",
    "a static method": "class Desk:\n    @staticmethod\n    def answer(request): return request\ntill = Desk.answer",
    "a class method": "class Desk:\n    @classmethod\n    def answer(cls, request): return request\ntill = Desk.answer",
}


@pytest.mark.parametrize("text", STATELESS.values(), ids=STATELESS)
def test_a_callable_without_a_world_has_no_reset_and_no_snapshot(tmp_path: Path, text: str) -> None:
    system = loaded(tmp_path, {"app.py": text})
    assert system.call("x") in ("x", repr("x"))
    assert (system.reset, system.snapshot, system.replay) == (None, None, None)


def test_an_async_callable_is_loaded_like_any_other(tmp_path: Path) -> None:
    system = loaded(tmp_path, {"app.py": STATEFUL + "desk = Till()\ntill = desk.later"})
    assert system.reset is not None
    assert asyncio.run(system.call("x")) == ["awaited", "x"]


def test_every_loading_makes_an_instance_of_its_own(tmp_path: Path) -> None:
    files = {"app.py": STATEFUL}
    assert loaded(tmp_path, files, "app:Till").call is not loaded(tmp_path, files, "app:Till").call


def test_an_instance_made_by_somebody_else_is_used_as_it_is(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"app.py": STATEFUL}, "app:Till")
    (tmp_path / "app.py").write_text("raise RuntimeError('not to be imported')")
    made = load_attribute(project_with(tmp_path / "other", {"app.py": STATEFUL}), "app:Till", "x")()
    assert load_system(project, instance=made).call is made


# A world of its own.


def test_an_environment_is_reset_and_looked_at_in_the_callables_place(tmp_path: Path) -> None:
    files = {
        "app.py": "import world\ndef till(request): return world.store.state",
        "world.py": STATEFUL + "store = Till()",
    }
    system = loaded(tmp_path, files, environment="world:store")
    assert system.reset is not None
    assert system.snapshot is not None
    system.reset({"balance": 2})
    assert system.call("x") == {"balance": 2}
    assert system.snapshot() == {"balance": 2}


def test_an_environment_that_is_a_class_is_made_without_arguments(tmp_path: Path) -> None:
    files = {"app.py": STATEFUL + "def till(request): return 1"}
    system = loaded(tmp_path, files, environment="app:Till")
    assert system.reset is not None
    system.reset({})
    assert system.snapshot is not None
    assert system.snapshot() == {}


def test_an_environment_comes_before_a_world_of_the_callables_own(tmp_path: Path) -> None:
    files = {"app.py": STATEFUL + "till, store = Till(), Till()"}
    project = project_with(tmp_path, files, environment="app:store")
    system = load_system(project)
    assert system.reset is not None
    system.reset({"balance": 3})
    assert load_attribute(project, "app:store.state", "x") == {"balance": 3}
    assert load_attribute(project, "app:till.state", "x") is None


def test_an_environment_that_is_the_callable_is_one_object(tmp_path: Path) -> None:
    system = loaded(tmp_path, {"app.py": STATEFUL}, "app:Till", environment="app:Till")
    assert system.reset is not None
    system.reset({"balance": 4})
    assert system.call.state == {"balance": 4}  # type: ignore[attr-defined]


def test_an_environment_without_a_world_is_refused(tmp_path: Path) -> None:
    files = {"app.py": "def till(request): return 1\nstore = {}"}
    assert refusal(tmp_path, files, environment="app:store") == (
        "oloproof.yaml:4: system.environment: app:store has no reset and snapshot;"
        " a sandbox has reset(state) and snapshot()"
    )


# The contract.


@pytest.mark.parametrize(
    ("value", "arguments", "keywords", "fits"),
    [
        (lambda a: 0, 1, (), True),
        (lambda: 0, 1, (), False),
        (lambda a, b: 0, 1, (), False),
        (lambda a, b=1: 0, 1, (), True),
        (lambda *a: 0, 1, (), True),
        (lambda *, a: 0, 1, (), False),
        (lambda t, *, checkpoint, change: 0, 1, ("checkpoint", "change"), True),
        (lambda t, checkpoint, change: 0, 1, ("checkpoint", "change"), True),
        (lambda t, **more: 0, 1, ("checkpoint", "change"), True),
        (lambda t, checkpoint: 0, 1, ("checkpoint", "change"), False),
        (lambda t, checkpoint, change, more: 0, 1, ("checkpoint", "change"), False),
        (len, 1, (), True),
        (dict, 1, (), True),
        (5, 1, (), False),
        (None, 0, (), False),
    ],
)
def test_what_can_be_called_is_told_from_its_signature(
    value: Any, arguments: int, keywords: tuple[str, ...], fits: bool
) -> None:
    assert takes(value, arguments, *keywords) is fits


def test_what_was_found_is_told_by_its_parameters_or_its_type() -> None:
    assert shape(lambda request, more: 0) == "callable as (request, more)"
    assert shape(5) == "of type int, which cannot be called"


def test_a_replay_is_wanted_only_where_an_evaluator_replays(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"app.py": STATEFUL + "till = Till()"})
    assert load_system(project).replay is None
    recovery = {"type": "fault_recovery", "tool": "add", "fault": "error"}
    write_project(tmp_path, suite={"evaluators": [{"type": "state_matches"}, recovery]}, app=STATEFUL + "till = Till()")
    with pytest.raises(ConfigError) as caught:
        load_system(load_project(tmp_path))
    assert str(caught.value) == (
        "oloproof.yaml:5: evaluators.1: recovers_from_error_at_add replays cases, and app:till must have"
        " replay(trajectory, *, checkpoint, change); there is none"
    )


def test_a_method_replays_through_the_object_it_is_bound_to(tmp_path: Path) -> None:
    app = STATEFUL + "    def replay(self, trajectory, *, checkpoint, change): return trajectory\ndesk = Till()\n"
    system = loaded(tmp_path, {"app.py": app}, "app:desk.__call__")
    assert system.replay is not None
    assert system.replay(1, checkpoint=None, change=None) == 1


# Errors name the user's file and line.


def test_an_error_at_import_names_the_file_and_line_of_the_users_own(tmp_path: Path) -> None:
    files = {
        "app.py": "import tools\ntill = tools.make()",
        "tools/__init__.py": "from tools.store import connect\ndef make():\n    return connect('x')",
        "tools/store.py": "def connect(url):\n\n    raise ConnectionError(f'no store at {url}')",
    }
    assert refusal(tmp_path, files) == (
        "oloproof.yaml:4: system.callable: cannot import app: ConnectionError: no store at x"
        " (app.py:2 in <module>, tools/__init__.py:3 in make, tools/store.py:3 in connect)"
    )


def test_frames_of_others_are_left_out(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"app.py": "import json\n\njson.loads('{')"})
    assert said.startswith("oloproof.yaml:4: system.callable: cannot import app: JSONDecodeError: ")
    assert said.endswith("(app.py:3 in <module>)")


def test_a_syntax_error_names_its_own_line(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"app.py": "import tools", "tools.py": "x = 1\ny = (\n"})
    assert said.startswith("oloproof.yaml:4: system.callable: cannot import app: SyntaxError: ")
    assert said.endswith("(tools.py:2)")


def test_a_module_that_is_nowhere_is_told_with_the_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path, {}, "of_nobody:till") == (
        "oloproof.yaml:4: system.callable: there is no module 'of_nobody', neither among the files in"
        f" {tmp_path} nor installed"
    )


@pytest.mark.parametrize("stop", ["raise SystemExit(1)", "import sys; sys.exit('usage: app')", "raise GeneratorExit"])
def test_a_module_that_wants_to_end_the_process_does_not(tmp_path: Path, stop: str) -> None:
    assert "cannot import app: " in refusal(tmp_path, {"app.py": stop})


def test_an_interrupt_is_an_interrupt(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"app.py": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt):
        load_system(project)


def test_a_key_of_a_resource_is_blamed_on_the_line_that_it_overrides(tmp_path: Path) -> None:
    project = project_with(tmp_path, {"app.py": STATEFUL + "till = Till()"})
    with pytest.raises(ConfigError, match=r"^oloproof\.yaml:4: system\.callable: app has no 'desk'$"):
        load_system(project, callable="app:desk")


# Which files are the user's own, and what their digest covers.


FILES = {
    "app.py": "import tools\nfrom agents import desk\ntill = desk.till",
    "tools.py": "import json\nLIMIT = 1",
    "agents/__init__.py": "",
    "agents/desk.py": "from . import prompts\nfrom .store.orders import find\ndef till(request): return prompts.HELLO",
    "agents/prompts.py": "HELLO = 'hello'",
    "agents/store/__init__.py": "",
    "agents/store/orders.py": "from ..limits import MOST\ndef find(): return MOST",
    "agents/limits.py": "MOST = 2",
    "unused.py": "x = 1",
    "agents/unused.py": "x = 1",
}


def own_of(project: Project) -> OwnFiles:
    return OwnFiles.of(project, project.suite.system.callable, project.suite.system.environment)


def test_own_files_are_those_that_the_callables_module_imports_directly_or_not(tmp_path: Path) -> None:
    assert sorted(own_of(project_with(tmp_path, FILES)).modules) == [
        *("agents", "agents.desk", "agents.limits", "agents.prompts", "agents.store", "agents.store.orders"),
        *("app", "tools"),
    ]


@pytest.mark.parametrize("file", FILES)
def test_an_edit_of_an_imported_file_changes_the_digest_and_of_another_does_not(tmp_path: Path, file: str) -> None:
    before = own_of(project_with(tmp_path, FILES)).code_digest
    after = own_of(project_with(tmp_path, FILES | {file: FILES[file] + "\n# edited"})).code_digest
    assert (before == after) == (Path(file).stem == "unused")


def test_moving_the_folder_changes_no_digest(tmp_path: Path) -> None:
    before = project_with(tmp_path / "here", FILES)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    after = load_project(tmp_path / "there")
    assert own_of(after).code_digest == own_of(before).code_digest
    assert files_digest(after) == files_digest(before)


def test_the_digest_tells_which_module_holds_what(tmp_path: Path) -> None:
    app = "import one, two\ntill = print"
    one = project_with(tmp_path / "a", {"app.py": app, "one.py": "x = 1", "two.py": "x = 2"})
    other = project_with(tmp_path / "b", {"app.py": app, "one.py": "x = 2", "two.py": "x = 1"})
    assert own_of(one).code_digest != own_of(other).code_digest


def test_a_file_that_only_the_environment_imports_counts(tmp_path: Path) -> None:
    files = {"app.py": "till = print", "world.py": "import store", "store.py": "x = 1"}
    project = project_with(tmp_path, files, environment="world:sandbox")
    assert sorted(own_of(project).modules) == ["app", "store", "world"]


@pytest.mark.parametrize(
    "line",
    [
        "import helper",
        "import helper as h",
        "from helper import x",
        "from helper import *",
        "def later():\n    import helper",
        "try:\n    import helper\nexcept ImportError:\n    pass",
        "if False:\n    import helper",
    ],
)
def test_an_import_counts_wherever_it_stands(tmp_path: Path, line: str) -> None:
    project = project_with(tmp_path, {"app.py": f"{line}\ntill = print", "helper.py": "x = 1"})
    assert sorted(own_of(project).modules) == ["app", "helper"]


def test_files_that_import_each_other_are_found_once(tmp_path: Path) -> None:
    files = {"app.py": "import one\ntill = print", "one.py": "import two", "two.py": "import one, app"}
    assert sorted(own_of(project_with(tmp_path, files)).modules) == ["app", "one", "two"]


def test_a_folder_without_an_init_file_is_a_package_too(tmp_path: Path) -> None:
    files = {
        "agents/desk.py": "from . import prompts\nimport agents.tools.refund\ndef till(request): return prompts.HELLO",
        "agents/prompts.py": "HELLO = 'hello'",
        "agents/tools/refund.py": "x = 1",
    }
    project = project_with(tmp_path, files, "agents.desk:till")
    assert sorted(own_of(project).modules) == ["agents.desk", "agents.prompts", "agents.tools.refund"]
    assert load_system(project).call("x") == "hello"


def test_a_broken_file_still_has_a_digest(tmp_path: Path) -> None:
    broken = own_of(project_with(tmp_path, {"app.py": "import tools\ntill = ("}))
    assert sorted(broken.modules) == ["app"]
    assert broken.code_digest != own_of(project_with(tmp_path, {"app.py": "import tools\ntill = ["})).code_digest


def test_reading_imports_warns_of_nothing_and_runs_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = 'print("ran")\nimport tools\npattern = "\\d"\ntill = print'
    project = project_with(tmp_path, {"app.py": app, "tools.py": "print('ran')"})
    assert sorted(own_of(project).modules) == ["app", "tools"]
    assert capfd.readouterr() == ("", "")


def test_the_package_of_a_callable_that_is_installed_elsewhere_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "deskagent"
    (package / "tools").mkdir(parents=True)
    (package / "__init__.py").write_text("from deskagent.prompts import HELLO\ndef till(request): return HELLO")
    (package / "prompts.py").write_text("import json\nfrom .tools import refund\nHELLO = 'hello'")
    (package / "tools" / "__init__.py").write_text("")
    (package / "tools" / "refund.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path / "src")
    project = project_with(tmp_path / "project", {}, "deskagent:till")
    own = own_of(project)
    assert sorted(own.modules) == ["deskagent", "deskagent.prompts", "deskagent.tools", "deskagent.tools.refund"]
    assert load_system(project).call("x") == "hello"
    before = own.code_digest
    (package / "tools" / "refund.py").write_text("x = 2")
    assert own_of(project).code_digest != before


def test_packages_that_the_users_files_merely_use_are_not_their_own(tmp_path: Path) -> None:
    files = {"app.py": "import yaml, json, pytest\ntill = print"}
    assert sorted(own_of(project_with(tmp_path, files)).modules) == ["app"]


def test_an_edited_label_file_or_check_is_worth_a_second_look(tmp_path: Path) -> None:
    evaluators = [{"type": "python", "criterion": "brief", "callable": "checks:is_brief"}]
    transform = {"name": "t", "field": "note", "template": "{value}!", "validity_labels": "labels.jsonl"}
    suite = {"evaluators": evaluators, "metamorphic": {"transforms": [transform]}}
    files = {"checks.py": "import rules", "rules.py": "x = 1", "labels.jsonl": ""}

    def digest_with(**changed: str) -> str:
        renamed = {name.replace("_", "."): text for name, text in changed.items()}
        return files_digest(load_project(write_project(tmp_path, suite=suite, files=files | renamed)))

    before = digest_with()
    assert digest_with(release_yaml="version: 1\nrules: [{id: a, metric: brief, min: 0}]\n") == before
    assert len({before, digest_with(rules_py="x = 2"), digest_with(labels_jsonl="\n"), digest_with(app_py="")}) == 4


# Imported as the files are now.


def test_an_edit_is_seen_by_the_next_loading(tmp_path: Path) -> None:
    files = {"app.py": "import helper\ndef till(request): return helper.x", "helper.py": "x = 1"}
    assert loaded(tmp_path, files).call(0) == 1
    assert loaded(tmp_path, files | {"helper.py": "x = 2"}).call(0) == 2


def test_an_edit_of_the_same_size_in_the_same_second_is_seen_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    files = {"app.py": "import helper\ndef till(request): return helper.x", "helper.py": "x = 1"}
    for number in range(5):
        edited = project_with(tmp_path, files | {"helper.py": f"x = {number}"})
        for file in ("app.py", "helper.py"):
            os.utime(tmp_path / file, (1_800_000_000, 1_800_000_000))
            with contextlib.suppress(OSError):
                cached = Path(importlib.util.cache_from_source(str(tmp_path / file)))
                os.utime(cached, (1_800_000_000.5, 1_800_000_000.5))
        assert load_system(edited).call(0) == number


def test_a_mended_check_is_seen_too(tmp_path: Path) -> None:
    suite = {"evaluators": [{"type": "python", "criterion": "brief", "callable": "checks:is_brief"}]}
    with pytest.raises(ConfigError, match=r"^oloproof\.yaml:5: evaluators\.0\.callable: checks has no 'is_brief'"):
        check_files(load_project(write_project(tmp_path, suite=suite, files={"checks.py": "is_breif = len"})))
    check_files(load_project(write_project(tmp_path, suite=suite, files={"checks.py": "is_brief = len"})))


def test_a_broken_edit_and_its_mending_are_both_seen(tmp_path: Path) -> None:
    good = {"app.py": "def till(request): return 1"}
    assert loaded(tmp_path, good).call(0) == 1
    assert "SyntaxError" in refusal(tmp_path, {"app.py": "def till(request: return 1"})
    assert loaded(tmp_path, good).call(0) == 1


def test_two_projects_with_an_app_each_get_their_own(tmp_path: Path) -> None:
    one = project_with(tmp_path / "one", {"app.py": "import tools\ndef till(r): return tools.x", "tools.py": "x = 1"})
    two = project_with(tmp_path / "two", {"app.py": "import tools\ndef till(r): return tools.x", "tools.py": "x = 2"})
    first, second, again = load_system(one), load_system(two), load_system(one)
    assert (first.call(0), second.call(0), again.call(0)) == (1, 2, 1)


def test_a_project_never_gets_a_module_of_another_that_it_lacks_itself(tmp_path: Path) -> None:
    app = "import tools\ndef till(r): return tools.x"
    load_system(project_with(tmp_path / "one", {"app.py": app, "tools.py": "x = 1"}))
    said = refusal(tmp_path / "two", {"app.py": app})
    assert said.endswith("ModuleNotFoundError: No module named 'tools' (app.py:1 in <module>)")
    assert "there is no module 'app'" in refusal(tmp_path / "three", {})


def test_a_package_of_one_project_is_not_in_the_way_of_another_ones_folder(tmp_path: Path) -> None:
    one = {"agents/__init__.py": "x = 1", "agents/desk.py": "def till(r): return 'one'"}
    two = {"agents/desk.py": "def till(r): return 'two'"}
    for files, answer in ((one, "one"), (two, "two"), (one, "one")):
        assert loaded(tmp_path / answer, files, "agents.desk:till").call(0) == answer


def test_what_is_installed_within_a_projects_folder_stays_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "one" / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "lib_of_one.py").write_text("x = 1")
    monkeypatch.syspath_prepend(installed)
    assert loaded(tmp_path / "one", {"app.py": "import lib_of_one\ndef till(r): return lib_of_one.x"}).call(0) == 1
    library = sys.modules["lib_of_one"]
    loaded(tmp_path / "two", {"app.py": "def till(r): return 2"})
    assert sys.modules.pop("lib_of_one") is library


def test_a_project_among_installed_packages_is_a_project_like_any_other(tmp_path: Path) -> None:
    root = tmp_path / "site-packages" / "oloproof_dagster" / "examples" / "desk"
    root.mkdir(parents=True)
    for number in (1, 2):
        assert loaded(root, {"app.py": f"def till(r): return {number}"}).call(0) == number
    assert refusal(root, {"app.py": "raise RuntimeError"}).endswith("RuntimeError (app.py:1 in <module>)")
    assert "there is no module 'app'" in refusal(tmp_path / "other", {})


def test_folders_without_init_files_are_forgotten_with_their_project(tmp_path: Path) -> None:
    files = {"agents/tools/refund.py": "x = 1", "agents/desk.py": "import agents.tools.refund\ndef till(r): return 1"}
    assert loaded(tmp_path / "one", files, "agents.desk:till").call(0) == 1
    assert loaded(tmp_path / "two", {"app.py": "def till(r): return 2"}).call(0) == 2
    assert not [name for name in sys.modules if name.partition(".")[0] == "agents"]


def test_a_file_that_is_a_link_is_loaded_and_forgotten_like_any_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        project_with(tmp_path / name, {"app.py": ""})
        (tmp_path / f"{name}.py").write_text(f"def till(r): return {name!r}")
        (tmp_path / name / "app.py").unlink()
        (tmp_path / name / "app.py").symlink_to(tmp_path / f"{name}.py")
    answers = [load_system(load_project(tmp_path / name)).call(0) for name in ("one", "two", "one")]
    assert answers == ["one", "two", "one"]
    (tmp_path / "one.py").write_text("def till(r): return 'edited'")
    assert load_system(load_project(tmp_path / "one")).call(0) == "edited"


def test_the_projects_folder_comes_first_on_the_import_path_and_once(tmp_path: Path) -> None:
    loaded(tmp_path, {"app.py": "def till(r): return 1"})
    assert sys.path[0] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


@pytest.mark.parametrize("name", ["json", "calendar", "yaml", "pytest"])
def test_a_file_with_the_name_of_another_module_is_refused_and_the_other_one_stays(tmp_path: Path, name: str) -> None:
    __import__(name)
    module = sys.modules[name]
    files = {"app.py": f"import {name}\ntill = print", f"{name}.py": "x = 1"}
    assert refusal(tmp_path, files) == (
        f"oloproof.yaml:4: system.callable: {name}.py has the name of a module that Python has already, '{name}';"
        " rename it"
    )
    assert sys.modules[name] is module


def test_a_file_of_such_a_name_that_nobody_imports_is_in_nobodys_way(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"app.py": "def till(r): return 1", "json.py": "raise RuntimeError"}).call(0) == 1
    package = {"agents/__init__.py": "", "agents/json.py": "x = 1", "agents/desk.py": "from . import json\nx = json.x"}
    assert loaded(tmp_path, package | {"app.py": "import agents.desk\ndef till(r): return agents.desk.x"}).call(0) == 1


IMPORTED = {
    "a src folder put on the path by the module itself": (
        "import pathlib, sys\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'src'))\nfrom tools import add\n",
        "src/tools.py",
    ),
    "a star over a package that lists its modules": ("from agents import *\n", "agents/desk.py"),
}


@pytest.mark.parametrize(("text", "edited"), IMPORTED.values(), ids=IMPORTED)
def test_an_edit_of_a_file_that_is_imported_in_a_roundabout_way_changes_the_code_digest(
    tmp_path: Path, text: str, edited: str
) -> None:
    files = {"app.py": text + STATEFUL + "till = Till()\n", edited: "def add(): return 1\n"}
    if edited.startswith("agents"):
        files["agents/__init__.py"] = '__all__ = ["desk"]\n'
    project = project_with(tmp_path, files)
    before = OwnFiles.of(project, "app:till").code_digest
    (tmp_path / edited).write_text("def add(): return 2\n")
    assert OwnFiles.of(project, "app:till").code_digest != before


def test_a_folder_of_the_project_on_pythonpath_holds_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"app.py": "import helper\n" + STATEFUL + "till = Till()\n", "lib/helper.py": ""}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    found = OwnFiles.of(project_with(tmp_path, files), "app:till").modules
    assert found["helper"] == tmp_path / "lib/helper.py"


def test_a_file_that_is_imported_by_a_computed_name_is_told_as_unseen(tmp_path: Path) -> None:
    text = "import importlib\nimportlib.import_module('too' + 'ls')\n" + STATEFUL + "till = Till()\n"
    assert loaded(tmp_path, {"app.py": text, "tools.py": ""}).unseen == ("tools.py",)
    assert (
        loaded(tmp_path / "b", {"app.py": "import helper\n" + STATEFUL + "till = Till()\n", "helper.py": ""}).unseen
        == ()
    )
