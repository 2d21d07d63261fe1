"""The Gate: rules decided on metrics and labels, their meaning for the release, and what it holds back.

`decisions` computes; `gate` carries the checks; `require_gate` and `gated_asset` guard what a user hangs behind it.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster.assets.metrics import is_clustered
from oloproof_dagster.assets.stage import Names, NewTable, Stage
from oloproof_dagster.decision.advice import LOOKS
from oloproof_dagster.decision.decide import SuiteFacts, decide, settle
from oloproof_dagster.digests import digest, parse_canonical
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.evidence.past_decisions import PastDecision, note_decision
from oloproof_dagster.project.files import file_digest
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.project.release_yaml import GATE_CHECK, Policy
from oloproof_dagster.project.reviews import read_reviews, reviews_digest
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.records.tables import DECISIONS, GATE, DecisionRow, GateRow, MetricRow, SuiteRow
from oloproof_dagster.report.markdown import table
from oloproof_dagster.suite.labels import unchecked_criteria, validities
from oloproof_dagster.wording import interval_text

GROUP = "release"


def gate_assets(project: Project) -> list[dg.AssetsDefinition]:
    """`decisions` and `gate` of a project."""
    names = Names(project.slug)
    policy = project.policy
    policy_digest = digest_of_policy(policy)

    @names.asset(
        "decisions",
        reads=("metrics", "transformed_cases"),
        group=GROUP,
        code_version=digest("code_version/v1", [policy_digest, labels_digest(project)]),
        description="One row a rule of release.yaml: its state, the reasons, and what would decide it.",
    )
    def decisions(
        context: dg.AssetExecutionContext, metrics: Stored[MetricRow], transformed_cases: Stored[SuiteRow]
    ) -> dg.MaterializeResult[Any]:
        def make() -> NewTable:
            facts = suite_facts(transformed_cases, metrics)
            pairs = transformed_cases.columns("transform", "case_id", "pair_digest")
            unchecked = unchecked_criteria(project, validities(project, pairs))
            found = {row.metric: row for row in metrics.rows()}
            rows = decide(policy, found, facts, unchecked, read_reviews(project)) if policy else ()
            noted = {"partial": facts.partial, "clustered": facts.clustered, "n_clusters": facts.n_clusters}
            return NewTable(rows, lambda: {**noted, **people(project), "policy": policy_digest})

        return Stage(context, project, DECISIONS).materialize(
            make,
            metrics,
            transformed_cases,
            **people(project),
            n_unreached=metrics.facts().get("n_unreached"),
        )

    @names.asset(
        "gate",
        reads=("decisions",),
        group=GROUP,
        code_version=digest("code_version/v1", policy_digest),
        description="What the decisions mean for the release. Its check `release` holds back what is downstream.",
        check_specs=check_specs(names, policy),
        output_required=policy is not None,
    )
    def gate(context: dg.AssetExecutionContext, decisions: Stored[DecisionRow]) -> Iterator[dg.MaterializeResult[Any]]:
        stage = Stage(context, project, GATE)
        if policy is None:
            stage.stored.remove()
            context.log.warning("there is no release.yaml: this run measured and decided nothing")
            return
        rows, noted = tuple(decisions.rows()), decisions.facts()
        now = {**people(project), "policy": policy_digest}
        if any(noted.get(name) != content for name, content in now.items()):
            raise EvidenceError(
                "the recorded decisions are not those of release.yaml, the labels and the reviews as they are now;"
                " materialize the decisions again"
            )
        facts = SuiteFacts(noted["clustered"], noted["n_clusters"], noted["partial"])
        row = settle(policy, rows, facts)
        result = stage.materialize(lambda: NewTable((row,)), decisions, partial=facts.partial)
        note_decision(stage.evidence, stage.version, _past(stage, row, noted))
        yield result._replace(
            metadata={**(result.metadata or {}), **shown(row, rows), "policy": policy_digest},
            check_results=checks(policy, row, rows),
        )

    return [decisions, gate]


def _past(stage: Stage, row: GateRow, noted: dict[str, Any]) -> PastDecision:
    """The decision as the version's history has it."""
    tables = {name: stage.evidence.table(name, stage.version).facts() for name in ("transformed_cases", "trajectories")}
    return PastDecision(
        run=stage.context.run.run_id,
        attempt=tables["trajectories"].get("attempt"),
        action=row.action,
        exit_code=row.exit_code,
        suite=tables["transformed_cases"].get("suite_digest"),
        policy=noted["policy"],
        labels=noted["labels"],
        code=tables["trajectories"].get("code"),
    )


