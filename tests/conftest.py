"""What every test stands on: no Dagster home, project or telemetry of the person who runs the tests."""

import signal

import hypothesis
import pytest

# Machines are shared and noisy: a slow example is no failure. `--hypothesis-profile thorough` looks longer.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=30)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=300)
hypothesis.settings.load_profile("quick")

# `nohup`, `&` in a script and some CI start the tests with signals ignored or blocked, which every process that a test
# starts would inherit: it could not be interrupted. What has a handler here is at its default after an exec.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_ignored) == signal.SIG_IGN:
        signal.signal(_ignored, lambda number, frame: None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "OLOPROOF_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
