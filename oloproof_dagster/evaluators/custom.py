"""The user's own checks; the one place where their code is called and what it raises is caught."""

import os
from collections.abc import Callable
from typing import Any, get_args

from oloproof_dagster.digests import canonical_json, copy_in_order
from oloproof_dagster.errors import NotJSON
from oloproof_dagster.evaluators.case import CaseEvidence, CaseView
from oloproof_dagster.evaluators.verdict import Status, Verdict, failed, missing, passed
from oloproof_dagster.records.compared import Compared
from oloproof_dagster.records.paths import ABSENT
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.system.interrupts import INTERRUPTS

Function = Callable[[CaseView], Any]
Describe = Callable[[BaseException], str]
FORKED = "the check forked the process that judges; start programs with subprocess instead"


class PythonEvaluator:
    """`f(case: CaseView) -> bool | Verdict`. Anything else that it returns or raises is a missing verdict."""

    def __init__(self, function: Function, describe: Describe) -> None:
        self._function, self._describe = function, describe

    def eligibility(self, evidence: CaseEvidence) -> Verdict | None:
        """None: every case counts."""
        return None

    def judge(self, evidence: CaseEvidence) -> Verdict:
        """The verdict that the check returns; what it raises is a missing one."""
        return self.on(CaseView(evidence))

    def on(self, view: CaseView) -> Verdict:
        """The verdict on what the check is shown."""
        process, forks = os.getpid(), _FORKS.count
        try:
            found = self._function(view)
        except BaseException as error:
            _leave_a_fork(process)
            if INTERRUPTS.end_the_run(error):
                raise
            # A message may hold bytes of a file's name that are no text; evidence is UTF-8.
            described = self._describe(error).encode("utf-8", "backslashreplace").decode("utf-8")
            return missing(VerdictReason.EVALUATOR_ERROR, described)
        _leave_a_fork(process)
        if _FORKS.count != forks:
            return missing(VerdictReason.EVALUATOR_ERROR, FORKED)
        if found is True or found is False:
            return passed() if found else failed(detail="returned False")
        try:
            return _as_stored(found)
        except _Unusable as error:
            return missing(VerdictReason.EVALUATOR_ERROR, str(error))
        except Exception as error:  # an object of the check's own that raises when it is read
            return missing(VerdictReason.EVALUATOR_ERROR, f"returned a Verdict that raises: {type(error).__name__}")

    def noop(self, evidence: CaseEvidence) -> bool | None:
        """None: whether the check reads the state is not known."""
        return None


class _Unusable(Exception):
    """What a check returned is no verdict that can be stored."""


class _Forks:
    """How many forks of this process were made."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_parent=self._one_more)

    def _one_more(self) -> None:
        self.count += 1


_FORKS = _Forks()


def _leave_a_fork(process: int) -> None:
    """Ends a child that a check forked and let return: it must not become a second run."""
    if os.getpid() != process:
        os._exit(0)


def _as_stored(found: Any) -> Verdict:
    """The verdict made anew of plain values: a class of the check's own may lie about what it equals."""
    if type(found) is not Verdict:
        raise _Unusable(f"returned {type(found).__name__}, expected a bool or a Verdict")
    known = {name: name for name in get_args(Status)}
    status = found.status
    if type(status) is not str or status not in known:
        raise _Unusable(f"returned a Verdict with the status {_shown(status)}, expected one of {', '.join(known)}")
    reason, detail = _text(found.reason), _text(found.detail)
    if status in ("missing", "not_applicable") and not reason:
        raise _Unusable(f"returned a Verdict that is {status} without a reason")
    try:
        rows = tuple(found.compared)
        wrong = next((row for row in rows if type(row) is not Compared), None)
        if wrong is not None:
            raise _Unusable(f"returned a Verdict that cannot be stored: compared holds {type(wrong).__name__}")
        canonical_json([reason, detail])
        return Verdict(known[status], reason, detail, tuple(map(_copied, rows)))
    except (NotJSON, AttributeError, TypeError) as error:
        raise _Unusable(f"returned a Verdict that cannot be stored: {error}") from None


def _copied(row: Compared) -> Compared:
    """The row made anew of values that nobody else holds."""
    return Compared(_copy(row.path), _copy(row.expected), _copy(row.actual), _copy(row.matches))


def _copy(value: Any) -> Any:
    return value if value is ABSENT else copy_in_order(value)[1]


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, VerdictReason):
        return value.value
    raise _Unusable("returned a Verdict whose reason or detail is not text")


def _shown(value: Any) -> str:
    return repr(value) if type(value) in (str, int, float, bool, type(None), list, dict) else type(value).__name__