def digest_of_policy(policy: Policy | None) -> str:
    """A digest over what release.yaml says."""
    return digest("policy/v1", policy.model_dump(mode="json") if policy else None)


def labels_digest(project: Project) -> str:
    """A digest over the label files' bytes, and what is asked of them."""
    return digest(
        "labels/v1",
        [
            [
                each.name,
                file_digest(project.root / each.validity_labels, each.validity_labels),
                each.minimum_validity,
                each.validity_sample,
            ]
            for each in project.transforms
            if each.validity_labels
        ],
    )


def people(project: Project) -> dict[str, str]:
    """Digests over what people decide: the labels and the reviews."""
    return {"labels": labels_digest(project), "reviews": reviews_digest(project)}


def suite_facts(suite: Stored[SuiteRow], metrics: Stored[MetricRow]) -> SuiteFacts:
    """What decisions ask of the suite and the run."""
    facts = suite.facts()
    return SuiteFacts(is_clustered(suite, metrics), facts["n_clusters"], metrics.facts()["n_unreached"] > 0)


def check_specs(names: Names, policy: Policy | None) -> list[dg.AssetCheckSpec]:
    """A check for each rule, which reports, and the blocking one, which holds back what is downstream."""
    if policy is None:
        return []
    with warnings.catch_warnings():
        # Without partitions on the checks, automation downstream would mix up versions.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        specs = [
            dg.AssetCheckSpec(
                rule.id,
                asset=names.key("gate"),
                partitions_def=names.partitions,
                description=f"{rule.metric}: {rule.direction} {rule.threshold:g}",
            )
            for rule in policy.rules
        ]
        return [
            *specs,
            dg.AssetCheckSpec(
                GATE_CHECK,
                asset=names.key("gate"),
                partitions_def=names.partitions,
                blocking=True,
                description="Fails exactly when the Gate's action is BLOCK.",
            ),
        ]


def checks(policy: Policy, gate: GateRow, decisions: tuple[DecisionRow, ...]) -> list[dg.AssetCheckResult]:
    """The results of all checks; every one always has a result."""
    found = [
        dg.AssetCheckResult(
            check_name=row.rule_id,
            passed=row.state == "PASS",
            severity=severity(row.state, policy),
            description=f"{row.state}: {', '.join(parse_canonical(row.reasons))}",
            metadata={
                "state": row.state,
                "n_passed": row.n_passed,
                "n_observed": row.n_observed,
                "n_missing": row.n_missing,
                **{
                    name: float(value)
                    for name, value in (("estimate", row.estimate), ("lower", row.lower), ("upper", row.upper))
                    if value is not None
                },
                **({"advice": row.advice} if row.advice else {}),
            },
        )
        for row in decisions
    ]
    return [
        *found,
        dg.AssetCheckResult(
            check_name=GATE_CHECK,
            passed=gate.action != "BLOCK",
            severity=dg.AssetCheckSeverity.ERROR,
            description=f"{gate.action} {', '.join(parse_canonical(gate.reasons))}".strip(),
            metadata={"action": gate.action, "exit_code": gate.exit_code},
        ),
    ]


def severity(state: str, policy: Policy) -> dg.AssetCheckSeverity:
    """WARN for a state that only warns; a passed check bears ERROR, which Dagster's overview of versions goes by."""
    blocks = state == "PASS" or state in policy.block_on
    return dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN


