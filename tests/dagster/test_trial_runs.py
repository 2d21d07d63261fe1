"""Release runs of several trials: what is counted, and how many cases decide."""

from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster import load_run
from tests.engine.test_trials import in_trial, write
from tests.support.engine import agent_case
from tests.support.projects import rules
from tests.support.runs import home

AT_LEAST = {"id": "paid", "metric": "tool_calls", "min": 0.5}
AT_MOST = {"id": "count", "metric": "tool_calls", "max_failures": 1}


def release_run(root: Path, *, trials: int, n_cases: int = 3, **policy: Any) -> Any:
    """A release run of cases of which the first fails in its second trial."""
    cases = [agent_case(f"c-{n:03d}", "pay", **(in_trial(1, calls=[]) if n == 0 else {})) for n in range(n_cases)]
    write(root, *cases, trials=trials, release=rules(AT_LEAST, AT_MOST, **policy), slices=["first_tool"])
    with home(root) as found:
        found.run()
    return load_run(root)


def test_a_suite_of_several_trials_is_clustered_by_case_and_its_rates_count_every_trial(tmp_path: Path) -> None:
    run = release_run(tmp_path, trials=3)
    (metric,) = run.metrics.itertuples()
    assert (metric.n_eligible, metric.n_observed, metric.n_passed, metric.n_clusters) == (9, 9, 8, 3)
    assert metric.estimate == pytest.approx(8 / 9)
    assert metric.method == "spacing_bound@1"
    assert dict(zip(run.slices["value"], run.slices["support"], strict=True)) == {"pay": 8}
    states = dict(zip(run.decisions.rule_id, run.decisions.state, strict=True))
    reasons = dict(zip(run.decisions.rule_id, run.decisions.reasons, strict=True))
    assert (states["paid"], reasons["paid"]) == ("MANUAL_REVIEW", '["approximate_method_not_permitted"]')
    assert (states["count"], reasons["count"]) == ("PASS", '["observed_failures_within_limit"]')


def test_of_several_trials_too_few_cases_decide_nothing_however_many_their_trials(tmp_path: Path) -> None:
    run = release_run(tmp_path, trials=40, allow_approximate_methods=True)
    assert run.metrics.n_eligible.tolist() == [120]
    decision = run.decisions.set_index("rule_id").loc["paid"]
    assert (decision.state, decision.reasons) == ("INSUFFICIENT_EVIDENCE", '["insufficient_clusters"]')


def test_of_several_trials_enough_cases_decide(tmp_path: Path) -> None:
    run = release_run(tmp_path, trials=2, n_cases=20, allow_approximate_methods=True)
    decision = run.decisions.set_index("rule_id").loc["paid"]
    assert (decision.state, decision.n_passed, decision.n_clusters) == ("PASS", 39, 20)


def test_of_one_trial_the_suite_is_not_clustered(tmp_path: Path) -> None:
    run = release_run(tmp_path, trials=1)
    (metric,) = run.metrics.itertuples()
    assert (metric.n_eligible, metric.method) == (3, "clopper_pearson_missing_bounded@1")
    assert run.metrics.n_clusters.isna().all()
