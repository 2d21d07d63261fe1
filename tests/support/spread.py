"""The release run of a project's own definitions.py, made so that a process of its own can find it again."""

from pathlib import Path

import dagster as dg

from oloproof_dagster import load_project
from oloproof_dagster.local_run.release_run import project_definitions
from tests.support import ROOT


def release_run(root: str) -> dg.JobDefinition:
    project = load_project(root)
    return project_definitions(project).resolve_job_def(f"{project.slug}_release_run")


def reconstructable(root: Path) -> object:
    """The same as what Dagster hands to its step processes."""
    tests = str(ROOT)
    return dg.build_reconstructable_job(__name__, "release_run", (str(root),), reconstructor_working_directory=tests)
