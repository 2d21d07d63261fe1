"""YAML read strictly: source texts and lines are kept, a key that stands twice is refused, aliases are bounded."""

import functools
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from oloproof_dagster.digests import integers_of_any_size
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import HALF_PAIR, MOST_LEVELS, TOO_DEEP, read_text
from oloproof_dagster.wording import shortened

MOST_ALIASED = 10_000
"""How many values aliases may repeat; a few lines of aliases of aliases would fill the memory."""

_DECIMAL = re.compile(r"[-+]?((0|[1-9][0-9_]*)(\.[0-9_]*)?|\.[0-9_]+)([eE][-+]?[0-9]+)?|[-+]?\.(?i:inf)|\.(?i:nan)")


class Scalar:
    """A YAML scalar with its source text: which of the two is meant depends on where it stands."""

    def __init__(self, value: Any, text: str) -> None:
        self.value, self.text = value, text


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


def plain(value: Any) -> Any:
    """A YAML tree as ordinary Python values."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def line_of(tree: Any, *keys: str | int) -> int:
    """The line of the deepest of nested keys that a tree holds."""
    line = getattr(tree, "line", 1)
    for key in keys:
        if not isinstance(tree, Mapping | Sequence) or key not in tree.lines:
            break
        line, tree = tree.lines[key], tree[key]  # type: ignore[index]
    return int(line)


class _Loader(yaml.SafeLoader):
    """A safe loader that keeps source texts and lines, refuses a key that stands twice, and bounds aliases."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._above: list[yaml.Node] = []
        self._met: set[int] = set()
        self._n_aliased = 0

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        self._count(node)
        self._above.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node)
            return self._scalar(node)
        finally:
            self._above.pop()

    def _count(self, node: yaml.Node) -> None:
        if any(node is above for above in self._above):
            raise _refused("an alias (*) stands inside the very value that it names (&)", node)
        if len(self._above) >= MOST_LEVELS:
            raise _refused(TOO_DEEP, node)
        self._n_aliased += id(node) in self._met
        self._met.add(id(node))
        if self._n_aliased > MOST_ALIASED:
            raise _refused(f"aliases (*) repeat more than {MOST_ALIASED} values; write them out", node)

    def _mapping(self, node: yaml.MappingNode) -> Mapping:
        mapping = Mapping()
        mapping.line = node.start_mark.line + 1
        if node.tag != "tag:yaml.org,2002:map":
            raise _bad_tag(node)
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused("a key must be text", key_node)
            key = self._text(key_node)
            if key == "<<":
                raise _refused("merge keys (<<) are not supported; write the keys out", key_node)
            if key in mapping:
                raise _refused(
                    f"the key {shortened(key)} stands twice, first on line {mapping.lines[key]}; remove one", key_node
                )
            mapping[key] = self.construct_object(value_node, deep=True)
            mapping.lines[key] = key_node.start_mark.line + 1
        return mapping

    def _sequence(self, node: yaml.SequenceNode) -> Sequence:
        sequence = Sequence()
        sequence.line = node.start_mark.line + 1
        if node.tag != "tag:yaml.org,2002:seq":
            raise _bad_tag(node)
        for position, item in enumerate(node.value):
            sequence.append(self.construct_object(item, deep=True))
            sequence.lines[position] = item.start_mark.line + 1
        return sequence

    def _scalar(self, node: yaml.Node) -> Scalar:
        text = self._text(node)
        if node.tag in ("tag:yaml.org,2002:value", "tag:yaml.org,2002:merge"):
            return Scalar(text, text)  # `=` and `<<`, which mean something only where keys stand
        if node.tag not in self.yaml_constructors:
            raise _bad_tag(node)
        try:
            value = super().construct_object(node)
        except (ValueError, KeyError, AttributeError, OverflowError):
            # 2026-13-45 reads like a date and is none, so it is the text that was written.
            self.recursive_objects.pop(node, None)
            return Scalar(text, text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # YAML 1.1 reads 010 as 8 and 1:30 as 90. Nobody means that; as text they are refused where numbers go.
            readable = _DECIMAL.fullmatch(text) and (isinstance(value, float) or abs(value) < 2**63)
            value = value if readable else text
        return Scalar(value, text)

    @staticmethod
    def _text(node: yaml.Node) -> str:
        text = str(node.value)
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise _refused(HALF_PAIR, node)
        return text


# 1e-9 is a number to everybody but YAML 1.1, which wants 1.0e-9.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def _refused(problem: str, node: yaml.Node) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


def _bad_tag(node: yaml.Node) -> ConstructorError:
    return _refused(f"the tag {shortened(node.tag)} is not supported; leave it out", node)


@functools.lru_cache(maxsize=16)
def _tree(text: str) -> Any:
    """What a text holds; nobody changes it. A run reads its project's files several times."""
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path) -> Mapping:
    """The mapping that a YAML file holds.

    Raises:
        ConfigError: the file is absent, not UTF-8, not YAML, holds a key twice, or is no mapping.
    """
    text = read_text(path)
    try:
        with integers_of_any_size():
            tree = _tree(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "not YAML"
        problem = f"{error.context} {problem}" if error.context and problem.startswith("but ") else problem
        raise ConfigError.at(path.name, mark.line + 1 if mark else None, f"not readable as YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError.at(
            path.name,
            text[: error.position].count("\n") + 1,
            f"not readable as YAML: the character #x{int(error.character):04x} is not allowed; remove it",
        ) from None
    except RecursionError:
        raise ConfigError.at(path.name, None, f"not readable as YAML: {TOO_DEEP}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError.at(path.name, None, f"not readable as YAML: {error}") from None
    if not isinstance(tree, Mapping):
        raise ConfigError.at(path.name, 1, "must hold keys and values, such as `version: 1`")
    return tree
