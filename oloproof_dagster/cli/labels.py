"""`oloproof labels`: the pairs that people have to read, and what their labels say so far."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oloproof_dagster.as_data import on_a_terminal
from oloproof_dagster.cli.command import command, json_option, print_json, raw_option
from oloproof_dagster.errors import ConfigError

if TYPE_CHECKING:
    from oloproof_dagster.project.project import Project


@click.group()
def labels() -> None:
    """Export the pairs that people have to read, and see what their labels say so far."""


@command("export", group=labels)
@click.option("--transform", required=True, help="The transform whose pairs to write.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@raw_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A new file; stdout by default.")
def labels_export(project: "Project", transform: str, form: str, raw: bool, out: Path | None) -> int:
    """Write the pairs of a transform for people to read: both texts, the digest, and `kept` to fill in.

    \b
    Example:
      oloproof labels export --transform injected --out to-read.jsonl
    """
    from oloproof_dagster.suite.cases import read_cases
    from oloproof_dagster.suite.labels import pairs_to_read, read_labels, sampled, write_pairs
    from oloproof_dagster.suite.transforms import expand

    declared = next((each for each in project.transforms if each.name == transform), None)
    if declared is None:
        names = ", ".join(each.name for each in project.transforms) or "none"
        raise ConfigError(f"--transform {transform}: there is no such transform; declared are: {names}")
    copies = (row for row in expand(project, read_cases(project)) if row.transform == transform)
    digests = ((row.case_id, str(row.pair_digest)) for row in copies)
    wanted = {case_id for case_id, _ in sampled(declared, project.suite_id, digests)}
    pairs = pairs_to_read(declared, expand(project, read_cases(project)), read_labels(project, declared), wanted)
    if out is None:
        write_pairs(pairs, form, sys.stdout, raw=raw)
        return 0
    try:
        with out.open("x", encoding="utf-8", newline="") as stream:
            write_pairs(pairs, form, stream, raw=raw)
    except FileExistsError:
        raise ConfigError(f"--out {out}: there already; nothing was written") from None
    except FileNotFoundError:
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it first") from None
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from None
    return 0


@command("status", group=labels)
@json_option
def labels_status(project: "Project", as_json: bool) -> int:
    """Say how many pairs are labelled, kept and stale, and whether that is enough.

    \b
    Example:
      oloproof labels status
    """
    from dataclasses import asdict

    from oloproof_dagster.cli.console import print_labels, printer
    from oloproof_dagster.suite.cases import read_cases
    from oloproof_dagster.suite.labels import validities
    from oloproof_dagster.suite.transforms import expand

    suite = expand(project, read_cases(project))
    found = validities(project, ((row.transform, row.case_id, row.pair_digest) for row in suite))
    rows = [asdict(each) | {"checked": each.checked} for each in found]
    if as_json:
        print_json(rows)
    elif rows:
        print_labels(printer(), rows)
        for each in found:
            if not each.checked:
                click.echo(on_a_terminal(each.advice))
    else:
        click.echo("oloproof.yaml declares no transform.")
    return 0
