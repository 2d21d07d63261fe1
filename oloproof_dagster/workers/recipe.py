"""How a worker process comes by the system: packed where the run is steered, opened where the system is loaded."""

import importlib.util
import io
import os
import pickle
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project
from oloproof_dagster.system.loading import importing_from


@dataclass(frozen=True, slots=True)
class Recipe:
    """Whatever it takes to load the system again: the project as it is declared for this run, and who makes the system.

    `make` gives the instance where somebody else than an import makes it. `modules` are the `module:attribute` names
    whose files the system is made of, `code` the digest that those files must have.
    """

    project: Project
    callable: str | None
    environment: str | None
    make: Callable[[], Any] | None
    modules: tuple[str | None, ...]
    code: str
    retry_on: tuple[str, ...] = ()

    def packed(self) -> "Packed":
        """The recipe as it crosses to other processes.

        Raises:
            ConfigError: what `make` stands on cannot be taken along.
        """
        stream = io.BytesIO()
        pickler = _Pickler(stream, self.project.root)
        try:
            pickler.dump(self)
        except Exception as error:
            raise ConfigError(
                f"the sandbox resource cannot be taken into worker processes: {error}; define its class at the top of"
                " definitions.py or of a module of its own, with fields that can be pickled, or leave out timeout_s and"
                " workers"
            ) from None
        return Packed(stream.getvalue(), self.project.root, tuple(pickler.files.items()))


@dataclass(frozen=True, slots=True)
class Packed:
    """A recipe's text, and the files of the project's that define what it names."""

    text: bytes
    root: Path
    files: tuple[tuple[str, str], ...]

    def open(self) -> Recipe:
        """The recipe. Imports the modules that define what it names."""
        with importing_from(self.root):
            for name, path in self.files:
                _import(name, path)
            recipe: Recipe = pickle.loads(self.text)
        return recipe


class _Pickler(pickle.Pickler):
    """Notes which of the project's files define the classes and functions that are pickled by name."""

    def __init__(self, stream: io.BytesIO, root: Path) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._root, self.files = root, dict[str, str]()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | types.FunctionType):
            module = value.__module__
            if module == "__main__":
                raise pickle.PicklingError(f"{value.__qualname__} is defined in the script that is run")
            path = getattr(sys.modules.get(module), "__file__", None)
            if path is not None and Path(os.path.realpath(path)).is_relative_to(self._root):
                self.files[module] = os.path.realpath(path)
        return NotImplemented


def _import(name: str, path: str) -> None:
    """Imports a file under the name that its classes are known by, also where Python would not find it by that name."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin is not None and os.path.realpath(found.origin) == path:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
