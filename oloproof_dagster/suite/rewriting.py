"""Texts that no rule in oloproof.yaml says: written by a person or a model, or by a function of the user's."""

from collections.abc import Callable
from typing import Any

from oloproof_dagster.digests import HALF_PAIR, digest
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import file_digest, read_jsonl
from oloproof_dagster.project.project import Project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.loading import load_attribute, shape, takes
from oloproof_dagster.system.own_files import OwnFiles
from oloproof_dagster.wording import counted, json_kind, shortened

Rewriter = Callable[[str, str], str]
"""A text of a case, and the case's id, to the text that takes its place. Raises ValueError where there is none."""


class Rewrites:
    """The lines of a transform's file of texts, one a case; `notes` says what is lacking once all cases have passed."""

    def __init__(self, project: Project, transform: TransformDeclaration) -> None:
        """Reads the file.

        Raises:
            ConfigError: it is malformed, or two lines rewrite one case; naming the line.
        """
        self._project, self._name, self.file = project, transform.name, str(transform.rewrites)
        self._texts: dict[str, str] = {}
        self._lines: dict[str, int] = {}
        self._met: set[str] = set()
        self._without: list[str] = []
        for line, value in read_jsonl(project.root / self.file, self.file):
            if not isinstance(value, dict):
                found = json_kind(value)
                raise ConfigError.at(self.file, line, f"a line is an object with `case` and `text`, found {found}")
            for key in ("case", "text"):
                if not isinstance(value.get(key), str):
                    found = f"found {json_kind(value[key])}" if key in value else "which is not there"
                    raise ConfigError.at(self.file, line, f"`{key}` must be text, {found}")
            case_id = value["case"]
            if case_id in self._lines:
                raise ConfigError.at(
                    self.file,
                    line,
                    f"the case {shortened(case_id)} is rewritten on line {self._lines[case_id]} already; remove one",
                )
            self._texts[case_id], self._lines[case_id] = value["text"], line

    def has(self, case_id: str) -> bool:
        """Whether a case is to have a copy; noted for `notes`."""
        self._met.add(case_id)
        if case_id not in self._texts:
            self._without.append(case_id)
        return case_id in self._texts

    def __call__(self, text: str, case_id: str) -> str:
        """The text that takes the place of a case's own."""
        return self._texts[case_id]

    def notes(self) -> list[str]:
        """A line where cases have no text here and therefore no copy, and one where texts are of no case."""
        found = []
        if self._without:
            n, of = len(self._without), counted(len(self._met), "case")
            found.append(
                f"transform {self._name!r}: {n} of {of} without a line in {self.file} and without a copy, the first:"
                f" {shortened(self._without[0])}"
            )
        strange = [(line, case_id) for case_id, line in self._lines.items() if case_id not in self._met]
        if strange:
            line, case_id = strange[0]
            found.append(
                f"{self.file}: {counted(len(strange), 'line')} for no case of {self._project.suite.dataset}, the first:"
                f" line {line}, {shortened(case_id)}"
            )
        return found


def function_of(project: Project, transform: TransformDeclaration) -> Rewriter:
    """A transform's function, imported afresh; the one place where it is called and what it raises is caught.

    Raises:
        ConfigError: it cannot be imported, or cannot be called with a text and a case's id.
    """
    name, key = str(transform.callable), f"metamorphic.transforms.{project.transforms.index(transform)}.callable"
    own = OwnFiles.of(project, name)
    own.forget()
    function = load_attribute(project, name, key)
    if not takes(function, 2):
        raise project.problem(
            key, f"{name} must be callable with two arguments, the text and the case's id; it is {shape(function)}"
        )

    def called(text: str, case_id: str) -> str:
        try:
            found = function(text, case_id)
        except BaseException as error:
            if INTERRUPTS.end_the_run(error):
                raise
            raise ValueError(f"{name} raised {own.describe(error)}") from None
        return _as_text(name, found)

    def rewrite(text: str, case_id: str) -> str:
        first, second = called(text, case_id), called(text, case_id)
        if first != second:
            raise ValueError(
                f"{name} answers {shortened(first)}, and {shortened(second)} when it is called again; the answer must"
                " follow from the text and the case's id, for example by random.Random(case_id)"
            )
        return first

    return rewrite


def _as_text(name: str, found: Any) -> str:
    if type(found) is not str:
        raise ValueError(f"{name} returned {type(found).__name__}, expected text")
    try:
        found.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} returned text that {HALF_PAIR}") from None
    return found


def rewriting_digest(project: Project) -> str | None:
    """The digest of the files of texts and of the functions' code that transforms name; None where they name none.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = []
    for transform in project.transforms:
        if transform.rewrites is not None:
            found.append([transform.name, file_digest(project.root / transform.rewrites, transform.rewrites)])
        elif transform.callable is not None:
            code = OwnFiles.of(project, transform.callable).code_digest
            found.append([transform.name, transform.callable, code])
    return digest("rewriting/v1", found) if found else None
