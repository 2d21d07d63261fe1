"""Draws the README's picture: what `oloproof run` prints on the packaged example, as SVG.

Run after `make demo`:  .venv/bin/python docs/images/draw.py demo docs/images/gate.svg
"""

import re
import sys
from pathlib import Path

from rich.console import Console

from oloproof_dagster import load_run
from oloproof_dagster.cli.gate_view import print_release_run
from oloproof_dagster.report.documents import release_run


def main(project: str, target: str) -> None:
    """Writes the picture of the project's current run."""
    run = load_run(project)
    counts = {"hit": 0, "miss": len(run.table("trajectories"))}, {"hit": 0, "miss": len(run.table("fault_replays"))}
    document = release_run(run, {"executions": counts[0], "replays": counts[1]})
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=100, highlight=False, file=nowhere, force_terminal=True)
        print_release_run(console, document)
    svg = console.export_svg(title="oloproof run")
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)  # the reader's own monospace font, nothing fetched
    Path(target).write_text(svg.replace("Fira Code", "ui-monospace, Menlo, Consolas"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
