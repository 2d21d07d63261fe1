"""What is volatile in every state of a project: the paths at the top of oloproof.yaml, which join each evaluator's."""

from dataclasses import dataclass

from oloproof_dagster.records.comparison import Comparison, Mode
from oloproof_dagster.records.paths import Path, parse_path

Paths = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Volatile:
    """Paths that are left out everywhere, those left out where they are new, and lists whose order is nothing."""

    ignore_paths: Paths = ()
    ignore_new_paths: Paths = ()
    unordered_paths: Paths = ()

    def comparison(
        self,
        ignore_paths: Paths = (),
        unordered_paths: Paths = (),
        ignore_new_paths: Paths = (),
        mode: Mode = "exact",
    ) -> Comparison:
        """The comparison of an evaluator that names these paths of its own."""
        return Comparison(
            mode=mode,
            ignored=_parsed(self.ignore_paths, ignore_paths),
            unordered=_parsed(self.unordered_paths, unordered_paths),
            ignored_new=_parsed(self.ignore_new_paths, ignore_new_paths),
        )


NOTHING_VOLATILE = Volatile()


def _parsed(*paths: Paths) -> tuple[Path, ...]:
    return tuple({parse_path(path): None for some in paths for path in some})
