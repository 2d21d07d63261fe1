"""Stops a run whose first executions all end in one error: a missing key, a server that is down."""

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.execution.reset_advice import advice

N_FIRST = 5


class FirstErrors:
    """The errors of the first executions of a pass, as long as they are all the same."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._error: str | None = None
        self._watching = True

    def note(self, key: str, error: str | None) -> tuple[str, ...]:
        """Takes one finished execution; the keys of the first ones once all of them ended in the same error."""
        if not self._watching:
            return ()
        if error is None or (self._keys and error != self._error):
            self._watching = False
            return ()
        self._error = error
        self._keys.append(key)
        return tuple(self._keys) if len(self._keys) == N_FIRST else ()


def stopped(error: str | None, unreset: tuple[str, ...]) -> ConfigError:
    """What ends the run: the error once, and that nothing of it is kept."""
    line = f"the first {N_FIRST} executions all ended in the same error, so the run stopped and keeps none of them"
    further = f"; {advice(unreset)}" if unreset else ""
    return ConfigError(f"{line}: {error or 'timeout'}{further}")
