"""The user's Python: callables found, imported afresh, and their contract checked."""

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oloproof_dagster.errors import ConfigError, OloproofError
from oloproof_dagster.project.project import Project
from oloproof_dagster.system.declared_inputs import note_set_by_system
from oloproof_dagster.system.own_files import OwnFiles, is_installed
from oloproof_dagster.system.protocols import Replayable
from oloproof_dagster.wording import did_you_mean, shortened


@dataclass(frozen=True)
class System:
    """The user's system, ready to be called. `reset` and `snapshot` are both there or neither is.

    `unseen` names files of the project's that it imported and that its code digest does not cover. `opens` and `closes`
    are called once a sandbox: before its first case, and with its end.
    """

    call: Callable[[Any], Any]
    reset: Callable[[Any], Any] | None
    snapshot: Callable[[], Any] | None
    replay: Callable[..., Any] | None
    own_files: OwnFiles
    unseen: tuple[str, ...] = ()
    opens: tuple[Callable[[], Any], ...] = ()
    closes: tuple[Callable[[], Any], ...] = ()

    @property
    def is_stateful(self) -> bool:
        """Whether it has a sandbox, which can be reset."""
        return self.reset is not None


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
    before, environment_before = set(sys.modules), dict(os.environ)
    try:
        if instance is None:
            instance = _instance(project, target, "system.callable")
        sandbox = None if world in (None, target) else _instance(project, world or "", "system.environment")
        system = _assembled(project, target, world, instance, sandbox, own_files)
        return replace(system, unseen=own_files.unseen(sys.modules.keys() - before))
    except OloproofError:
        raise
    except Exception as error:  # an attribute of the user's object that raises when it is read
        raise project.problem("system.callable", f"{target} cannot be used: {own_files.describe(error)}") from error
    finally:
        note_set_by_system(environment_before)


def made_by(make: Callable[[], Any] | None) -> Any:
    """What the user's maker gives; None where there is none.

    Raises:
        ConfigError: it raises.
    """
    try:
        return make() if make else None
    except OloproofError:
        raise
    except Exception as error:
        name = getattr(make, "__qualname__", "make_system")
        raise ConfigError(f"{name}: {type(error).__name__}: {error}") from error


def _assembled(
    project: Project, target: str, world: str | None, system: Any, sandbox: Any, own_files: OwnFiles
) -> System:
    if not takes(system, 1):
        raise project.problem(
            "system.callable", f"{target} must be callable with one argument, the case's input; it is {shape(system)}"
        )
    holder = getattr(system, "__self__", system)
    if sandbox is None:
        sandbox = holder if _any_stateful(holder) else system
        key, name = "system.callable", target
    else:
        key, name = "system.environment", str(world)
    reset, snapshot = getattr(sandbox, "reset", None), getattr(sandbox, "snapshot", None)
    if (reset is None) != (snapshot is None) or (world is not None and reset is None):
        lacking = " and ".join(name for name, there in (("reset", reset), ("snapshot", snapshot)) if there is None)
        raise project.problem(key, f"{name} has no {lacking}; a sandbox has reset(state) and snapshot()")
    for call, method, arguments in (("reset(state)", reset, 1), ("snapshot()", snapshot, 0)):
        if method is not None and not takes(method, arguments):
            raise project.problem(key, f"{name} must be callable as {call}; it is {shape(method)}")
    replayer = next((each for each in (system, holder) if isinstance(each, Replayable)), None)
    replay = getattr(replayer, "replay", None)
    if project.replayed and not (replay is not None and takes(replay, 1, "checkpoint", "change")):
        evaluator = project.evaluators.index(project.replayed[0])
        found = "there is none" if replay is None else f"it is {shape(replay)}"
        raise project.problem(
            f"evaluators.{evaluator}",
            f"{project.replayed[0].name} replays cases, and {target} must have"
            f" replay(trajectory, *, checkpoint, change); {found}",
        )
    holders = (sandbox,) if sandbox is holder else (sandbox, holder)
    return System(
        system, reset, snapshot, replay, own_files, opens=_own(holders, "open"), closes=_own(holders, "close")
    )


