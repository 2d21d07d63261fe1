"""Transforms whose texts are written elsewhere: by people or models in a file, or by a function."""

import json
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.digests import digest, parse_canonical
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.suite.cases import ReadNotes, read_cases
from oloproof_dagster.suite.labels import pairs_to_read
from oloproof_dagster.suite.preflight import files_digest
from oloproof_dagster.suite.rewriting import rewriting_digest
from oloproof_dagster.suite.transforms import expand
from tests.support.projects import case, write_project

CASES, FILE = "data/cases.jsonl", "data/paraphrases.jsonl"
REWORDED = {"name": "reworded", "field": "note", "rewrites": FILE}
TYPOS = {"name": "typos", "field": "note", "callable": "typos:swap"}
IN_THE_WORLD = {"target": "initial_state", "field": "mail.*.body"}
MAIL = {"mail": [{"body": "one"}, {"body": "two"}]}
SWAP = "def swap(text, case_id):\n    return f'{text[::-1]} ({case_id})'\n"


def lines(*texts: tuple[str, str]) -> str:
    return "".join(json.dumps({"case": case_id, "text": text, "by": "ada"}) + "\n" for case_id, text in texts)


def project_of(root: Path, transform: dict[str, Any], *, world: Any = MAIL, files: dict[str, str]) -> Project:
    cases = [case(n, initial_state=world) for n in (1, 2)]
    write_project(root, cases=cases, suite={"metamorphic": {"transforms": [transform]}}, files=files)
    return load_project(root)


def suite_of(project: Project, notes: ReadNotes | None = None) -> list[SuiteRow]:
    return list(expand(project, read_cases(project), notes))


def refusal(project: Project) -> str:
    with pytest.raises(ConfigError) as caught:
        suite_of(project)
    return str(caught.value)


# A file of texts.


def test_a_line_of_the_file_takes_the_place_of_its_cases_text(tmp_path: Path) -> None:
    texts = lines(("c-002", "Two more, would you?"), ("c-001", "Put one on it."))
    source, copy, _, other = suite_of(project_of(tmp_path, REWORDED, files={FILE: texts}))
    assert parse_canonical(copy.input) == parse_canonical(source.input) | {"note": "Put one on it."}
    assert parse_canonical(other.input)["note"] == "Two more, would you?"


def test_the_digests_of_a_rewritten_pair_hold_its_texts(tmp_path: Path) -> None:
    texts = lines(("c-001", "Put one on it."), ("c-002", "x"))
    project = project_of(tmp_path, REWORDED, files={FILE: texts})
    _, copy, *_ = suite = suite_of(project)
    members = {"name": "reworded", "version": 1, "target": "input", "field": "note", "kind": "rewrites"}
    transform = digest("metamorphic_transform/v2", members | {"template": None, "replace": None})
    assert parse_canonical(copy.metadata)["metamorphic"]["digest"] == transform
    pair = {"transform": transform, "texts": [["/note", "Please add 1", "Put one on it."]]}
    assert copy.pair_digest == digest("metamorphic_pair/v2", pair)
    read = next(pairs_to_read(project.transforms[0], suite, {}))
    assert (read["source"], read["derived"]) == ("Please add 1", "Put one on it.")


def test_a_case_without_a_line_has_no_copy_and_is_counted(tmp_path: Path) -> None:
    notes = ReadNotes()
    texts = lines(("c-002", "Put two on it."), ("c-009", "who?"))
    rows = suite_of(project_of(tmp_path, REWORDED, files={FILE: texts}), notes)
    assert [row.case_id for row in rows] == ["c-001", "c-002", "c-002~reworded"]
    assert notes.warnings == [
        f"transform 'reworded': 1 of 2 cases without a line in {FILE} and without a copy, the first: 'c-001'",
        f"{FILE}: 1 line for no case of data/cases.jsonl, the first: line 2, 'c-009'",
    ]


def test_a_file_that_fits_the_dataset_is_not_spoken_of(tmp_path: Path) -> None:
    notes = ReadNotes()
    suite_of(project_of(tmp_path, REWORDED, files={FILE: lines(("c-001", "x"), ("c-002", "y"))}), notes)
    assert notes.warnings == []


def test_a_text_of_the_world_is_rewritten(tmp_path: Path) -> None:
    transform = REWORDED | IN_THE_WORLD | {"field": "mail.1.body"}
    _, copy, *_ = suite_of(project_of(tmp_path, transform, files={FILE: lines(("c-001", "TWO"))}))
    assert parse_canonical(copy.initial_state or "") == {"mail": [{"body": "one"}, {"body": "TWO"}]}


