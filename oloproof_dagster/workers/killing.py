"""Ends what a worker process leaves behind: whatever it started, also what has left its process group.

Its descendants are found everywhere. Those whose parents have ended are found on Linux alone, by what /proc shows:
their session, a variable in their environment, or the pipe that they print to.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from oloproof_dagster.liveness import began, descendants, is_alive, same_start
from oloproof_dagster.workers.timing import DEATH_SECONDS, LOOK_SECONDS


@dataclass(frozen=True, slots=True)
class Descent:
    """How a worker process and its descendants are known.

    `leader` is its id, which is also that of its process group and session; `variable` is the `NAME=value` that stands
    in the environment of the programs that it starts; `pipe` is the inode of the pipe that it prints to. `since` tells
    it from a later process of the same id.
    """

    leader: int
    variable: str
    pipe: int
    since: float | None

    @classmethod
    def of(cls, leader: int, variable: str, pipe: int) -> "Descent":
        """The descent of a process that has just begun."""
        return cls(leader, variable, pipe, began(leader))

    @property
    def is_its_own(self) -> bool:
        """Whether its id is not a later process's by now."""
        found = began(self.leader)
        return found is None or (self.since is not None and same_start(found, self.since))


def kill(*descents: Descent) -> None:
    """Ends all of them, and returns once they are gone: nothing they write comes later."""
    leaders = {each.leader for each in descents if each.is_its_own}
    family = [each for leader in leaders for each in descendants(leader)]  # while there are parents to know them by
    for leader in leaders:
        for send in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(leader, signal.SIGKILL)
    variables = {each.variable.encode() for each in descents}
    pipes = {f"pipe:[{each.pipe}]" for each in descents}
    deadline = time.monotonic() + DEATH_SECONDS
    while time.monotonic() < deadline:
        left = {pid for pid, since in family if is_alive(pid, since)}
        left.update(_orphans(leaders, variables, pipes) if sys.platform == "linux" else filter(is_alive, leaders))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _orphans(sessions: set[int], variables: set[bytes], pipes: set[str]) -> Iterator[int]:
    """The processes that are in one of these sessions, bear one of these variables, or hold one of these pipes."""
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ends meanwhile, or is somebody else's
            if _session(name) in sessions or _bears(name, variables) or _holds(name, pipes):
                yield int(name)


def _session(pid: str) -> int | None:
    """The session of a process that runs; None where it has ended."""
    with open(f"/proc/{pid}/stat", "rb") as stream:
        state, _, _, session, *_ = stream.read().rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else int(session)


def _bears(pid: str, variables: set[bytes]) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as stream:
        return not variables.isdisjoint(stream.read().split(b"\0"))


def _holds(pid: str, pipes: set[str]) -> bool:
    """A fork has the environment of its first ancestor, which lacks the variable; but it has the pipe."""
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        for each in descriptors:
            with contextlib.suppress(OSError):
                if os.readlink(each.path) in pipes:
                    return True
    return False
