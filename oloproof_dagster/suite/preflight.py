"""What must be right before the first case runs: cases that evaluators and slices can read, labels, checks, system."""

from collections.abc import Iterable, Iterator
from typing import Any

from oloproof_dagster.digests import digest, parse_canonical
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.evaluator_keys import Contains, FaultRecovery, PythonCheck, StateUnchanged, ToolCalls
from oloproof_dagster.project.files import file_digest
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.paths import ABSENT, PathAmbiguous, lookup, parse_path
from oloproof_dagster.records.tables import CaseRow
from oloproof_dagster.suite.cases import dataset_digest
from oloproof_dagster.suite.labels import read_labels
from oloproof_dagster.suite.rewriting import rewriting_digest
from oloproof_dagster.suite.text_changes import TextChanges
from oloproof_dagster.suite.worlds import named_files
from oloproof_dagster.system.loading import load_attribute, shape, takes
from oloproof_dagster.system.own_files import OwnFiles
from oloproof_dagster.wording import json_kind, shortened


def own_files(project: Project) -> OwnFiles:
    """The user's files behind the system and its environment; their digest is the system's code digest."""
    return OwnFiles.of_system(project, project.suite.system.callable, project.suite.system.environment)


def check_files(project: Project) -> None:
    """Reads every label file and imports every python check.

    Raises:
        ConfigError: with the file, line and key of the first problem.
    """
    for transform in project.transforms:
        read_labels(project, transform)
    for key, name in python_checks(project).items():
        OwnFiles.of(project, name).forget()
        check = load_attribute(project, name, key)
        if not takes(check, 1):
            raise project.problem(key, f"{name} must be callable with one argument, the CaseView; it is {shape(check)}")


def python_checks(project: Project) -> dict[str, str]:
    """The user's checks as `module:function`, by the key that names each."""
    found = {}
    for position, evaluator in enumerate(project.evaluators):
        if isinstance(evaluator, PythonCheck):
            found[f"evaluators.{position}.callable"] = evaluator.callable
        elif isinstance(evaluator, FaultRecovery) and evaluator.check is not None:
            found[f"evaluators.{position}.check"] = evaluator.check
    return found


def read_apart(project: Project) -> frozenset[str]:
    """The project's files that are in some key though the system's code digest leaves them out: the worlds of cases,
    rewrites, and the code of checks and of transforms' functions."""
    functions = [*python_checks(project).values(), *(each.callable for each in project.transforms)]
    paths = {*named_files(project), *OwnFiles.of(project, *functions).modules.values()}
    paths |= {project.root / each.rewrites for each in project.transforms if each.rewrites}
    return frozenset(path.relative_to(project.root).as_posix() for path in paths if path.is_relative_to(project.root))


def files_digest(project: Project) -> str:
    """A digest over what `check_files` and loading the system read; equal digests need no second look."""
    files: list[Any] = [own_files(project).code_digest]
    files += [OwnFiles.of(project, name).code_digest for name in python_checks(project).values()]
    for transform in project.transforms:
        if transform.validity_labels:
            files.append(file_digest(project.root / transform.validity_labels, transform.validity_labels))
    rewriting = rewriting_digest(project)
    files += [rewriting] if rewriting else []
    declared = project.suite.model_dump(mode="json", include={"system", "evaluators"})
    return digest("preflight/v1", [declared, files])


def readable_by_all(project: Project, cases: Iterable[CaseRow]) -> Iterator[CaseRow]:
    """The cases, each checked against the transforms, slices and evaluators that will read it.

    Raises:
        ConfigError: a transform that cannot be applied or whose texts or function cannot be used, a slice over an
            object or list, or `contains` with an expectation that is no text.
    """
    by_metadata = [each for each in project.slices if each.kind == "metadata"]
    contains = [each for each in project.evaluators if isinstance(each, Contains)]
    unchanged = any(isinstance(each, StateUnchanged) for each in project.evaluators)
    calls = any(isinstance(each, ToolCalls) and each.expected_calls for each in project.evaluators)
    changes = TextChanges(project)
    for case in cases:
        changes.of(case)
        for each in by_metadata:
            try:
                each.value_of(parse_canonical(case.metadata), None)
            except ValueError as error:
                who = f"case {shortened(case.case_id)}"
                raise ConfigError.at(project.suite.dataset, case.line, f"{who}: {error}") from None
        for declared in contains:
            try:
                expected = lookup(parse_canonical(case.expected), parse_path(declared.expected_at))
            except PathAmbiguous:
                continue  # the case's verdict says so
            if expected is not ABSENT and expected is not None and not isinstance(expected, str):
                raise ConfigError.at(
                    project.suite.dataset,
                    case.line,
                    f"case {shortened(case.case_id)}: evaluator {declared.name!r} looks for text, found"
                    f" {json_kind(expected)} at {shortened(declared.expected_at)} of `expected`",
                )
        wrong = (unchanged and _not_paths(case)) or (calls and _not_calls(case))
        if wrong:
            raise ConfigError.at(project.suite.dataset, case.line, f"case {shortened(case.case_id)}: {wrong}")
        yield case


def _not_paths(case: CaseRow) -> str | None:
    """What is wrong with `expected.may_change`, or None."""
    paths = lookup(parse_canonical(case.expected), ("may_change",))
    if paths is ABSENT:
        return None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return '`expected.may_change` must be a list of paths, such as ["orders.ord-2"]'
    for path in paths:
        try:
            if not parse_path(path) or path == "*":
                return f"`expected.may_change` holds {shortened(path)}, which leaves nothing to compare"
        except ValueError as error:
            return f"`expected.may_change`: {error}"
    return None


def _not_calls(case: CaseRow) -> str | None:
    """What is wrong with `expected.tool_calls`, or None."""
    calls = lookup(parse_canonical(case.expected), ("tool_calls",))
    if calls is ABSENT:
        return None
    right = isinstance(calls, list) and all(
        isinstance(each, dict) and isinstance(each.get("tool"), str) and not set(each) - {"tool", "arguments"}
        for each in calls
    )
    return None if right else '`expected.tool_calls` must be a list such as [{"tool": "refund", "arguments": {}}]'


def project_digest(project: Project) -> str:
    """A digest over everything of the project's that a run reads: a failed run is worth another once it changes."""
    policy = project.policy.model_dump(mode="json") if project.policy else None
    return digest(
        "project/v1", [project.suite.model_dump(mode="json"), policy, files_digest(project), dataset_digest(project)]
    )