def test_a_line_for_several_texts_is_refused(tmp_path: Path) -> None:
    project = project_of(tmp_path, REWORDED | IN_THE_WORLD, files={FILE: lines(("c-002", "TWO"))})
    assert refusal(project) == (
        "data/cases.jsonl:2: case 'c-002', transform 'reworded': 2 texts stand at 'mail.*.body', and a line of"
        f" {FILE} rewrites one; name one of them in `field`"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (lines(("c-001", "Please add 1")), f"{CASES}:1: case 'c-001', transform 'reworded': 'Please add 1' stays"),
        (lines(*2 * [("c-001", "a")]), f"{FILE}:2: the case 'c-001' is rewritten on line 1 already; remove one"),
        ("[1]\n", f"{FILE}:1: a line is an object with `case` and `text`, found a list"),
        ('{"case": "c-001"}\n', f"{FILE}:1: `text` must be text, which is not there"),
        ('{"case": 1, "text": "x"}\n', f"{FILE}:1: `case` must be text, found the number 1"),
        ('\n{"case": "c-001", "text": }\n', f"{FILE}:2: not JSON"),
    ],
)
def test_a_file_that_says_nothing_usable_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert refusal(project_of(tmp_path, REWORDED, files={FILE: text})).startswith(told)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"transforms.0.rewrites: there is no file 'data/paraphrases.jsonl'"):
        project_of(tmp_path, REWORDED, files={})


# A function.


def test_a_function_is_called_with_the_text_and_the_cases_id(tmp_path: Path) -> None:
    _, copy, *_ = suite_of(project_of(tmp_path, TYPOS, files={"typos.py": SWAP}))
    assert parse_canonical(copy.input)["note"] == "1 dda esaelP (c-001)"


def test_a_function_changes_every_text_of_the_world_that_the_field_leads_to(tmp_path: Path) -> None:
    _, copy, *_ = suite_of(project_of(tmp_path, TYPOS | IN_THE_WORLD, files={"typos.py": SWAP}))
    assert [each["body"] for each in parse_canonical(copy.initial_state or "")["mail"]] == [
        "eno (c-001)",
        "owt (c-001)",
    ]


AT = "data/cases.jsonl:1: case 'c-001', transform 'typos': "


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return next(COUNT)", AT + "typos:swap answers '0', and '1' when it is called again"),
        ("return text", AT + "'Please add 1' stays as it is, and a pair equal to its source tests nothing"),
        ("return 5", AT + "typos:swap returned int, expected text"),
        ("return '\\ud800'", AT + "typos:swap returned text that holds half of a surrogate pair"),
        ("raise ValueError('no')", AT + "typos:swap raised ValueError: no"),
        ("raise SystemExit", AT + "typos:swap raised SystemExit"),
    ],
)
def test_a_function_that_gives_no_text_of_its_own_is_refused_with_the_case(
    tmp_path: Path, body: str, told: str
) -> None:
    code = f"COUNT = iter('0123456789')\n\n\ndef swap(text, case_id):\n    {body}\n"
    assert refusal(project_of(tmp_path, TYPOS, files={"typos.py": code})).startswith(told)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def swap(text):\n    return text\n", "typos:swap must be callable with two arguments, the text and the"),
        ("swapped = 1\n", "typos has no 'swap'; did you mean 'swapped'?"),
        ("import nowhere\n", "cannot import typos"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_with_its_key(tmp_path: Path, code: str, told: str) -> None:
    found = refusal(project_of(tmp_path, TYPOS, files={"typos.py": code}))
    assert found.startswith("oloproof.yaml:")
    assert f"metamorphic.transforms.0.callable: {told}" in found


# What a run reads again.


@pytest.mark.parametrize(
    ("transform", "files", "edited"),
    [
        (REWORDED, {FILE: lines(("c-001", "x"))}, {FILE: lines(("c-001", "y"))}),
        (TYPOS, {"typos.py": SWAP}, {"typos.py": SWAP.replace("::-1", "::-2")}),
        (
            TYPOS,
            {"typos.py": "from letters import swap\n", "letters.py": SWAP},
            {"typos.py": "from letters import swap\n", "letters.py": SWAP + "\n"},
        ),
    ],
)
def test_an_edited_text_or_function_is_read_again(
    tmp_path: Path, transform: dict[str, Any], files: dict[str, str], edited: dict[str, str]
) -> None:
    before, after = (
        project_of(tmp_path / name, transform, files=each) for name, each in zip("ab", (files, edited), strict=True)
    )
    assert rewriting_digest(before) != rewriting_digest(after)
    assert files_digest(before) != files_digest(after)


def test_without_such_a_transform_there_is_nothing_more_to_read(tmp_path: Path) -> None:
    polite = {"name": "polite", "field": "note", "template": "{value}, kindly"}
    assert rewriting_digest(project_of(tmp_path, polite, files={})) is None


@pytest.mark.parametrize("ways", [("template", "callable"), ("rewrites", "callable"), ("replace", "rewrites")])
def test_a_transform_has_one_way_to_change_a_text(tmp_path: Path, ways: tuple[str, str]) -> None:
    all_ways = {"template": "{value}!", "replace": [["a", "b"]], "rewrites": FILE, "callable": "typos:swap"}
    transform = {"name": "t", "field": "note"} | {way: all_ways[way] for way in ways}
    with pytest.raises(ConfigError, match=f"template, replace, rewrites and callable, found {' and '.join(ways)}"):
        project_of(tmp_path, transform, files={FILE: "", "typos.py": SWAP})
