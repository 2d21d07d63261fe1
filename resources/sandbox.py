"""The sandbox as a Dagster resource: made when the first case needs it, torn down with the run.

What belongs here: how a run comes by its system. What happens to a case is the engine's (oloproof_dagster.sandbox).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from oloproof_dagster.loading import System, load_system
from oloproof_dagster.project import load_project
from oloproof_dagster.sandbox import Sandbox


class SandboxSession:
    """One run's use of the sandbox; nothing of the user's is imported before it is asked for."""

    def __init__(self, resource: "SandboxResource") -> None:
        self._resource = resource
        self._system: System | None = None
        self._sandbox: Sandbox | None = None

    @property
    def system(self) -> System:
        """The system, imported and its contract checked.

        Raises:
            ConfigError: it cannot be imported, or lacks what the project's evaluators need of it.
        """
        if self._system is None:
            self._system = self._resource.load()
        return self._system

    def prepare(self) -> None:
        """Imports the system and checks its contract now, before anything runs.

        Raises:
            ConfigError: as `system` does.
        """
        self.system  # noqa: B018 - asked for, so that it is there

    def sandbox(self) -> Sandbox:
        """The one sandbox of this run."""
        if self._sandbox is None:
            self._sandbox = Sandbox(self.system)
        return self._sandbox

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()


class SandboxResource(dg.ConfigurableResource[SandboxSession]):
    """The system under test and its world, as oloproof.yaml declares them.

    To build the system from other resources (a database, a secret), subclass it, add them as fields and override
    `make_system`; hand the instance to `build_definitions(..., sandbox=...)`.
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

    def load(self) -> System:
        """The system, ready to be called."""
        return load_system(
            load_project(self.project_dir),
            instance=self.make_system(),
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
