"""The process of a command that runs a user's code: it starts a child that does, and ends as the child reports.

No code of a user's runs here, so that nothing it does to a process can look like a Gate's exit code. This process owns
stdout, the terminal and the signals; the child has a process group of its own, which ends with it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from oloproof_dagster.cli.channel import Terms
from oloproof_dagster.cli.command import print_error
from oloproof_dagster.cli.exit_codes import BROKEN_PIPE, CRASH, INTERRUPTED
from oloproof_dagster.cli.terminal import Screen

SECONDS_TO_STOP = 1.0
"""How long a child that is to stop may take until it is killed."""

SECONDS_TO_DIE = 5.0
"""How long processes that are killed are waited for; one that hangs in a device cannot be."""

SECONDS_TO_SHOW = 0.1
"""How long what a child printed before its sudden end may take to be shown."""

CHILD = "oloproof_dagster.cli.child"
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


def supervise(arguments: Sequence[str]) -> int:
    """The exit code of a command that runs in a child process."""
    _occupy_standard_descriptors()
    signals, screen = Signals(), Screen()
    try:
        child = Child(arguments, screen)
    except OSError as error:
        print_error(f"oloproof: no process can be started: {error.strerror}")
        return CRASH
    signals.pause_with(child)
    supervision = Supervision(child, signals)
    try:
        supervision.until_it_ends()
    finally:
        screen.close()
    ended_by = supervision.ended_by
    if ended_by is None and child.outcome is None:
        print_error(f"oloproof: the project's code ended the process {child.how_it_ended}; what was finished is kept")
        return CRASH
    if ended_by is not None or child.outcome == INTERRUPTED:
        print_error(f"{WORDS[ended_by or signal.SIGINT]}; what was finished is kept, run again to go on")
    return 128 + ended_by if ended_by is not None else child.outcome or 0


class Signals:
    """The signals that end a command, noted as they come; `descriptor` can be read after any, or a child's end."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.descriptor, write = os.pipe()
        for end in (self.descriptor, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, self._note)

    def clear(self) -> None:
        """Takes note that they were looked at."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 10)

    def pause_with(self, child: "Child") -> None:
        """Has Ctrl-Z stop the child as well, which is in no terminal's foreground."""
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN:
            return

        def pause(number: int, frame: Any) -> None:
            child.send(signal.SIGSTOP)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, pause)
            child.send(signal.SIGCONT)

        signal.signal(signal.SIGTSTP, pause)

    def let_go(self) -> None:
        """Has them end this process again, and so its child: the outcome is known, and its reader may be slow."""
        for number in WORDS:
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL)

    def _note(self, number: int, frame: Any) -> None:
        self.received.append(signal.Signals(number))


