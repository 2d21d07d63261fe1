"""People's reviews of rules that numbers do not decide: `reviews.jsonl` beside release.yaml, read and applied.

A review holds for the evidence that it names and for no other: once the verdicts change, somebody reads them again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.digests import digest
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import read_jsonl
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.tables import DecisionRow
from oloproof_dagster.wording import did_you_mean, json_kind

REVIEWS_FILE = "reviews.jsonl"

_REQUIRED = {"rule": str, "evidence": str, "by": str, "approve": bool}
_WANTED = {str: "a text that is not empty", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Review:
    """One line: who approved or rejected a rule on what evidence."""

    line: int
    rule: str
    evidence: str
    by: str
    approve: bool


def read_reviews(project: Project) -> tuple[Review, ...]:
    """The reviews of a project, in the file's order; none where there is no file.

    Raises:
        ConfigError: a line is malformed, or two lines say the opposite of the same evidence.
    """
    path = project.root / REVIEWS_FILE
    if not path.exists():
        return ()
    found = tuple(_review(line, value) for line, value in read_jsonl(path, REVIEWS_FILE))
    first: dict[tuple[str, str], Review] = {}
    for each in found:
        other = first.setdefault((each.rule, each.evidence), each)
        if other.approve != each.approve:
            words = ("rejects", "approves")
            raise ConfigError.at(
                REVIEWS_FILE,
                each.line,
                f"{words[each.approve]} what line {other.line} {words[other.approve]}: keep one of the two",
            )
    return found


def _review(line: int, value: Any) -> Review:
    if not isinstance(value, dict):
        wanted = "a review is an object with `rule`, `evidence`, `by` and `approve`"
        raise ConfigError.at(REVIEWS_FILE, line, f"{wanted}, found {json_kind(value)}")
    for key in value:
        if key not in _REQUIRED and key != "note":
            raise ConfigError.at(
                REVIEWS_FILE, line, f"`{key}` is no key of a review{did_you_mean(key, (*_REQUIRED, 'note'))}"
            )
    for key, kind in _REQUIRED.items():
        if key not in value:
            raise ConfigError.at(REVIEWS_FILE, line, f"`{key}` is required and not there")
        if type(value[key]) is not kind or value[key] == "":
            raise ConfigError.at(REVIEWS_FILE, line, f"`{key}` must be {_WANTED[kind]}, found {json_kind(value[key])}")
    if not isinstance(value.get("note", ""), str):
        raise ConfigError.at(REVIEWS_FILE, line, f"`note` must be a text, found {json_kind(value['note'])}")
    return Review(line, value["rule"], value["evidence"], value["by"], value["approve"])


def reviews_digest(project: Project) -> str:
    """A digest over what the reviews say; by whom, and the notes, do not count."""
    found = {(each.rule, each.evidence, each.approve) for each in read_reviews(project)}
    return digest("reviews/v1", [list(each) for each in sorted(found)])


def approved(reviews: Iterable[Review], rule: str, evidence: str | None) -> bool | None:
    """What people's reviews say of a rule on this very evidence; None where nobody has reviewed it."""
    return next((each.approve for each in reviews if (each.rule, each.evidence) == (rule, evidence)), None)


def unused_lines(reviews: Sequence[Review], decisions: Iterable[DecisionRow], reviewed: Iterable[str]) -> Iterator[str]:
    """One line for each review that decides nothing now; `reviewed` are the rules that are left to a person."""
    evidence, left = {row.rule_id: row.evidence for row in decisions}, set(reviewed)
    for each in reviews:
        where = f"{REVIEWS_FILE}, line {each.line}"
        if each.rule not in evidence:
            yield f"{where}: there is no rule {each.rule!r}{did_you_mean(each.rule, evidence)}"
        elif each.rule not in left:
            yield f"{where}: rule {each.rule!r} does not say requires_manual_review, so the review decides nothing"
        elif each.evidence != evidence[each.rule]:
            yield f"{where}: the review of {each.rule!r} by {each.by!r} is of other evidence and decides nothing"
