"""Ends what a worker process leaves behind: whatever it started, also what has left its process group."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "OLOPROOF_SANDBOX_PROCESS"
"""The environment variable by which the programs that one worker process started are known."""

SECONDS = 1.0
"""How long processes that are killed are waited for; one that hangs in a device cannot be."""


@dataclass(frozen=True, slots=True)
class Descent:
    """How a worker process and its descendants are known: its id, which is also that of its process group and session,
    its mark, and the pipe that it prints to. `since` tells it from a later process of the same id."""

    leader: int
    mark: str
    pipe: int
    since: int | None

    @classmethod
    def of(cls, leader: int, mark: str, pipe: int) -> "Descent":
        """The descent of a process that has just begun."""
        return cls(leader, mark, pipe, _since(leader))


def kill(*descents: Descent) -> None:
    """Ends all of them, and returns once they are gone: nothing they write comes later.

    Where there is no /proc, only the process groups are ended.
    """
    by_id = {each.leader for each in descents if _since(each.leader) in (None, each.since)}
    for leader in by_id:
        for send in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(leader, signal.SIGKILL)
    marks = {f"{MARK}={each.mark}".encode() for each in descents}
    pipes = {f"pipe:[{each.pipe}]" for each in descents}
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        left = tuple(_alive(by_id, marks, pipes))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _alive(sessions: set[int], marks: set[bytes], pipes: set[str]) -> Iterator[int]:
    """The processes that are in one of these sessions, bear one of these marks, or hold one of these pipes."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return
    for pid in pids:
        with contextlib.suppress(OSError):  # it ends meanwhile, or is somebody else's
            state, _, _, session, *_ = _stat(pid)
            if pid == os.getpid() or state in (b"Z", b"X"):
                continue
            if int(session) in sessions or _bears(pid, marks) or _holds(pid, pipes):
                yield pid


def _bears(pid: int, marks: set[bytes]) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as stream:
        return not marks.isdisjoint(stream.read().split(b"\0"))


def _holds(pid: int, pipes: set[str]) -> bool:
    """A fork has the environment of its first ancestor, which bears no mark; but it has the pipe."""
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        for each in descriptors:
            with contextlib.suppress(OSError):
                if os.readlink(each.path) in pipes:
                    return True
    return False


def _stat(pid: int) -> list[bytes]:
    """What /proc says of a process from its state on."""
    with open(f"/proc/{pid}/stat", "rb") as stream:
        return stream.read().rpartition(b")")[2].split()


def _since(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None where there is no such process, or no /proc."""
    try:
        return int(_stat(pid)[19])
    except OSError:
        return None
