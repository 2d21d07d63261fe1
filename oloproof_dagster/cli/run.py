"""`oloproof run`: materialises a release run through Dagster, and prints what it decided."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from oloproof_dagster.cli.channel import to_parent
from oloproof_dagster.cli.command import command, json_option, print_error, print_json, version_option
from oloproof_dagster.cli.exit_codes import NOT_DECIDED
from oloproof_dagster.errors import ConfigError

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from oloproof_dagster.project.project import Project


@command()
@version_option
@click.option("--fresh", is_flag=True, help="Execute and replay everything again, as a new attempt.")
@click.option("--retry-errors", is_flag=True, help="Repeat the cases and replays that are recorded as errors.")
@click.option("--workers", type=click.IntRange(min=1), help="Sandboxes at work at once, in place of sandbox.workers.")
@click.option("--case", "globs", multiple=True, metavar="GLOB", help="Execute these cases alone and decide nothing.")
@click.option("--limit", type=click.IntRange(min=1), help="Execute so many cases at most and decide nothing.")
@json_option
def run(
    project: "Project",
    version: str | None,
    fresh: bool,
    retry_errors: bool,
    workers: int | None,
    globs: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> int:
    """Materialise a release run through Dagster and print its Gate.

    Only what is not recorded yet is executed. A version other than the current one is judged on what is recorded of
    it, and nothing is executed. With --case or --limit part of the suite is executed, recorded and judged for a first
    try; nothing is decided, and the exit code is 5.

    \b
    Example:
      oloproof run
      oloproof run --case 'ord-00*' --limit 3
      oloproof run --json | jq .gate
    """
    from oloproof_dagster.cli.console import printer
    from oloproof_dagster.cli.gate_view import print_gate, print_release_run
    from oloproof_dagster.local_run.instance import open_instance
    from oloproof_dagster.local_run.release_run import materialize
    from oloproof_dagster.project.evidence_place import evidence_of
    from oloproof_dagster.report.documents import release_run
    from oloproof_dagster.report.runs import errors_line, load_run, noop_line, own_word_line, review_lines, suite_lines
    from oloproof_dagster.workers.session import with_workers

    version = project.version if version is None else version
    if globs or limit:
        if version != project.version:
            raise ConfigError(f"--version {version}: --case and --limit execute, and that only the current version can")
        with open_instance(project) as instance, progress_reported(), with_workers(workers):
            return _run_part(project, instance, (globs, limit), (fresh, retry_errors), as_json)
    if version != project.version:
        if fresh or retry_errors:
            raise ConfigError(
                f"--version {version}: only the current version, {project.version!r}, can be executed;"
                " leave out --fresh and --retry-errors"
            )
        if version not in evidence_of(project).versions():
            recorded = ", ".join(map(repr, evidence_of(project).versions())) or "none"
            raise ConfigError(f"--version {version}: nothing is recorded for it; recorded versions: {recorded}")
    with open_instance(project) as instance, progress_reported(), with_workers(workers):
        result = materialize(project, instance, version=version, fresh=fresh, retry_errors=retry_errors)
    for warning in result.warnings:
        print_error(f"warning: {warning}")
    if result.failure is not None:
        raise result.failure
    if project.policy is not None and "gate" not in result.metadata:
        raise RuntimeError("the run ended without materialising the gate")
    finished = load_run(project, version)
    document = release_run(finished, result.cache())
    noticed = (errors_line(finished, retried=retry_errors), own_word_line(finished), noop_line(finished))
    for line in (*noticed, *suite_lines(finished), *review_lines(finished)):
        if line:
            print_error(f"warning: {line}")
    if as_json:
        print_json(document)
        print_gate(printer(stderr=True), document)
    else:
        print_release_run(printer(), document)
    return document["gate"]["exit_code"] if document["gate"] else 0


def _run_part(
    project: "Project",
    instance: "DagsterInstance",
    selected: tuple[tuple[str, ...], int | None],
    options: tuple[bool, bool],
    as_json: bool,
) -> int:
    """Runs the selected cases, and shows their verdicts: NOT_DECIDED is the exit code, whatever they are."""
    from oloproof_dagster.cli.console import printer
    from oloproof_dagster.cli.gate_view import print_part
    from oloproof_dagster.local_run.part import Selection, run_part
    from oloproof_dagster.report.documents import release_run

    fresh, retry_errors = options
    with run_part(project, instance, Selection(*selected), fresh=fresh, retry_errors=retry_errors) as part:
        for warning in part.warnings:
            print_error(f"warning: {warning}")
        document = release_run(part.run, part.cache)
        document |= {"part": {"cases": part.n_cases, "of": part.n_of}, "verdicts": part.verdicts()}
        if as_json:
            print_json(document)
        else:
            print_part(printer(), document)
    return NOT_DECIDED


@contextlib.contextmanager
def progress_reported() -> Iterator[None]:
    """Reports to the parent process, where there is one that shows it, how far the stages are."""
    parent = to_parent()
    if parent is None or not parent.terms.shows_progress:
        yield
        return
    from oloproof_dagster.execution.progress import listening

    with listening(parent.progress):
        yield