def shown(gate: GateRow, decisions: tuple[DecisionRow, ...]) -> dict[str, Any]:
    """The Gate as its page shows it."""
    heading = ("rule", "state", "bar", "passed", "interval", "why")
    rows = [
        (
            row.rule_id,
            row.state,
            f"{row.metric} {'max_failures' if row.direction == 'count' else row.direction} {row.threshold:g}",
            f"{row.n_passed}/{row.n_observed}" + (f" +{row.n_missing} missing" if row.n_missing else ""),
            interval_text(row.lower, row.upper),
            ", ".join(parse_canonical(row.reasons)) + (f". {row.advice}" if row.advice else ""),
        )
        for row in decisions
    ]
    looked = any(DecisionReason.INTERVAL_OVERLAPS_THRESHOLD in parse_canonical(row.reasons) for row in decisions)
    return {
        "action": gate.action,
        "exit_code": gate.exit_code,
        "reasons": parse_canonical(gate.reasons),
        "rules": dg.MarkdownMetadataValue(table(heading, rows) + (f"\n\n{LOOKS}" if looked else "")),
    }


def require_gate(
    context: dg.AssetExecutionContext, *, gate: dg.AssetKey | Sequence[str] | None = None, allow_warn: bool = False
) -> None:
    """Goes on only when the Gate of this very partition allows the release.

    `gate` is the gate asset's key; by default the upstream asset of that name. A blocking check holds back within one
    run only, so whatever must never run after a red Gate calls this first.

    Raises:
        dagster.Failure: the Gate blocks, warns (unless `allow_warn`), was never decided for this version, or was
            decided before its evidence was last touched.
    """
    _allowed(context, dg.AssetKey.from_coercible(gate) if gate is not None else _upstream_gate(context), allow_warn)


def _allowed(context: dg.AssetExecutionContext, key: dg.AssetKey, allow_warn: bool) -> dg.AssetMaterialization:
    """The decision that lets a release through; refuses as `require_gate` says."""
    version = context.partition_key
    decided, storage_id = _latest(context, key, version)
    if decided is None:
        raise _refusal(f"no Gate was decided for system version {version!r}")
    for name in ("trajectories", "fault_replays", "verdicts", "metrics", "decisions"):
        _, later = _latest(context, dg.AssetKey([*key.path[:-1], name]), version)
        if later > storage_id:
            raise _refusal(
                f"{name} of system version {version!r} changed after its Gate was decided; materialize the gate again"
            )
    action = str(decided.metadata["action"].value)
    if action == "ALLOW" or (action == "WARN" and allow_warn):
        return decided
    raise _refusal(
        f"the Gate of system version {version!r} says {action}"
        + ("; pass allow_warn=True to go on with warnings" if action == "WARN" else "")
    )


def _refusal(why: str) -> dg.Failure:
    return dg.Failure(f"not released: {why}", allow_retries=False)


def _latest(
    context: dg.AssetExecutionContext, key: dg.AssetKey, version: str
) -> tuple[dg.AssetMaterialization | None, int]:
    records = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, asset_partitions=[version]), limit=1
    ).records
    return (records[0].asset_materialization, records[0].storage_id) if records else (None, -1)


def _upstream_gate(context: dg.AssetExecutionContext) -> dg.AssetKey:
    found: set[dg.AssetKey] = {
        key for keys in context.assets_def.asset_deps.values() for key in keys if key.path[-1] == "gate"
    }
    if len(found) != 1:
        raise _refusal(f"require_gate found {len(found)} upstream assets named gate; pass gate=AssetKey([...])")
    return found.pop()


def gated_asset(
    project: Project | Path | str, *, allow_warn: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """An asset behind a project's Gate: downstream of it, of its partitions, its body run only when it allows.

    A Gate that was decided by another release.yaml than the one there is now allows nothing.

    `options` are those of `dagster.asset`; the decorated function takes `context` first.
    """
    loaded = project if isinstance(project, Project) else load_project(project)
    names = Names(loaded.slug)

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        @functools.wraps(function)
        def guarded(context: dg.AssetExecutionContext, *args: Any, **kwargs: Any) -> Any:
            by = _allowed(context, names.key("gate"), allow_warn).metadata.get("policy")
            if by is None or by.value != digest_of_policy(load_project(loaded.root).policy):
                raise _refusal(
                    f"release.yaml changed after the Gate of {context.partition_key!r} was decided; decide it again"
                )
            return function(context, *args, **kwargs)

        deps = [*options.pop("deps", ()), names.key("gate")]
        own = {"key_prefix": names.slug, "group_name": GROUP, "partitions_def": names.partitions, **options}
        gated: dg.AssetsDefinition = dg.asset(**own, deps=deps)(guarded)
        return gated

    return decorate
