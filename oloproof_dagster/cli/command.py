"""What every command has in common: the group, the project it is given, and the options that several take."""

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.channel import to_parent


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="oloproof-dagster", prog_name="oloproof")
def cli() -> None:
    """Release gates for tool-calling agents: the world after each case against the world as it should be.

    Exit codes of `run`: 0 ALLOW or WARN, 1 blocked by a FAIL, 2 wrong configuration or usage,
    3 INSUFFICIENT_EVIDENCE, 4 MANUAL_REVIEW, 5 partial run, 70 internal error, 129 hung up, 130 interrupted,
    143 terminated.
    """


def command(name: str | None = None, *, group: click.Group = cli) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of a group that takes --project and --debug; its function is given the loaded project."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def loaded(project: Path, debug: bool, **options: Any) -> Any:
            from oloproof_dagster.project.project import load_project

            try:
                return function(load_project(project), **options)
            except KeyboardInterrupt:
                raise click.Abort from None  # click itself would print an empty line
            except BrokenPipeError:
                raise BrokenPipeError from None  # with its number click would end with 1, which reads as a FAIL

        with_options = click.option("--debug", is_flag=True, help="Show the traceback of an error.")(loaded)
        with_options = click.option(
            "--project", default=".", show_default=True, type=click.Path(path_type=Path), help="The project's folder."
        )(with_options)
        return group.command(name)(with_options)

    return decorate


def print_error(line: str) -> None:
    """Says one line on stderr, whatever text of others is in it; on a full disk the exit code has to do."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(on_a_terminal(line), err=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    import json

    from oloproof_dagster.digests import integers_of_any_size

    parent = to_parent()
    stream = sys.stdout if parent is None else parent.answers
    is_unicode = (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")
    with integers_of_any_size():
        text = json.dumps(document, ensure_ascii=not is_unicode, indent=2)
    click.echo(text, file=stream)


version_option = click.option("--version", "version", help="A system version; the current one by default.")
raw_option = click.option("--raw", is_flag=True, help="Leave CSV cells that begin like a formula as they are.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else there.")
