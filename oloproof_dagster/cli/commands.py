"""The commands beside `run`: each reads stored tables or starts Dagster; none evaluates beside the assets.

Dagster, pandas and the engine are imported inside the commands, so that `--help` is instant.
"""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oloproof_dagster.as_data import in_a_csv_cell
from oloproof_dagster.cli.command import cli, command, json_option, print_error, print_json, raw_option, version_option
from oloproof_dagster.errors import ConfigError

if TYPE_CHECKING:
    from oloproof_dagster.project.project import Project


@command()
@version_option
@click.option("--case", "case_id", help="The case to show; a transformed copy is ID~TRANSFORM.")
@click.option("--failures", is_flag=True, help="Show every case with a failed verdict.")
@click.option("--full", is_flag=True, help="Fold nothing: every compared path, every step, whole values.")
@json_option
def inspect(
    project: "Project", version: str | None, case_id: str | None, failures: bool, full: bool, as_json: bool
) -> int:
    """Show recorded cases: verdicts, input and output, compared paths, recording and replay side by side.

    \b
    Example:
      oloproof inspect --failures
      oloproof inspect --case ord-013~injected --full
    """
    from oloproof_dagster.cli.console import printer
    from oloproof_dagster.cli.panel_view import print_overview, print_panel
    from oloproof_dagster.report.documents import panels
    from oloproof_dagster.report.panels import case_panels
    from oloproof_dagster.report.runs import load_run

    recorded = load_run(project, version)
    unfinished = recorded.unfinished()
    if unfinished:
        print_error(f"warning: {unfinished}")
    found = recorded.trials_of(case_id) if case_id else case_panels(recorded.table, failures=failures)
    if as_json:
        print_json(panels(recorded, found))
    elif case_id or failures:
        declared = {each.name: each for each in project.evaluators}
        for panel in found:
            print_panel(printer(), panel, declared, full=full)
    else:
        print_overview(printer(), found)
    return 0


@command()
def check(project: "Project") -> int:
    """Load everything, run one case with reset and snapshot, and say what is missing. Evaluates nothing.

    \b
    Example:
      oloproof check
    """
    from oloproof_dagster.cli.check import check_project
    from oloproof_dagster.cli.console import printer
    from oloproof_dagster.cli.listing import plain

    console, ok = printer(), True
    findings = list(check_project(project))
    for finding in findings:
        mark = {"ok": ("ok      ", "green"), "note": ("note    ", "yellow"), "problem": ("problem ", "bold red")}
        text, style = mark[finding.kind]
        console.print(text, style=style, end="")
        console.print(plain(finding.text))
        ok = ok and finding.kind != "problem"
    return 0 if ok else 1


@command()
@click.option("--port", type=int, default=3000, show_default=True, help="The port of the pages.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that is listened on.")
def ui(project: "Project", port: int, host: str) -> int:
    """Open Dagster's UI on this project, with every run of this project in it.

    \b
    Example:
      oloproof ui
    """
    from oloproof_dagster.assets.automation import register
    from oloproof_dagster.local_run.instance import dagster_home, open_instance
    from oloproof_dagster.local_run.release_run import project_definitions

    _require_free(host, port)
    project_definitions(project)  # what is wrong is one line here, not a page of Dagster's
    with open_instance(project) as instance:
        register(instance, project)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(dagster_home(project)),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "OLOPROOF_PROJECT": str(project.root),
    }
    has_workspace = (project.root / "workspace.yaml").is_file()
    target = ["-w", "workspace.yaml"] if has_workspace else ["-m", "oloproof_dagster.definitions"]
    click.echo(f"Dagster's UI starts, which takes a while: http://{host}:{port}  (Ctrl-C ends it)", err=True)
    os.chdir(project.root)
    # A shell's background job ignores interrupts, and Dagster ends its own processes with them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(
        sys.executable, [sys.executable, "-m", "dagster", "dev", *target, "-p", str(port), "-h", host], environment
    )


@command()
@click.option(
    "--register", "add", is_flag=True, help="Add the current version to the instance, for Dagster's commands."
)
@json_option
def versions(project: "Project", add: bool, as_json: bool) -> int:
    """List the versions evaluated, with their Gates and suites, unfinished ones too.

    \b
    Example:
      oloproof versions --register
    """
    from oloproof_dagster.cli.console import print_versions, printer
    from oloproof_dagster.report.versions import recorded_versions

    if add:
        from oloproof_dagster.assets.automation import register
        from oloproof_dagster.local_run.instance import open_instance

        with open_instance(project) as instance:
            new = register(instance, project)
        print_error(f"version {project.version!r} {'is registered now' if new else 'was registered already'}")
    rows = recorded_versions(project)
    if as_json:
        print_json(rows)
    elif rows:
        print_versions(printer(), rows)
    else:
        click.echo("No version is recorded yet; `oloproof run` evaluates the current one.")
    return 0


@command()
@version_option
@json_option
def history(project: "Project", version: str | None, as_json: bool) -> int:
    """List every decision that was made of a version, oldest first, and what it was made on.

    \b
    Example:
      oloproof history --version v1
    """
    from dataclasses import asdict

    from oloproof_dagster.cli.console import print_history, printer
    from oloproof_dagster.evidence.past_decisions import past_decisions
    from oloproof_dagster.project.evidence_place import evidence_of

    version = project.version if version is None else version
    found = past_decisions(evidence_of(project), version)
    if as_json:
        print_json([asdict(each) for each in found])
    elif found:
        print_history(printer(), found)
    else:
        print_error(f"no decision is noted of version {version!r}")
    return 0


@command()
@version_option
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="The folder to write into.")
@raw_option
def export(project: "Project", version: str | None, folder: Path | None, raw: bool) -> int:
    """Write every table of a run as Parquet and CSV.

    \b
    Example:
      oloproof export --to tables
    """
    from oloproof_dagster.evidence.evidence import encode_version
    from oloproof_dagster.records.tables import TABLES
    from oloproof_dagster.report.runs import load_run

    recorded = load_run(project, version)
    folder = folder or Path(f"oloproof-{encode_version(recorded.version)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            table = recorded.table(name)
            if table.exists:
                table.save(folder / f"{name}.parquet")
                frame = table.frame()
                (frame if raw else frame.map(in_a_csv_cell)).to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise ConfigError(f"--to {folder}: cannot be written: {error.strerror}") from None
    click.echo(f"wrote {folder}")
    return 0


@cli.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--example", help="The packaged example to copy; `list` names them.")
@click.option("--system", help="The system of yours to write a project around, as module:attribute.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def init(path: Path | None, example: str | None, system: str | None, debug: bool) -> int:
    """Start a project: copy a packaged example, or write the files around a system of your own.

    \b
    Example:
      oloproof init --example stateful-agent
      oloproof init . --system app:desk
    """
    from oloproof_dagster.cli.scaffold import copy_example, examples, write_project

    if (example is None) == (system is None):
        raise click.UsageError("name one of --example and --system")
    if example == "list":
        for name, summary in examples().items():
            click.echo(f"{name}  {summary}")
        return 0
    if example is not None:
        target = path or Path(example)
        copy_example(example, target)
        click.echo(f"copied {example} to {target}; next: oloproof run --project {target}")
        return 0
    assert system is not None
    target = path or Path()
    for file in write_project(system, target):
        click.echo(f"wrote {file}")
    click.echo(f"next: write your cases to {target / 'data/cases.jsonl'}, then oloproof check --project {target}")
    return 0


def _require_free(host: str, port: int) -> None:
    """Refuses a port that something else listens on: a browser would open that."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"--port {port}: cannot be listened on ({error.strerror}); name another port") from None
