"""The states that cases start from where they name a file: a world that many cases share, and each one's changes."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oloproof_dagster.digests import dump, dump_in_order
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import read_json
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.patches import patched
from oloproof_dagster.wording import json_kind, shortened

FILE, PATCH = "initial_state_file", "initial_state_patch"


@dataclass(frozen=True, slots=True)
class World:
    """A state, with its text in its own order and its canonical one."""

    state: dict[str, Any]
    text: str
    canonical: str

    @classmethod
    def of(cls, state: dict[str, Any]) -> "World":
        """The world that a state is."""
        return cls(state, dump_in_order(state), dump(state))


class Worlds:
    """The initial states of a project's cases; a file that many of them name is read once."""

    def __init__(self, project: Project) -> None:
        self._project, self._read = project, dict[Path, World]()

    def of(self, case: dict[str, Any]) -> World | None:
        """A case's initial state, its patch applied; None where it declares none.

        Raises:
            ValueError: it is declared wrongly; the message names the key.
            ConfigError: the file is no JSON object.
        """
        if "initial_state" in case:
            if FILE in case:
                raise ValueError(f"`initial_state` and `{FILE}` both say what the case starts from; remove one")
            if not isinstance(case["initial_state"], dict):
                found = json_kind(case["initial_state"])
                raise ValueError(f"`initial_state` must be a JSON object, found {found}; or leave it out")
        if PATCH in case and FILE not in case:
            raise ValueError(f"`{PATCH}` goes with `{FILE}`, which is not there")
        if FILE not in case:
            return World.of(case["initial_state"]) if "initial_state" in case else None
        world = self._world(case[FILE])
        if PATCH not in case:
            return world
        try:
            state = patched(world.state, case[PATCH])
        except ValueError as error:
            raise ValueError(f"`{PATCH}`: {error}") from None
        if not isinstance(state, dict):
            raise ValueError(f"`{PATCH}` must leave a JSON object, it leaves {json_kind(state)}")
        return World.of(state)

    def _world(self, name: Any) -> World:
        if not isinstance(name, str) or not name:
            raise ValueError(f"`{FILE}` must be the path of a JSON file, found {json_kind(name)}")
        path = _place(self._project, name)
        if path is None:
            raise ValueError(f"`{FILE}`: {shortened(name)} lies outside of the project's folder")
        if path not in self._read:
            shown = path.relative_to(self._project.root).as_posix()
            state = read_json(path, shown)
            if not isinstance(state, dict):
                raise ConfigError.at(shown, 1, f"must hold a JSON object, found {json_kind(state)}")
            self._read[path] = World.of(state)
        return self._read[path]


def files_digest(project: Project) -> dict[str, str | None]:
    """The contents of the files that the dataset's cases name, without reading any of them as JSON."""
    found: dict[str, str | None] = {}
    for name in _named(project):
        path = _place(project, name)
        if path is not None and name not in found:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    return found


def named_files(project: Project) -> frozenset[Path]:
    """The files of the project that the dataset's cases name."""
    return frozenset(path for path in (_place(project, name) for name in set(_named(project))) if path is not None)


def _named(project: Project) -> Iterator[str]:
    with contextlib.suppress(OSError), project.dataset.open("rb") as stream:
        for line in stream:
            if FILE.encode() in line:
                with contextlib.suppress(ValueError, RecursionError):  # reading the cases says what is wrong
                    case = json.loads(line)
                    if isinstance(case, dict) and isinstance(case.get(FILE), str):
                        yield case[FILE]


def _place(project: Project, name: str) -> Path | None:
    """Where a file lies that a case names, relative to the dataset's folder; None outside of the project."""
    try:
        path = (project.dataset.parent / name).resolve()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(project.root.resolve()) else None
