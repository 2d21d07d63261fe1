"""Paths of oloproof.yaml that lead nowhere in any case: a mistyped one compares, and leaves out, nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from oloproof_dagster.evaluators.case import CaseEvidence
from oloproof_dagster.project.evaluator_keys import FaultRecovery, MetamorphicRelation, StateMatches, StateUnchanged
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.paths import ABSENT, Path, PathAmbiguous, lookup, matching, parse_path

_KEYS: dict[type, tuple[str, ...]] = {
    StateMatches: ("paths", "ignore_paths", "ignore_new_paths", "unordered_paths"),
    StateUnchanged: ("paths", "except_"),
    FaultRecovery: ("ignore_paths", "unordered_paths"),
    MetamorphicRelation: ("ignore_paths",),
}
_TOP = ("ignore_paths", "ignore_new_paths", "unordered_paths")
_IN_A_DATASET = ("paths", "except_")


@dataclass(frozen=True, slots=True)
class DeclaredPath:
    """A path into states as oloproof.yaml has it, and the key under which it stands."""

    text: str
    where: str
    path: Path
    in_dataset: bool
    """Whether cases have to hold it before anything has run; what is left out may come into being later."""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})"


class UnseenPaths:
    """The paths that no value has held yet; `look` takes those out that a case holds."""

    def __init__(self, declared: tuple[DeclaredPath, ...] = ()) -> None:
        self._left, self._has_looked = dict.fromkeys(declared), False

    @classmethod
    def of(cls, project: Project, *, in_dataset: bool = False) -> "UnseenPaths":
        """All paths into states; with `in_dataset` those that cases have to hold before anything has run."""
        found = _declared(project)
        return cls(tuple(each for each in found if each.path and (each.in_dataset or not in_dataset)))

    def look(self, evidence: CaseEvidence) -> None:
        """Looks at a case's initial state, what it expects, and the state left behind."""
        if not self._left:
            return
        sides = (evidence.initial_state, evidence.state, lookup(evidence.expected, ("state",)))
        values = [side for side in sides if side is not ABSENT]
        self._has_looked = self._has_looked or bool(values)
        for each in [each for each in self._left if any(_holds(value, each.path) for value in values)]:
            del self._left[each]

    @property
    def names(self) -> list[str]:
        """The paths that are left, each with its key; none where there was nothing to look at."""
        return list(map(str, self._left)) if self._has_looked else []


def _declared(project: Project) -> Iterator[DeclaredPath]:
    for key in _TOP:
        for text in getattr(project.suite, key):
            yield DeclaredPath(text, key, parse_path(text), False)
    for each in project.evaluators:
        for key in _KEYS.get(type(each), ()):
            for text in getattr(each, key) or ():
                where = f"{each.name}: {key.rstrip('_')}"
                yield DeclaredPath(text, where, parse_path(text), key in _IN_A_DATASET)


def _holds(value: object, path: Path) -> bool:
    try:
        return next(matching(value, path), None) is not None
    except PathAmbiguous:  # several elements are what it means; a verdict says so
        return True
