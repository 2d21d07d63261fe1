"""One run's use of the system under test: imported when the first case needs it, in this process or in workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.sandboxes import Done, Sandboxes
from oloproof_dagster.project.project import Project
from oloproof_dagster.system.calls import Call
from oloproof_dagster.system.declared_inputs import other_files
from oloproof_dagster.system.loading import System, load_system, made_by
from oloproof_dagster.system.own_files import OwnFiles
from oloproof_dagster.system.sandbox import Sandbox
from oloproof_dagster.workers.inside import FILES_CHANGED, Started
from oloproof_dagster.workers.pool import WorkerProcesses
from oloproof_dagster.workers.recipe import Recipe


@dataclass(frozen=True)
class SystemOverrides:
    """What differs from what oloproof.yaml declares of the system; None: as declared there.

    `make` makes the instance where an import does not; `maker` is the `module:attribute` that `make` stands in.
    """

    callable: str | None = None
    environment: str | None = None
    make: Callable[[], Any] | None = None
    maker: str | None = None
    workers: int | None = None
    timeout_s: float | None = None
    shared: bool = False


_workers: ContextVar[int | None] = ContextVar("oloproof_workers", default=None)


@contextmanager
def with_workers(workers: int | None) -> Iterator[None]:
    """Gives the sessions that are used inside, in this thread, so many workers, whatever is declared; None: as is."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


class Session:
    """The system and its sandboxes, from the first time that they are needed until the run ends."""

    def __init__(self, project: Project, overrides: SystemOverrides | None = None) -> None:
        self._project, self._overrides = project, overrides or SystemOverrides()
        self._system: System | None = None
        self._workers: WorkerProcesses | None = None
        self._in_this_process: InThisProcess | None = None
        self._loaded_code: str | None = None
        self._loaded: System | Started | None = None

    @property
    def loaded(self) -> bool:
        """Whether the system was imported; what is edited from then on is the next run's."""
        return self._loaded_code is not None

    @property
    def unseen(self) -> tuple[str, ...]:
        """Files that the system imported and that its code digest does not cover; none before it is imported."""
        return self._loaded.unseen if self._loaded is not None else ()

    @property
    def is_stateful(self) -> bool:
        """Whether the system, once it is imported, has a sandbox that can be reset."""
        return self._loaded is not None and self._loaded.is_stateful

    @property
    def code_digest(self) -> str:
        """The digest of the system's files as they are now; importing nothing."""
        return OwnFiles.of_system(self._project, *self.modules).code_digest

    @property
    def other_files(self) -> dict[str, str]:
        """The contents of the project's files that are not in the code digest; see `declared_inputs.other_files`."""
        known = OwnFiles.of(self._project, *self.modules).modules.values()
        return other_files(self._project, frozenset(known))

    def prepare(self) -> None:
        """Imports the system and checks its contract.

        Raises:
            ConfigError: it cannot be imported, or lacks what the project's evaluators need of it.
        """
        if self.loaded:
            return
        code = self.code_digest
        if self._isolated:
            workers = self._start(code)
            try:
                self._loaded = workers.load()
            except BaseException:
                workers.close()
                raise
            self._workers = workers
        else:
            self._loaded = self._system = self._load()
        self._loaded_code = code

    def sandboxes(self, code: str) -> Sandboxes:
        """The sandboxes of this run; `code` is the digest that its evidence will bear.

        Raises:
            ConfigError: as `prepare` does, or the system was imported from other files than those of `code`.
        """
        if self._in_this_process is not None:
            return self._in_this_process
        self.prepare()
        if self._loaded_code != code:
            raise ConfigError(FILES_CHANGED)
        if self._workers is not None:
            return self._workers
        assert self._system is not None
        sandbox = Sandbox(self._system, self._project.suite.sandbox, self._retry_on)
        self._in_this_process = InThisProcess(sandbox)
        return self._in_this_process

    def load_again(self) -> None:
        """Lets go of what was loaded: the environment has changed that the system is to be loaded in."""
        self.close()
        self._workers = self._in_this_process = self._system = self._loaded_code = None

    def close(self) -> None:
        """Ends the sandboxes."""
        for each in (self._workers, self._in_this_process):
            if each is not None:
                each.close()

    @property
    def modules(self) -> tuple[str | None, ...]:
        """The `module:attribute` names that the system's files are found by."""
        declared, overrides = self._project.suite.system, self._overrides
        return (overrides.callable or declared.callable, overrides.environment or declared.environment, overrides.maker)

    @property
    def _timeout_s(self) -> float | None:
        return self._overrides.timeout_s or self._project.suite.system.timeout_s

    @property
    def _n_workers(self) -> int:
        wanted = _workers.get()
        if wanted is not None and wanted > 1 and self._overrides.shared:
            raise ConfigError(
                f"--workers {wanted}: the sandbox is shared, and one case at a time may use it; leave it out"
            )
        return wanted or self._overrides.workers or self._project.suite.sandbox.workers

    @property
    def n_sandboxes(self) -> int:
        """How many sandboxes there are at most."""
        return self._n_workers

    @property
    def _isolated(self) -> bool:
        return self._n_workers > 1 or self._timeout_s is not None

    @property
    def _retry_on(self) -> tuple[str, ...]:
        retries = self._project.suite.retries
        return retries.on if retries else ()

    def _load(self) -> System:
        overrides = self._overrides
        return load_system(
            self._project,
            instance=made_by(overrides.make),
            callable=overrides.callable,
            environment=overrides.environment,
        )

    def _start(self, code: str) -> WorkerProcesses:
        overrides = self._overrides
        recipe = Recipe(
            self._project,
            overrides.callable,
            overrides.environment,
            overrides.make,
            self.modules,
            code,
            self._retry_on,
        )
        return WorkerProcesses(recipe, self._n_workers, self._timeout_s)


class InThisProcess:
    """One sandbox in this process: a call is answered before `submit` returns."""

    workers = 1

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def submit(self, call: Call, done: Done) -> None:
        """Answers a call at once."""
        done(self._sandbox.answer(call))

    def wait(self) -> None:
        """Nothing to wait for: calls are answered when they are submitted."""
        return

    def close(self) -> None:
        """Ends the sandbox."""
        self._sandbox.close()
