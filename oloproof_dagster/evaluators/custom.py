"""The user's own checks; the one place where their code is called and what it raises is caught."""

from collections.abc import Callable
from typing import Any, get_args

from oloproof_dagster.digests import canonical_json
from oloproof_dagster.errors import NotJSON
from oloproof_dagster.evaluators.case import CaseEvidence, CaseView
from oloproof_dagster.evaluators.verdict import Status, Verdict, failed, missing, passed
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.system.interrupts import INTERRUPTS


class PythonEvaluator:
    """`f(case: CaseView) -> bool | Verdict`. Anything else that it returns or raises is a missing verdict."""

    def __init__(self, function: Callable[[CaseView], Any], describe: Callable[[BaseException], str]) -> None:
        self._function, self._describe = function, describe

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """None: every case counts."""
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """The verdict that the check returns; what it raises is a missing one."""
        try:
            found = self._function(CaseView(evidence))
        except BaseException as error:
            if INTERRUPTS.end_the_run(error):
                raise
            # A message may hold bytes of a file's name that are no text; evidence is UTF-8.
            described = self._describe(error).encode("utf-8", "backslashreplace").decode("utf-8")
            return missing(VerdictReason.EVALUATOR_ERROR, described)
        if isinstance(found, bool):
            return passed() if found else failed(detail="returned False")
        wrong = _why_unusable(found)
        return found if wrong is None else missing(VerdictReason.EVALUATOR_ERROR, wrong)

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: whether the check reads the state is not known."""
        return None


def _why_unusable(found: Any) -> str | None:
    """What keeps a returned object from being a verdict that can be stored, or None."""
    if not isinstance(found, Verdict):
        return f"returned {type(found).__name__}, expected a bool or a Verdict"
    if found.status not in get_args(Status):
        return f"returned a Verdict with the status {found.status!r}, expected one of {', '.join(get_args(Status))}"
    if found.status in ("missing", "not_applicable") and not found.reason:
        return f"returned a Verdict that is {found.status} without a reason"
    if not all(isinstance(text, str | None) for text in (found.reason, found.detail)):
        return "returned a Verdict whose reason or detail is not text"
    try:
        canonical_json([found.reason, found.detail, [row.members() for row in found.compared]])
    except (NotJSON, AttributeError, TypeError) as error:
        return f"returned a Verdict that cannot be stored: {error}"
    return None
