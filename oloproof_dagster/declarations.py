"""The evaluators as oloproof.yaml declares them: one model per `type`, each knowing its criterion's name."""

import decimal
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from oloproof_dagster.files import FileModel
from oloproof_dagster.state import Mode, decimal_of, parse_path

Fault = Literal["error", "timeout", "malformed"]
Relation = Literal["same_output", "same_actions", "same_state"]
OnExecutionError = Literal["missing", "fail"]

CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def a_callable(value: str | None) -> str | None:
    """The value, when it reads `module:attribute`."""
    if value is not None and not CALLABLE.fullmatch(value):
        raise ValueError(f"{value!r} must read module:attribute, such as app:desk")
    return value


def some_paths(paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The paths, when each can be parsed and none stands twice."""
    seen = set()
    for path in paths or ():
        parsed = parse_path(path)
        if parsed in seen:
            raise ValueError(f"the path {path!r} stands twice")
        seen.add(parsed)
    return paths


class Declaration(FileModel):
    """What every evaluator takes; `criterion` names what it measures."""

    criterion: str | None = None
    on_execution_error: OnExecutionError = "missing"

    @field_validator("criterion")
    @classmethod
    def _a_word(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
            raise ValueError(f"{value!r} must start with a letter and hold letters, digits and _ only")
        return value

    @property
    def name(self) -> str:
        """The criterion's name, declared or by default."""
        return self.criterion or self.default_criterion()

    def default_criterion(self) -> str:
        return str(self.type)  # type: ignore[attr-defined]


class _Text(Declaration):
    field: str | None = None
    expected_field: str | None = None
    strip: bool = True
    casefold: bool = False

    @field_validator("field", "expected_field")
    @classmethod
    def _paths(cls, value: str | None) -> str | None:
        some_paths((value,) if value else ())
        return value


class ExactMatch(_Text):
    """A field of the output equals a field of what is expected."""

    type: Literal["exact_match"]


class Contains(_Text):
    """A field of the output contains the expected text."""

    type: Literal["contains"]


class StateMatches(Declaration):
    """The state left behind is the expected one."""

    type: Literal["state_matches"]
    mode: Mode = "exact"
    paths: tuple[str, ...] | None = None
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    expected_field: str = "state"
    ignore_paths: tuple[str, ...] = ()
    unordered_paths: tuple[str, ...] = ()

    @field_validator("paths", "ignore_paths", "unordered_paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == () and value is not None:
            return value
        return some_paths(value)

    @field_validator("expected_field")
    @classmethod
    def _field(cls, value: str) -> str:
        some_paths((value,))
        return value

    @property
    def exact_tolerance(self) -> decimal.Decimal | None:
        """The tolerance as the decimal that was written."""
        return None if self.tolerance is None else decimal_of(self.tolerance)


class StateUnchanged(Declaration):
    """Paths of the state still hold what they held before the case."""

    type: Literal["state_unchanged"]
    paths: tuple[str, ...]

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one path; `$` stands for the whole state")
        some_paths(value)
        return value


class ToolCalls(Declaration):
    """The tools that were called are the right ones, in the right order, and not too many."""

    type: Literal["tool_calls"]
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    in_order: tuple[str, ...] = ()
    max_calls: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "ToolCalls":
        if not (self.must or self.must_not or self.in_order) and self.max_calls is None:
            raise ValueError("tool_calls needs at least one of must, must_not, in_order, max_calls")
        both = sorted((set(self.must) | set(self.in_order)) & set(self.must_not))
        if both:
            raise ValueError(f"the tool {both[0]!r} is required and forbidden at once")
        return self


class FaultRecovery(Declaration):
    """What the agent does after one of its calls failed, seen in a replay."""

    type: Literal["fault_recovery"]
    tool: Annotated[str, Field(min_length=1)]
    fault: Fault
    occurrence: Annotated[int, Field(ge=1)] = 1
    escalate_tools: tuple[str, ...] = ()
    control: Literal["calls", "calls_and_state"] = "calls"

    def default_criterion(self) -> str:
        name = f"recovers_from_{self.fault}_at_{self.tool}"
        name += f"_call_{self.occurrence}" if self.occurrence > 1 else ""
        return name


class MetamorphicRelation(Declaration):
    """What a derived case has to have in common with its source."""

    type: Literal["metamorphic_relation"]
    relation: Relation
    transform: str | None = None
    field: str | None = None
    ignore_paths: tuple[str, ...] = ()

    @field_validator("field")
    @classmethod
    def _field(cls, value: str | None) -> str | None:
        some_paths((value,) if value else ())
        return value

    @field_validator("ignore_paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        some_paths(value)
        return value

    @model_validator(mode="after")
    def _keys_of_the_relation(self) -> "MetamorphicRelation":
        if self.field is not None and self.relation != "same_output":
            raise ValueError(f"field goes with relation same_output only, not with {self.relation}")
        if self.ignore_paths and self.relation != "same_state":
            raise ValueError(f"ignore_paths goes with relation same_state only, not with {self.relation}")
        return self

    def default_criterion(self) -> str:
        return f"{self.relation}_under_{self.transform or 'transform'}"


class PythonCheck(Declaration):
    """The user's own check."""

    type: Literal["python"]
    callable: str

    @field_validator("callable")
    @classmethod
    def _callable(cls, value: str) -> str:
        a_callable(value)
        return value

    @model_validator(mode="after")
    def _named(self) -> "PythonCheck":
        if self.criterion is None:
            raise ValueError("a python evaluator needs a criterion, the name of what it measures")
        return self


EvaluatorDeclaration = Annotated[
    ExactMatch
    | Contains
    | StateMatches
    | StateUnchanged
    | ToolCalls
    | FaultRecovery
    | MetamorphicRelation
    | PythonCheck,
    Field(discriminator="type"),
]
