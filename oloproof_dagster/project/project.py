"""The project folder: its two YAML files loaded, and what no block of them can see by itself checked."""

import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.evaluator_keys import (
    Declaration,
    FaultRecovery,
    MetamorphicRelation,
)
from oloproof_dagster.project.oloproof_yaml import Suite, slug_of
from oloproof_dagster.project.release_yaml import Policy, load_policy
from oloproof_dagster.project.slice_names import Slice, parse_slice
from oloproof_dagster.project.strict_yaml import Mapping, line_of, read_yaml
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.project.validation import validate
from oloproof_dagster.wording import did_you_mean, shortened

PROJECT_FILE = "oloproof.yaml"
POLICY_FILE = "release.yaml"
OLOPROOF_FOLDER = ".oloproof"


@dataclass(frozen=True)
class Project:
    """A project folder, loaded: the suite, the policy (None: measure, decide nothing), and the folder's root."""

    root: Path
    suite: Suite
    policy: Policy | None
    tree: Mapping = field(default_factory=Mapping, repr=False, compare=False)

    def problem(self, key: str, message: str) -> ConfigError:
        """An error at the line of a dotted key of oloproof.yaml, such as `evaluators.0.callable`."""
        keys = (int(part) if part.isdigit() else part for part in key.split("."))
        return ConfigError.at(PROJECT_FILE, line_of(self.tree, *keys), f"{key}: {message}")

    @property
    def slug(self) -> str:
        """The project's name as Dagster's names take it."""
        return slug_of(self.suite.project)

    @property
    def version(self) -> str:
        """The system version that the project declares now."""
        return self.suite.system.version

    @property
    def dataset(self) -> Path:
        """The file of the cases."""
        return self.root / self.suite.dataset

    @property
    def suite_id(self) -> str:
        """The dataset file's stem."""
        return self.dataset.stem

    @property
    def transforms(self) -> tuple[TransformDeclaration, ...]:
        """The declared transforms."""
        return self.suite.metamorphic.transforms

    @property
    def evaluators(self) -> tuple[Declaration, ...]:
        """The declared evaluators."""
        return self.suite.evaluators

    @property
    def criteria(self) -> tuple[str, ...]:
        """The names of what the evaluators measure."""
        return tuple(evaluator.name for evaluator in self.evaluators)

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The declared slices."""
        return tuple(parse_slice(text) for text in self.suite.slices)

    @property
    def confidence_level(self) -> float:
        """The level of all intervals; 0.95 without release.yaml."""
        return self.policy.confidence_level if self.policy else 0.95

    @property
    def min_clusters(self) -> int:
        """How many clusters a decision needs in a clustered suite; 20 without release.yaml."""
        return self.policy.min_clusters if self.policy else 20

    @property
    def unread(self) -> tuple[str, ...]:
        """The criteria that no rule of release.yaml reads; none where there is no release.yaml."""
        read = {rule.metric for rule in self.policy.rules} if self.policy else set(self.criteria)
        return tuple(name for name in self.criteria if name not in read)

    @property
    def replayed(self) -> tuple[FaultRecovery, ...]:
        """The evaluators that need fault replays."""
        return tuple(evaluator for evaluator in self.evaluators if isinstance(evaluator, FaultRecovery))

    def relations_over(self, transform: str) -> tuple[str, ...]:
        """The criteria that stand or fall with a transform's validity."""
        return tuple(
            evaluator.name
            for evaluator in self.evaluators
            if isinstance(evaluator, MetamorphicRelation) and evaluator.transform in (None, transform)
        )


def load_project(folder: Path | str) -> Project:
    """The project in a folder; reads its two YAML files and nothing else.

    Raises:
        ConfigError: the first problem in oloproof.yaml or release.yaml, with its line and key.
    """
    root = Path(os.path.realpath(folder))
    if not os.path.isfile(root / PROJECT_FILE):
        other = next((name for name in ("oloproof.yml",) if os.path.isfile(root / name)), None)
        raise ConfigError(
            f"{folder}: no {PROJECT_FILE} here; "
            + (
                f"rename {other} to {PROJECT_FILE}"
                if other
                else "name the project's folder with --project, or make one with `oloproof init`"
            )
        )
    tree = read_yaml(root / PROJECT_FILE)
    suite = validate(Suite, tree, PROJECT_FILE)
    project = Project(root=root, suite=suite, policy=None, tree=tree)
    _check_dataset(project)
    _check_transforms(project)
    _check_evaluators(project)
    policy = load_policy(root / POLICY_FILE, project.criteria)
    return replace(project, policy=policy)


