"""oloproof.yaml as declared: the models of its blocks, each checked by itself and frozen."""

import os
import re
import zoneinfo
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from oloproof_dagster.evidence.store_url import store_url
from oloproof_dagster.project.evaluator_keys import EvaluatorDeclaration, StateMatches, StateUnchanged, a_callable
from oloproof_dagster.project.path_keys import ignored_paths, none_left_by, some_paths
from oloproof_dagster.project.slice_names import parse_slice
from oloproof_dagster.project.transform_keys import Metamorphic
from oloproof_dagster.project.validation import FileModel, Misplaced
from oloproof_dagster.wording import shortened

MOST_WORKERS = 256
MOST_RETRIES = 10


class SystemDeclaration(FileModel):
    """The system under test: its name, its version, where its callable is, and what else it is made of."""

    name: Annotated[str, Field(min_length=1)]
    version: str
    callable: str
    environment: str | None = None
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    records: tuple[Literal["agent_trajectory/v1"], ...] | None = None
    files: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    @field_validator("files")
    @classmethod
    def _within(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for position, pattern in enumerate(value):
            parts = PurePosixPath(pattern).parts
            if not parts or parts[0] == "/" or ".." in parts:
                raise Misplaced(f"{shortened(pattern)} must be a path or a glob within the project's folder", position)
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for position, name in enumerate(value):
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise Misplaced(f"{shortened(name)} is no variable's name; write one such as MODEL", position)
        return value

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


class VerifyReset(FileModel):
    """What is left out where the world right after a reset is held against the case's initial state."""

    ignore_paths: tuple[str, ...] = ()
    unordered_paths: tuple[str, ...] = ()

    _unordered = field_validator("unordered_paths")(some_paths)
    _ignored = field_validator("ignore_paths")(ignored_paths)


class SandboxDeclaration(FileModel):
    """How many sandboxes there are, whether other runs use the same one, over how many steps a run is spread,
    whether each reset is verified (None: not), and for how long what a call leaves running may finish, in seconds."""

    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    shared: bool = False
    shards: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    verify_reset: VerifyReset | None = VerifyReset()
    settle_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0

    @field_validator("verify_reset", mode="before")
    @classmethod
    def _or_not(cls, value: Any) -> Any:
        if isinstance(value, bool) or value in ("true", "false"):
            return VerifyReset() if value in (True, "true") else None
        if not isinstance(value, Mapping | VerifyReset):
            raise ValueError("must be true, false, or a block with ignore_paths and unordered_paths")
        return value

    @model_validator(mode="after")
    def _one_at_a_time(self) -> "SandboxDeclaration":
        for key in ("workers", "shards"):
            if self.shared and getattr(self, key) > 1:
                raise Misplaced(
                    "a shared sandbox is one external system, which one case at a time may use; write 1, or remove"
                    " `shared`",
                    key,
                )
        return self


class Retries(FileModel):
    """How often a call is repeated whose error is one of the user's own transient ones, named by class.

    `wait_s` is the pause before the first repetition, in seconds; each further one waits twice as long.
    """

    max: Annotated[int, Field(ge=1, le=MOST_RETRIES)]
    on: tuple[str, ...]
    wait_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 1.0

    @field_validator("on")
    @classmethod
    def _classes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("must name at least one exception class; write one such as TransientError")
        for position, name in enumerate(value):
            if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
                raise Misplaced(f"{shortened(name)} is no exception class; write one such as TransientError", position)
        return value


def a_slice(text: str) -> str:
    """The text, when it names a slice."""
    kind, _, bounds = text.partition(":")
    if kind in ("tool_calls", "trajectory_length") and any(len(bound) > 18 for bound in bounds.split(",")):
        raise ValueError(f"{shortened(text)} has a bound of more than 18 characters; write one that a case can reach")
    parse_slice(text)
    return text


CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""What the numbers of a cron line's five fields lie in: minute, hour, day, month, weekday."""


class Schedule(FileModel):
    """When the nightly evaluation runs."""

    cron: str
    timezone: str = "UTC"

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        fields = value.split()
        if not re.fullmatch(r"@(hourly|daily|midnight|weekly|monthly|yearly|annually)", value) and not (
            len(fields) == 5
            and all(re.fullmatch(r"[0-9A-Za-z*?,/#-]+", each) for each in fields)
            and all(
                low <= int(number) <= high
                for each, (low, high) in zip(fields, CRON_RANGES, strict=True)
                for number in re.findall(r"(?<![/#0-9])[0-9]{1,9}", each)
            )
        ):
            raise ValueError(f'{shortened(value)} is no cron line; write five fields, such as "0 2 * * *"')
        return value

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
    trials: Annotated[int, Field(ge=1, le=1000)] = 1
    retries: Retries | None = None
    metamorphic: Metamorphic = Metamorphic()
    evaluators: tuple[EvaluatorDeclaration, ...]
    ignore_paths: tuple[str, ...] = ()
    ignore_new_paths: tuple[str, ...] = ()
    unordered_paths: tuple[str, ...] = ()
    slices: tuple[Annotated[str, AfterValidator(a_slice)], ...] = ()
    min_slice_support: Annotated[int, Field(ge=0)] = 30
    schedule: Schedule | None = None
    store: str | None = None

    @field_validator("project")
    @classmethod
    def _sluggable(cls, value: str) -> str:
        if not slug_of(value):
            raise ValueError(f"{value!r} needs at least one of a-z and 0-9, which asset keys are made of")
        return value

    @field_validator("store")
    @classmethod
    def _place(cls, value: str | None) -> str | None:
        return store_url(_from_environment(value)) if value else None

    _unordered = field_validator("unordered_paths")(some_paths)
    _ignored = field_validator("ignore_paths", "ignore_new_paths")(ignored_paths)

    @field_validator("slices")
    @classmethod
    def _unique(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for position, text in enumerate(value):
            if text in value[:position]:
                raise Misplaced(f"the slice {text!r} stands twice; remove one", position)
        return value

    @model_validator(mode="after")
    def _compares_something(self) -> "Suite":
        for position, each in enumerate(self.evaluators):
            if isinstance(each, StateMatches | StateUnchanged):
                try:
                    none_left_by(self.ignore_paths, each.paths)
                except Misplaced as error:
                    raise Misplaced(str(error), "evaluators", position, *error.at) from None
        return self


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

    reference = r"\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}"
    if "${" in re.sub(reference, "", text):
        raise ValueError(f"{shortened(text)} holds a ${{ that is no reference; write ${{NAME}} or ${{NAME:-default}}")
    return re.sub(reference, value, text)
