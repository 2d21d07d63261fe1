"""People's labels of transformed pairs: read, counted against the suite, and exported for reading.

A transform is checked when the labels show, with an exact bound, that it keeps the meaning of the request.
"""

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from oloproof_dagster.as_data import in_a_csv_cell
from oloproof_dagster.decision.intervals import clopper_pearson_missing_bounded
from oloproof_dagster.digests import parse_canonical, sha256
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import read_jsonl
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.records.changed_texts import changed_texts
from oloproof_dagster.records.paths import pointer
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.wording import json_kind, outwards, shortened

VALIDITY_CONFIDENCE = 0.95
"""The confidence level, two-sided, of the bound on kept pairs; the policy's level has no say in it."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

Labels = dict[str, list[tuple[str, bool]]]
"""For each derived case, the pair digests that were read and whether the meaning was kept."""


def read_labels(project: Project, transform: TransformDeclaration) -> Labels:
    """The labels of a transform; none where it declares no file.

    Raises:
        ConfigError: the file is absent or malformed, naming its line.
    """
    labels: Labels = {}
    name = transform.validity_labels
    if name is None:
        return labels
    for line, value in read_jsonl(project.root / name, name):
        if not isinstance(value, dict):
            found = json_kind(value)
            raise ConfigError.at(name, line, f"a label is an object with `case`, `digest` and `kept`, found {found}")
        for key, wanted in (("case", "text"), ("digest", "text"), ("kept", "true or false")):
            if key not in value:
                raise ConfigError.at(name, line, f"`{key}` is required and not there")
            if not isinstance(value[key], bool if key == "kept" else str):
                hint = "; say whether the meaning was kept" if key == "kept" else ""
                raise ConfigError.at(name, line, f"`{key}` must be {wanted}, found {json_kind(value[key])}{hint}")
        if not _DIGEST.fullmatch(value["digest"]):
            raise ConfigError.at(
                name,
                line,
                f"`digest` must read sha256: and 64 hex digits, found {shortened(value['digest'])};"
                f" `oloproof labels export --transform {transform.name}` writes the digest of every pair",
            )
        labels.setdefault(value["case"], []).append((value["digest"], value["kept"]))
    return labels


@dataclass(frozen=True, slots=True)
class Validity:
    """What the labels say of one transform. `lower` is the exact 95% lower bound of kept / pairs, in [0, 1].

    `pairs` are those that are to be read: under `validity_sample` that many of the suite's.
    """

    transform: str
    pairs: int
    labelled: int
    kept: int
    stale: int
    lower: float
    minimum: float | None
    has_labels: bool

    @property
    def checked(self) -> bool:
        """Whether the labels let relations on the transform's pairs count."""
        return self.has_labels and self.minimum is not None and self.lower >= self.minimum

    @property
    def advice(self) -> str:
        """One line on what is lacking."""
        if not self.has_labels:
            return (
                f"declare validity_labels for transform {self.transform}: export its pairs with"
                f" `oloproof labels export --transform {self.transform}` and say of each whether it kept its meaning"
            )
        if self.minimum is None:
            return f"declare minimum_validity for transform {self.transform}, the bar its labels have to reach"
        unlabelled = self.pairs - self.labelled - self.stale
        return (
            f"transform {self.transform}: {self.kept} of {self.pairs} pairs are labelled kept, lower bound"
            f" {outwards(self.lower, 'lower')} under {self.minimum:g}; {unlabelled} unlabelled, {self.stale} stale"
        )


def validity(transform: TransformDeclaration, labels: Labels, pairs: Iterable[tuple[str, str]]) -> Validity:
    """What labels say of a transform's pairs, given as (derived case id, current pair digest).

    A pair is kept when at least one label has its current digest and every such label says kept.
    """
    n_pairs = labelled = kept = stale = 0
    for case_id, digest in pairs:
        n_pairs += 1
        given = labels.get(case_id, [])
        current = [keeps for read, keeps in given if read == digest]
        labelled += bool(current)
        kept += bool(current) and all(current)
        stale += bool(given) and not current
    bound = clopper_pearson_missing_bounded(kept, n_pairs, 0, VALIDITY_CONFIDENCE)
    return Validity(
        transform.name,
        n_pairs,
        labelled,
        kept,
        stale,
        bound.lower,
        transform.minimum_validity,
        transform.validity_labels is not None,
    )


