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
    its mark, and the pipe that it prints to."""

    leader: int
    mark: str
    pipe: int

    def kill(self) -> None:
        """Ends them all, and returns once they are gone: nothing they write comes later.

        Where there is no /proc, only the process group is ended.
        """
        for send in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.leader, signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            left = tuple(self._left())
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _left(self) -> Iterator[int]:
        """Those that are alive."""
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        except OSError:
            return
        for pid in pids:
            with contextlib.suppress(OSError):  # it ends meanwhile, or is somebody else's
                if pid != os.getpid() and self._is_alive_in_session(pid, self.leader):
                    yield pid

    def _is_alive_in_session(self, pid: int, session: int) -> bool:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            state, _, _, its_session, *_ = stream.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        return int(its_session) == session or self._is_marked(pid) or self._prints_here(pid)

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
