"""A lock that is one object: who holds it, and until when.

Whoever takes it creates the object, or replaces one whose holder let it go, died, or let its time pass; both on the
condition that the object is still what was read, so that of any many one succeeds. The holder renews it the same way,
and has lost it once the object is another one's.

Earlier releases kept numbered objects in a folder of the lock's name, of which the highest counts. They are read, so
that a holder of that kind keeps what it holds until its time is up. It does not see an object of this kind.
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
from oloproof_dagster.evidence.objects import Objects, Tag
from oloproof_dagster.evidence.store import Busy
from oloproof_dagster.liveness import is_alive, machine

LOCK_SECONDS = 60.0
"""How long a lock is held from its last renewal. The clocks of machines that share it agree to some seconds."""
RENEWALS = 4
"""How often within that time it is renewed."""
TRIES = 10
"""How often a lock that is let go and taken again at every try is tried for."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. `until` is in seconds since 1970, 0 once it was let go; `machine` and `life` tell this very
    process from another one with the same number, on another machine or later."""

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
        if not self.until:
            return f"process {self.pid} on {self.host}, which has let it go since"
        until = time.strftime("%H:%M:%S UTC", time.gmtime(self.until))
        return f"process {self.pid} on {self.host}, until {until} or as long as it goes on"


class ObjectLock:
    """One attempt to hold the lock that is the object `name`, from `acquire` to `release`."""

    def __init__(self, objects: Objects, name: str, *, seconds: float = LOCK_SECONDS) -> None:
        self._objects, self._name, self._seconds = objects, name, seconds
        pid = os.getpid()
        self._me = Holder(uuid4().hex, platform.node() or "?", pid, machine(), _life(pid) or "", 0.0)
        self._tag: Tag = {}
        self._lost_to: str | None = None
        self._writing, self._ended = threading.Lock(), threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="oloproof-lock", daemon=True)

    def acquire(self) -> None:
        """Holds the lock and renews it from now on.

        Raises:
            Busy: another one holds it.
        """
        for _ in range(TRIES):
            tag = self._take()
            if tag is not None:
                self._tag = tag
                self._renewing.start()
                return
        raise EvidenceError(f"{self._objects.at(self._name)} cannot be replaced; its store must honour If-Match on PUT")

    def require(self) -> None:
        """Returns while the lock is held, as the store has it now.

        Raises:
            Busy: another one took it.
        """
        if self._lost_to is None:
            self._own()
        if self._lost_to is not None:
            raise Busy(self._lost_to)

    def release(self) -> None:
        """Lets others have it at once; where that cannot be written, when its time is up."""
        self._ended.set()
        with self._writing, suppress(EvidenceError):
            self._write(until=0.0)
        if self._renewing.is_alive():
            self._renewing.join()

    def _take(self) -> Tag | None:
        found = _read(self._objects, self._name)
        data = self._record(time.time() + self._seconds)
        if found is None:
            return self._objects.create(self._name, data)
        holder, tag = found
        if holder.token == self._me.token:  # it was written, and the answer did not arrive
            return tag
        if holder.holds():
            raise Busy(str(holder))
        return self._objects.replace(self._name, data, tag)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / RENEWALS):
            with self._writing, suppress(EvidenceError):  # out of reach: tried again in time, or the time is up
                if self._ended.is_set() or self._lost_to is not None:
                    return
                self._write(until=time.time() + self._seconds)

    def _write(self, *, until: float) -> None:
        """Writes the object anew, where it is this holder's."""
        for _ in range(2):
            if self._lost_to is None:
                tag = self._objects.replace(self._name, self._record(until), self._tag)
                if tag is not None:
                    self._tag = tag
                    return
                self._tag = self._own() or {}  # it was written before, and the answer did not arrive

    def _own(self) -> Tag | None:
        """The object's state where it is this holder's; where it is not, the lock is lost."""
        found = _read(self._objects, self._name)
        if found is not None and found[0].token == self._me.token:
            return found[1]
        self._lost_to = "whoever removed it" if found is None else str(found[0])
        return None

    def _record(self, until: float) -> bytes:
        return json.dumps(asdict(replace(self._me, until=until))).encode()


def holder_of(objects: Objects, name: str) -> Holder | None:
    """Who holds the lock that is an object, or None."""
    found = _read(objects, name)
    return found[0] if found is not None and found[0].holds() else None


def holder_of_numbered(objects: Objects, name: str) -> Holder | None:
    """Who holds a lock of earlier releases, a folder of numbered objects, or None."""
    numbers = [each for each in objects.names(name) if each.isdecimal()]
    return holder_of(objects, f"{name}/{max(numbers, key=int)}") if numbers else None


def _read(objects: Objects, name: str) -> tuple[Holder, Tag] | None:
    found = objects.read_tagged(name)
    try:
        return None if found is None else (Holder(**json.loads(found[0])), found[1])
    except (ValueError, TypeError):
        raise EvidenceError(f"{objects.at(name)} was not written by Oloproof") from None


def _life(pid: int) -> str | None:
    """When a process of this machine was started, in the system's own ticks; None where there is none that lives."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except OSError:
        return None if Path("/proc/self/stat").exists() or not is_alive(pid) else ""
