"""What a Gate stands on: as the tables that it was decided on bear it, and as the project's files have it now.

The two are gathered in different ways on purpose. A Gate that is decided again must not vouch for an edit that nothing
was judged under: what its tables were made of, they say themselves.
"""

from collections.abc import Mapping

from oloproof_dagster.assets.stage import Stage
from oloproof_dagster.assets.verdicts import judgment_code
from oloproof_dagster.decision.basis import TABLES, Basis, Modules
from oloproof_dagster.digests import digest
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.project.files import file_digest
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.project.release_yaml import Policy
from oloproof_dagster.project.reviews import reviews_digest
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.transforms import SuiteCount, expand
from oloproof_dagster.system.own_files import OwnFiles

MADE_OF = {
    "verdicts": ("transformed_cases", "trajectories", "environment_states", "fault_replays"),
    "metrics": ("verdicts", "transformed_cases"),
    "decisions": ("metrics", "transformed_cases"),
}
"""The tables that each judging table is made of, in the order in which it notes their contents."""


def basis_of(stage: Stage) -> Basis:
    """What the Gate of a version stands on that is decided now, on what is recorded.

    Raises:
        EvidenceError: some table was made of others than are recorded now.
    """
    evidence, version = stage.evidence, stage.version
    facts = {name: evidence.table(name, version).facts() for name in TABLES}
    for name, sources in MADE_OF.items():
        for source, content in zip(sources, facts[name].get("upstream", ()), strict=False):
            if content != facts[source].get("content", ""):
                raise EvidenceError(
                    f"the recorded {name} were made of other {source} than are recorded now; materialize {name} and"
                    " what comes after it again"
                )
    is_declared = version == stage.declared
    own = _declared_modules(stage.project)
    modules = stage.session.modules
    return Basis(
        policy=facts["decisions"]["policy"],
        labels=facts["decisions"]["labels"],
        reviews=facts["decisions"]["reviews"],
        evaluators=facts["verdicts"].get("judges"),
        tables=_contents(facts),
        suite=facts["transformed_cases"].get("suite_digest"),
        system=system_digest(load_project(stage.project.root)) if is_declared else None,
        code=facts["trajectories"].get("code"),
        modules=modules if is_declared and modules != own else None,
    )


def basis_now(project: Project, version: str, evidence: Evidence, noted: Basis) -> Basis:
    """What the Gate of a version would have to stand on now; of a version that is not declared the tables, and what
    judges them.

    Raises:
        ConfigError: the project's files cannot be used.
    """
    facts = {name: evidence.table(name, version).facts() for name in TABLES}
    is_declared = version == project.version
    return Basis(
        policy=digest_of_policy(project.policy),
        labels=labels_digest(project),
        reviews=reviews_digest(project),
        evaluators=judgment_code(project),
        tables=_contents(facts),
        suite=_suite_digest(project) if is_declared else None,
        system=system_digest(project) if is_declared else None,
        code=_code_digest(project, noted.modules) if is_declared else None,
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


def system_digest(project: Project) -> str:
    """A digest over how the system is declared and executed; how many sandboxes there are is left out, as it changes
    no evidence."""
    declared = project.suite.model_dump(
        mode="json", include={"system": True, "trials": True, "retries": True, "sandbox": {"verify_reset", "settle_s"}}
    )
    return digest("system/v1", declared)


def _suite_digest(project: Project) -> str:
    """The digest of the suite that the dataset makes now, as `transformed_cases` notes it."""
    count = SuiteCount()
    for _ in count.counting(expand(project, read_cases(project))):
        pass
    return str(count.facts()["suite_digest"])


def _code_digest(project: Project, modules: Modules | None) -> str:
    return OwnFiles.of_system(project, *(modules or _declared_modules(project))).code_digest


def _declared_modules(project: Project) -> Modules:
    declared = project.suite.system
    return (declared.callable, declared.environment, None)


def _contents(facts: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    return {name: str(noted["content"]) for name, noted in facts.items() if "content" in noted}
