"""Derived cases: every source case followed by a copy of it for each transform, in one cluster."""

from collections.abc import Iterable, Iterator
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
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.oloproof_yaml import TransformDeclaration
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.keys import given_digest, state_digest
from oloproof_dagster.records.paths import ABSENT, lookup, parse_path
from oloproof_dagster.records.tables import CaseRow, JSONText, SuiteRow
from oloproof_dagster.suite.cases import case_digest, suite_digest
from oloproof_dagster.wording import json_kind, shortened


def transform_digest(transform: TransformDeclaration) -> str:
    """`metamorphic_transform/v1`: what the transform does, not what is known of it."""
    pairs = None if transform.replace is None else [list(pair) for pair in transform.replace]
    return digest(
        "metamorphic_transform/v1",
        {
            "name": transform.name,
            "version": transform.version,
            "field": transform.field,
            "template": transform.template,
            "replace": pairs,
        },
    )


def pair_digest(transform: str, source_input: str, derived_input: str) -> str:
    """`metamorphic_pair/v1` of a transform's digest and two inputs as canonical texts: what a label was read for."""
    return digest_of_text(
        "metamorphic_pair/v1",
        json_object(transform=canonical_json(transform), source_input=source_input, input=derived_input),
    )


def apply(transform: TransformDeclaration, text: str) -> str:
    """The transformed text: the template around it, or the replacements in order, each at every occurrence."""
    if transform.template is not None:
        return transform.template.replace("{value}", text)
    for old, new in transform.replace or ():
        text = text.replace(old, new)
    return text


def expand(project: Project, cases: Iterable[CaseRow]) -> Iterator[SuiteRow]:
    """The suite: every case with its cluster, followed by its derived cases; memory holds one case.

    Raises:
        ConfigError: a case that a transform cannot be applied to, naming the dataset's line.
    """
    digests = {transform.name: transform_digest(transform) for transform in project.transforms}
    for case in cases:
        source, canonical = _source(project, case)
        yield source
        for transform in project.transforms:
            yield _derived(source, canonical, transform, digests[transform.name])


def refuse_untransformable(project: Project, case: CaseRow) -> None:
    """Nothing, when every transform can be applied to a case.

    Raises:
        ConfigError: as `expand` does.
    """
    if not project.transforms:
        return
    who = f"case {shortened(case.case_id)}"
    if "~" in case.case_id:
        raise ConfigError.at(
            project.suite.dataset,
            case.line,
            f"{who}: an id may not hold `~`, which names derived cases; rename the case",
        )
    if '"metamorphic"' in case.metadata and "metamorphic" in parse_canonical(case.metadata):
        raise ConfigError.at(
            project.suite.dataset,
            case.line,
            f"{who}: `metadata.metamorphic` is what transforms note of a copy; rename that key",
        )
    value = parse_canonical(case.input)
    for transform in project.transforms:
        try:
            _changed(transform, value)
        except ValueError as error:
            raise ConfigError.at(
                project.suite.dataset, case.line, f"{who}, transform {transform.name!r}: {error}"
            ) from None


def _changed(transform: TransformDeclaration, value: Any) -> str:
    """The transformed text of an input.

    Raises:
        ValueError: there is no text, or it stays as it is.
    """
    text = lookup(value, parse_path(transform.field))
    if not isinstance(text, str):
        found = "which is not there" if text is ABSENT else f"found {json_kind(text)}"
        raise ValueError(f"the input must hold text at {shortened(transform.field)}, {found}")
    changed = apply(transform, text)
    if changed == text:
        raise ValueError(
            f"{shortened(text)} stays as it is, and a pair equal to its source tests nothing;"
            f" change the transform's {'template' if transform.template is not None else 'replace'}, or the case"
        )
    return changed


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
    refuse_untransformable(project, case)
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


def _derived(source: SuiteRow, canonical: _Canonical, transform: TransformDeclaration, digest_: str) -> SuiteRow:
    value = parse_canonical(source.input)
    changed = _with(value, parse_path(transform.field), _changed(transform, value))
    pair = pair_digest(digest_, canonical.input, dump(changed))
    metadata = parse_canonical(source.metadata) | {
        "metamorphic": {
            "source": source.case_id,
            "transform": transform.name,
            "version": transform.version,
            "digest": digest_,
            "pair_digest": pair,
        }
    }
    derived = replace(canonical, input=dump(changed), metadata=dump(metadata))
    return replace(
        source,
        case_id=f"{source.case_id}~{transform.name}",
        digest=derived.digest(source.group_id),
        input=JSONText(dump_in_order(changed)),
        metadata=JSONText(dump_in_order(metadata)),
        source_case=source.case_id,
        transform=transform.name,
        pair_digest=pair,
        given_digest=given_digest(derived.input, derived.initial_state),
    )


def _with(value: Any, path: tuple[str, ...], text: str) -> Any:
    """The value with the text put at a path that leads to text; only the containers on the way are copied."""
    if not path:
        return text
    if isinstance(value, dict):
        return value | {path[0]: _with(value[path[0]], path[1:], text)}
    position = int(path[0])
    return [*value[:position], _with(value[position], path[1:], text), *value[position + 1 :]]


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
