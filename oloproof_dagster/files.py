"""The user's own files, read strictly: YAML and JSONL with a line number for everything that is wrong in them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from yaml.constructor import ConstructorError

from oloproof_dagster.digests import integers_of_any_size
from oloproof_dagster.errors import ConfigError


class Scalar:
    """A YAML scalar with its source text: which of the two is meant depends on where it stands."""

    def __init__(self, value: Any, text: str, line: int) -> None:
        self.value, self.text, self.line = value, text, line


class Mapping(dict[str, Any]):
    """A YAML mapping that knows the line of each of its keys."""

    line = 1

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class Sequence(list[Any]):
    """A YAML sequence that knows the line of each of its items."""

    line = 1

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[int, int] = {}


class FileModel(BaseModel):
    """A frozen model of a part of a YAML file: unknown keys are refused, and where text is expected the scalar's
    source text is kept (`version: 1.10` is "1.10")."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _scalars_as_declared(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return plain(data) if isinstance(data, Scalar) else data
        fields = {field.alias or name: field.annotation for name, field in cls.model_fields.items()}
        return {key: _as_declared(value, fields.get(key, Any)) for key, value in data.items()}


def _as_declared(value: Any, annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if isinstance(value, Scalar):
        text_wanted = any(
            option is str or (get_origin(option) is Literal and isinstance(get_args(option)[0], str))
            for option in options
        )
        if value.value is None and (NoneType in options or not value.text):
            return None
        return value.text if text_wanted and not _fits_better(value.value, options) else value.value
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


def _fits_better(value: Any, options: tuple[Any, ...]) -> bool:
    return not isinstance(value, str) and type(value) in options


def plain(value: Any) -> Any:
    """A YAML tree as ordinary Python values."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


class _Loader(yaml.SafeLoader):
    """A safe loader that keeps source texts and lines and refuses a key that stands twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            mapping = Mapping()
            mapping.line = line
            for key_node, value_node in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    raise ConstructorError(None, None, "a key must be text", key_node.start_mark)
                key = key_node.value
                if key == "<<":
                    raise ConstructorError(
                        None, None, "merge keys (<<) are not supported; write the keys out", key_node.start_mark
                    )
                if key in mapping:
                    raise ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
                mapping[key] = self.construct_object(value_node, deep=True)
                mapping.lines[key] = key_node.start_mark.line + 1
            return mapping
        if isinstance(node, yaml.SequenceNode):
            sequence = Sequence()
            sequence.line = line
            for position, item in enumerate(node.value):
                sequence.append(self.construct_object(item, deep=True))
                sequence.lines[position] = item.start_mark.line + 1
            return sequence
        return Scalar(super().construct_object(node, deep), node.value, line)


def read_yaml(path: Path) -> Mapping:
    """The mapping that a YAML file holds.

    Raises:
        ConfigError: the file is absent, not UTF-8, not YAML, holds a key twice, or is no mapping.
    """
    text = read_text(path)
    try:
        with integers_of_any_size():
            tree = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not YAML"
        raise ConfigError.at(path.name, mark.line + 1 if mark else None, f"not readable as YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError.at(
            path.name,
            text[: error.position].count("\n") + 1,
            f"the character #x{ord(str(error.character)[:1]):04x} is not allowed in YAML",
        ) from None
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-45, an alias inside itself
        raise ConfigError.at(path.name, None, f"not readable as YAML: {error}") from None
    if not isinstance(tree, Mapping):
        raise ConfigError.at(path.name, 1, "must hold keys and values, such as `version: 1`")
    return tree


def read_text(path: Path) -> str:
    """A file's text, UTF-8, a byte order mark dropped.

    Raises:
        ConfigError: the file is absent, is no file, or is not UTF-8.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError.at(path.name, None, f"there is no such file (looked in {path.parent})") from None
    except OSError as error:
        raise ConfigError.at(path.name, None, f"cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError.at(path.name, line, "is not UTF-8; save the file as UTF-8") from None


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], tree: Mapping, name: str) -> Model:
    """The model that a YAML tree describes.

    Raises:
        ConfigError: the first problem, with its line and key and what to write instead.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        # A misspelt key is also a missing one: of two problems on a line, the unknown key is named first.
        first = min(error.errors(), key=lambda e: (_place(tree, e["loc"])[0], e["type"] != "extra_forbidden"))
        line, key = _place(tree, first["loc"])
        raise ConfigError.at(name, line, _sentence(key, first)) from None


def _place(tree: Any, loc: tuple[int | str, ...]) -> tuple[int, str]:
    """The line and the dotted key of a pydantic location; parts that are no keys (a union's tag) are passed over."""
    line, keys = getattr(tree, "line", 1), []
    for part in loc:
        if isinstance(tree, Mapping | Sequence) and part in tree.lines:
            line = tree.lines[part]  # type: ignore[index]
            tree = tree[part]  # type: ignore[index]
            keys.append(str(part))
        elif part == loc[-1] and isinstance(tree, Mapping):
            keys.append(str(part))
    return line, ".".join(keys)


_SENTENCES = {
    "missing": "is required and not there",
    "extra_forbidden": "is not a key of this file; check its spelling",
    "model_type": "must be a block of keys and values",
    "model_attributes_type": "must be a block of keys and values",
    "dict_type": "must be a block of keys and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "union_tag_not_found": "needs a `type`",
}


def _sentence(key: str, problem: Any) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    found = problem["input"]
    shown = "" if isinstance(found, dict | list) or kind == "missing" else f", not {_short(plain(found))}"
    if kind == "value_error":
        told = str(context["error"])
        return f"{key}: {told}" if key else told
    if kind == "union_tag_invalid":
        return f"{key}.type: {context['tag']!r} is none of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{key}: needs a `type`, the evaluator's kind"
    if kind == "literal_error":
        return f"{key}: must be {context['expected']}{shown}"
    if kind in _SENTENCES:
        return f"{key}: {_SENTENCES[kind]}{'' if kind == 'extra_forbidden' else shown}"
    message = problem["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value ")
    return f"{key}: {message.replace('should', 'must')}{shown}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_jsonl(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    """Every value of a JSONL file with its line number; blank lines are skipped, BOM and CRLF accepted.

    Memory holds one line at a time.

    Raises:
        ConfigError: the file is absent, or a line is not strict JSON (duplicate key, NaN, 1e400, trailing comma).
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise ConfigError.at(name, None, f"there is no such file (looked in {path.parent})") from None
    except OSError as error:
        raise ConfigError.at(name, None, f"cannot be read: {error.strerror}") from None
    with stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r\n")
            except UnicodeDecodeError:
                raise ConfigError.at(name, number, "is not UTF-8; save the file as UTF-8") from None
            if line:
                yield number, _strict_json(line, name, number)


def _strict_json(line: str, name: str, number: int) -> Any:
    try:
        with integers_of_any_size():
            value = json.loads(line, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ConfigError.at(name, number, f"not JSON at column {error.colno}: {error.msg.lower()}") from None
    except RecursionError:
        raise ConfigError.at(name, number, "is nested too deep") from None
    except ValueError as error:
        raise ConfigError.at(name, number, str(error)) from None
    try:
        line.encode("utf-8")
        if "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError.at(name, number, "holds half of a surrogate pair (\\ud800 to \\udfff alone)") from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write a number, text or null")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {_short(text)} is too large for a double; write it as text")
    return number
