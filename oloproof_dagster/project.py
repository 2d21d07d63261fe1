"""oloproof.yaml: the suite as declared, checked and frozen, and the project folder around it."""

import os
import re
import zoneinfo
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from oloproof_dagster.declarations import (
    Declaration,
    EvaluatorDeclaration,
    FaultRecovery,
    MetamorphicRelation,
    a_callable,
)
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.files import FileModel, Mapping, Scalar, read_yaml, validate
from oloproof_dagster.policy import Policy, load_policy
from oloproof_dagster.slices import Slice, parse_slice
from oloproof_dagster.state import parse_path

PROJECT_FILE = "oloproof.yaml"
POLICY_FILE = "release.yaml"
OLOPROOF_FOLDER = ".oloproof"
LATER = "comes with worker processes, which this version does not have yet; remove it"


class SystemDeclaration(FileModel):
    """The system under test: its name, its version, and where its callable is."""

    name: Annotated[str, Field(min_length=1)]
    version: str
    callable: str
    environment: str | None = None
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    records: tuple[Literal["agent_trajectory/v1"], ...] = ()

    _callables = field_validator("callable", "environment")(a_callable)

    @field_validator("version")
    @classmethod
    def _printable(cls, value: str) -> str:
        value = _from_environment(value)
        if not 1 <= len(value) <= 200:
            raise ValueError(f"must have 1 to 200 characters, has {len(value)}")
        if not value.isprintable() or value != value.strip():
            raise ValueError(f"{value!r} must be printable, without a space at either end")
        if "..." in value:
            raise ValueError(f"{value!r} holds '...', which Dagster keeps for ranges of partitions")
        return value

    @field_validator("timeout_s")
    @classmethod
    def _no_timeout_yet(cls, value: float | None) -> float | None:
        if value is not None:
            raise ValueError(f"a time limit {LATER}")
        return value


class SandboxDeclaration(FileModel):
    """How many sandboxes there are."""

    workers: Annotated[int, Field(ge=1)] = 1
    shared: bool = False

    @model_validator(mode="after")
    def _one_for_now(self) -> "SandboxDeclaration":
        if self.workers > 1:
            raise ValueError(f"more than one worker {LATER}, or write 1")
        if self.shared:
            raise ValueError(f"a sandbox shared across runs {LATER}")
        return self


