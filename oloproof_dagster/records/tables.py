"""Every table of a release run: one row type each.

Schemas are fixed here and never inferred, so a column that is null throughout keeps its type. JSON values (inputs,
states, outputs, recordings) are JSON text in the order of their keys: 1, 1.0 and true, {} and null survive storage as
they were.
"""

from dataclasses import dataclass
from typing import Any

from oloproof_dagster.records.schema import JSONText, Table


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case of the dataset. `line` is its line in the file; `initial_state` is null where none is declared."""

    case_id: str
    digest: str
    line: int
    input: JSONText
    expected: JSONText
    metadata: JSONText
    group_id: str | None
    initial_state: JSONText | None


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One case or derived case of the suite; a source case has no source_case, transform and pair_digest.

    `given_digest` and `initial_digest` are what keys and states bear of what the case gives the system; null in tables
    of earlier releases, and computed again there.
    """

    case_id: str
    digest: str
    line: int
    input: JSONText
    expected: JSONText
    metadata: JSONText
    group_id: str | None
    initial_state: JSONText | None
    cluster: str
    source_case: str | None = None
    transform: str | None = None
    pair_digest: str | None = None
    given_digest: str | None = None
    initial_digest: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """One execution of a case: what the system returned and recorded. `duration_ms` covers reset, call, snapshot.

    `retried` lists the errors of the attempts before, where the user's `retries` asked for another. `left_tasks` and
    `left_threads` count what the call left running, null where that is nothing.
    """

    case_id: str
    trial: int
    execution_key: str
    status: str
    error: str | None
    duration_ms: float
    output: JSONText | None
    trajectory: JSONText | None
    retried: JSONText | None = None
    left_tasks: int | None = None
    left_threads: int | None = None


@dataclass(frozen=True, slots=True)
class StateRow:
    """The snapshot after one execution: environment_state/v1. `state` is null where none was recorded."""

    case_id: str
    trial: int
    execution_key: str
    initial: str | None
    state: JSONText | None


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One replay; the control (`kind` control) is a row of its own and has no fault and step_index.

    `trajectory` is the recording up to the checkpoint (its first `prefix_steps` steps), then the continuation.
    `discarded` is the reason code why the replay shows nothing, null where it does. `state_matches` is the
    control's: whether its state equals the recorded one. What `discarded` says holds for an evaluator that asks for
    equal calls only; each evaluator decides by itself. `trial` stands where the recording holds the model's answers, so
    that each replay is a draw of its own. `raised_fault`: the fault itself left the agent as an exception.
    """

    case_id: str
    replay_key: str
    kind: str
    checkpoint_id: str
    prefix_steps: int
    fault: str | None
    step_index: int | None
    status: str
    discarded: str | None
    error: str | None
    duration_ms: float
    trajectory: JSONText | None
    state: JSONText | None
    state_matches: bool | None
    retried: JSONText | None = None
    delivery: str | None = None
    output: JSONText | None = None
    trial: int | None = None
    raised_fault: bool | None = None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One criterion's result for one case and trial. `compared` lists the compared paths (state.Compared.members).

    `noop` says, for a state criterion, whether the case's initial state already satisfies the check. `diverged` is the
    first difference of a replay that shows nothing: at_step, what, recorded, replayed, and the path in it. `exposed`
    says, of a copy whose world was changed, whether a tool's result held a changed text.
    """

    case_id: str
    trial: int
    criterion: str
    status: str
    reason: str | None
    detail: str | None
    compared: JSONText | None
    noop: bool | None
    diverged: JSONText | None = None
    exposed: bool | None = None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One criterion over the suite. Rates and bounds lie in [0, 1]; null where there is nothing to estimate.

    `no_bounds` is the reason code why there is no interval; `missing` and `excluded` map reason codes to counts.
    `n_clusters` counts clusters with an eligible verdict, null in a suite that is not clustered. `clusters` is what
    a clustered interval was computed from, null under the exact method: for each distinct cluster a list of passed,
    failed, missing and how many clusters are alike; `largest_cluster` is the
    one that is larger than all others. `caution` is the reason code under which bounds only describe. `verdicts` is a
    digest over the criterion's verdicts. `n_unexposed` counts the passed copies of a changed world whose agent never
    saw a changed text; null where no copy says.
    """

    metric: str
    estimate: float | None
    lower: float | None
    upper: float | None
    confidence_level: float
    method: str | None
    no_bounds: str | None
    n_eligible: int
    n_observed: int
    n_passed: int
    n_missing: int
    n_excluded: int
    n_clusters: int | None
    missing: JSONText
    excluded: JSONText
    noop_passed: int | None
    clusters: JSONText | None = None
    largest_cluster: str | None = None
    caution: str | None = None
    verdicts: str | None = None
    n_unexposed: int | None = None


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One criterion within one named subset of the cases; descriptive, no rule reads it. `support` = eligible.

    `caution` is the reason code under which even the bounds that stand here say little.
    """

    slice: str
    value: str
    metric: str
    estimate: float | None
    lower: float | None
    upper: float | None
    method: str | None
    no_bounds: str | None
    n_observed: int
    n_passed: int
    n_missing: int
    support: int
    caution: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One rule of release.yaml, decided. `reasons` lists reason codes; a count rule's interval columns are null.

    `evidence` is the digest that a person's review names: the row's numbers and the verdicts that they count.
    """

    rule_id: str
    metric: str
    state: str
    reasons: JSONText
    direction: str
    threshold: float
    estimate: float | None
    lower: float | None
    upper: float | None
    method: str | None
    n_eligible: int
    n_observed: int
    n_passed: int
    n_missing: int
    n_excluded: int
    n_clusters: int | None
    advice: str | None
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class GateRow:
    """What the decisions mean for the release: ALLOW, WARN or BLOCK; `reasons` as in the release_run/v1 document.

    `basis` holds the digests of what it was decided on (decision.basis.Basis), null in tables of earlier releases.
    """

    action: str
    exit_code: int
    reasons: JSONText
    basis: JSONText | None = None


_DIGESTED = ("input", "expected", "metadata", "initial_state")
CASES = Table("cases", CaseRow, key=("case_id",), volatile=_DIGESTED)
SUITE = Table("transformed_cases", SuiteRow, key=("case_id",), volatile=(*_DIGESTED, "given_digest", "initial_digest"))
EXECUTIONS = Table(
    "trajectories",
    ExecutionRow,
    key=("execution_key",),
    volatile=("duration_ms", "retried", "left_tasks", "left_threads"),
)
STATES = Table("environment_states", StateRow, key=("execution_key",))
REPLAYS = Table("fault_replays", ReplayRow, key=("replay_key",), volatile=("duration_ms", "retried"))
VERDICTS = Table("verdicts", VerdictRow, key=("case_id", "trial", "criterion"), added=("exposed",))
METRICS = Table("metrics", MetricRow, key=("metric",), added=("n_unexposed",))
SLICES = Table("slices", SliceRow, key=("slice", "value", "metric"))
DECISIONS = Table("decisions", DecisionRow, key=("rule_id",))
GATE = Table("gate", GateRow, key=("action",), volatile=("basis",))

TABLES: dict[str, Table[Any]] = {
    table.name: table
    for table in (CASES, SUITE, EXECUTIONS, STATES, REPLAYS, VERDICTS, METRICS, SLICES, DECISIONS, GATE)
}
