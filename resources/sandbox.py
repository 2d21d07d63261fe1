"""The sandbox as a Dagster resource: made when the first case needs it, torn down with the run.

What belongs here: how a run comes by its system. What happens to a case is the engine's (oloproof_dagster.sandbox).
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.errors import ConfigError, OloproofError
from oloproof_dagster.loading import System, load_system
from oloproof_dagster.own_files import OwnFiles
from oloproof_dagster.project import Project, load_project
from oloproof_dagster.sandbox import Sandbox


class SandboxSession:
    """One run's use of the sandbox; nothing of the user's is imported before it is asked for."""

    def __init__(self, resource: "SandboxResource") -> None:
        self._resource = resource
        self._system: System | None = None
        self._loaded_code: str | None = None
        self._sandbox: Sandbox | None = None

    @property
    def loaded(self) -> bool:
        """Whether this run has imported the system; what is edited from then on is the next run's."""
        return self._system is not None

    def code_digest(self, project: Project) -> str:
        """The digest of the system's files as they are now; importing nothing."""
        return self._resource.own_files(project).code_digest

    def prepare(self, project: Project) -> System:
        """The system, imported and its contract checked.

        Raises:
            ConfigError: it cannot be imported, or lacks what the project's evaluators need of it.
        """
        if self._system is None:
            code = self.code_digest(project)
            self._system, self._loaded_code = self._resource.load(project), code
        return self._system

    @property
    def unseen(self) -> tuple[str, ...]:
        """Files that the system imported and that its code digest does not cover; none before it is imported."""
        return self._system.unseen if self._system is not None else ()

    def sandbox(self, project: Project, code: str) -> Sandbox:
        """The one sandbox of this run; `code` is the digest that its evidence will bear.

        Raises:
            ConfigError: as `prepare` does, or the system was imported from other files than those of `code`.
        """
        if self._sandbox is None:
            system = self.prepare(project)
            if self._loaded_code != code:
                raise ConfigError(
                    "the system's files changed after this run began, or after its cases were executed;"
                    " run again, trajectories included"
                )
            self._sandbox = Sandbox(system)
        return self._sandbox

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()


class SandboxResource(dg.ConfigurableResource[SandboxSession]):
    """The system under test and its world, as oloproof.yaml declares them.

    To build the system from other resources (a database, a secret), subclass it, add them as fields and override
    `make_system`; hand the instance to `build_definitions(..., sandbox=...)`. The file that the subclass stands in
    then counts as the system's code.
    """

    project_dir: str
    callable: str | None = None
    environment: str | None = None
    workers: int = 1
    timeout_s: float | None = None
    shared: bool = False

    def make_system(self) -> Any:
        """The callable object under test, or None to import the one that oloproof.yaml names."""
        return None

    def own_files(self, project: Project) -> OwnFiles:
        """The user's files that the system is made of."""
        declared = project.suite.system
        return OwnFiles.of(
            project,
            self.callable or declared.callable,
            self.environment or declared.environment,
            _module_of(type(self), project.root),
        )

    def load(self, project: Project | None = None) -> System:
        """The system, ready to be called.

        Raises:
            ConfigError: `make_system` raises, or what it made cannot be used.
        """
        if (self.workers, self.timeout_s, self.shared) != (1, None, False):
            raise ConfigError(
                f"{type(self).__name__}: workers, timeout_s and shared come with worker processes, which this version"
                " does not have yet; leave them out"
            )
        try:
            made = self.make_system()
        except OloproofError:
            raise
        except Exception as error:
            raise ConfigError(f"{type(self).__name__}.make_system: {type(error).__name__}: {error}") from error
        return load_system(
            project or load_project(self.project_dir),
            instance=made,
            callable=self.callable,
            environment=self.environment,
        )

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[SandboxSession]:
        session = SandboxSession(self)
        try:
            yield session
        finally:
            session.close()


def _module_of(resource: type[SandboxResource], root: Path) -> str | None:
    """The module of the project's folder that a subclass stands in, whatever name it was imported under."""
    if resource is SandboxResource:
        return None
    try:
        path = Path(inspect.getfile(resource)).resolve()
    except (TypeError, OSError):  # made at a prompt: there is no file
        return None
    return ".".join(path.relative_to(root).with_suffix("").parts) if path.is_relative_to(root) else None
