"""The command line as a process: runs a command, words what went wrong in one line, and exits with its code."""

import contextlib
import os
import sys
from collections.abc import Sequence

import click

from oloproof_dagster.cli import commands as commands  # registers them
from oloproof_dagster.cli import run as run
from oloproof_dagster.cli.command import cli as cli
from oloproof_dagster.cli.command import print_error
from oloproof_dagster.cli.exit_codes import BROKEN_PIPE, CRASH, INTERRUPTED, USAGE
from oloproof_dagster.cli.labels import labels
from oloproof_dagster.errors import OloproofError

IN_A_CHILD = ("run", "check")
"""The commands whose exit code is to hold whatever the user's code, which they run, does to its process."""

cli.add_command(labels)


def program() -> None:
    """The command line as a process of its own; the commands that run a user's code do it in a child process."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in IN_A_CHILD and not {"--help", "-h"} & set(arguments):
        from oloproof_dagster.cli.parent import supervise

        code = supervise(arguments)
    else:
        code = answered(arguments)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:  # Python would try to write the rest once more, and end with a code of its own
        os._exit(code)
    sys.exit(code)


def main() -> None:
    """Runs the command line in this process and exits with its code."""
    sys.exit(answered(sys.argv[1:]))


def answered(arguments: Sequence[str]) -> int:
    """The exit code of a command that runs in this process; an interrupt is one line on stderr."""
    code = outcome(arguments)
    if code == INTERRUPTED:
        print_error("interrupted; what was finished is kept, run again to go on")
    return code


def outcome(arguments: Sequence[str]) -> int:
    """The exit code of a command; a user's mistake is one line on stderr.

    Raises:
        Exception: with --debug, what is that line otherwise.
    """
    debug = "--debug" in arguments
    try:
        code = cli(list(arguments), standalone_mode=False, prog_name="oloproof")
    except click.ClickException as error:
        code = USAGE
        with contextlib.suppress(OSError, ValueError):
            error.show()
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OloproofError as error:
        if debug:
            raise
        code = USAGE
        print_error(f"oloproof: {error}")
    except BrokenPipeError:
        code = BROKEN_PIPE  # the reader of our output has gone; nothing more to say
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # click's own way of saying so
            return BROKEN_PIPE
        if debug:
            raise RuntimeError(f"the project's code raised SystemExit: {error.code}") from error
        code = CRASH
        print_error(
            f"oloproof: the project's code ended the process with SystemExit: {error.code} (--debug shows more)"
        )
    except Exception as error:
        if debug:
            raise
        first = str(error).splitlines()[0] if str(error) else ""
        code = CRASH
        print_error(f"oloproof: internal error: {type(error).__name__}: {first} (--debug shows more)")
    return code if isinstance(code, int) else 0
