"""Finished work on object storage, where nothing can be appended: an object is put again, longer each time.

What is finished is put within a second, together with what was finished in that second, and at the end. An object
that has grown to its size is left as it is and the next one begun, so that objects stay few and no put is large.
"""

import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.objects import Objects
from oloproof_dagster.evidence.resume_log import ResumeLog

PUT_SECONDS = 1.0
"""How long a finished case may wait to be put: what a killed process loses."""
SEGMENT_BYTES = 1 << 20


class ObjectResumeLog(ResumeLog):
    """The finished work below a name; what was kept before is read from copies in a folder of this machine.

    `require` is called before each put and raises where nothing must be written any more.
    """

    def __init__(self, objects: Objects, folder: str, require: Callable[[], None]) -> None:
        self._objects, self._name, self._require = objects, folder, require
        self._copies = Path(tempfile.mkdtemp(prefix="oloproof-parts-"))
        try:
            names = [name for name in objects.names(folder) if name.endswith(".jsonl")]
            objects.download([f"{folder}/{name}" for name in names], [self._copies / name for name in names])
            super().__init__(self._copies)
        except BaseException:
            shutil.rmtree(self._copies, ignore_errors=True)
            raise
        self._number = len(names)
        self._lines: list[bytes] = []
        self._n_bytes = self._n_put = 0
        self._error: str | None = None
        self._changing, self._putting, self._ended = threading.Lock(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._begin()

    def close(self) -> None:
        """Puts what is not put yet.

        Raises:
            EvidenceError: it cannot be put, or something before it could not.
        """
        self._ended.set()
        try:
            if self._thread is not None:
                self._thread.join()
            self._put()
        finally:
            super().close()
            shutil.rmtree(self._copies, ignore_errors=True)

    def _write(self, line: bytes) -> None:
        with self._changing:
            self._lines.append(line)
            self._n_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._put_in_time, name="oloproof-parts", daemon=True)
            self._thread.start()
        if self._error is not None or self._n_bytes >= SEGMENT_BYTES:
            self._put()

    def _put_in_time(self) -> None:
        while not self._ended.wait(PUT_SECONDS):
            try:
                self._put()
            except EvidenceError:  # raised again by the next record, or at the end
                return

    def _put(self) -> None:
        with self._putting:
            if self._error is not None:
                raise EvidenceError(self._error)
            with self._changing:
                name, lines, n_bytes = self._segment, list(self._lines), self._n_bytes
            if len(lines) == self._n_put:
                return
            try:
                self._require()
                self._objects.write(f"{self._name}/{name}", b"".join(lines))
            except EvidenceError as error:
                self._error = str(error)
                raise
            except BaseException:  # the put may still be under way, and must not arrive after a longer one
                with self._changing:
                    self._begin(again=True)
                raise
            self._n_put = len(lines)
            if n_bytes >= SEGMENT_BYTES:
                with self._changing:
                    self._begin()

    def _begin(self, *, again: bool = False) -> None:
        """Begins a segment with the records that are in no other; with `again`, with those of the last one too."""
        self._lines = self._lines if again else self._lines[self._n_put :]
        self._n_bytes, self._n_put = sum(map(len, self._lines)), 0
        self._segment = f"{self._number:06d}-{uuid.uuid4().hex[:12]}.jsonl"
        self._number += 1
