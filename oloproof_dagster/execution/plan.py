"""What is decided before a pass does anything, what one shard of it is to do, and what came of that.

Plans and results are small values that the steps of one run hand to each other, on whatever machine each runs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Attempt, Evidence
from oloproof_dagster.execution.execute import Counts
from oloproof_dagster.execution.passes import Pass, shard_of
from oloproof_dagster.execution.progress import Progress
from oloproof_dagster.execution.sandboxes import Sandboxes
from oloproof_dagster.records.keys import Identity


class StepValue(BaseModel):
    """A value that one step of a run hands to another, as JSON."""

    model_config = ConfigDict(frozen=True)


class PassPlan(StepValue):
    """What is decided for a whole pass: whose behaviour it records (`identity`), the `fingerprints` that its tables
    will bear, and whether the recorded tables are used again as they are (`reused`)."""

    attempt: int
    identity: tuple[str, str, str]
    fingerprints: tuple[str, ...]
    reused: bool
    retry_errors: bool
    warning: str | None = None


class ShardPlan(StepValue):
    """One shard of a planned pass: shard `index` (from 0) of `of`, and how many cases are in it."""

    plan: PassPlan
    index: int
    of: int
    n_cases: int


class ShardResult(StepValue):
    """What one shard did: rows that were not recorded before, the seconds that took, and a warning."""

    n_new: int
    seconds: float
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What a pass finds: the attempt to add to, whose behaviour it would record, the fingerprints that its tables would
    bear, and whether the recorded tables bear them already (`unchanged`)."""

    attempt: Attempt
    identity: Identity
    fingerprints: tuple[str, ...]
    unchanged: bool


def plan_pass(work: Pass, evidence: Evidence, before: Before, *, retry_errors: bool) -> PassPlan:
    """The plan of a pass; `retry_errors` repeats what is recorded as an error."""
    recorded = evidence.table(work.tables[0], before.attempt.version).facts()
    repeats = (retry_errors and bool(recorded.get("n_errors"))) or bool(recorded.get("n_unreset"))
    # A resume log holds what a killed run finished and no table has yet.
    reused = before.unchanged and not repeats and not evidence.has_resume_log(before.attempt, work.kind)
    return PassPlan(
        attempt=before.attempt.number,
        identity=(before.identity.system, before.identity.version, before.identity.code),
        fingerprints=before.fingerprints,
        reused=reused,
        retry_errors=retry_errors,
        warning=None if reused else work.warning_of_edit(recorded, before.identity),
    )


def plan_shards(plan: PassPlan, clusters: Iterable[str], of: int) -> Iterator[ShardPlan]:
    """A plan for each of `of` shards that has a case in it; none where everything is reused."""
    n_cases = Counter() if plan.reused else Counter(shard_of(each, of) for each in clusters)
    for index in sorted(n_cases):
        yield ShardPlan(plan=plan, index=index, of=of, n_cases=n_cases[index])


def attempt_in_force(plan: PassPlan, evidence: Evidence, version: str, fingerprints: tuple[str, ...]) -> Attempt:
    """The attempt that was planned for; `fingerprints` are those that the tables would bear now.

    Raises:
        EvidenceError: another attempt is in force, or what the pass reads is not what it was.
    """
    attempt = evidence.attempt(version)
    if attempt is None or attempt.number != plan.attempt:
        raise EvidenceError(f"attempt {plan.attempt} of version {version!r} is not in force any more; start a new run")
    if fingerprints != plan.fingerprints:
        raise EvidenceError(
            "the cases, or how they are executed, changed while the shards were at work; start a new run: what was"
            " executed is kept"
        )
    return attempt


def total(counts: Counts, results: Sequence[ShardResult] | None) -> Counts:
    """The counts of a whole pass. What its shards did, the collecting step finds recorded and counts as hits."""
    if results is None:
        return counts
    n_new = sum(each.n_new for each in results)
    seconds = counts.seconds + sum(each.seconds for each in results)
    return replace(counts, hit=counts.hit - n_new, miss=n_new, seconds=seconds)


def summary(work: Pass, counts: Counts, *warnings: str | None) -> dict[str, Any]:
    """What is noted of a pass on its first table: rows made and reused, errors, seconds, distinct warnings."""
    lines = "\n".join(dict.fromkeys(filter(None, warnings)))
    return {
        work.verb: counts.miss,
        "answered_from_evidence": counts.hit,
        "n_errors": counts.errors,
        "seconds": counts.seconds,
        **({"warnings": lines} if lines else {}),
    }


def shard_progress(shard: ShardPlan, progress: Progress) -> Progress:
    """Reports one shard's progress under a name of its own."""
    which = f"shard {shard.index + 1} of {shard.of}"
    return lambda stage, done, n_cases: progress(f"{stage}, {which}", done, n_cases)


def no_sandboxes() -> Sandboxes:
    """The sandboxes of a step that only collects what the shards did: there are none.

    Raises:
        EvidenceError: always, as something would have to be executed.
    """
    raise EvidenceError("cases are not recorded that a shard was to do; start a new run: what was executed is kept")