class Child:
    """The child process, what it has reported, and what it prints."""

    def __init__(self, arguments: Sequence[str], screen: Screen) -> None:
        self.outcome: int | None = None
        self.seconds_to_end = 0.0
        self._screen, self._answer, self._unread = screen, list[str](), b""
        report_read, report = os.pipe()
        lifeline, self._lifeline = os.pipe()
        self._printed: int | None = None
        printed = 2
        if screen.is_terminal:
            self._printed, printed = os.pipe()
        terms = Terms(report, lifeline, screen.is_terminal, os.isatty(1), _columns(), _encoding())
        self._process = subprocess.Popen(
            [*_interpreter(), "-m", CHILD, terms.text(), *arguments],
            stdin=subprocess.DEVNULL if os.isatty(0) else 0,
            stdout=printed,
            stderr=printed,
            pass_fds=(report, lifeline),
            process_group=0,
        )
        for end in {report, lifeline, printed} - {2}:
            os.close(end)
        self.descriptors = [each for each in (report_read, self._printed) if each is not None]
        for each in self.descriptors:
            os.set_blocking(each, False)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def how_it_ended(self) -> str:
        """How a process that has ended came to its end, in words."""
        code = self._process.returncode
        if code is None:
            return "in a way that cannot be seen"
        if code >= 0:
            return f"with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
        return f"by signal {-code}"

    def read(self) -> None:
        """Takes what it has printed and reported."""
        for descriptor in tuple(self.descriptors):
            data, is_over = _arrived(descriptor)
            if descriptor == self._printed:
                self._screen.show(data)
            else:
                *lines, self._unread = (self._unread + data).split(b"\n")
                for line in lines:
                    self._take(line)
            if is_over:
                self.descriptors.remove(descriptor)
                os.close(descriptor)

    def print_answer(self) -> None:
        """Prints on stdout what it has answered; where that fails, the outcome is another."""
        left = "".join(self._answer).encode(_encoding(), "backslashreplace")
        try:
            while left:
                left = left[os.write(1, left) :]
        except BrokenPipeError:
            self.outcome = BROKEN_PIPE  # the reader has gone; nothing more to say
        except OSError as error:
            self.outcome = CRASH
            print_error(f"oloproof: the answer cannot be written to stdout: {error.strerror}")

    def stop(self) -> None:
        """Asks it to stop in good order."""
        with contextlib.suppress(OSError):
            os.write(self._lifeline, b"!")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to it and its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Ends it with all that descends from it, and returns once they are gone."""
        import psutil

        try:
            family = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            family = []
        self.send(signal.SIGKILL)
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(family, timeout=SECONDS_TO_DIE)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:  # an exception came between, as a Ctrl-C to the child alone
            return
        match message:
            case {"progress": [stage, done, total]}:
                self._screen.move(stage, done, total)
            case {"answer": text}:
                self._answer.append(text)
            case {"outcome": [code, seconds]}:
                self.outcome, self.seconds_to_end = code, seconds


class Supervision:
    """Follows a child until it ends, or is ended: by a signal to this process, or since it hangs after its outcome.

    `ended_by` is the signal that came before the outcome, if any did.
    """

    def __init__(self, child: Child, signals: Signals) -> None:
        self.ended_by: signal.Signals | None = None
        self._child, self._signals = child, signals
        self._n_heeded, self._has_answered, self._is_killed = 0, False, False
        self._deadline: float | None = None

    def until_it_ends(self) -> None:
        """Returns once the child and its process group are gone."""
        while not self._child.has_ended:
            select.select([*self._child.descriptors, self._signals.descriptor], [], [], self._patience())
            self._signals.clear()
            self._child.read()
            self._heed_signals()
            self._heed_outcome()
            if self._patience() == 0:
                if self._is_killed:  # it hangs in a device
                    return
                self._child.kill()
                self._is_killed, self._deadline = True, time.monotonic() + SECONDS_TO_DIE
        if not self._has_answered:
            time.sleep(SECONDS_TO_SHOW)
        self._child.send(signal.SIGKILL)
        self._child.read()
        self._heed_outcome()

    def _patience(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _heed_signals(self) -> None:
        for number in self._signals.received[self._n_heeded :]:
            self._n_heeded += 1
            if self.ended_by is None:
                self.ended_by = number
                self._child.stop()
                self._deadline = time.monotonic() + SECONDS_TO_STOP
            else:
                self._deadline = time.monotonic()

    def _heed_outcome(self) -> None:
        if self._child.outcome is None or self._has_answered or self.ended_by is not None:
            return
        self._has_answered = True
        self._signals.let_go()
        self._child.print_answer()
        self._deadline = time.monotonic() + self._child.seconds_to_end


def _arrived(descriptor: int) -> tuple[bytes, bool]:
    """What there is to read now, and whether nothing more can come."""
    found = []
    try:
        while data := os.read(descriptor, 1 << 16):
            found.append(data)
    except BlockingIOError:
        return b"".join(found), False
    return b"".join(found), True


def _interpreter() -> list[str]:
    """This interpreter with the options it was started with, and the same folders to import from."""
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    is_started_as_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    return [sys.executable, *options, *([] if is_started_as_module or "-P" in options else ["-P"])]


def _columns() -> int:
    """The width of the terminal, as rich finds it."""
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            return os.get_terminal_size(descriptor).columns or 80
    return 80


def _encoding() -> str:
    return sys.stdout.encoding if sys.stdout is not None else "utf-8"


def _occupy_standard_descriptors() -> None:
    """Keeps pipes from the places of stdin, stdout and stderr, where one of them is closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
