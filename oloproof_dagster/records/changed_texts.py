"""The texts in which a case's world and its copy's differ, and the copy's state read as if nothing had been changed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.records.paths import ABSENT, Path


@dataclass(frozen=True, slots=True)
class ChangedText:
    """One text of a value and what stands in its place in a copy; `path` leads to both."""

    path: Path
    source: str
    text: str


def changed_texts(source: Any, copy: Any, at: Path = ()) -> Iterator[ChangedText]:
    """The texts in which a value and a copy of the same shape differ, in the value's order."""
    if source == copy:
        return
    if isinstance(source, str) and isinstance(copy, str):
        yield ChangedText(at, source, copy)
    elif isinstance(source, dict) and isinstance(copy, dict):
        for key in source:
            if key in copy:
                yield from changed_texts(source[key], copy[key], (*at, key))
    elif isinstance(source, list) and isinstance(copy, list):
        for position, (one, other) in enumerate(zip(source, copy, strict=False)):
            yield from changed_texts(one, other, (*at, str(position)))


def as_source(state: Any, changes: Sequence[ChangedText], reference: Any = ABSENT) -> Any:
    """A copy's state as if each whole string in it that equals a changed text, wherever it stands, were the source's.

    `reference` is what the state is to be compared with. It decides where a string could be several texts: two sources
    that were changed to one text, or a text of the world that read so from the start. The order of keys is kept.

    >>> as_source({"sent": ["Hi!", "Hi! Hi!"]}, [ChangedText(("inbox",), "Hi", "Hi!")])
    {'sent': ['Hi', 'Hi! Hi!']}
    """
    sources: dict[str, list[str]] = {}
    for change in changes:
        sources.setdefault(change.text, []).append(change.source)
    return _as_source(state, sources, reference) if sources else state


def holds(value: Any, texts: Sequence[str]) -> bool:
    """Whether a JSON value holds one of some texts, within any string of it or within JSON that a string holds."""
    written = {form for text in texts for form in (text, _inside_json(text, True), _inside_json(text, False))}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if any(form in each for form in written):
                return True
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list):
            waiting += each
    return False


def _inside_json(text: str, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _as_source(value: Any, sources: Mapping[str, Sequence[str]], reference: Any) -> Any:
    if isinstance(value, str):
        known = sources.get(value)
        if known is None:
            return value
        return reference if isinstance(reference, str) and reference in (value, *known) else known[0]
    if isinstance(value, list):
        beside = reference if isinstance(reference, list) else []
        return [
            _as_source(each, sources, beside[position] if position < len(beside) else ABSENT)
            for position, each in enumerate(value)
        ]
    if isinstance(value, dict):
        members = reference if isinstance(reference, dict) else {}
        found: dict[str, Any] = {}
        for key, member in value.items():
            name = _key(key, value, sources, members)
            name = key if name in found else name
            found[name] = _as_source(member, sources, members.get(name, ABSENT))
        return found
    return value


def _key(key: str, value: Mapping[str, Any], sources: Mapping[str, Sequence[str]], reference: Mapping[str, Any]) -> str:
    """An object's key as the source has it, where no other member bears that name."""
    if key in reference:
        return key
    free = [each for each in sources.get(key, ()) if each not in value]
    return next((each for each in free if each in reference), free[0] if free else key)
