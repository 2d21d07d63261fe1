"""The engine's tests take seconds: none of them loads Dagster or starts a process."""

import resource
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _engine_alone() -> Iterator[None]:
    """Fails a test that brought Dagster in, or that waited for a process: children leave their page faults here."""
    loaded, faults = "dagster" in sys.modules, _faults_of_children()
    yield
    brought_in = not loaded and "dagster" in sys.modules
    assert not brought_in, "Dagster was imported: the test belongs in tests/dagster"
    assert _faults_of_children() == faults, "a process was started: the test belongs in tests/processes"


def _faults_of_children() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
