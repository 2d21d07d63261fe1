"""What every test stands on: no Dagster home, project or telemetry of the person who runs the tests."""

import hypothesis
import pytest

# Machines are shared and noisy: a slow example is no failure.
hypothesis.settings.register_profile("shared", deadline=None)
hypothesis.settings.load_profile("shared")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "OLOPROOF_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
