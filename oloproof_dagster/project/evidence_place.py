"""Where a project keeps its evidence. A worker process reads projects and loads nothing of evidence."""

from pathlib import Path

from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.project.project import OLOPROOF_FOLDER, Project


def evidence_root(project: Project) -> Path | str:
    """Where the project's evidence lies: at its `store`, else under its own folder."""
    return project.suite.store or project.root / OLOPROOF_FOLDER / "evidence"


def evidence_of(project: Project) -> Evidence:
    """The project's evidence.

    Raises:
        ConfigError: its `store` needs a package that is not installed.
    """
    return Evidence(evidence_root(project))