def _check_dataset(project: Project) -> None:
    _inside(project, "dataset", project.suite.dataset)
    if project.transforms and "metadata.metamorphic" in project.suite.slices:
        position = project.suite.slices.index("metadata.metamorphic")
        raise project.problem(
            f"slices.{position}", "metadata.metamorphic is what transforms note of a copy; slice by another key"
        )


def _check_transforms(project: Project) -> None:
    """Names that one transform alone cannot know to be unique, and files that must lie in the folder."""
    names: list[str] = []
    for position, transform in enumerate(project.transforms):
        key = f"metamorphic.transforms.{position}"
        if transform.name in names:
            raise project.problem(f"{key}.name", f"two transforms have the name {transform.name!r}; rename one")
        names.append(transform.name)
        for name in ("rewrites", "validity_labels"):
            file = getattr(transform, name)
            if file is not None:
                _inside(project, f"{key}.{name}", file)


def _check_evaluators(project: Project) -> None:
    """Criteria that one evaluator alone cannot know to be unique, and transforms that must be declared."""
    if not project.evaluators:
        raise project.problem("evaluators", "needs at least one, such as {type: state_matches}")
    names = tuple(transform.name for transform in project.transforms)
    for position, evaluator in enumerate(project.evaluators):
        key = f"evaluators.{position}"
        first = project.criteria.index(evaluator.name)
        if first < position:
            raise project.problem(
                key,
                f"the criterion {evaluator.name!r} is declared twice, first by evaluators.{first};"
                " give one of them another `criterion`",
            )
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", evaluator.name):
            raise project.problem(
                key,
                f"{shortened(evaluator.name)} cannot name a criterion; give it a `criterion` of letters, digits and _",
            )
        if project.suite.system.records == () and evaluator.reads_trajectory:
            raise project.problem(
                key,
                f"{evaluator.name!r} reads agent_trajectory/v1, which system.records does not list; list it there,"
                " or leave `records` out",
            )
        for transform in evaluator.cases if isinstance(evaluator.cases, tuple) else ():
            if transform not in names:
                hint = did_you_mean(transform, names) or f"; declared are: {', '.join(names) or 'none'}"
                raise project.problem(f"{key}.cases", f"there is no transform {shortened(transform)}{hint}")
        if evaluator.cases != "sources" and not names:
            raise project.problem(f"{key}.cases", "there is no copy without a transform under metamorphic.transforms")
        if isinstance(evaluator, MetamorphicRelation):
            if not names:
                raise project.problem(key, "a metamorphic_relation needs a transform under metamorphic.transforms")
            if evaluator.transform is not None and evaluator.transform not in names:
                hint = did_you_mean(evaluator.transform, names) or f"; declared are: {', '.join(names)}"
                raise project.problem(
                    f"{key}.transform", f"there is no transform {shortened(evaluator.transform)}{hint}"
                )


def _inside(project: Project, key: str, name: str) -> None:
    """Refuses a path that is no file within the project's folder, links followed."""
    try:
        path = Path(os.path.realpath(project.root / name))
    except ValueError:  # a NUL in the name
        raise project.problem(key, f"{shortened(name)} cannot be the name of a file") from None
    if Path(name).is_absolute():
        raise project.problem(
            key, f"{shortened(name)} is an absolute path; write it relative to the folder of {PROJECT_FILE}"
        )
    if not path.is_relative_to(project.root):
        raise project.problem(
            key, f"{shortened(name)} lies outside the project's folder; copy the file into the folder"
        )
    if not os.path.isfile(path):
        raise project.problem(
            key, f"there is no file {shortened(name)} in the project's folder; write a path relative to {PROJECT_FILE}"
        )