def sampled(
    transform: TransformDeclaration, suite_id: str, pairs: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """The pairs that people have to read, of (derived case id, pair digest): all, or the first `validity_sample` in the
    order of a hash of the suite's id and the pair's digest, so that nobody chooses them."""
    if transform.validity_sample is None:
        return tuple(pairs)
    in_order = sorted(pairs, key=lambda pair: (sha256(suite_id + pair[1]), pair[0]))
    return tuple(in_order[: transform.validity_sample])


def validities(project: Project, pairs: Iterable[tuple[str | None, str, str | None]]) -> tuple[Validity, ...]:
    """The validity of every transform, from the suite's (transform, case id, pair digest) columns.

    Raises:
        ConfigError: a label file is absent or malformed.
    """
    by_transform: dict[str, list[tuple[str, str]]] = {transform.name: [] for transform in project.transforms}
    for name, case_id, digest in pairs:
        if name in by_transform and digest is not None:
            by_transform[name].append((case_id, digest))
    return tuple(
        validity(
            transform,
            read_labels(project, transform),
            sampled(transform, project.suite_id, by_transform[transform.name]),
        )
        for transform in project.transforms
    )


def unchecked_criteria(project: Project, found: Iterable[Validity]) -> Mapping[str, str]:
    """The criteria over a transform that is not checked, each with one line of advice."""
    unchecked: dict[str, str] = {}
    for each in found:
        if not each.checked:
            for criterion in project.relations_over(each.transform):
                unchecked.setdefault(criterion, each.advice)
    return unchecked


def pairs_to_read(
    transform: TransformDeclaration, suite: Iterable[SuiteRow], labels: Labels, wanted: Collection[str] | None = None
) -> Iterator[dict[str, Any]]:
    """One object a pair: the texts before and after, its digest, and `kept`, null until somebody has read it.

    `wanted` are the ids of the derived cases that are to be read; None for all.
    """
    source: SuiteRow | None = None
    for row in suite:
        if row.source_case is None:
            source = row
        elif source and row.transform == transform.name and (wanted is None or row.case_id in wanted):
            given = [keeps for read, keeps in labels.get(row.case_id, []) if read == row.pair_digest]
            before, after = _texts(*(parse_canonical(getattr(each, transform.target)) for each in (source, row)))
            yield {
                "case": row.case_id,
                "digest": row.pair_digest,
                "source": before,
                "derived": after,
                "kept": all(given) if given else None,
            }


def _texts(source: Any, copy: Any) -> tuple[str, str]:
    """The texts in which two values differ, before and after: one as it is, several each behind where it stands."""
    changes = list(changed_texts(source, copy))
    if len(changes) == 1:
        return changes[0].source, changes[0].text
    places = [pointer(change.path) for change in changes]
    before, after = (
        "\n".join(f"{place}: {getattr(change, side)}" for place, change in zip(places, changes, strict=True))
        for side in ("source", "text")
    )
    return before, after


def write_pairs(pairs: Iterable[dict[str, Any]], form: str, stream: TextIO, *, raw: bool = False) -> None:
    """Writes pairs to read as JSONL, which a label file can be made of by filling in `kept`, or as CSV.

    No spreadsheet takes a cell of the CSV for a formula, unless it is `raw`.
    """
    if form == "jsonl":
        for pair in pairs:
            stream.write(json.dumps(pair, ensure_ascii=False) + "\n")
        return
    writer = csv.DictWriter(stream, ("case", "digest", "source", "derived", "kept"), lineterminator="\n")
    writer.writeheader()
    for pair in pairs:
        cells = pair | {"kept": {None: "", True: "true", False: "false"}[pair["kept"]]}
        writer.writerow(cells if raw else {name: in_a_csv_cell(cell) for name, cell in cells.items()})
