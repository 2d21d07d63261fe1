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

    def kill(self) -> None:
        """Ends them all, and returns once they are gone: nothing they write comes later.

        Where there is no /proc, only the process group is ended.
        """
        is_known_by_id = _since(self.leader) in (None, self.since)
        for send in (os.kill, os.killpg) if is_known_by_id else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.leader, signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            left = tuple(self._left(is_known_by_id))
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _left(self, is_known_by_id: bool) -> Iterator[int]:
        """Those that are alive."""
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        except OSError:
            return
        for pid in pids:
            with contextlib.suppress(OSError):  # it ends meanwhile, or is somebody else's
                state, _, _, session, *_ = _stat(pid)
                if pid == os.getpid() or state in (b"Z", b"X"):
                    continue
                if (is_known_by_id and int(session) == self.leader) or self._is_marked(pid) or self._prints_here(pid):
                    yield pid

    def _is_marked(self, pid: int) -> bool:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return f"{MARK}={self.mark}".encode() in stream.read().split(b"\0")

    def _prints_here(self, pid: int) -> bool:
        """Whether it holds the worker's pipe: a fork has the environment of its first ancestor, but it has the pipe."""
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            for each in descriptors:
                with contextlib.suppress(OSError):
                    if os.readlink(each.path) == f"pipe:[{self.pipe}]":
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
