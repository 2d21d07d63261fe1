"""The sandbox as a Dagster resource: made when the first case needs it, torn down with the run.

What belongs here: how a run comes by its system. What happens to a case is the engine's (`workers.session`).
"""

import atexit
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.workers.session import Session, SystemOverrides


class SandboxResource(dg.ConfigurableResource[Session]):
    """The system under test and its world, as oloproof.yaml declares them; a field that is set goes before it.

    To build the system from other resources (a database, a secret), subclass it, add them as fields and override
    `make_system`; hand the instance to `build_definitions(..., sandbox=...)`. The file that the subclass stands in
    then counts as the system's code. With worker processes each of them calls `make_system`.
    """

    project_dir: str
    callable: str | None = None
    environment: str | None = None
    workers: int | None = None
    timeout_s: float | None = None
    shared: bool | None = None

    def make_system(self) -> Any:
        """The callable object under test, or None to import the one that oloproof.yaml names."""
        return None

    def is_shared(self, project: Project) -> bool:
        """Whether other runs use the same sandbox."""
        return project.suite.sandbox.shared if self.shared is None else self.shared

    def session(self, project: Project | None = None) -> Session:
        """The use that one run makes of the system; nothing of the user's is imported before it is needed.

        Raises:
            ConfigError: oloproof.yaml cannot be used.
        """
        loaded = project or load_project(self.project_dir)
        own = type(self) is not SandboxResource
        overrides = SystemOverrides(
            callable=self.callable,
            environment=self.environment,
            make=self.make_system if own else None,
            maker=_module_of(type(self), loaded.root) if own else None,
            workers=1 if self.is_shared(loaded) else self.workers,
            timeout_s=self.timeout_s,
            shared=self.is_shared(loaded),
        )
        return Session(loaded, overrides)

    def __reduce__(self) -> tuple[Any, ...]:
        """How a worker process comes by this resource: made again from its fields. Dagster's state stays here."""
        return _made_again, _ingredients(self)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Session]:
        """A session for one run, closed with it."""
        session = self.session()
        try:
            yield session
        finally:
            session.close()


_Ingredients = tuple[type[dg.ConfigurableResource[Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Nested:
    """A resource that another one is made of."""

    ingredients: _Ingredients


def _ingredients(resource: dg.ConfigurableResource[Any]) -> _Ingredients:
    values = {name: getattr(resource, name) for name in type(resource).model_fields}
    return type(resource), {
        name: _Nested(_ingredients(value)) if isinstance(value, dg.ConfigurableResource) else value
        for name, value in values.items()
    }


def _made_again(resource: type[dg.ConfigurableResource[Any]], values: dict[str, Any]) -> Any:
    """A resource in a worker process; what it is made of is set up, and torn down when the process ends."""
    made = {}
    for name, value in values.items():
        if isinstance(value, _Nested):
            context = _made_again(*value.ingredients).process_config_and_initialize_cm()
            made[name] = context.__enter__()
            atexit.register(context.__exit__, None, None, None)
        else:
            made[name] = value
    return resource(**made)


def _module_of(resource: type[SandboxResource], root: Path) -> str | None:
    """The module of the project's folder that a subclass stands in, whatever name it was imported under."""
    try:
        path = Path(inspect.getfile(resource)).resolve()
    except (TypeError, OSError):  # made at a prompt: there is no file
        return None
    return ".".join(path.relative_to(root).with_suffix("").parts) if path.is_relative_to(root) else None
