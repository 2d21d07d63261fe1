"""A verdict: one criterion's result for one case, with the reason and the paths that were compared."""

from dataclasses import dataclass
from typing import Any, Literal

from oloproof_dagster.records.compared import Compared
from oloproof_dagster.records.reasons import VerdictReason

Status = Literal["passed", "failed", "missing", "not_applicable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluator found. `reason` is a VerdictReason's code, or a python check's own word.

    `diverged` is the first difference of a replay that shows nothing.

    `missing`: the case counts and was not observed. `not_applicable`: the case does not count.
    """

    status: Status
    reason: str | None = None
    detail: str | None = None
    compared: tuple[Compared, ...] = ()
    diverged: dict[str, Any] | None = None


def passed(reason: VerdictReason | None = None, *, compared: tuple[Compared, ...] = ()) -> Verdict:
    """A passed verdict."""
    return Verdict("passed", reason.value if reason else None, None, compared)


def failed(
    reason: VerdictReason | None = None, detail: str | None = None, *, compared: tuple[Compared, ...] = ()
) -> Verdict:
    """A failed verdict."""
    return Verdict("failed", reason.value if reason else None, detail, compared)


def missing(reason: VerdictReason, detail: str | None = None, *, compared: tuple[Compared, ...] = ()) -> Verdict:
    """A verdict that was not reached, and why."""
    return Verdict("missing", reason.value, detail, compared)


def not_applicable(reason: VerdictReason) -> Verdict:
    """A verdict on a case that does not count, and why."""
    return Verdict("not_applicable", reason.value)


def by_comparison(compared: tuple[Compared, ...]) -> Verdict:
    """Passed when every compared path matches."""
    return Verdict("passed" if all(row.matches for row in compared) else "failed", None, None, compared)
