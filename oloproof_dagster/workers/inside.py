"""One worker process from the inside: its own copy of the system, loaded before the first call, and the calls.

Nothing here runs in the process that steers the run; that side is `outside`.
"""

import atexit
import fcntl
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from oloproof_dagster.errors import ConfigError, OloproofError
from oloproof_dagster.system.calls import Call, Outcome
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.loading import load_system, made_by
from oloproof_dagster.system.own_files import OwnFiles
from oloproof_dagster.system.sandbox import Sandbox
from oloproof_dagster.workers.recipe import Packed, Recipe

INDEX = "OLOPROOF_SANDBOX_INDEX"
"""The environment variable that tells a worker's system which of the sandboxes it is, from 0."""

MARK = "OLOPROOF_SANDBOX_PROCESS"
"""The environment variable by which the programs that one worker process started are known."""

FILES_CHANGED = (
    "the system's files changed after this run began, or after its cases were executed; run again, trajectories"
    " included"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker process stands: which of the sandboxes it is, the mark of its descent, and the environment of the
    process that steers."""

    index: int
    mark: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Started:
    """What a worker process says of itself once it is ready: `problem` where the system cannot be loaded."""

    problem: str | None = None
    unseen: tuple[str, ...] = ()
    is_stateful: bool = False


_sandbox: Sandbox | None = None
_begun: Any = None


def begin(packed: Packed, place: Place, begun: Any, steering: Connection, output: Connection) -> None:
    """Makes this process a sandbox and says how that went.

    `begun` is shared with the process that steers: how many calls were begun, and when the last one was.
    """
    global _begun
    _begun = begun
    os.setsid()  # a group of its own: it ends with all that the system starts, and no Ctrl-C of a terminal reaches it
    _end_with_the_run()
    os.environ.clear()
    os.environ.update(place.environment | {INDEX: str(place.index), MARK: place.mark})
    # A process of the fork server has the server's own streams: there is no other way to give it others.
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    # Line by line, so that a process that is killed has said what it had to say.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), errors="backslashreplace", line_buffering=True)
        for descriptor in (1, 2)
    )
    INTERRUPTS.none_are_expected()
    try:
        started = _load(packed.open())
    except OloproofError as error:
        started = Started(str(error))
    except BaseException as error:
        started = Started(f"the system cannot be loaded in a worker process: {type(error).__name__}: {error}")
    steering.send(started)
    steering.close()


def _load(recipe: Recipe) -> Started:
    global _sandbox
    own_files = OwnFiles.of_system(recipe.project, *recipe.modules)
    if own_files.code_digest != recipe.code:
        raise ConfigError(FILES_CHANGED)
    instance = made_by(recipe.make)
    loaded = load_system(recipe.project, instance=instance, callable=recipe.callable, environment=recipe.environment)
    if own_files.code_digest != recipe.code:
        raise ConfigError(FILES_CHANGED)
    _sandbox = Sandbox(loaded, recipe.project.suite.sandbox, recipe.retry_on)
    return Started(unseen=loaded.unseen, is_stateful=loaded.is_stateful)


def answer(call: Call) -> Outcome:
    """The outcome of one call in this process's sandbox."""
    assert _sandbox is not None, "a worker that could not load the system is given no call"
    start = time.monotonic()
    _begun[1] = start
    _begun[0] += 1
    try:
        return _sandbox.answer(call)
    except BaseException as error:  # no memory is left for the engine's own part
        return Outcome("error", f"{type(error).__name__}: {error}", (time.monotonic() - start) * 1000)


def end() -> None:
    """Closes the sandbox in good order, and does what the system left to be done at exit."""
    if _sandbox is not None:
        _sandbox.close()
    atexit._run_exitfuncs()


def _end_with_the_run() -> None:
    """Lets this process and its group be killed when the process that steers is gone: nobody would read what it does.

    Linux does that by itself, also in the middle of C code: the pipe that only the steering process writes to is made
    to send SIGKILL when it is closed. Elsewhere a thread has to look.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    if sys.platform == "linux":
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
        if wait([parent.sentinel], 0):
            os.killpg(0, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent.sentinel,), name="oloproof-parent", daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.killpg(0, signal.SIGKILL)
