"""From YAML trees to frozen models: what the user's YAML files may hold, and sentences for what they hold instead."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.strict_yaml import Mapping, Scalar, Sequence, plain
from oloproof_dagster.wording import did_you_mean, shortened


class Misplaced(ValueError):
    """A problem of a block whose place is one of the keys or positions further down, `at`."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class FileModel(BaseModel):
    """A frozen model of a part of a YAML file: unknown keys are refused, and where text is expected the scalar's
    source text is kept (`version: 1.10` is "1.10")."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _scalars_as_declared(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return plain(data) if isinstance(data, Scalar) else data
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for key in data:
            # Said before anything else of this block: a misspelt key is also a missing one.
            if key not in fields:
                known = tuple(fields)
                hint = did_you_mean(key, known) or f"; keys here are {', '.join(known)}"
                raise Misplaced(f"there is no such key{hint}", key)
        return {key: _as_declared(value, fields[key].annotation) for key, value in data.items()}


def _as_declared(value: Any, annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if isinstance(value, Scalar):
        if value.value is None and (NoneType in options or not value.text):
            return None
        text_wanted = any(
            option is str or (get_origin(option) is Literal and isinstance(get_args(option)[0], str))
            for option in options
        )
        # True equals 1 in Python, so that where true is not wanted it is reported as the text it is.
        misread = isinstance(value.value, bool) and bool not in options
        return value.text if text_wanted or misread else value.value
    if isinstance(value, Sequence):
        items = [get_args(option) for option in options if get_origin(option) in (list, tuple)]
        inner = items[0][0] if items and items[0] else Any
        declared = [_as_declared(item, inner) for item in value]
        return tuple(declared) if any(get_origin(option) is tuple for option in options) else declared
    if isinstance(value, Mapping) and isinstance(value.get("type"), Scalar):
        tagged = Mapping()  # a union picks its model by `type` before that model sees the mapping
        tagged.update(value, type=value["type"].text)
        return tagged
    return value


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], tree: Mapping, name: str) -> Model:
    """The model that a YAML tree describes.

    Raises:
        ConfigError: the problem that stands first in the file, with its line and key and what to write instead.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problems = [(*_place(tree, (*each["loc"], *_further(each))), each) for each in error.errors()]
        line, key, first = min(problems, key=lambda each: each[0])
        raise ConfigError.at(name, line, f"{key}: {_sentence(first)}" if key else _sentence(first)) from None


def _further(problem: Any) -> tuple[str | int, ...]:
    """Where within its location a problem says that it stands."""
    if problem["type"] == "union_tag_invalid":
        return ("type",)
    error = problem.get("ctx", {}).get("error")
    return error.at if isinstance(error, Misplaced) else ()


def _place(tree: Any, loc: tuple[str | int, ...]) -> tuple[int, str]:
    """The line and the dotted key of a pydantic location; a union's tag in it is no key and passed over."""
    line, keys = getattr(tree, "line", 1), []
    tag = None
    for part in loc:
        if part == tag:
            tag = None
            continue
        if isinstance(tree, Mapping | Sequence) and part in tree.lines:
            line, tree = tree.lines[part], tree[part]  # type: ignore[index]
        kind = tree.get("type") if isinstance(part, int) and isinstance(tree, Mapping) else None
        tag = kind.text if isinstance(kind, Scalar) else None
        keys.append(shortened(part)[1:-1] if isinstance(part, str) else str(part))
    return line, ".".join(keys)


_SENTENCES = {
    "missing": "is required and not there",
    "model_type": "must be a block of keys and values",
    "model_attributes_type": "must be a block of keys and values",
    "dict_type": "must be a block of keys and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number in plain decimal digits",
    "int_from_float": "must be a whole number in plain decimal digits",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "union_tag_not_found": "needs a `type`, the evaluator's kind",
    "finite_number": "must be a finite number",
}


def _sentence(problem: Any) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    found = _found(problem["input"])
    if kind == "value_error":
        return str(context["error"])
    if kind in ("missing", "union_tag_not_found"):
        return _SENTENCES[kind]
    if kind == "union_tag_invalid":
        tag, known = context["tag"], context["expected_tags"].replace("'", "")
        if not isinstance(problem["input"].get("type"), str):
            return f"must be text, found {_found(problem['input'].get('type'))}"
        hint = did_you_mean(tag, known.split(", ")) or f"; there are {known}"
        return f"there is no {shortened(tag)}{hint}"
    if kind == "literal_error":
        return f"must be {context['expected']}, found {found}"
    if kind in _SENTENCES:
        return f"{_SENTENCES[kind]}, found {found}"
    message = problem["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value ")
    return f"{message.replace('should', 'must')}, found {found}"


def _found(value: Any) -> str:
    value = plain(value)
    if value is None:
        return "nothing"
    if isinstance(value, dict | list | tuple):
        return "keys and values" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else shortened(value)
