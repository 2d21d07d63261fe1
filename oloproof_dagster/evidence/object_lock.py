"""A lock made of objects: who holds it renews it, and who let it grow old, or died, has lost it.

<lock>/<number>     who holds the lock and until when; of several numbers the highest counts

A number is written once by whoever creates it first, and then by that holder alone; so taking a lock over is creating
the next number, which one of any many succeeds in. The highest number is never removed, and a holder that slept
through all of this finds a higher one than its own.
"""

import json
import os
import platform
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.objects import Objects
from oloproof_dagster.evidence.store import Busy
from oloproof_dagster.liveness import is_alive, machine

LEASE_SECONDS = 60.0
"""How long a lock is held from its last renewal. The clocks of machines that share it agree to some seconds."""
RENEWALS = 4
"""How often within that time it is renewed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. `until` is in seconds since 1970; `machine` and `life` tell this very process from another
    one with the same number, on another machine or later."""

    token: str
    host: str
    pid: int
    machine: str
    life: str
    until: float

    def holds(self) -> bool:
        """Whether it still does: not let go, not past its time, and not a process of this machine that is gone."""
        gone = self.machine == machine() and self.life != _life(self.pid)
        return time.time() < self.until and not gone

    def __str__(self) -> str:
        until = time.strftime("%H:%M:%S UTC", time.gmtime(self.until))
        return f"process {self.pid} on {self.host}, until {until} or as long as it goes on"


class Lease:
    """One attempt to hold a lock, from `take` to `let_go`."""

    def __init__(self, objects: Objects, name: str, *, seconds: float = LEASE_SECONDS) -> None:
        self._objects, self._name, self._seconds = objects, name, seconds
        pid = os.getpid()
        self._me = Holder(uuid4().hex, platform.node() or "?", pid, machine(), _life(pid) or "", 0.0)
        self._number = 0
        self._lost_to: str | None = None
        self._writing, self._ended = threading.Lock(), threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="oloproof-lease", daemon=True)

    def take(self) -> None:
        """Holds the lock and renews it from now on.

        Raises:
            Busy: another one holds it.
        """
        numbers = _numbers(self._objects, self._name)
        last = _last(self._objects, self._name, numbers)
        if last is not None and last.holds():
            raise Busy(str(last))
        self._number = numbers[-1] + 1 if numbers else 1
        self._objects.create(self._at(self._number), self._said(time.time() + self._seconds))
        self.require()
        for number in numbers:
            with suppress(EvidenceError):
                self._objects.remove(self._at(number))
        self._renewing.start()

    def require(self, *, ask: bool = True) -> None:
        """Goes on only while the lock is held: as far as is known, or, with `ask`, as the store says now.

        Raises:
            Busy: another one took it.
        """
        if ask and self._lost_to is None:
            holder = _last(self._objects, self._name, _numbers(self._objects, self._name))
            if holder is None or holder.token != self._me.token:
                self._lost_to = str(holder or "whoever removed it")
        if self._lost_to is not None:
            raise Busy(self._lost_to)

    def let_go(self) -> None:
        """Lets others have it at once; where that cannot be said, when its time is up."""
        self._ended.set()
        with self._writing, suppress(EvidenceError):
            if self._lost_to is None:
                self._objects.write(self._at(self._number), self._said(0.0))
        if self._renewing.is_alive():
            self._renewing.join()

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / RENEWALS):
            with self._writing, suppress(EvidenceError):  # out of reach: tried again in time, or the time is up
                if self._ended.is_set():
                    return
                try:
                    self.require()
                except Busy:
                    return
                self._objects.write(self._at(self._number), self._said(time.time() + self._seconds))

    def _at(self, number: int) -> str:
        return f"{self._name}/{number:08d}"

    def _said(self, until: float) -> bytes:
        return json.dumps(asdict(replace(self._me, until=until))).encode()


def holder_of(objects: Objects, name: str) -> Holder | None:
    """Who holds a lock now, or None."""
    last = _last(objects, name, _numbers(objects, name))
    return last if last is not None and last.holds() else None


def _numbers(objects: Objects, name: str) -> list[int]:
    return sorted(int(each) for each in objects.names(name) if each.isdecimal())


def _last(objects: Objects, name: str, numbers: list[int]) -> Holder | None:
    """What the highest number says."""
    data = objects.read(f"{name}/{numbers[-1]:08d}") if numbers else None
    try:
        return None if data is None else Holder(**json.loads(data))
    except (ValueError, TypeError):
        raise EvidenceError(f"{objects.at(name)}/{numbers[-1]:08d} was not written by Oloproof") from None


def _life(pid: int) -> str | None:
    """When a process of this machine was started, in the system's own ticks; None where there is none that lives."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except OSError:
        return None if Path("/proc/self/stat").exists() or not is_alive(pid) else ""
