"""What a Gate stands on, as digests, and what of it is another by now: a release releases only what was judged."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from oloproof_dagster.digests import canonical_json

TABLES = (
    "transformed_cases",
    "trajectories",
    "environment_states",
    "fault_replays",
    "verdicts",
    "metrics",
    "decisions",
)
"""The tables that a Gate stands on, in the order in which each is made of the ones before."""

Modules = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Basis:
    """The digests of what a Gate stands on; `tables` are digests of contents, so equal rows made again are the same.

    `suite`, `system` and `code` are those of the declared version: what an old one was made of is not there any more,
    and they are None. `modules` name the code where it is not what oloproof.yaml declares.
    """

    policy: str
    labels: str
    evaluators: str | None
    tables: Mapping[str, str]
    reviews: str | None = None
    suite: str | None = None
    system: str | None = None
    code: str | None = None
    modules: Modules | None = None

    def text(self) -> str:
        """The basis as a table's column takes it."""
        members = {name: value for name, value in asdict(self).items() if value is not None}
        return canonical_json({name: list(value) if name == "modules" else value for name, value in members.items()})

    @classmethod
    def of_text(cls, text: str) -> "Basis":
        """The basis that a table holds; members that this release does not know are left out."""
        found = json.loads(text)
        known = {each.name: found[each.name] for each in fields(cls) if each.name in found}
        modules = known.pop("modules", None)
        return cls(**{"evaluators": None, **known}, modules=None if modules is None else tuple(modules))


_EDITED = {
    "policy": "release.yaml was edited",
    "labels": "the labels, or what is asked of them, were edited",
    "reviews": "the reviews were edited",
    "evaluators": "the evaluators, or the code of a python check, were edited",
    "suite": "the dataset, or what it is expanded by, was edited",
    "system": "the system's declaration in oloproof.yaml was edited",
    "code": "the agent's code was edited",
}


def what_changed(noted: Basis, now: Basis) -> str | None:
    """The first thing that a Gate stood on and that is another now, as the beginning of a sentence; None where all is
    as it was."""
    return next(_changes(noted, now), None)


def _changes(noted: Basis, now: Basis) -> Iterator[str]:
    gone = [name for name in TABLES if noted.tables.get(name) and not now.tables.get(name)]
    if gone:
        whole = len(gone) == len(TABLES)
        yield "the evidence was removed" if whole else f"the recorded {', '.join(gone)} were removed"
    for name, sentence in _EDITED.items():
        current = getattr(now, name)
        if current is not None and getattr(noted, name) != current:
            yield sentence
    for name in TABLES:
        if noted.tables.get(name) != now.tables.get(name):
            yield f"the recorded {name} changed"
