"""What tests of commands start from: the command, and a Dagster home for small projects."""

import sys
from pathlib import Path

import pytest

from oloproof_dagster.cli.main import main
from oloproof_dagster.local_run.instance import DAGSTER_YAML
from tests.support.command import Answer, Command


@pytest.fixture
def oloproof(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in this process, as the console script does."""
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["oloproof", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capfd.readouterr()
        assert isinstance(exit_.value.code, int)
        return Answer(exit_.value.code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home for small projects: making a new one takes longer than a run."""
    home = tmp_path_factory.mktemp("dagster_home")
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    return home


@pytest.fixture
def in_shared_home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(shared_home))
