"""What tests of assets start from: a till, and the same till once its release run has been made."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.projects import NO_FAILURE, rules, write_project
from tests.support.runs import COUNTED_TILL, DECLARED, Home, Result, home


def write_till(root: Path) -> Path:
    """Three cases of a till that notes its calls, judged on state and on recovery, with a rule that passes."""
    return write_project(root, app=COUNTED_TILL, suite=DECLARED, release=rules(NO_FAILURE))


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Home]:
    """The till, of which nothing is recorded."""
    with home(write_till(tmp_path / "till")) as found:
        yield found


@dataclass(frozen=True)
class Recorded:
    """The till's folder after its first release run, and that run."""

    root: Path
    first: Result


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One run for all tests that go on from it; each has a copy of the folder."""
    root = write_till(tmp_path_factory.mktemp("recorded") / "till")
    with home(root) as found:
        result = found.run()
        assert result.success
        assert (len(found.noted()), len(found.noted("replays"))) == (3, 6)
    return Recorded(root, result)


@pytest.fixture
def first(recorded: Recorded) -> Result:
    """The run that `ran` goes on from."""
    return recorded.first


@pytest.fixture
def ran(recorded: Recorded, tmp_path: Path) -> Iterator[Home]:
    """The till with the evidence of its first release run; its notes are empty, and the instance is new: which tables
    it used again a run says only of what its own instance recorded."""
    with home(Path(shutil.copytree(recorded.root, tmp_path / "till"))) as found:
        yield found