class TransformDeclaration(FileModel):
    """One transform: a template with {value}, or replacements applied in order, of one text field of the input."""

    name: str
    version: Annotated[int, Field(ge=1)] = 1
    field: str
    template: str | None = None
    replace: tuple[tuple[str, ...], ...] | None = None
    validity_labels: str | None = None
    minimum_validity: Annotated[float, Field(gt=0, lt=1)] | None = None

    @field_validator("name")
    @classmethod
    def _a_word(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            raise ValueError(f"{value!r} must start with a lower-case letter and hold a-z, 0-9 and _ only")
        return value

    @field_validator("field")
    @classmethod
    def _a_path(cls, value: str) -> str:
        parse_path(value)
        return value

    @field_validator("replace")
    @classmethod
    def _pairs(cls, value: tuple[tuple[str, ...], ...] | None) -> tuple[tuple[str, ...], ...] | None:
        if value is not None and (not value or any(len(pair) != 2 or not pair[0] for pair in value)):
            raise ValueError('must be a list of pairs, such as [["Please refund", "Could you refund"]]')
        return value

    @model_validator(mode="after")
    def _one_way(self) -> "TransformDeclaration":
        if (self.template is None) == (self.replace is None):
            raise ValueError(f"transform {self.name!r} needs exactly one of template and replace")
        if self.template is not None and "{value}" not in self.template:
            raise ValueError(f"transform {self.name!r}: the template must hold {{value}}, the text it is given")
        return self


class Metamorphic(FileModel):
    """The transforms."""

    transforms: tuple[TransformDeclaration, ...] = ()


class Schedule(FileModel):
    """When the nightly evaluation runs."""

    cron: str
    timezone: str = "UTC"

    @field_validator("timezone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{value!r} is no time zone; write one such as UTC or Europe/Paris") from None
        return value


class Suite(FileModel):
    """The whole of oloproof.yaml."""

    version: Literal[1]
    project: str
    dataset: str
    system: SystemDeclaration
    sandbox: SandboxDeclaration = SandboxDeclaration()
    trials: Annotated[int, Field(ge=1)] = 1
    metamorphic: Metamorphic = Metamorphic()
    evaluators: tuple[EvaluatorDeclaration, ...]
    slices: tuple[str, ...] = ()
    min_slice_support: Annotated[int, Field(ge=0)] = 30
    schedule: Schedule | None = None

    @field_validator("project")
    @classmethod
    def _sluggable(cls, value: str) -> str:
        if not slug_of(value):
            raise ValueError(f"{value!r} needs at least one of a-z and 0-9, which asset keys are made of")
        return value

    @field_validator("trials")
    @classmethod
    def _one_for_now(cls, value: int) -> int:
        if value > 1:
            raise ValueError(f"more than one trial {LATER}, or write 1")
        return value

    @field_validator("slices")
    @classmethod
    def _known_and_unique(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for position, text in enumerate(value):
            parse_slice(text)
            if text in value[:position]:
                raise ValueError(f"the slice {text!r} stands twice")
        return value


def slug_of(project: str) -> str:
    """The project's name in [a-z0-9_]+: asset keys, jobs and partitions carry it."""
    return re.sub(r"[^a-z0-9]+", "_", project.lower()).strip("_")


def _from_environment(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match["name"])
        if found is None or (found == "" and match["default"] is not None):
            found = match["default"]
        if found is None:
            raise ValueError(f"the environment has no {match['name']}; set it, or write ${{{match['name']}:-default}}")
        return found

    return re.sub(r"\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}", value, text)


@dataclass(frozen=True)
class Project:
    """A project folder, loaded: the suite, the policy (None: measure, decide nothing), and the folder's root."""

    root: Path
    suite: Suite
    policy: Policy | None

    @property
    def slug(self) -> str:
        return slug_of(self.suite.project)

    @property
    def version(self) -> str:
        """The system version that the project declares now."""
        return self.suite.system.version

    @property
    def dataset(self) -> Path:
        return self.root / self.suite.dataset

    @property
    def suite_id(self) -> str:
        """The dataset file's stem."""
        return self.dataset.stem

    @property
    def transforms(self) -> tuple[TransformDeclaration, ...]:
        return self.suite.metamorphic.transforms

    @property
    def evaluators(self) -> tuple[Declaration, ...]:
        return self.suite.evaluators

    @property
    def criteria(self) -> tuple[str, ...]:
        return tuple(evaluator.name for evaluator in self.evaluators)

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(parse_slice(text) for text in self.suite.slices)

    @property
    def confidence_level(self) -> float:
        return self.policy.confidence_level if self.policy else 0.95

    @property
    def min_clusters(self) -> int:
        return self.policy.min_clusters if self.policy else 20

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
    root = Path(folder).resolve()
    if not (root / PROJECT_FILE).is_file():
        raise ConfigError(
            f"{folder}: no {PROJECT_FILE} here; name the project's folder with --project,"
            " or make one with `oloproof init`"
        )
    tree = read_yaml(root / PROJECT_FILE)
    suite = validate(Suite, tree, PROJECT_FILE)
    _check_references(root, suite, tree)
    policy = load_policy(root / POLICY_FILE, tuple(evaluator.name for evaluator in suite.evaluators))
    return Project(root=root, suite=suite, policy=policy)


def _check_references(root: Path, suite: Suite, tree: Mapping) -> None:
    """What one model alone cannot see: names that must be unique or known, files that must lie in the folder."""
    transforms = suite.metamorphic.transforms
    _inside(root, suite.dataset, tree.lines["dataset"], "dataset")
    names: list[str] = []
    for position, transform in enumerate(transforms):
        line = _line(tree, "metamorphic", "transforms", position)
        if transform.name in names:
            raise ConfigError.at(PROJECT_FILE, line, f"two transforms have the name {transform.name!r}")
        names.append(transform.name)
        if transform.validity_labels is not None:
            _inside(root, transform.validity_labels, line, f"transform {transform.name!r}: validity_labels")
    if not suite.evaluators:
        raise ConfigError.at(PROJECT_FILE, tree.lines["evaluators"], "evaluators: needs at least one")
    criteria: list[str] = []
    for position, evaluator in enumerate(suite.evaluators):
        line = _line(tree, "evaluators", position)
        if evaluator.name in criteria:
            raise ConfigError.at(
                PROJECT_FILE,
                line,
                f"evaluators.{position}: the criterion {evaluator.name!r} is"
                " declared twice; give one of them another `criterion`",
            )
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", evaluator.name):
            raise ConfigError.at(
                PROJECT_FILE,
                line,
                f"evaluators.{position}: {evaluator.name!r} cannot name a"
                " criterion; give it a `criterion` of letters, digits and _",
            )
        criteria.append(evaluator.name)
        if isinstance(evaluator, MetamorphicRelation):
            if not names:
                raise ConfigError.at(
                    PROJECT_FILE,
                    line,
                    f"evaluators.{position}: a metamorphic_relation needs a transform under metamorphic.transforms",
                )
            if evaluator.transform is not None and evaluator.transform not in names:
                raise ConfigError.at(
                    PROJECT_FILE,
                    line,
                    f"evaluators.{position}: there is no transform"
                    f" {evaluator.transform!r}; declared are: {', '.join(names)}",
                )


def _inside(root: Path, name: str, line: int, key: str) -> None:
    path = (root / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(root):
        raise ConfigError.at(PROJECT_FILE, line, f"{key}: {name!r} lies outside the project's folder")
    if not path.is_file():
        raise ConfigError.at(PROJECT_FILE, line, f"{key}: there is no file {name!r} in the project's folder")


def _line(tree: Any, *keys: str | int) -> int:
    """The line of the deepest of nested keys that the file holds."""
    line = 1
    for key in keys:
        if isinstance(tree, Scalar) or key not in tree.lines:
            break
        line, tree = tree.lines[key], tree[key]
    return line
