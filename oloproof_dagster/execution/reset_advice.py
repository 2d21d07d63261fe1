"""What to write where the reset of every case is in error: most likely the check has to be narrowed, not the reset."""

from collections.abc import Iterable
from itertools import groupby

from oloproof_dagster.records.paths import parse_path, show_path

MOST_PATHS = 1000
OTHER_SHAPE = "snapshot() is not shaped like initial_state: write sandbox: {verify_reset: false}"


class ResetErrors:
    """The executions of a pass whose reset was in error, and where their worlds differed."""

    def __init__(self) -> None:
        self.n = 0
        self._paths: dict[str, None] = {}

    def note(self, paths: Iterable[str]) -> None:
        """Counts one."""
        self.n += 1
        if len(self._paths) < MOST_PATHS:
            self._paths.update(dict.fromkeys(paths))

    def advice(self, n_executed: int, n_sandboxes: int) -> str | None:
        """One line where every execution was such an error; the first of a sandbox has nothing to differ from."""
        if not self.n or not self._paths or self.n + n_sandboxes < n_executed:
            return None
        return advice(tuple(self._paths))


def advice(paths: tuple[str, ...]) -> str:
    """What to write for worlds that differ at these paths."""
    if "$" in paths:
        return OTHER_SHAPE
    patterns = ", ".join(f'"{each}"' for each in _patterns(paths))
    return (
        "reset leaves these values otherwise in every case; where that is right (a clock, generated ids), write"
        f" sandbox: {{verify_reset: {{ignore_paths: [{patterns}]}}}}"
    )


def _patterns(paths: tuple[str, ...]) -> list[str]:
    """The paths, those that differ only on the way to one name as one with `*` there."""
    parsed = sorted((parse_path(each) for each in paths), key=lambda path: (len(path), path[-1], path))
    return [
        show_path(tuple(parts[0] if len(set(parts)) == 1 else "*" for parts in zip(*group, strict=True)))
        for _, group in ((key, list(found)) for key, found in groupby(parsed, key=lambda path: (len(path), path[-1])))
    ]
