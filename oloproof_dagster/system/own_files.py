"""The user's Python files behind a callable: found by their imports, digested, forgotten by Python, and blamed."""

import ast
import contextlib
import hashlib
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from oloproof_dagster.digests import digest
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project
from oloproof_dagster.system.declared_inputs import Input, inputs

LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class OwnFiles:
    """The user's own Python files that some callables' modules import: under the project's folder, and in the
    callables' own top-level packages. Found by reading the files' imports, without running them."""

    root: Path
    modules: dict[str, Path]
    declared: tuple[Input, ...] = ()

    @classmethod
    def of_system(cls, project: Project, *callables: str | None) -> "OwnFiles":
        """The files behind the system's names, and what `system.files` and `system.env` declare it to be made of.

        Raises:
            ConfigError: a glob of `system.files` finds no file, or a file cannot be read.
        """
        return replace(cls.of(project, *callables), declared=inputs(project))

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
        """The digest of the files' contents by module name, and of what is declared: moving the folder changes nothing.

        Raises:
            ConfigError: a file cannot be read.
        """
        contents: list[list[str | None]] = [list(each) for each in self.declared]
        for name, path in sorted(self.modules.items()):
            try:
                contents.append([name, hashlib.sha256(path.read_bytes()).hexdigest()])
            except OSError as error:
                raise ConfigError.at(self._short(str(path)), None, f"cannot be read: {error.strerror}") from None
        return digest("code/v1", contents)

    def forget(self) -> None:
        """Lets Python import the folder's modules afresh: another project's `app`, or an older edit, may be loaded."""
        taken = self.taken()
        for name, path in self.modules.items():
            if path.is_relative_to(self.root) and name.partition(".")[0] not in taken:
                sys.modules.pop(name, None)
                _drop_doubtful_bytecode(path)

    def taken(self) -> tuple[str, ...]:
        """The folder's modules that bear the name of another one: Python's own, or installed and loaded already."""
        return tuple(
            name
            for name, path in self.modules.items()
            if "." not in name
            and path.is_relative_to(self.root)
            and (name in sys.stdlib_module_names or is_installed(_file_of(name), self.root))
        )

    def unseen(self, names: Iterable[str]) -> tuple[str, ...]:
        """Of loaded modules by name, the folder's own files that no import was found to lead to."""
        known, found = set(self.modules.values()), []
        for name in names:
            path = _file_of(name)
            if path.suffix == ".py" and path.is_relative_to(self.root) and path not in known:
                found.append(path)
        return tuple(sorted(self._short(str(path)) for path in found if not is_installed(path, self.root)))

    def describe(self, error: BaseException) -> str:
        """An exception in one line: its type, its message, and the last frames in the user's own files.

        Never raises, whatever the exception is made of.
        """
        try:
            return self._described(error)
        except BaseException:
            return f"{type(error).__name__}: (it cannot be shown)"

    def _described(self, error: BaseException) -> str:
        try:
            message = str(error)
        except BaseException:
            message = "(its message cannot be shown)"
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            message = str(error.msg)[:LONGEST_MESSAGE]
            return f"{type(error).__name__}: {message} ({self._short(error.filename)}:{error.lineno})"
        frames = [
            f"{self._short(frame.filename)}:{frame.lineno} in {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
            if self._is_own(frame.filename)
        ]
        where = f" ({', '.join(frames[-3:])})" if frames else ""
        return f"{type(error).__name__}{': ' if message else ''}{message[:LONGEST_MESSAGE]}{where}"

    def _is_own(self, filename: str) -> bool:
        path = Path(filename)
        return path in self.modules.values() or (path.is_relative_to(self.root) and not is_installed(path, self.root))

    def _short(self, filename: str) -> str:
        path = Path(filename)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def is_installed(path: Path, root: Path) -> bool:
    """Whether a file was put where it is by an installer, also in an environment within a project's folder; a project
    that is itself among installed packages, such as a packaged example, holds files of its own."""
    parts = (path.relative_to(root) if path.is_relative_to(root) else path).parts
    return "site-packages" in parts or "dist-packages" in parts


def _file_of(name: str) -> Path:
    return Path(getattr(sys.modules.get(name), "__file__", None) or ".")


def _drop_doubtful_bytecode(path: Path) -> None:
    """Removes compiled code written within two seconds of its source's last edit.

    Python tells such code's age by whole seconds and the source's size: an edit right after an import, such as a
    changed digit, would go unseen.
    """
    with contextlib.suppress(OSError, NotImplementedError):
        compiled = Path(importlib.util.cache_from_source(path))
        if abs(compiled.stat().st_mtime - path.stat().st_mtime) < 2:
            compiled.unlink()


def _places(root: Path) -> Iterator[Path]:
    """Where the folder's own modules are looked for: the folder, its `src`, and what PYTHONPATH names of it."""
    yield root
    yield root / "src"
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        place = Path(os.path.realpath(entry))
        if entry and place != root and place.is_relative_to(root) and not is_installed(place, root):
            yield place


def _find(root: Path, name: str, packages: set[str]) -> Path | None:
    relative = Path(*name.split("."))
    for place in _places(root):
        for path in (place / relative / "__init__.py", place / relative.with_suffix(".py")):
            if os.path.isfile(path):
                return path
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
        if origin.name == "__init__.py" and os.path.isfile(path):
            return path
    return None


def _imports(path: Path, module: str) -> Iterator[str]:
    """The dotted names that a file imports, relative ones resolved; a name may turn out to be no module."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # importing or reading the file will say why
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and path.name == "__init__.py":
            yield from (f"{module}.{name}" for name in _names_in_all(node))  # `import *` imports these as modules
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*(part for part in above if part), *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names if alias.name != "*")


def _names_in_all(node: ast.Assign) -> Iterator[str]:
    if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets) and isinstance(
        node.value, ast.List | ast.Tuple
    ):
        yield from (
            each.value for each in node.value.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
