"""What is printed while a run is under way: kept in files, and shown where it would have gone.

Descriptors lead straight into the files, so that output of C code, of child processes and of a process that dies is
kept too. A thread shows what arrives there; no process is started for it, which Ctrl-C would reach as well.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS = 0.1
"""How long what is printed may take to be shown."""
CHUNK_BYTES = 1 << 16

Screen = Callable[[int, bytes], None]
"""Is given a descriptor and what to show there."""


@dataclass(frozen=True, slots=True)
class _Copy:
    read: int
    write: int


class Mirror:
    """Files that stand in for descriptors, and what of them is shown already."""

    def __init__(self) -> None:
        self._lock, self._done = threading.Lock(), threading.Event()
        self._copies: list[_Copy] = []
        self._former: dict[int, int] = {}
        self._thread = threading.Thread(target=self._follow, name="oloproof-mirror", daemon=True)
        self._thread.start()

    def divert(self, path: Path, *descriptors: int) -> None:
        """Leads descriptors into a file; it is shown where the first of them led. One that is closed stays closed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        into = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        former = {}
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                former[descriptor] = os.dup(descriptor)
                os.dup2(into, descriptor)
        os.close(into)
        if former:
            self._former.update(former)
            with self._lock:
                self._copies.append(_Copy(os.open(path, os.O_RDONLY), next(iter(former.values()))))

    def show(self) -> None:
        """Shows what has arrived."""
        with self._lock:
            for copy in tuple(self._copies):
                try:
                    while data := os.read(copy.read, CHUNK_BYTES):
                        _screen(copy.write, data)
                except OSError:  # there is nobody left to show it to
                    self._copies.remove(copy)
                    os.close(copy.read)

    def close(self) -> None:
        """Leads the descriptors back and shows the rest."""
        for descriptor, former in self._former.items():
            os.dup2(former, descriptor)
        self._done.set()
        self._thread.join()
        self.show()
        for descriptor in (*(copy.read for copy in self._copies), *self._former.values()):
            os.close(descriptor)

    def _follow(self) -> None:
        while not self._done.wait(SECONDS):
            self.show()


def straight(descriptor: int, data: bytes) -> None:
    """Writes all of it as it is."""
    while data:
        data = data[os.write(descriptor, data) :]


_screen: Screen = straight
_open: list[Mirror] = []


@contextlib.contextmanager
def kept_in_files(out: Path, err: Path) -> Iterator[None]:
    """Keeps what this process and its children print, and shows it within a tenth of a second, the rest at the end."""
    _flush()
    mirror = Mirror()
    _open.append(mirror)
    try:
        printed = _descriptor(sys.stdout)
        of_its_own = [] if printed in (None, 1, 2, _descriptor(sys.stderr)) else [printed]
        mirror.divert(out, 1, *of_its_own)
        mirror.divert(err, 2)
        yield
    finally:
        _flush()
        _open.remove(mirror)
        mirror.close()


def show_now() -> None:
    """Shows at once what is printed so far: the process is about to end without another word."""
    for mirror in _open:
        mirror.show()


@contextlib.contextmanager
def shown_by(screen: Screen) -> Iterator[None]:
    """Has another show what arrives, such as one that keeps bars below it."""
    global _screen
    former, _screen = _screen, screen
    try:
        yield
    finally:
        _screen = former


def _descriptor(stream: object) -> int | None:
    try:
        found: int = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # none: a stream that leads nowhere, or one that is closed
        return None
    return found


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
