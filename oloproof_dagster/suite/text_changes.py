"""What each transform of a project changes in a case: the texts that its field leads to, before and after."""

from collections.abc import Sequence
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.records.changed_texts import ChangedText
from oloproof_dagster.records.patches import replaced
from oloproof_dagster.records.paths import ABSENT, Path, lookup, parse_path, places, show_path
from oloproof_dagster.records.tables import CaseRow
from oloproof_dagster.suite.rewriting import Rewriter, Rewrites, function_of
from oloproof_dagster.wording import json_kind, shortened

Changes = tuple[ChangedText, ...]


def apply(transform: TransformDeclaration, text: str) -> str:
    """The transformed text: the template around it, or the replacements in order, each at every occurrence."""
    if transform.template is not None:
        return transform.template.replace("{value}", text)
    for old, new in transform.replace or ():
        text = text.replace(old, new)
    return text


class TextChanges:
    """The changes that a project's transforms make in its cases, one case after another."""

    def __init__(self, project: Project) -> None:
        """Reads files of rewrites and imports functions.

        Raises:
            ConfigError: one of them cannot be used.
        """
        self._project = project
        self._rewrites = {each.name: Rewrites(project, each) for each in project.transforms if each.rewrites}
        functions = {each.name: function_of(project, each) for each in project.transforms if each.callable}
        self._ways: dict[str, Rewriter] = {**self._rewrites, **functions}

    def notes(self) -> list[str]:
        """What the files of rewrites lack, once all cases have passed."""
        return [line for rewrites in self._rewrites.values() for line in rewrites.notes()]

    def of(self, case: CaseRow) -> list[tuple[TransformDeclaration, Changes]]:
        """Each transform with what it changes in a source case, in their order; none that has no text for it.

        Raises:
            ConfigError: the case bears the marks of a copy, or a transform cannot be applied to it; naming the
                dataset's line.
        """
        if not self._project.transforms:
            return []
        who = f"case {shortened(case.case_id)}"
        if "~" in case.case_id:
            raise self._refused(case, f"{who}: an id may not hold `~`, which names derived cases; rename the case")
        if '"metamorphic"' in case.metadata and "metamorphic" in parse_canonical(case.metadata):
            raise self._refused(
                case, f"{who}: `metadata.metamorphic` is what transforms note of a copy; rename that key"
            )
        targets: dict[str, Any] = {}
        found = []
        for transform in self._project.transforms:
            if transform.name in self._rewrites and not self._rewrites[transform.name].has(case.case_id):
                continue
            if transform.target not in targets:
                text = getattr(case, transform.target)
                targets[transform.target] = ABSENT if text is None else parse_canonical(text)
            try:
                found.append((transform, self._changes(transform, targets[transform.target], case.case_id)))
            except ValueError as error:
                raise self._refused(case, f"{who}, transform {transform.name!r}: {error}") from None
        return found

    def _refused(self, case: CaseRow, message: str) -> ConfigError:
        return ConfigError.at(self._project.suite.dataset, case.line, message)

    def _changes(self, transform: TransformDeclaration, target: Any, case_id: str) -> Changes:
        if target is ABSENT:
            raise ValueError("the text lies in the initial state, and the case declares none")
        texts = [(path, _text_at(transform, target, path)) for path in _places(transform, target)]
        if transform.rewrites and len(texts) > 1:
            raise ValueError(
                f"{len(texts)} texts stand at {shortened(transform.field)}, and a line of {transform.rewrites} rewrites"
                " one; name one of them in `field`"
            )
        way = self._ways.get(transform.name)
        changes = [
            ChangedText(path, text, way(text, case_id) if way else apply(transform, text)) for path, text in texts
        ]
        changed = tuple(change for change in changes if change.text != change.source)
        if not changed:
            raise ValueError(_unchanged(transform, changes))
        return changed


def _places(transform: TransformDeclaration, target: Any) -> list[Path]:
    """Where the texts stand that a transform's field leads to: one place in the input, any number in the world."""
    field = parse_path(transform.field)
    found = list(places(target, field)) if transform.changes_world else [field]
    if not found:
        raise ValueError(f"the initial state must hold text at {shortened(transform.field)}, which is not there")
    return found


def _text_at(transform: TransformDeclaration, target: Any, path: Path) -> str:
    text = lookup(target, path)
    if isinstance(text, str):
        return text
    what, where = ("initial state", show_path(path)) if transform.changes_world else ("input", transform.field)
    found = "which is not there" if text is ABSENT else f"found {json_kind(text)}"
    raise ValueError(f"the {what} must hold text at {shortened(where)}, {found}")


def _unchanged(transform: TransformDeclaration, changes: Sequence[ChangedText]) -> str:
    one = shortened(changes[0].source)
    stays = f"{one} stays as it is" if len(changes) == 1 else f"{one} and {len(changes) - 1} more stay as they are"
    return (
        f"{stays}, and a pair equal to its source tests nothing; change the transform's {transform.kind}, or the case"
    )


def with_texts(value: Any, changes: Sequence[ChangedText]) -> Any:
    """The value with each changed text in its place; only the containers on the way are copied, keys keep their
    order."""
    for change in changes:
        value = replaced(value, change.path, change.text)
    return value
