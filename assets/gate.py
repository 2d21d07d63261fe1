"""The Gate: rules decided on metrics and labels, their meaning for the release, and what it holds back.

`decisions` computes; `gate` carries the checks, and notes what it stands on. What a user hangs behind it is guarded by
`release`.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg

from oloproof_dagster.assets.basis import basis_of, digest_of_policy, labels_digest, people
from oloproof_dagster.assets.metrics import is_clustered
from oloproof_dagster.assets.release import GROUP, Place
from oloproof_dagster.assets.stage import Names, NewTable, Stage, column_metadata
from oloproof_dagster.decision.advice import LOOKS
from oloproof_dagster.decision.decide import SuiteFacts, decide, settle
from oloproof_dagster.digests import digest, parse_canonical
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.parquet import Stored
from oloproof_dagster.evidence.past_decisions import PastDecision, note_decision
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.release_yaml import GATE_CHECK, Policy
from oloproof_dagster.project.reviews import read_reviews
from oloproof_dagster.records.reasons import DecisionReason
from oloproof_dagster.records.schema import json_text
from oloproof_dagster.records.tables import DECISIONS, GATE, DecisionRow, GateRow, MetricRow, SuiteRow
from oloproof_dagster.report.markdown import table
from oloproof_dagster.suite.labels import unchecked_criteria, validities
from oloproof_dagster.wording import interval_text


def gate_assets(project: Project, evidence_root: str) -> list[dg.AssetsDefinition]:
    """`decisions` and `gate` of a project, whose evidence is at the root."""
    names, place = Names(project.slug), Place(project.root, evidence_root)
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
            recorded=metrics.facts().get("recorded"),
        )

    @names.asset(
        "gate",
        reads=("decisions",),
        group=GROUP,
        code_version=digest("code_version/v1", policy_digest),
        description="What the decisions mean for the release. Its check `release` holds back what is downstream.",
        sandbox=True,
        metadata={**column_metadata("gate"), **place.metadata()},
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
        basis = basis_of(stage).text()
        row = replace(settle(policy, rows, facts), basis=json_text(basis))
        result = stage.materialize(lambda: NewTable((row,)), decisions, partial=facts.partial, basis=basis)
        note_decision(stage.evidence, stage.version, _past(stage, row, noted))
        page = shown(row, rows)
        stands_on = {"stands_on": dg.MetadataValue.json(parse_canonical(basis)), **place.metadata()}
        yield result._replace(
            metadata={**page, **(result.metadata or {}), **page, **stands_on},  # the page's order: digests last
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


def suite_facts(suite: Stored[SuiteRow], metrics: Stored[MetricRow]) -> SuiteFacts:
    """What decisions ask of the suite and the run."""
    facts, noted = suite.facts(), metrics.facts()
    return SuiteFacts(
        is_clustered(suite, metrics), facts["n_clusters"], noted["n_unreached"] > 0, noted.get("recorded")
    )


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
