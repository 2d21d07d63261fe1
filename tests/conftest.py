"""What every test stands on: no Dagster home, project or telemetry of the person who runs the tests."""

import pytest


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "OLOPROOF_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