def _own(holders: tuple[Any, ...], name: str) -> tuple[Callable[[], Any], ...]:
    """The methods of this name that the classes of objects of the user's have, where they are called without
    arguments."""
    methods = (getattr(each, name) for each in holders if hasattr(type(each), name))
    return tuple(each for each in methods if takes(each, 0))


def load_attribute(project: Project, name: str, key: str) -> Any:
    """The object that `module:attribute` names, its module found in the project's folder first.

    `key` is the dotted key of oloproof.yaml that asks for it.

    Raises:
        ConfigError: naming the key that asked for it and the line of the user's file that failed.
    """
    module_name, _, attribute = name.partition(":")
    own = OwnFiles.of(project, name)
    for taken in own.taken():
        file = own.modules[taken].relative_to(project.root)
        raise project.problem(key, f"{file} has the name of a module that Python has already, {taken!r}; rename it")
    try:
        with importing_from(project.root):
            value = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also what is no Exception, such as SystemExit
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise project.problem(
                key,
                f"there is no module {shortened(error.name)}, neither among the files in {project.root} nor installed",
            ) from error
        raise project.problem(key, f"cannot import {shortened(module_name)[1:-1]}: {own.describe(error)}") from error
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            known = [each for each in dir(value) if not each.startswith("_")]
            there = f"{shortened(module_name)[1:-1]} has no {shortened(attribute)}"
            raise project.problem(key, f"{there}{did_you_mean(part, known)}") from None
        except Exception as error:
            raise project.problem(key, f"{name} cannot be read: {own.describe(error)}") from error
    return value


def _instance(project: Project, name: str, key: str) -> Any:
    value = load_attribute(project, name, key)
    if not inspect.isclass(value):
        return value
    try:
        return value()
    except (Exception, SystemExit) as error:
        described = OwnFiles.of(project, name).describe(error)
        raise project.problem(key, f"{name} is a class that cannot be made without arguments: {described}") from error


_roots: set[str] = set()
_imported: dict[str, str] = {}
"""The folders of projects put on the import path here, and what was imported while each of them stood there."""


@contextlib.contextmanager
def importing_from(root: Path) -> Iterator[None]:
    """Puts a project's folder first on the import path, where it stays, and takes from it what came there for another
    project: no project ever gets a module of another one that it lacks itself."""
    others = _roots - {str(root)}
    sys.path[:] = [str(root), *(entry for entry in sys.path if entry not in {str(root), *others})]
    _roots.add(str(root))
    for name, imported_for in list(_imported.items()):
        if imported_for in others:
            del _imported[name]
            if _lies_in(sys.modules.get(name), imported_for):
                sys.modules.pop(name, None)
    importlib.invalidate_caches()
    before = set(sys.modules)
    try:
        yield
    finally:
        _imported.update({name: str(root) for name in sys.modules.keys() - before})


def _lies_in(module: Any, root: str) -> bool:
    try:
        places = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
    except KeyError:  # a folder without an init file within a package that has just been taken out
        return True
    folders = [Path(place) for place in places if isinstance(place, str)]
    return any(each.is_relative_to(root) and not is_installed(each, Path(root)) for each in folders)


def _any_stateful(value: Any) -> bool:
    return hasattr(value, "reset") or hasattr(value, "snapshot")


def takes(value: Any, arguments: int, *keywords: str) -> bool:
    """Whether a value can be called with so many positional arguments, and with keyword arguments of these names."""
    if not callable(value):
        return False
    try:
        inspect.signature(value).bind(*range(arguments), **dict.fromkeys(keywords))
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature: only calling it would show
        return True
    return True


def shape(value: Any) -> str:
    """What can be called, by its parameters, or else by its type: for a sentence that says what was found."""
    if not callable(value):
        return f"of type {type(value).__name__}, which cannot be called"
    with contextlib.suppress(TypeError, ValueError):
        return f"callable as {shortened(str(inspect.signature(value)))[1:-1]}"
    return f"of type {type(value).__name__}"
