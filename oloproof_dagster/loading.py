"""The user's Python: callables found and imported afresh, their contract checked, their code digested."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oloproof_dagster.digests import digest
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project import PROJECT_FILE, Project
from oloproof_dagster.system import Replayable


@dataclass(frozen=True)
class System:
    """The user's system, ready to be called. `reset` and `snapshot` are both there or neither is."""

    call: Callable[[Any], Any]
    reset: Callable[[Any], Any] | None
    snapshot: Callable[[], Any] | None
    replay: Callable[..., Any] | None
    own_files: "OwnFiles"


def load_system(
    project: Project, *, instance: Any = None, callable: str | None = None, environment: str | None = None
) -> System:
    """One instance of the project's system (and of its environment), imported from the files as they are now.

    `instance` is used as the system where somebody has made it already.

    Raises:
        ConfigError: it cannot be imported, or lacks what the project's evaluators need of it.
    """
    declared = project.suite.system
    target, world = callable or declared.callable, environment or declared.environment
    own_files = OwnFiles.of(project, target, world)
    own_files.forget()
    system = instance if instance is not None else _instance(load_attribute(project, target, "system.callable"), target)
    if not _takes_one(system):
        raise ConfigError.at(
            PROJECT_FILE, None, f"system.callable: {target} must be callable with one argument, the case's input"
        )
    holder = getattr(system, "__self__", system)
    if world is None or world == target:
        sandbox = holder if _any_stateful(holder) else system
        where = f"system.callable: {target}"
    else:
        sandbox = _instance(load_attribute(project, world, "system.environment"), world)
        where = f"system.environment: {world}"
    reset, snapshot = getattr(sandbox, "reset", None), getattr(sandbox, "snapshot", None)
    if (reset is None) != (snapshot is None) or (world is not None and reset is None):
        lacking = " and ".join(name for name, there in (("reset", reset), ("snapshot", snapshot)) if there is None)
        raise ConfigError.at(PROJECT_FILE, None, f"{where} has no {lacking}; a sandbox has reset(state) and snapshot()")
    for name, method, arguments in (("reset(state)", reset, 1), ("snapshot()", snapshot, 0)):
        if method is not None and not _takes(method, arguments):
            raise ConfigError.at(PROJECT_FILE, None, f"{where}: cannot be called as {name}")
    replayer = next((each for each in (system, holder) if isinstance(each, Replayable)), None)
    if replayer is None and project.replayed:
        raise ConfigError.at(
            PROJECT_FILE,
            None,
            f"evaluator {project.replayed[0].name!r} replays cases, but"
            f" {target} has no replay(trajectory, *, checkpoint, change)",
        )
    return System(system, reset, snapshot, getattr(replayer, "replay", None), own_files)


def load_attribute(project: Project, name: str, key: str) -> Any:
    """The object that `module:attribute` names, its module found in the project's folder first.

    Raises:
        ConfigError: naming the key that asked for it and the line of the user's file that failed.
    """
    module_name, _, attribute = name.partition(":")
    root = str(project.root)
    if sys.path[:1] != [root]:
        sys.path[:] = [root, *(entry for entry in sys.path if entry != root)]
    importlib.invalidate_caches()
    try:
        value = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        own = OwnFiles.of(project, name)
        raise ConfigError.at(
            PROJECT_FILE, None, f"{key}: cannot import {module_name}: {own.describe(error)}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ConfigError.at(PROJECT_FILE, None, f"{key}: {module_name} has no {attribute!r}")
        value = getattr(value, part)
    return value


def _instance(value: Any, name: str) -> Any:
    if not inspect.isclass(value):
        return value
    try:
        return value()
    except (Exception, SystemExit) as error:
        raise ConfigError.at(
            PROJECT_FILE,
            None,
            f"system: {name} is a class that cannot be made without arguments: {type(error).__name__}: {error}",
        ) from error


def _any_stateful(value: Any) -> bool:
    return hasattr(value, "reset") or hasattr(value, "snapshot")


def _takes_one(value: Any) -> bool:
    return callable(value) and _takes(value, 1)


def _takes(value: Any, arguments: int) -> bool:
    try:
        inspect.signature(value).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature: only calling it would tell
        return True
    return True


@dataclass(frozen=True)
class OwnFiles:
    """The user's own Python files that some callables' modules import: under the project's folder, and in the
    callables' own top-level packages. Found by reading the files' imports, without running them."""

    root: Path
    modules: dict[str, Path]

    @classmethod
    def of(cls, project: Project, *callables: str | None) -> "OwnFiles":
        """The files behind `module:attribute` names, by module name."""
        modules: dict[str, Path] = {}
        waiting = [name.partition(":")[0] for name in callables if name]
        packages = {name.partition(".")[0] for name in waiting}
        while waiting:
            name = waiting.pop()
            for parent in _with_parents(name):
                if parent in modules:
                    continue
                path = _find(project.root, parent, packages)
                if path is not None:
                    modules[parent] = path
                    waiting.extend(_imports(path, parent))
        return cls(project.root, modules)

    @property
    def code_digest(self) -> str:
        """The digest of the files' contents by module name: moving the folder changes nothing."""
        return digest(
            "code/v1",
            [[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in sorted(self.modules.items())],
        )

    def forget(self) -> None:
        """Lets Python import the folder's modules afresh: another project's `app`, or an older edit, may be loaded."""
        for name, path in self.modules.items():
            if path.is_relative_to(self.root):
                sys.modules.pop(name, None)

    def describe(self, error: BaseException) -> str:
        """An exception in one line: its type, its message, and the last frames in the user's own files."""
        try:
            message = str(error)
        except Exception:
            message = "(its message cannot be shown)"
        if isinstance(error, SyntaxError) and error.filename:
            return f"{type(error).__name__}: {error.msg} ({self._short(error.filename)}:{error.lineno})"
        frames = [
            f"{self._short(frame.filename)}:{frame.lineno} in {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
            if self._is_own(frame.filename)
        ]
        where = f" ({', '.join(frames[-3:])})" if frames else ""
        return f"{type(error).__name__}{': ' if message else ''}{message[:2000]}{where}"

    def _is_own(self, filename: str) -> bool:
        path = Path(filename)
        return path in self.modules.values() or (
            path.is_relative_to(self.root) and "site-packages" not in path.relative_to(self.root).parts
        )

    def _short(self, filename: str) -> str:
        path = Path(filename)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _find(root: Path, name: str, packages: set[str]) -> Path | None:
    relative = Path(*name.split("."))
    for path in (root / relative / "__init__.py", root / relative.with_suffix(".py")):
        if path.is_file():
            return path.resolve()
    top = name.partition(".")[0]
    if top not in packages or top in sys.builtin_module_names:
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    origin = Path(spec.origin).resolve()
    if name == top:
        return origin
    for path in (
        origin.parent / Path(*name.split(".")[1:]) / "__init__.py",
        (origin.parent / Path(*name.split(".")[1:])).with_suffix(".py"),
    ):
        if origin.name == "__init__.py" and path.is_file():
            return path
    return None


def _imports(path: Path, module: str) -> Iterator[str]:
    """The dotted names that a file imports, relative ones resolved; a name may turn out to be no module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*(part for part in above if part), *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names if alias.name != "*")
