"""Keys of oloproof.yaml that hold paths into states: each path can be parsed, and something is left to compare."""

from oloproof_dagster.project.validation import Misplaced
from oloproof_dagster.records.paths import parse_path
from oloproof_dagster.wording import shortened


def a_path(value: str | None) -> str | None:
    """The value, when it is a path that can be parsed."""
    if value is not None:
        parse_path(value)
    return value


def some_paths(paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The paths, when each can be parsed and none stands twice."""
    seen = set()
    for position, path in enumerate(paths or ()):
        try:
            parsed = parse_path(path)
        except ValueError as error:
            raise Misplaced(str(error), position) from None
        if parsed in seen:
            raise Misplaced(f"the path {shortened(path)} stands twice; remove one", position)
        seen.add(parsed)
    return paths


def ignored_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths, when they leave something to compare."""
    some_paths(paths)
    for position, path in enumerate(paths):
        if path in ("$", "*"):
            raise Misplaced(f"`{path}` leaves nothing to compare; name paths within the state", position)
    return paths


def none_left_by(ignored: tuple[str, ...], compared: tuple[str, ...] | None) -> None:
    """Refuses a compared path of which everything is left out: it would pass whatever the state is.

    Raises:
        Misplaced: naming the path.
    """
    for position, path in enumerate(compared or ()):
        parts = parse_path(path)
        for text in ignored:
            above = parse_path(text)
            if len(above) <= len(parts) and all(i in ("*", part) for i, part in zip(above, parts, strict=False)):
                message = f"the path {shortened(path)} is compared and ignored at once, by {shortened(text)}"
                raise Misplaced(message, "paths", position)
