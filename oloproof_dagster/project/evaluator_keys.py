"""The evaluators as oloproof.yaml declares them: one model per `type`, each knowing its criterion's name."""

import decimal
import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from oloproof_dagster.project.path_keys import a_path, ignored_paths, none_left_by, some_paths
from oloproof_dagster.project.validation import FileModel, Misplaced
from oloproof_dagster.records.comparison import Mode, decimal_of
from oloproof_dagster.records.faults import Delivery, Fault
from oloproof_dagster.wording import shortened

Relation = Literal["same_output", "same_actions", "same_state"]
OnExecutionError = Literal["missing", "fail"]

CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def a_callable(value: str | None) -> str | None:
    """The value, when it reads `module:attribute`."""
    if value is not None and not CALLABLE.fullmatch(value):
        raise ValueError(f"{shortened(value)} must read module:attribute, such as app:desk")
    return value


class Declaration(FileModel):
    """What every evaluator takes; `criterion` names what it measures."""

    criterion: str | None = None
    on_execution_error: OnExecutionError = "missing"
    cases: str | tuple[str, ...] = "sources"

    @field_validator("criterion")
    @classmethod
    def _a_word(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
            raise ValueError(f"{shortened(value)} must start with a letter and hold letters, digits and _ only")
        return value

    @field_validator("cases", mode="before")
    @classmethod
    def _some_cases(cls, value: Any) -> Any:
        named = isinstance(value, tuple) and value and all(isinstance(each, str) for each in value)
        if not named and value not in ("sources", "copies", "all"):
            raise ValueError(f"must be sources, copies, all or a list of transforms, found {shortened(value)}")
        return value

    def judges(self, transform: str | None) -> bool:
        """Whether a case counts: a source case (None), or a copy by a transform."""
        if isinstance(self.cases, tuple):
            return transform in self.cases
        return self.cases == "all" or (self.cases == "sources") == (transform is None)

    @property
    def name(self) -> str:
        """The criterion's name, declared or by default."""
        return self.criterion or self.default_criterion()

    @property
    def reads_trajectory(self) -> bool:
        """Whether it judges what the agent recorded."""
        return False

    def default_criterion(self) -> str:
        """The criterion's name where none is declared: the type's."""
        return str(self.type)  # type: ignore[attr-defined]


class _Text(Declaration):
    field: str | None = None
    expected_field: str | None = None
    strip: bool = True
    casefold: bool = False

    _fields = field_validator("field", "expected_field")(a_path)

    @property
    def expected_at(self) -> str:
        """Where in `expected` the wanted value stands: where `field` stands in the output, if nothing else is said."""
        return self.expected_field or self.field or "$"


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
    ignore_new_paths: tuple[str, ...] = ()
    unordered_paths: tuple[str, ...] = ()

    _field = field_validator("expected_field")(a_path)
    _unordered = field_validator("unordered_paths")(some_paths)
    _ignored = field_validator("ignore_paths", "ignore_new_paths")(ignored_paths)

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("needs at least one path; leave it out to compare the whole state")
        return some_paths(value)

    @model_validator(mode="after")
    def _compares_something(self) -> "StateMatches":
        none_left_by(self.ignore_paths, self.paths)
        return self

    @property
    def exact_tolerance(self) -> decimal.Decimal | None:
        """The tolerance as the decimal that was written."""
        return None if self.tolerance is None else decimal_of(self.tolerance)


class StateUnchanged(Declaration):
    """Paths of the state, or everything but these, still hold what they held before the case."""

    type: Literal["state_unchanged"]
    paths: tuple[str, ...] | None = None
    except_: tuple[str, ...] | None = Field(default=None, alias="except")

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("needs at least one path; `$` stands for the whole state")
        return some_paths(value)

    @field_validator("except_")
    @classmethod
    def _except(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else ignored_paths(value)

    @model_validator(mode="after")
    def _one_way(self) -> "StateUnchanged":
        if (self.paths is None) == (self.except_ is None):
            found = "neither" if self.paths is None else "both"
            raise ValueError(f"state_unchanged needs exactly one of paths and except, found {found}")
        return self


class CallBounds(FileModel):
    """How often one tool is called."""

    min: Annotated[int, Field(ge=0)] | None = None
    max: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _bounds(self) -> "CallBounds":
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class ToolCalls(Declaration):
    """The tools that were called are the right ones, in the right order, and not too many."""

    type: Literal["tool_calls"]
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    in_order: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    max_calls: Annotated[int, Field(ge=0)] | None = None
    calls: dict[str, CallBounds] = Field(default_factory=dict)
    expected_calls: Literal["exact", "in_order", "any_order", "subset"] | None = None

    @field_validator("before")
    @classmethod
    def _pairs(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        for position, pair in enumerate(value):
            if len(pair) != 2 or pair[0] == pair[1]:
                raise Misplaced("must be a pair of two tools, such as [confirm, refund]", position)
        return value

    @property
    def reads_trajectory(self) -> bool:
        """True: the calls stand there."""
        return True

    @model_validator(mode="after")
    def _says_something(self) -> "ToolCalls":
        lists = (self.must, self.must_not, self.in_order, self.before, self.calls, self.expected_calls)
        if not any(lists) and self.max_calls is None:
            raise ValueError(
                "tool_calls needs at least one of must, must_not, in_order, before, max_calls, calls, expected_calls"
            )
        both = sorted((set(self.must) | set(self.in_order)) & set(self.must_not))
        if both:
            raise Misplaced(f"the tool {shortened(both[0])} is required and forbidden at once", "must_not")
        return self


class FaultRecovery(Declaration):
    """What the agent does after one of its calls failed, seen in a replay."""

    type: Literal["fault_recovery"]
    tool: Annotated[str, Field(min_length=1)]
    fault: Fault
    occurrence: Annotated[int, Field(ge=1)] = 1
    delivery: Delivery = "result"
    escalate_tools: tuple[str, ...] = ()
    control: Literal["calls", "calls_and_results", "calls_and_state"] | None = None
    ignore_paths: tuple[str, ...] = ()
    unordered_paths: tuple[str, ...] = ()
    ignore_results: tuple[str, ...] = ()
    require_state: Literal["expected", "initial", "either"] | None = None
    check: str | None = None

    _check = field_validator("check")(a_callable)
    _unordered = field_validator("unordered_paths")(some_paths)
    _ignored = field_validator("ignore_paths")(ignored_paths)
    _results = field_validator("ignore_results")(ignored_paths)

    @model_validator(mode="after")
    def _sees_a_liar(self) -> "FaultRecovery":
        if self.cases != "sources":
            raise Misplaced("replays are made of source cases alone; remove it", "cases")
        if self.require_state in ("initial", "either") and self.check is None:
            raise Misplaced(
                f"{self.require_state} needs `check` beside it: an agent that claims a success and did nothing leaves"
                " the world alone too; write expected, or add a check",
                "require_state",
            )
        return self

    @property
    def reads_trajectory(self) -> bool:
        """True: the faulted call stands there."""
        return True

    @property
    def rests_on_own_word(self) -> bool:
        """Whether a success that the agent claims is checked by nothing of this evaluator."""
        return self.require_state is None and self.check is None

    def default_criterion(self) -> str:
        """The fault and the tool, with the occurrence after the first."""
        name = f"recovers_from_{self.fault}_at_{self.tool}"
        name += f"_call_{self.occurrence}" if self.occurrence > 1 else ""
        return name + ("_raised" if self.delivery == "exception" else "")


class MetamorphicRelation(Declaration):
    """What a derived case has to have in common with its source."""

    type: Literal["metamorphic_relation"]
    relation: Relation
    transform: str | None = None
    field: str | None = None
    ignore_paths: tuple[str, ...] = ()
    require_action: bool = False

    _field = field_validator("field")(a_path)
    _ignored = field_validator("ignore_paths")(ignored_paths)

    @model_validator(mode="after")
    def _keys_of_the_relation(self) -> "MetamorphicRelation":
        if self.field is not None and self.relation != "same_output":
            raise Misplaced(f"goes with relation same_output only, not with {self.relation}; remove it", "field")
        if self.ignore_paths and self.relation != "same_state":
            raise Misplaced(f"goes with relation same_state only, not with {self.relation}; remove it", "ignore_paths")
        if self.cases != "sources":
            raise Misplaced("a relation compares copies with their sources always; remove it", "cases")
        return self

    @property
    def reads_trajectory(self) -> bool:
        """Whether the actions are compared."""
        return self.relation == "same_actions"

    def default_criterion(self) -> str:
        """The relation and the transform."""
        return f"{self.relation}_under_{self.transform or 'transform'}"


class PythonCheck(Declaration):
    """The user's own check."""

    type: Literal["python"]
    callable: str

    _callable = field_validator("callable")(a_callable)

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
