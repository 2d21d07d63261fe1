"""A python check that forks the process that judges."""

import os

from oloproof_dagster.evaluators.case import CaseView
from tests.support.evidence import criterion, evidence


def test_a_check_that_forks_is_its_own_error_and_its_child_is_no_second_run() -> None:
    def check(case: CaseView) -> bool:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return True

    row = criterion({"type": "python", "criterion": "own", "callable": "m:f"}, check).row(evidence())
    assert (row.status, row.reason) == ("missing", "evaluator_error")
    assert row.detail == "the check forked the process that judges; start programs with subprocess instead"
