"""The command line as a process: runs a command, words what went wrong in one line, and exits with its code."""

import contextlib
import gc
import os
import sys

import click

from oloproof_dagster.cli import commands as commands  # registers them
from oloproof_dagster.cli.command import cli, print_error
from oloproof_dagster.cli.labels import labels
from oloproof_dagster.cli.terminal import end_in_time
from oloproof_dagster.errors import OloproofError

USAGE, CRASH, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
cli.add_command(labels)


def program() -> None:
    """The command line as a process of its own, which imports much and ends soon.

    Searching what is imported for garbage, a dozen times while importing and once more at the end, would take a third
    of a small run. It is put off until the user's system runs, and left out where none does.
    """
    gc.disable()
    try:
        main()
    except SystemExit as ending:
        end_in_time(ending.code if isinstance(ending.code, int) else 0)
        raise
    finally:
        if not gc.isenabled():
            gc.freeze()


def main() -> None:
    """Runs the command line and exits with its code; a user's mistake is one line on stderr."""
    debug = "--debug" in sys.argv
    try:
        code = cli(standalone_mode=False, prog_name="oloproof")
    except click.ClickException as error:
        code = USAGE
        with contextlib.suppress(OSError, ValueError):
            error.show()
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
        print_error("interrupted; what was finished is kept, run again to go on")
    except OloproofError as error:
        if debug:
            raise
        code = USAGE
        print_error(f"oloproof: {error}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output has gone; nothing more to say
        code = BROKEN_PIPE
    except Exception as error:
        if debug:
            raise
        first = str(error).splitlines()[0] if str(error) else ""
        code = CRASH
        print_error(f"oloproof: internal error: {type(error).__name__}: {first} (--debug shows more)")
    sys.exit(code if isinstance(code, int) else 0)
