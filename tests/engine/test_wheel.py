"""The wheel: what it puts beside the user's packages is the package's source, whole, and nothing else."""

import importlib.metadata
from pathlib import PurePosixPath

import pytest

from tests.support import CHECKOUT, ROOT

MAPPED = ("assets", "resources")
"""Folders at the top of the checkout that are packages of `oloproof_dagster`."""


def source() -> set[str]:
    """The files of the package in the checkout, by the names that they have when they are installed."""
    found = {"oloproof.py"}
    for folder, name in (("oloproof_dagster", ""), *((mapped, mapped) for mapped in MAPPED)):
        for path in (CHECKOUT / folder).rglob("*"):
            inside = path.relative_to(CHECKOUT / folder)
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside.parts):
                found.add(str(PurePosixPath("oloproof_dagster", name, inside.as_posix())))
    return found


@pytest.mark.skipif(CHECKOUT == ROOT, reason="this checkout is installed as it stands; `make wheel` compares the wheel")
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else() -> None:
    installed = {path for path in importlib.metadata.files("oloproof-dagster") or () if path.parts[0] != ".."}
    held = {str(path) for path in installed if path.suffix != ".pyc" and not path.parts[0].endswith(".dist-info")}
    assert held == source()
