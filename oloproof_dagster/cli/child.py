"""The child process of a command: the user's code runs here, and the outcome is reported before the process ends.

Whatever that code does to the process afterwards, at exit or in a thread, no longer changes the outcome.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

from oloproof_dagster.cli.channel import Terms, ToParent, reporting_to
from oloproof_dagster.cli.exit_codes import CRASH, INTERRUPTED, USAGE

SECONDS_FOR_THREADS, SECONDS_AT_EXIT = 1.0, 10.0
"""How long the process may take to end: one that waits for a thread of the system's, and one that does not."""


def main() -> None:
    """Runs the command that the arguments name; the first of them holds the terms of the parent."""
    terms, arguments = Terms.parse(sys.argv[1]), sys.argv[2:]
    sys.argv[:] = ["oloproof", *arguments]
    os.set_inheritable(terms.report, False)
    os.set_inheritable(terms.lifeline, False)
    _begin_as_if_alone()
    parent = ToParent(terms)
    threading.Thread(target=_follow, args=(terms.lifeline,), name="oloproof-lifeline", daemon=True).start()
    with reporting_to(parent):
        code = _outcome(arguments)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    has_threads = any(not each.daemon and each is not threading.main_thread() for each in threading.enumerate())
    parent.outcome(code, SECONDS_FOR_THREADS if has_threads else SECONDS_AT_EXIT)


def _outcome(arguments: Sequence[str]) -> int:
    from oloproof_dagster.cli.main import outcome
    from oloproof_dagster.errors import OloproofError

    try:
        return outcome(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # --debug shows where it comes from
        traceback.print_exception(error)
        return USAGE if isinstance(error, OloproofError) else CRASH


def _begin_as_if_alone() -> None:
    """Makes the process the same however the command was started.

    A shell's background job ignores interrupts, and would make an agent's own KeyboardInterrupt look like a person's. A
    terminal stops who reads it in the background: here that fails instead, as it does where there is no terminal. What
    is printed leaves by whole lines, as soon as they are whole.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(  # type: ignore[union-attr]
                errors="backslashreplace", line_buffering=True, write_through=False
            )


def _follow(lifeline: int) -> None:
    """Stops the run when the parent wishes so, and ends the process, with its group, when the parent is gone."""
    while os.read(lifeline, 1):
        from oloproof_dagster.system.interrupts import INTERRUPTS

        INTERRUPTS.stop()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
