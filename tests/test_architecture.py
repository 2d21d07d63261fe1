"""The house: who may import whom, and what must work without Dagster."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import oloproof_dagster
from tests.projects import write_project

PACKAGE = Path(oloproof_dagster.__file__).parent
DAGSTER_FACING = {"definitions", "cli"}
RUNS_THE_SYSTEM = {"sandbox", "recipe", "worker", "worker_process", "workers", "session"}
EVALUATORS_MAY_NOT_READ = RUNS_THE_SYSTEM | {
    *("sandboxes", "calls", "loading", "execution", "replay", "passes", "parts", "evidence", "store", "judgment")
}
WALK = ("ordered", "execution", "fault", "replay", "passes", "judgment")
PLACE = {"store", "objects", "lease", "segments", "object_store"}
RECORDS = {"tables", "columns", "parquet", "parts", "evidence", "store", "objects", "lease", "segments", "object_store"}


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports, those inside functions included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def engine() -> list[Path]:
    """Every module of the engine; assets and resources are packages of their own, wherever they lie."""
    return [
        path
        for path in (*PACKAGE.glob("*.py"), *(PACKAGE / "evaluators").glob("*.py"))
        if path.stem not in DAGSTER_FACING
    ]


@pytest.mark.parametrize("path", engine(), ids=lambda path: path.stem)
def test_the_engine_never_imports_dagster(path: Path) -> None:
    dagster_facing = (
        "dagster",
        "oloproof_dagster.assets",
        "oloproof_dagster.resources",
        "oloproof_dagster.definitions",
    )
    lazily = {"__init__"}  # names homes for the public names; imports them when they are asked for
    if path.stem not in lazily or path.parent.name == "evaluators":
        assert not [
            name for name in imports(path) if name.split(".")[0] == "dagster" or name.startswith(dagster_facing)
        ]


@pytest.mark.parametrize("path", list((PACKAGE / "evaluators").glob("*.py")), ids=lambda path: path.stem)
def test_evaluators_know_records_and_never_execution(path: Path) -> None:
    read = {name.removeprefix("oloproof_dagster.") for name in imports(path)}
    assert not read & EVALUATORS_MAY_NOT_READ


def read_by(module: str) -> set[str]:
    """The engine's modules that a module imports."""
    own = "oloproof_dagster."
    return {name.removeprefix(own) for name in imports(PACKAGE / f"{module}.py") if name.startswith(own)}


@pytest.mark.parametrize("module", WALK)
def test_the_walk_hands_calls_over_and_never_knows_who_answers_them(module: str) -> None:
    assert not read_by(module) & RUNS_THE_SYSTEM


@pytest.mark.parametrize("module", ["calls", "sandboxes", "killing", *sorted(RUNS_THE_SYSTEM)])
def test_what_runs_the_system_knows_no_table_no_key_and_no_evidence(module: str) -> None:
    assert not read_by(module) & (RECORDS | PLACE | set(WALK))


@pytest.mark.parametrize(
    "module", ["system", "own_files", "loading", "calls", "sandbox", "killing", "recipe", "worker"]
)
def test_a_worker_process_knows_nothing_of_the_side_that_steers_it(module: str) -> None:
    assert not read_by(module) & {"sandboxes", "worker_process", "workers", "session"}


@pytest.mark.parametrize("module", sorted(PLACE))
def test_the_place_of_evidence_keeps_files_and_never_knows_what_stands_in_them(module: str) -> None:
    assert read_by(module) <= PLACE | {"errors", "parts"}


def users(*packages: str) -> set[str]:
    """The engine's modules that import one of these packages."""
    return {path.stem for path in engine() if set(packages) & {name.split(".")[0] for name in imports(path)}}


def test_only_intervals_knows_scipy_and_numpy() -> None:
    assert users("scipy", "numpy") == {"intervals"}


def test_only_the_outside_of_a_worker_process_knows_pebble() -> None:
    assert users("pebble") == {"worker_process"}


def test_only_objects_knows_fsspec() -> None:
    assert users("fsspec") == {"objects"}


def test_a_worker_process_loads_no_library_that_it_has_no_use_for() -> None:
    libraries = "{'dagster', 'pandas', 'pyarrow', 'numpy', 'scipy', 'deepdiff', 'pebble', 'click', 'rich', 'filelock'}"
    assert python(f"import sys, oloproof_dagster.worker; print({libraries} & set(sys.modules))").strip() == "set()"


def test_the_engine_has_no_circle_of_imports() -> None:
    graph = {
        path.stem: {
            name.removeprefix("oloproof_dagster.").split(".")[0]
            for name in imports(path)
            if name.startswith("oloproof_dagster.")
        }
        for path in PACKAGE.glob("*.py")
        if path.stem not in (*DAGSTER_FACING, "__init__")
    }
    done: set[str] = set()

    def visit(room: str, above: tuple[str, ...]) -> None:
        assert room not in above, " -> ".join((*above, room))
        if room not in done:
            for other in sorted(graph.get(room, ())):
                visit(other, (*above, room))
            done.add(room)

    for room in graph:
        visit(room, ())


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_engine_imports_with_dagster_absent() -> None:
    modules = [f"oloproof_dagster.{path.stem}" for path in PACKAGE.glob("*.py") if path.stem not in DAGSTER_FACING]
    python(
        "import sys; sys.modules['dagster'] = None\nimport importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "import oloproof; oloproof.Stateful, oloproof.AgentTrajectory, oloproof.load_run"
    )


def test_the_engine_executes_replays_and_judges_with_dagster_absent(tmp_path: Path) -> None:
    recovery = {"type": "fault_recovery", "tool": "add", "fault": "error"}
    write_project(tmp_path, suite={"evaluators": [{"type": "state_matches"}, recovery]})
    told = python(
        f"import sys; sys.modules['dagster'] = None; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from pathlib import Path\nfrom tests.engine import Engine\n"
        f"engine = Engine(Path({str(tmp_path)!r}))\nengine.execute(), engine.replay()\n"
        "print(sorted({(row.criterion, row.status) for row in engine.judge().values()}))"
    )
    assert told.strip() == "[('recovers_from_error_at_add', 'failed'), ('state_matches', 'passed')]"


def test_help_loads_neither_dagster_nor_pandas() -> None:
    loaded = python(
        "import sys\nfrom oloproof_dagster.cli import cli\n"
        "cli(['run', '--help'], standalone_mode=False)\n"
        "print(sorted({'dagster', 'pandas', 'pyarrow', 'numpy', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    assert loaded.splitlines()[-1] == "[]"


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    import oloproof

    for name in oloproof_dagster.__all__:
        assert getattr(oloproof, name) is getattr(oloproof_dagster, name)
    assert set(oloproof_dagster.__all__) <= set(dir(oloproof_dagster))
