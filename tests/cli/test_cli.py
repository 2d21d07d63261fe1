"""The command line: what it prints, where, and what it hands on."""

import json
from pathlib import Path

import pytest

from oloproof_dagster import load_run
from oloproof_dagster.local_run.instance import DAGSTER_YAML
from tests.support.command import Command, assert_one_line, calls
from tests.support.engine import Engine
from tests.support.projects import NO_FAILURE, case, rules, write_project
from tests.support.runs import COUNTED_TILL, home


@pytest.mark.slow
def test_a_version_that_another_machine_recorded_is_registered_and_judged(
    tmp_path: Path, oloproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "till", release=rules(NO_FAILURE))
    for machine, version in (("one", "v1"), ("other", "v2")):
        (tmp_path / machine).mkdir()
        (tmp_path / machine / "dagster.yaml").write_text(DAGSTER_YAML)
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / machine))
        suite = root / "oloproof.yaml"
        suite.write_text(suite.read_text().replace('"v1"', f'"{version}"'))
        if machine == "one":
            assert oloproof("run", "--project", root).code == 0
    judged = oloproof("run", "--version", "v1", "--json", "--project", root)
    assert (judged.code, judged.document["gate"]["action"]) == (0, "ALLOW")
    assert judged.document["cache"]["executions"] == {"hit": 3, "miss": 0}


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
@pytest.mark.slow
def test_a_projects_folder_may_have_any_name_and_nothing_is_left_beside_it(
    tmp_path: Path, oloproof: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    root = write_project(tmp_path / "projects" / name, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).code == 0
    again = oloproof("run", "--json", "--project", root)
    assert again.document["cache"]["executions"] == {"hit": 3, "miss": 0}
    assert (root / ".oloproof/dagster/history/runs.db").is_file()
    assert [path.name for path in root.parent.iterdir()] == [name]
    assert [path for path in tmp_path.glob("caches/**/*") if path.is_file()] == []


@pytest.mark.usefixtures("in_shared_home")
def test_a_bit_turned_over_in_what_a_table_says_of_itself_is_one_line_and_never_another_gate(
    oloproof: Command, tmp_path: Path
) -> None:
    root = write_project(tmp_path, release=rules({"metric": "state_matches", "min": 0.1}))
    first = oloproof("run", "--json", "--project", root)
    path = root / ".oloproof/evidence/v1/metrics.parquet"
    whole = path.read_bytes()
    place = whole.index(b'"n_unreached": 0') + len('"n_unreached": ')
    path.write_bytes(whole[:place] + b"1" + whole[place + 1 :])
    damaged = oloproof("run", "--project", root)
    assert_one_line(damaged)
    assert "metrics.parquet is damaged" in damaged.err
    path.write_bytes(whole)
    assert oloproof("run", "--json", "--project", root).code == first.code


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_judging_again_adds_a_decision_to_the_history_and_takes_none_away(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    assert oloproof("history", "--project", root).err == "no decision is noted of version 'v1'\n"
    assert oloproof("run", "--project", root).code == 0
    assert oloproof("run", "--project", root).code == 0
    data = root / "data/cases.jsonl"
    data.write_text(data.read_text().replace('"balance": 1,', '"balance": 9,'))
    (root / "oloproof.yaml").write_text((root / "oloproof.yaml").read_text().replace('"v1"', '"v2"'))
    assert oloproof("run", "--version", "v1", "--project", root).code == 1
    first, second = oloproof("history", "--version", "v1", "--json", "--project", root).document
    assert [each["action"] for each in (first, second)] == ["ALLOW", "BLOCK"]
    assert first["suite"] != second["suite"]
    assert all(first[name] == second[name] for name in ("policy", "labels", "code", "attempt"))
    lines = oloproof("history", "--version", "v1", "--project", root).out.splitlines()
    assert len(lines) == 3
    assert second["suite"].removeprefix("sha256:")[:8] in lines[-1]
    assert second["suite"].removeprefix("sha256:")[:8] in oloproof("versions", "--project", root).out


@pytest.mark.usefixtures("in_shared_home")
def test_an_unfinished_run_is_listed_as_far_as_it_is(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, release=rules(NO_FAILURE))
    Engine(root).execute()
    assert "3 of 3, attempt 1 not finished" in oloproof("versions", "--project", root).out
    (row,) = oloproof("versions", "--json", "--project", root).document
    assert (row["gate"], row["complete"], row["executed"]) == (None, False, 3)


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_an_edit_of_the_agent_without_a_new_version_is_warned_of(oloproof: Command, tmp_path: Path) -> None:
    root = write_project(tmp_path, app=COUNTED_TILL, release=rules(NO_FAILURE))
    assert oloproof("run", "--project", root).err == ""
    (root / "app.py").write_text(COUNTED_TILL + "edited = True\n")
    answer = oloproof("run", "--json", "--project", root)
    assert "Bump system.version" in answer.err
    assert answer.document["cache"]["executions"] == {"hit": 0, "miss": 3}


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.slow
def test_fresh_and_retry_errors_are_passed_on(oloproof: Command, tmp_path: Path) -> None:
    app = COUNTED_TILL.replace(
        'note("calls")\n',
        """note("calls")
        if current_case().id == "c-002" and pathlib.Path(__file__).with_name("down").exists():
            raise ConnectionError("no route")
""",
    )
    root = write_project(tmp_path, app=app, release=rules(NO_FAILURE), files={"down": ""})
    assert oloproof("run", "--project", root).code == 3
    (root / "down").unlink()
    calls(root)
    assert oloproof("run", "--project", root, "--retry-errors").code == 0
    assert calls(root) == ["c-002"]
    assert oloproof("run", "--project", root, "--fresh").code == 0
    assert calls(root) == ["c-001", "c-002", "c-003"]
    assert load_run(root, "v1", 1).metrics.n_passed.tolist() == [3]


@pytest.mark.usefixtures("in_shared_home")
def test_the_projects_own_definitions_are_those_that_run(oloproof: Command, tmp_path: Path) -> None:
    definitions = """
from pathlib import Path
from app import Till
from oloproof_dagster import SandboxResource, build_definitions

here = Path(__file__).parent


class Wrong(Till):
    def __call__(self, request):
        return super().__call__({**request, "amount": 0})


class Mine(SandboxResource):
    def make_system(self):
        return Wrong()


defs = build_definitions(here, sandbox=Mine(project_dir=str(here)))
"""
    root = write_project(tmp_path, release=rules(NO_FAILURE), files={"definitions.py": definitions})
    assert oloproof("run", "--project", root).code == 1


BAD_DEFINITIONS = {
    "that cannot be read": "def defs(:\n",
    "that raise": "raise RuntimeError('no')\n",
    "that define nothing": "x = 1\n",
    "that keep evidence elsewhere": (
        "from pathlib import Path\nimport oloproof_dagster\nhere = Path(__file__).parent\n"
        "defs = oloproof_dagster.build_definitions(here, evidence_root=here / 'elsewhere')\n"
    ),
    "whose resource cannot be made": (
        "from pathlib import Path\nimport dagster as dg\nimport oloproof_dagster\nhere = Path(__file__).parent\n"
        "class Mine(oloproof_dagster.SandboxResource):\n    secret: str\n"
        "mine = Mine(project_dir=str(here), secret=dg.EnvVar('OLOPROOF_TEST_NOT_SET'))\n"
        "defs = oloproof_dagster.build_definitions(here, sandbox=mine)\n"
    ),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of which a run is recorded that decided nothing, and so exited with 0."""
    root = write_project(tmp_path_factory.mktemp("measured"), cases=[case(1)])
    with home(root) as till:
        assert till.run().success
    return root


@pytest.mark.usefixtures("in_shared_home")
@pytest.mark.parametrize("what", BAD_DEFINITIONS)
def test_definitions_that_cannot_run_never_show_an_older_result(what: str, oloproof: Command, measured: Path) -> None:
    (measured / "definitions.py").write_text(BAD_DEFINITIONS[what])
    assert_one_line(oloproof("run", "--json", "--project", measured))


@pytest.mark.slow
def test_errors_are_told_with_the_first_ones_text_and_that_they_are_used_again(
    oloproof: Command, tmp_path: Path, in_shared_home: None
) -> None:
    broken = COUNTED_TILL.replace('note("calls")\n', 'note("calls")\n        raise KeyError("API_KEY")\n')
    root = write_project(tmp_path, app=broken, suite={"project": "keyless"}, release=rules(NO_FAILURE))
    for _ in range(2):
        answer = oloproof("run", "--project", root)
        assert (
            "3 of 3 executions ended in an error, the first: case 'c-001': KeyError: 'API_KEY' (app.py:" in answer.err
        )
        assert "--retry-errors" in answer.err
    assert "--retry-errors" not in oloproof("run", "--project", root, "--retry-errors").err


def test_the_recorded_steps_of_a_case_are_shown(oloproof: Command, tmp_path: Path, in_shared_home: None) -> None:
    root = write_project(tmp_path, suite={"project": "shown"}, release=rules(NO_FAILURE))
    oloproof("run", "--project", root)
    assert 'tool_call add {"amount": 1}' in oloproof("inspect", "--project", root, "--case", "c-001").out


def test_integers_of_any_size_are_shown(oloproof: Command, tmp_path: Path, in_shared_home: None) -> None:
    number = "7" * 5000
    line = json.dumps(case(1)).replace('"other": "untouched"}, "expected"', f'"other": {number}}}, "expected"')
    root = write_project(tmp_path, cases=line + "\n", suite={"project": "long"}, release=rules(NO_FAILURE))
    oloproof("run", "--project", root)
    assert oloproof("inspect", "--project", root, "--failures").code == 0
    assert number in oloproof("inspect", "--project", root, "--json").out
