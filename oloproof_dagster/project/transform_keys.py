"""The transforms as oloproof.yaml declares them: which text changes, how, and what is known of it."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from oloproof_dagster.project.evaluator_keys import a_callable
from oloproof_dagster.project.path_keys import a_path
from oloproof_dagster.project.validation import FileModel, Misplaced
from oloproof_dagster.records.paths import Pick, parse_path
from oloproof_dagster.wording import shortened

WAYS = ("template", "replace", "rewrites", "callable")
"""The keys that say how a transform changes a text."""


class TransformDeclaration(FileModel):
    """One transform of a text of the input, or of texts of the initial state, and how the text changes."""

    name: str
    version: Annotated[int, Field(ge=1)] = 1
    target: Literal["input", "initial_state"] = "input"
    field: str
    template: str | None = None
    replace: tuple[tuple[str, ...], ...] | None = None
    rewrites: str | None = None
    callable: str | None = None
    validity_labels: str | None = None
    minimum_validity: Annotated[float, Field(gt=0, lt=1)] | None = None
    validity_sample: Annotated[int, Field(ge=1)] | None = None

    @field_validator("name")
    @classmethod
    def _a_word(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            raise ValueError(f"{shortened(value)} must start with a lower-case letter and hold a-z, 0-9 and _ only")
        return value

    _field = field_validator("field")(a_path)
    _callable = field_validator("callable")(a_callable)

    @field_validator("replace")
    @classmethod
    def _pairs(cls, value: tuple[tuple[str, ...], ...] | None) -> tuple[tuple[str, ...], ...] | None:
        if value is not None and (not value or any(len(pair) != 2 or not pair[0] for pair in value)):
            raise ValueError('must be a list of pairs, such as [["Please refund", "Could you refund"]]')
        return value

    @property
    def changes_world(self) -> bool:
        """Whether the text lies in the initial state, so that a copy starts from another world."""
        return self.target == "initial_state"

    @property
    def kind(self) -> str:
        """How the text changes: the one of WAYS that is declared."""
        return next(way for way in WAYS if getattr(self, way) is not None)

    @model_validator(mode="after")
    def _in_its_target(self) -> "TransformDeclaration":
        if not self.changes_world and any(isinstance(part, Pick) for part in parse_path(self.field)):
            raise Misplaced(
                f"{shortened(self.field)} picks an element by a member, which only a transform of the initial_state"
                " can; write its position",
                "field",
            )
        return self

    @model_validator(mode="after")
    def _one_way(self) -> "TransformDeclaration":
        found = [way for way in WAYS if getattr(self, way) is not None]
        if len(found) != 1:
            raise ValueError(
                f"transform {self.name!r} needs exactly one of {', '.join(WAYS[:-1])} and {WAYS[-1]}, found"
                f" {' and '.join(found) or 'none'}"
            )
        if self.template is not None and "{value}" not in self.template:
            raise Misplaced("must hold {value}, which the text of each case takes the place of", "template")
        return self


class Metamorphic(FileModel):
    """The transforms."""

    transforms: tuple[TransformDeclaration, ...] = ()
