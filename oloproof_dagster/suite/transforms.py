"""Derived cases: every source case followed by a copy of it for each transform, in one cluster."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oloproof_dagster.digests import (
    canonical_json,
    canonical_of,
    digest,
    digest_of_text,
    dump,
    dump_in_order,
    json_object,
    parse_canonical,
)
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.records.changed_texts import ChangedText
from oloproof_dagster.records.keys import given_digest, state_digest
from oloproof_dagster.records.paths import pointer
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import CaseRow, SuiteRow
from oloproof_dagster.suite.cases import ReadNotes, case_digest, suite_digest
from oloproof_dagster.suite.text_changes import TextChanges, with_texts


def is_v1(transform: TransformDeclaration) -> bool:
    """Whether a transform's digests, and its pairs', are `v1`: it makes a template or replacements of the input."""
    return not transform.changes_world and transform.kind in ("template", "replace")


def transform_digest(transform: TransformDeclaration) -> str:
    """`metamorphic_transform/v1` or `/v2`: what the transform does, not what is known of it."""
    members = {
        "name": transform.name,
        "version": transform.version,
        "field": transform.field,
        "template": transform.template,
        "replace": None if transform.replace is None else [list(pair) for pair in transform.replace],
    }
    if is_v1(transform):
        return digest("metamorphic_transform/v1", members)
    return digest("metamorphic_transform/v2", members | {"target": transform.target, "kind": transform.kind})


def pair_digest(transform: str, source_input: str, derived_input: str) -> str:
    """`metamorphic_pair/v1` of a transform's digest and two inputs as canonical texts: what a label was read for."""
    return digest_of_text(
        "metamorphic_pair/v1",
        json_object(transform=canonical_json(transform), source_input=source_input, input=derived_input),
    )


def texts_digest(transform: str, changes: Sequence[ChangedText]) -> str:
    """`metamorphic_pair/v2` of a transform's digest and the texts that it changed: what a label was read for."""
    texts = sorted([pointer(change.path), change.source, change.text] for change in changes)
    return digest("metamorphic_pair/v2", {"transform": transform, "texts": texts})


def expand(project: Project, cases: Iterable[CaseRow], notes: ReadNotes | None = None) -> Iterator[SuiteRow]:
    """The suite: every case with its cluster, followed by its derived cases; memory holds one case.

    What a file of rewrites lacks is a warning in `notes`, once all cases have passed.

    Raises:
        ConfigError: a case that a transform cannot be applied to, naming the dataset's line; texts or a function that
            cannot be used.
    """
    digests = {transform.name: transform_digest(transform) for transform in project.transforms}
    changes = TextChanges(project)
    for case in cases:
        made = changes.of(case)
        source, canonical = _source(project, case)
        yield source
        for transform, changed in made:
            yield _derived(source, canonical, _Copying(transform, digests[transform.name], changed))
    if notes is not None:
        notes.warnings += changes.notes()


@dataclass(frozen=True, slots=True)
class _Canonical:
    """The canonical texts of a case, which digests are taken over; its row has them in the user's order."""

    input: str
    expected: str
    metadata: str
    initial_state: str | None

    def digest(self, group: str | None) -> str:
        return case_digest(
            input=self.input,
            expected=self.expected,
            metadata=self.metadata,
            group_id=group,
            initial_state=self.initial_state,
        )


def _source(project: Project, case: CaseRow) -> tuple[SuiteRow, _Canonical]:
    group = (case.group_id or case.case_id) if project.transforms else case.group_id
    canonical = _Canonical(
        canonical_of(case.input),
        canonical_of(case.expected) if project.transforms else "",
        canonical_of(case.metadata) if project.transforms else "",
        None if case.initial_state is None else canonical_of(case.initial_state),
    )
    members = {key: getattr(case, key) for key in CaseRow.__dataclass_fields__}
    members |= {
        "group_id": group,
        "digest": case.digest if group == case.group_id else canonical.digest(group),
        "given_digest": given_digest(canonical.input, canonical.initial_state),
        "initial_digest": None if canonical.initial_state is None else state_digest(canonical.initial_state),
    }
    return SuiteRow(**members, cluster=group or case.case_id), canonical


@dataclass(frozen=True, slots=True)
class _Copying:
    """A transform, its digest, and what it changes in one case."""

    transform: TransformDeclaration
    digest: str
    changes: Sequence[ChangedText]


def _derived(source: SuiteRow, canonical: _Canonical, copying: _Copying) -> SuiteRow:
    transform = copying.transform
    changed = with_texts(parse_canonical(getattr(source, transform.target)), copying.changes)
    target, in_order = dump(changed), JSONText(dump_in_order(changed))
    if is_v1(transform):
        pair = pair_digest(copying.digest, canonical.input, target)
    else:
        pair = texts_digest(copying.digest, copying.changes)
    metadata = parse_canonical(source.metadata) | {
        "metamorphic": {
            "source": source.case_id,
            "transform": transform.name,
            "version": transform.version,
            "digest": copying.digest,
            "pair_digest": pair,
        }
    }
    if transform.changes_world:
        derived = replace(canonical, initial_state=target, metadata=dump(metadata))
        copy = replace(source, initial_state=in_order, initial_digest=state_digest(target))
    else:
        derived = replace(canonical, input=target, metadata=dump(metadata))
        copy = replace(source, input=in_order)
    return replace(
        copy,
        case_id=f"{source.case_id}~{transform.name}",
        digest=derived.digest(source.group_id),
        metadata=JSONText(dump_in_order(metadata)),
        source_case=source.case_id,
        transform=transform.name,
        pair_digest=pair,
        given_digest=given_digest(derived.input, derived.initial_state),
    )


class SuiteCount:
    """What is to be noted of a suite as a whole, counted while its rows pass."""

    def __init__(self) -> None:
        self._digests: list[tuple[str, str]] = []
        self._cases_of: dict[str, int] = {}
        self._n_sources = 0

    def counting(self, rows: Iterable[SuiteRow]) -> Iterator[SuiteRow]:
        """The same rows, counted on the way."""
        for row in rows:
            self._digests.append((row.case_id, row.digest))
            self._cases_of[row.cluster] = self._cases_of.get(row.cluster, 0) + 1
            self._n_sources += row.source_case is None
            yield row

    def facts(self) -> dict[str, Any]:
        """Counts over the rows that have passed; `clustered`: some cluster holds more than one case."""
        return {
            "suite_digest": suite_digest(iter(self._digests)),
            "n_source_cases": self._n_sources,
            "n_cases": len(self._digests),
            "n_clusters": len(self._cases_of),
            "clustered": any(n > 1 for n in self._cases_of.values()),
        }
