"""The house: which folder may import which, and what must work without Dagster."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oloproof_dagster

PACKAGE = Path(oloproof_dagster.__file__).parent
NAME = oloproof_dagster.__name__

ORDER = """
errors
digests
wording
as_data
liveness
records
evidence
project
decision report system
suite evaluators recording
rejudging
execution
workers
testing
resources
assets
definitions
local_run
cli
"""
"""One way: a folder imports itself and what stands on the lines above its own."""

LEVELS = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}
WITH_DAGSTER = ("resources", "assets", "definitions", "local_run", "cli")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below it, sub-packages and the mapped folders included."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] != "examples":
            found[".".join(parts)] = path
    for room in ("assets", "resources"):
        spec = importlib.util.find_spec(f"{NAME}.{room}")  # where it is, without importing Dagster
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        found |= {f"{room}.{path.stem}": path for path in folder.rglob("*.py")}
    return found


MODULES = modules()


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports, those inside functions included; `from a import b` gives a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def rooms_read_by(module: str) -> set[str]:
    """The folders and files directly below the package that a module imports."""
    own = (name.split(".") for name in imports(MODULES[module]))
    return {parts[1] for parts in own if parts[0] == NAME and len(parts) > 1}


def of(*rooms: str) -> Iterator[str]:
    """The modules of some rooms."""
    return (name for name in MODULES if name.split(".")[0] in rooms)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_one_way_through_the_rooms(module: str) -> None:
    room = module.split(".")[0]
    if module == "__init__":  # names the homes of the public names
        return
    if module == "resources.preloaded":  # a leaf that only imports
        return
    below = {each for each, level in LEVELS.items() if level < LEVELS[room]}
    assert rooms_read_by(module) & set(LEVELS) <= below | {room}


def engine() -> list[str]:
    """The modules that work where there is no Dagster."""
    return [name for name in MODULES if name.split(".")[0] not in (*WITH_DAGSTER, "__init__")]


@pytest.mark.parametrize("module", engine())
def test_the_engine_never_imports_dagster(module: str) -> None:
    assert "dagster" not in {name.split(".")[0] for name in imports(MODULES[module])}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_stands_in_a_room(module: str) -> None:
    assert module.split(".")[0] in {*LEVELS, "__init__"}


@pytest.mark.parametrize("module", sorted(of("system", "workers")))
def test_what_runs_the_system_knows_no_table_no_key_and_no_evidence(module: str) -> None:
    read = {name.removeprefix(f"{NAME}.") for name in imports(MODULES[module])}
    assert not {each for each in read if each.startswith(("evidence", "records.tables", "records.keys", "evaluators"))}


@pytest.mark.parametrize("module", [*sorted(of("system")), "workers.inside", "workers.recipe"])
def test_a_worker_process_knows_nothing_of_the_side_that_steers_it(module: str) -> None:
    steering = {f"{NAME}.workers.{each}" for each in ("outside", "pool", "session")} | {f"{NAME}.execution.sandboxes"}
    assert not imports(MODULES[module]) & steering


@pytest.mark.parametrize("module", sorted(of("execution")))
def test_the_walk_hands_calls_over_and_never_knows_who_answers_them(module: str) -> None:
    assert not {f"{NAME}.system.{each}" for each in ("sandbox", "loading")} & imports(MODULES[module])


STORES = sorted(name for name in of("evidence") if re.search(r"store|local_folder|object", name))


@pytest.mark.parametrize("module", STORES)
def test_the_place_of_evidence_keeps_files_and_never_knows_what_stands_in_them(module: str) -> None:
    assert f"{NAME}.evidence.parquet" not in imports(MODULES[module])
    assert rooms_read_by(module) & set(LEVELS) <= {"errors", "wording", "liveness", "evidence"}


def users(*packages: str) -> set[str]:
    """The engine's modules that import one of these packages."""
    return {name for name in engine() if set(packages) & {each.split(".")[0] for each in imports(MODULES[name])}}


def test_only_the_two_methods_know_scipy_and_numpy() -> None:
    assert users("scipy") == {"decision.intervals"}
    assert users("numpy") == {"decision.spacing"}


def test_only_the_outside_of_a_worker_process_knows_pebble() -> None:
    assert users("pebble") == {"workers.outside"}


def test_only_the_object_store_knows_its_libraries() -> None:
    assert users("obstore") == {"evidence.objects", "evidence.object_client"}
    assert users("boto3", "botocore") == {"evidence.object_client"}
    assert users("fsspec", "s3fs") == set()


def test_the_rooms_have_no_circle_of_imports() -> None:
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above, module))
        if module not in done:
            for name in sorted(imports(MODULES[module])):
                other = name.removeprefix(f"{NAME}.")
                if name.startswith(f"{NAME}.") and other in MODULES:
                    visit(other, (*above, module))
            done.add(module)

    for module in MODULES:
        if module != "__init__":
            visit(module, ())
