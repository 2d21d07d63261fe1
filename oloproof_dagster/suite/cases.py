"""The dataset read: every case of the JSONL file, checked and digested, in the file's order."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oloproof_dagster.digests import canonical_json, digest, digest_of_text, dump, dump_in_order, json_object, sha256
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import file_digest, read_jsonl
from oloproof_dagster.project.project import Project
from oloproof_dagster.records.patches import patched
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import CaseRow
from oloproof_dagster.suite.worlds import FILE, PATCH, World, Worlds, files_digest
from oloproof_dagster.wording import did_you_mean, json_kind, shortened

READER_VERSION = "2"
KEYS = ("id", "input", "initial_state", FILE, PATCH, "expected", "metadata", "group_id")


def case_digest(*, input: str, expected: str, metadata: str, group_id: str | None, initial_state: str | None) -> str:
    """`scenario/v1` of a case given as canonical texts; `initial_state` counts only where it is declared."""
    members = {"input": input, "expected": expected, "metadata": metadata, "group_id": canonical_json(group_id)}
    if initial_state is not None:
        members["initial_state"] = initial_state
    return digest_of_text("scenario/v1", json_object(**members))


@dataclass
class ReadNotes:
    """What a reader noticed on the way: warnings for a person, and how many cases there are."""

    warnings: list[str] = field(default_factory=list)
    n_cases: int = 0


def read_cases(project: Project, notes: ReadNotes | None = None) -> Iterator[CaseRow]:
    """The cases of a project's dataset, one at a time; ids are unique, the all-or-none keys are checked.

    Raises:
        ConfigError: naming the dataset's file and line.
    """
    notes = notes or ReadNotes()
    name = project.suite.dataset
    first_line: dict[str, tuple[int, str]] = {}
    declared: dict[str, tuple[bool, int]] = {}
    n_without_id, worlds = 0, Worlds(project)
    for line, value in read_jsonl(project.dataset, name):
        case = _case(value, worlds, name, line)
        if case.case_id == "":
            if project.transforms:
                raise ConfigError.at(
                    name, line, "the case has no `id`; with transforms every case needs one, as labels name cases by it"
                )
            case = _named_by_digest(case)
            n_without_id += 1
            if case.case_id in first_line:
                raise ConfigError.at(
                    name,
                    line,
                    f"the case is named by its digest, {case.case_id}, as is the one on line"
                    f" {first_line[case.case_id][0]}: give both an `id`, or remove one",
                )
        _check_suite_wide(project, case, name, declared)
        read_as = _as_read(case.case_id)
        if read_as in first_line:
            raise ConfigError.at(name, line, _twice(case.case_id, *first_line[read_as], line))
        first_line[read_as] = (line, case.case_id)
        notes.n_cases += 1
        yield case
    if not notes.n_cases:
        raise ConfigError.at(name, None, "holds no case; write one JSON object a line, with `id` and `input`")
    if n_without_id:
        notes.warnings.append(
            f"{name}: {n_without_id} case(s) without `id` are named by their digest: an edited case gets another name"
        )


def _case(value: Any, worlds: Worlds, name: str, line: int) -> CaseRow:
    def refuse(message: str) -> ConfigError:
        return ConfigError.at(name, line, message)

    if not isinstance(value, dict):
        raise refuse(f"a case is a JSON object with `id` and `input`, one a line, found {json_kind(value)}")
    case_id = value.get("id", "")
    if not isinstance(case_id, str) or ("id" in value and not case_id):
        raise refuse(f"`id` must be text and not empty, found {json_kind(case_id)}")
    who = f"case {shortened(case_id)}" if case_id else "the case"
    for key in value:
        if key not in KEYS:
            known = f"keys are {', '.join(KEYS)}{did_you_mean(key, KEYS)}"
            raise refuse(f"{who}: {shortened(key)} is not a key of a case; {known}")
    if "input" not in value:
        raise refuse(f"{who}: `input` is required and not there")
    if value["input"] is None:
        raise refuse(f"{who}: `input` must not be null; write what the system is called with")
    if "metadata" in value and not isinstance(value["metadata"], dict):
        found = json_kind(value["metadata"])
        raise refuse(f"{who}: `metadata` must be a JSON object, found {found}; or leave it out")
    group_id = value.get("group_id")
    if "group_id" in value and not (isinstance(group_id, str) and group_id):
        raise refuse(f"{who}: `group_id` must be text and not empty, found {json_kind(group_id)}; or leave it out")
    try:
        world = worlds.of(value)
        _check_state_patch(value.get("expected"), world)
    except ValueError as error:
        raise refuse(f"{who}: {error}") from None
    return CaseRow(
        case_id=case_id,
        digest=case_digest(
            input=dump(value["input"]),
            expected=dump(value.get("expected")),
            metadata=dump(value.get("metadata", {})),
            group_id=group_id,
            initial_state=None if world is None else world.canonical,
        ),
        line=line,
        input=JSONText(dump_in_order(value["input"])),
        expected=JSONText(dump_in_order(value.get("expected"))),
        metadata=JSONText(dump_in_order(value.get("metadata", {}))),
        group_id=group_id,
        initial_state=None if world is None else JSONText(world.text),
    )


def _as_read(case_id: str) -> str:
    """An id as people read it: composed letters, no space at either end."""
    return unicodedata.normalize("NFC", case_id).strip()


def _twice(case_id: str, first_line: int, first: str, line: int) -> str:
    if case_id == first:
        return f"the id {shortened(case_id)} stands on line {first_line} already; ids are unique, so change one"
    return (
        f"the id {case_id!a} on line {line} reads like {first!a} on line {first_line}: they differ in spaces"
        " at an end or in how letters are composed; ids are unique, so change one"
    )


def _check_state_patch(expected: Any, world: World | None) -> None:
    """Raises ValueError where `expected.state_patch` cannot be what `state_matches` reads."""
    if not isinstance(expected, dict) or "state_patch" not in expected:
        return
    if "state" in expected:
        raise ValueError("`expected.state` and `expected.state_patch` both say what state is expected; remove one")
    if world is None:
        raise ValueError("`expected.state_patch` changes the initial state, and the case declares none")
    try:
        patched(world.state, expected["state_patch"])
    except ValueError as error:
        raise ValueError(f"`expected.state_patch`: {error}") from None


def _named_by_digest(case: CaseRow) -> CaseRow:
    members = {key: getattr(case, key) for key in CaseRow.__dataclass_fields__}
    return CaseRow(**members | {"case_id": case.digest.removeprefix("sha256:")[:16]})


def _check_suite_wide(project: Project, case: CaseRow, name: str, declared: dict[str, tuple[bool, int]]) -> None:
    for key in ("initial_state", "group_id"):
        there = getattr(case, key) is not None
        first, first_line = declared.setdefault(key, (there, case.line))
        if there != first:
            lines = (case.line, first_line) if there else (first_line, case.line)
            raise ConfigError.at(
                name,
                case.line,
                f"case {shortened(case.case_id)}: `{key}` stands on every case or on none;"
                f" line {lines[0]} has it, line {lines[1]} does not",
            )


def dataset_digest(project: Project) -> str:
    """The digest of the dataset file's bytes and of the files that its cases name.

    Raises:
        ConfigError: the file cannot be read.
    """
    own, named = file_digest(project.dataset, project.suite.dataset), files_digest(project)
    return digest("dataset/v1", [own, named]) if named else own


def suite_digest(digests: Iterator[tuple[str, str]]) -> str:
    """`suite/v1` over (case id, case digest) of every case, derived ones included."""
    pairs = ",".join(f"[{canonical_json(case_id)},{canonical_json(digest)}]" for case_id, digest in sorted(digests))
    return sha256(f"suite/v1\0[{pairs}]")
