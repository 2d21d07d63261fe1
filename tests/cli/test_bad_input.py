"""What people get wrong in their files: one line each, with the place and what to write, before anything has run."""

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.cli.main import main
from oloproof_dagster.errors import LONGEST_MESSAGE, ConfigError
from oloproof_dagster.project.project import load_project
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.preflight import check_files, readable_by_all
from oloproof_dagster.suite.transforms import expand
from oloproof_dagster.system.loading import load_system
from oloproof_dagster.wording import did_you_mean

SUITE = """\
version: 1
project: till
dataset: data/cases.jsonl
system:
  name: till
  version: v1
  callable: app:till
  records: [agent_trajectory/v1]
sandbox: {workers: 1}
trials: 1
metamorphic:
  transforms:
    - name: polite
      version: 1
      field: note
      template: "{value}, please"
      validity_labels: labels/polite.jsonl
      minimum_validity: 0.5
evaluators:
  - {type: exact_match, criterion: right, field: answer, expected_field: answer}
  - {type: contains, criterion: mentions, field: answer, expected_field: answer}
  - {type: state_matches, mode: subset}
  - {type: state_unchanged, criterion: other_untouched, paths: [other]}
  - {type: tool_calls, must: [add]}
  - {type: fault_recovery, tool: add, fault: error}
  - {type: metamorphic_relation, relation: same_output, transform: polite}
  - {type: python, criterion: brief, callable: checks:is_brief}
slices: [metadata.kind, first_tool]
min_slice_support: 1
schedule: {cron: "0 2 * * *", timezone: UTC}
"""

RELEASE = """\
version: 1
confidence_level: 0.95
allow_approximate_methods: true
min_clusters: 10
rules:
  - {id: right, metric: right, min: 0.5}
  - {id: safe, metric: other_untouched, max_failures: 0}
"""

CASES = "".join(
    f'{{"id": "c-{n}", "input": {{"note": "Add {n}"}}, "initial_state": {{"other": 1}}, "expected":'
    f' {{"answer": "added", "state": {{"other": 1}}}}, "metadata": {{"kind": "sum"}}, "group_id": "g{n}"}}\n'
    for n in (1, 2, 3)
)

DIGEST = "sha256:" + 64 * "0"
LABELS = f'{{"case": "c-1~polite", "digest": "{DIGEST}", "kept": true, "note": "as before"}}\n'

APP = """\
from pathlib import Path


class Till:
    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, request):
        Path(__file__).with_name("called").touch()
        return {"answer": "added"}

    def replay(self, trajectory, *, checkpoint, change):
        Path(__file__).with_name("called").touch()


till = Till()
"""

CHECKS = """\
def is_brief(case):
    return True
"""

WORKING = {
    "oloproof.yaml": SUITE,
    "release.yaml": RELEASE,
    "data/cases.jsonl": CASES,
    "labels/polite.jsonl": LABELS,
    "app.py": APP,
    "checks.py": CHECKS,
}

SYSTEM = SUITE[SUITE.index("system:") : SUITE.index("sandbox:")]
TRANSFORMS = SUITE[SUITE.index("metamorphic:\n") : SUITE.index("evaluators:")]
RELATION = "  - {type: metamorphic_relation, relation: same_output, transform: polite}\n"
A_BILLION_LAUGHS = "a: &a [lol]\n" + "".join(
    f"{this}: &{this} [{', '.join(9 * ['*' + former])}]\n" for former, this in itertools.pairwise("abcdefghij")
)

Change = Callable[[Path], None]


def write_working(root: Path) -> Path:
    for name, text in WORKING.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def instead(file: str, old: str, new: str) -> Change:
    """The file with one passage, which must stand there once, written differently."""

    def change(root: Path) -> None:
        text = (root / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
        (root / file).write_text(text.replace(old, new), encoding="utf-8")

    return change


def suite(old: str, new: str) -> Change:
    return instead("oloproof.yaml", old, new)


def app(old: str, new: str) -> Change:
    return instead("app.py", old, new)


def rule(keys: str) -> Change:
    return written("release.yaml", f"{RELEASE}  - {{{keys}}}\n")


def member(old: str, new: str) -> Change:
    """A passage of the second case written differently."""
    line = CASES.splitlines()[1]
    assert line.count(old) == 1, f"{old!r} stands {line.count(old)} times in the case"
    return case(line.replace(old, new))


def case(line: str) -> Change:
    """The second case written differently."""
    first, _, third = CASES.splitlines()
    return written("data/cases.jsonl", f"{first}\n{line}\n{third}\n")


def both(*changes: Change) -> Change:
    def change(root: Path) -> None:
        for each in changes:
            each(root)

    return change


def written(file: str, content: str | bytes) -> Change:
    def change(root: Path) -> None:
        (root / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def removed(file: str) -> Change:
    def change(root: Path) -> None:
        (root / file).unlink()

    return change


def folder(file: str) -> Change:
    def change(root: Path) -> None:
        (root / file).unlink()
        (root / file).mkdir()

    return change


def renamed(file: str, to: str) -> Change:
    def change(root: Path) -> None:
        (root / file).rename(root / to)

    return change


def linked(file: str, to: str) -> Change:
    def change(root: Path) -> None:
        (root / file).unlink()
        (root / file).symlink_to(to)

    return change


def pipe(file: str) -> Change:
    def change(root: Path) -> None:
        (root / file).unlink()
        os.mkfifo(root / file)

    return change


OTHERS: list[tuple[str, Change, str]] = [
    (
        "oloproof.yaml empty",
        written("oloproof.yaml", ""),
        "oloproof.yaml:1: must hold keys and values, such as `version: 1`",
    ),
    (
        "bom only",
        written("oloproof.yaml", b"\xef\xbb\xbf"),
        "oloproof.yaml:1: must hold keys and values, such as `version: 1`",
    ),
    (
        "utf16",
        written("oloproof.yaml", SUITE.encode("utf-16")),
        "oloproof.yaml:1: is not UTF-8; save the file as UTF-8",
    ),
    (
        "latin1",
        written("oloproof.yaml", SUITE.replace("till\n  version", "t\xfcll\n  version").encode("latin-1")),
        "oloproof.yaml:5: is not UTF-8; save the file as UTF-8",
    ),
    (
        "list",
        written("oloproof.yaml", "- a\n- b\n"),
        "oloproof.yaml:1: must hold keys and values, such as `version: 1`",
    ),
    (
        "scalar",
        written("oloproof.yaml", "version\n"),
        "oloproof.yaml:1: must hold keys and values, such as `version: 1`",
    ),
    (
        "tab",
        suite("  name: till", "\tname: till"),
        "oloproof.yaml:5: not readable as YAML: found character '\\t' that cannot start any token",
    ),
    (
        "nul char",
        suite("name: till", "name: till\u0000"),
        "oloproof.yaml:5: not readable as YAML: the character #x0000 is not allowed; remove it",
    ),
    (
        "control char",
        suite("name: till", "name: t\u0007ill"),
        "oloproof.yaml:5: not readable as YAML: the character #x0007 is not allowed; remove it",
    ),
    (
        "billion laughs",
        suite("sandbox: {workers: 1}", A_BILLION_LAUGHS),
        "oloproof.yaml:10: not readable as YAML: aliases (*) repeat more than 10000 values; write them out",
    ),
    (
        "deep",
        suite("sandbox: {workers: 1}", "sandbox: " + "[" * 300 + "]" * 300),
        "oloproof.yaml:9: not readable as YAML: is nested more than 200 levels deep",
    ),
    (
        "very deep",
        suite("sandbox: {workers: 1}", "sandbox: " + "[" * 100000),
        "oloproof.yaml: not readable as YAML: is nested more than 200 levels deep",
    ),
    (
        "long key",
        suite("trials: 1", "? " + "k" * 10**6 + "\n: 1"),
        "oloproof.yaml:10: …..: there is no such key; keys here are …",
    ),
    (
        "missing evaluators",
        written("oloproof.yaml", SUITE.partition("evaluators:")[0]),
        "oloproof.yaml:1: evaluators: is required and not there",
    ),
    (
        "dataset folder",
        folder("data/cases.jsonl"),
        (
            "oloproof.yaml:3: dataset: there is no file 'data/cases.jsonl' in the project's folder; write a path "
            "relative to oloproof.yaml"
        ),
    ),
    (
        "dataset long",
        suite("data/cases.jsonl", "x" * 5000),
        (
            "oloproof.yaml:3: dataset: there is no file '…... in the project's folder; write a path relative to "
            "oloproof.yaml"
        ),
    ),
    (
        "dataset linked outside",
        linked("data/cases.jsonl", "/etc/passwd"),
        (
            "oloproof.yaml:3: dataset: 'data/cases.jsonl' lies outside the project's folder; copy the file into the "
            "folder"
        ),
    ),
    (
        "dataset linked loop",
        linked("data/cases.jsonl", "cases.jsonl"),
        (
            "oloproof.yaml:3: dataset: there is no file 'data/cases.jsonl' in the project's folder; write a path "
            "relative to oloproof.yaml"
        ),
    ),
    (
        "dataset pipe",
        pipe("data/cases.jsonl"),
        (
            "oloproof.yaml:3: dataset: there is no file 'data/cases.jsonl' in the project's folder; write a path "
            "relative to oloproof.yaml"
        ),
    ),
    (
        "version 201",
        suite("version: v1", "version: " + "x" * 201),
        "oloproof.yaml:6: system.version: must have 1 to 200 characters, has 201",
    ),
    (
        "callable long",
        suite("app:till", "a" * 10**5 + ":till"),
        "oloproof.yaml:7: system.callable: there is no module '…..., neither among the files in … nor installed",
    ),
    (
        "callable long for a file name",
        suite("app:till", "a" * 300 + ":till"),
        "oloproof.yaml:7: system.callable: there is no module '…..., neither among the files in … nor installed",
    ),
    (
        "workers huge",
        suite("workers: 1", "workers: " + "9" * 5000),
        "oloproof.yaml:9: sandbox.workers: must be a whole number in plain decimal digits, found '…...",
    ),
    (
        "evaluators empty",
        written("oloproof.yaml", SUITE.partition("evaluators:")[0] + "evaluators: []\n"),
        "oloproof.yaml:19: evaluators: needs at least one, such as {type: state_matches}",
    ),
    (
        "evaluators null",
        written("oloproof.yaml", SUITE.partition("evaluators:")[0] + "evaluators:\n"),
        "oloproof.yaml:19: evaluators: must be a list, found nothing",
    ),
    (
        "slice digits",
        suite("first_tool]", "'tool_calls:" + "9" * 5000 + "']"),
        (
            "oloproof.yaml:28: slices.1: 'tool_calls:…... has a bound of more than 18 characters; write one that a "
            "case can reach"
        ),
    ),
    ("release empty", written("release.yaml", ""), "release.yaml:1: must hold keys and values, such as `version: 1`"),
    ("release folder", folder("release.yaml"), "release.yaml: is not a file but a folder, a pipe or a device"),
    ("release pipe", pipe("release.yaml"), "release.yaml: is not a file but a folder, a pipe or a device"),
    ("release dangling", linked("release.yaml", "nowhere.yaml"), "release.yaml: there is no such file (looked in …)"),
    ("release.yml", renamed("release.yaml", "release.yml"), "release.yml: is not read; rename it to release.yaml"),
    (
        "rules empty",
        written("release.yaml", "version: 1\nrules: []\n"),
        "release.yaml:2: rules: a policy needs at least one rule; delete the file to measure without deciding",
    ),
    ("rules missing", written("release.yaml", "version: 1\n"), "release.yaml:1: rules: is required and not there"),
    (
        "rules map",
        written("release.yaml", "version: 1\nrules: {right: {min: 1}}\n"),
        "release.yaml:2: rules: must be a list, found keys and values",
    ),
    (
        "rule count huge",
        rule("id: x, metric: right, max_failures: " + "9" * 5000),
        "release.yaml:8: rules.2.max_failures: must be a whole number in plain decimal digits, found '…...",
    ),
    (
        "dataset of nothing",
        written("data/cases.jsonl", ""),
        "data/cases.jsonl: holds no case; write one JSON object a line, with `id` and `input`",
    ),
    (
        "dataset blank",
        written("data/cases.jsonl", "\n  \n\r\n"),
        "data/cases.jsonl: holds no case; write one JSON object a line, with `id` and `input`",
    ),
    (
        "dataset bom",
        written("data/cases.jsonl", b"\xef\xbb\xbf"),
        "data/cases.jsonl: holds no case; write one JSON object a line, with `id` and `input`",
    ),
    (
        "dataset in utf16",
        written("data/cases.jsonl", CASES.encode("utf-16")),
        "data/cases.jsonl:1: is not UTF-8; save the file as UTF-8",
    ),
    (
        "dataset utf16le",
        written("data/cases.jsonl", CASES.encode("utf-16-le")),
        "data/cases.jsonl:1: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "dataset latin1",
        written("data/cases.jsonl", CASES.encode() + '{"id": "\xfc"}'.encode("latin-1")),
        "data/cases.jsonl:4: is not UTF-8; save the file as UTF-8",
    ),
    (
        "dataset json array",
        written("data/cases.jsonl", "[" + ",".join(CASES.splitlines()) + "]"),
        "data/cases.jsonl:1: a case is a JSON object with `id` and `input`, one a line, found a list",
    ),
    (
        "dataset pretty",
        written("data/cases.jsonl", json.dumps(json.loads(CASES.splitlines()[0]), indent=1)),
        "data/cases.jsonl:1: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "dataset yaml",
        case("id: c-2"),
        "data/cases.jsonl:2: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "single quotes",
        case("{'id': 'c-2'}"),
        "data/cases.jsonl:2: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "two objects",
        case(CASES.splitlines()[1] + CASES.splitlines()[1]),
        "data/cases.jsonl:2: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "unclosed case",
        case(CASES.splitlines()[1][:-1]),
        "data/cases.jsonl:2: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "dup many",
        member(
            '{"answer": "added"',
            "{" + ",".join(f'"k{i}": 1' for i in range(200000)) + ', "k199999": 1, "answer": "added"',
        ),
        "data/cases.jsonl:2: the key 'k199999' stands twice in one object; remove one",
    ),
    (
        "deep case just so",
        member('"Add 2"', "[" * 300 + "]" * 300),
        "data/cases.jsonl:2: is nested more than 200 levels deep",
    ),
    (
        "deep case",
        member('"Add 2"', "[" * 100000 + "]" * 100000),
        "data/cases.jsonl:2: is nested more than 200 levels deep",
    ),
    (
        "control",
        member("Add 2", "Add\t2"),
        "data/cases.jsonl:2: not JSON at column …: …; each line holds one whole JSON object",
    ),
    (
        "number line",
        case("3"),
        "data/cases.jsonl:2: a case is a JSON object with `id` and `input`, one a line, found the number 3",
    ),
    (
        "null line",
        case("null"),
        "data/cases.jsonl:2: a case is a JSON object with `id` and `input`, one a line, found null",
    ),
    (
        "id long tilde",
        member('"c-2"', '"' + "x" * 10**6 + '~"'),
        "data/cases.jsonl:2: case '…...: an id may not hold `~`, which names derived cases; rename the case",
    ),
    (
        "key 1MB",
        member('"input"', '"' + "k" * 10**6 + '"'),
        (
            "data/cases.jsonl:2: case 'c-2': '…... is not a key of a case; keys are id, input, initial_state, "
            "initial_state_file, initial_state_patch, expected, metadata, group_id"
        ),
    ),
    (
        "same case twice no id",
        both(
            suite(TRANSFORMS, ""),
            suite(RELATION, ""),
            written("data/cases.jsonl", 2 * (CASES.splitlines()[0].replace('"id": "c-1", ', "") + "\n")),
        ),
        (
            "data/cases.jsonl:2: the case is named by its digest, fb9aafd710aee3ef, as is the one on line 1: give "
            "both an `id`, or remove one"
        ),
    ),
    (
        "labels utf8",
        written("labels/polite.jsonl", b"\xff"),
        "labels/polite.jsonl:1: is not UTF-8; save the file as UTF-8",
    ),
    (
        "app missing",
        removed("app.py"),
        "oloproof.yaml:7: system.callable: there is no module 'app', neither among the files in … nor installed",
    ),
    (
        "app nested too deep",
        app("till = Till()", "x = " + "(" * 5000 + ")" * 5000),
        "oloproof.yaml:7: system.callable: cannot import app: SyntaxError: … (app.py:19)",
    ),
    (
        "app null byte",
        written("app.py", b"x = 1\0"),
        "oloproof.yaml:7: system.callable: cannot import app: SyntaxError: …null bytes",
    ),
    (
        "app latin1",
        written("app.py", "# \xfc\n".encode("latin-1")),
        "oloproof.yaml:7: system.callable: app has no 'till'",
    ),
    (
        "app class args",
        both(
            app("till = Till()", ""),
            app("class Till:", "class Till:\n    def __init__(self, db):\n        pass\n"),
            suite("app:till", "app:Till"),
        ),
        (
            "oloproof.yaml:7: system.callable: app:Till is a class that cannot be made without arguments: TypeError: "
            "Till.__init__() missing 1 required positional argument: 'db'"
        ),
    ),
    (
        "app class raises",
        both(
            app("till = Till()", ""),
            app("class Till:", "class Till:\n    def __init__(self):\n        raise OSError('no database')\n"),
            suite("app:till", "app:Till"),
        ),
        (
            "oloproof.yaml:7: system.callable: app:Till is a class that cannot be made without arguments: OSError: "
            "no database (app.py:6 in __init__)"
        ),
    ),
    (
        "stdlib name",
        both(renamed("app.py", "calendar.py"), suite("app:till", "calendar:till")),
        (
            "oloproof.yaml:7: system.callable: calendar.py has the name of a module that Python has already, "
            "'calendar'; rename it"
        ),
    ),
    (
        "helper stdlib name",
        both(written("json.py", ""), app("till = Till()", "import json\ntill = Till()")),
        (
            "oloproof.yaml:7: system.callable: json.py has the name of a module that Python has already, 'json'; "
            "rename it"
        ),
    ),
    (
        "check missing",
        removed("checks.py"),
        (
            "oloproof.yaml:27: evaluators.7.callable: there is no module 'checks', neither among the files in … nor "
            "installed"
        ),
    ),
    (
        "check syntax",
        written("checks.py", "def is_brief(case):\nreturn True\n"),
        "oloproof.yaml:27: evaluators.7.callable: cannot import checks: IndentationError: … (checks.py:2)",
    ),
    (
        "check no attr",
        written("checks.py", "def is_breif(case): return True\n"),
        "oloproof.yaml:27: evaluators.7.callable: checks has no 'is_brief'; did you mean 'is_breif'?",
    ),
    (
        "check not callable",
        written("checks.py", "is_brief = True\n"),
        (
            "oloproof.yaml:27: evaluators.7.callable: checks:is_brief must be callable with one argument, the "
            "CaseView; it is of type bool, which cannot be called"
        ),
    ),
    (
        "check no args",
        written("checks.py", "def is_brief(): return True\n"),
        (
            "oloproof.yaml:27: evaluators.7.callable: checks:is_brief must be callable with one argument, the "
            "CaseView; it is callable as ()"
        ),
    ),
    (
        "app folder",
        folder("app.py"),
        "oloproof.yaml:7: system.callable: there is no module 'app', neither among the files in … nor installed",
    ),
    (
        "app pipe",
        pipe("app.py"),
        "oloproof.yaml:7: system.callable: there is no module 'app', neither among the files in … nor installed",
    ),
    (
        "no project",
        removed("oloproof.yaml"),
        "…: no oloproof.yaml here; name the project's folder with --project, or make one with `oloproof init`",
    ),
    ("yml", renamed("oloproof.yaml", "oloproof.yml"), "…: no oloproof.yaml here; rename oloproof.yml to oloproof.yaml"),
    (
        "oloproof folder",
        folder("oloproof.yaml"),
        "…: no oloproof.yaml here; name the project's folder with --project, or make one with `oloproof init`",
    ),
    (
        "oloproof pipe",
        pipe("oloproof.yaml"),
        "…: no oloproof.yaml here; name the project's folder with --project, or make one with `oloproof init`",
    ),
]


def passages() -> Iterator[tuple[str, Change, str]]:
    """The rows of bad_input.txt, where `-` is what stands there, `+` what somebody wrote, `!` what is said of it."""
    section = ""
    text = (Path(__file__).parent / "bad_input.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("#"):
            continue
        if lines[0].startswith("== "):
            section = lines[0].removeprefix("== ")
            continue
        old, new, said = ("\n".join(line[2:] for line in lines if line[0] == mark) for mark in "-+!")
        yield f"{section}: {new.strip()[:60] or 'without ' + old.strip()[:50]}", _passage(section, old, new), said


def _passage(section: str, old: str, new: str) -> Change:
    match section:
        case "one evaluator more":
            return suite("slices:", f"  - {{{new}}}\nslices:")
        case "one rule more":
            return rule(new)
        case "one label more":
            return written("labels/polite.jsonl", f"{LABELS}{new}\n")
        case "the second case":
            return member(old, new)
    return instead(section, old if new else f"{old}\n", new)


WRONG = [*passages(), *OTHERS]


def check(root: Path) -> None:
    """What a run does before anything is executed."""
    project = load_project(root)
    check_files(project)
    load_system(project)
    for _ in expand(project, readable_by_all(project, read_cases(project))):
        pass


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working project, with no other test's project on the import path."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "oloproof.yaml").exists()])
    for name in ("app", "checks", "world"):
        sys.modules.pop(name, None)
    return write_working(tmp_path)


def says(message: str, expected: str) -> bool:
    """Whether a message is the expected one; `…` stands for anything, such as the folder or Python's own words."""
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), message) is not None


def test_the_project_that_every_row_changes_is_itself_in_order(working: Path) -> None:
    check(working)
    assert not (working / "called").exists()


@pytest.mark.parametrize(("change", "expected"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_mistake_is_told_in_one_line_with_its_place_before_anything_runs(
    working: Path, change: Change, expected: str
) -> None:
    change(working)
    with pytest.raises(ConfigError) as caught:
        check(working)
    message = str(caught.value)
    assert says(message, expected), f"\nexpected {expected}\nfound    {message}"
    assert message.isprintable(), "one line, and nothing that a terminal would act on"
    assert len(message) <= LONGEST_MESSAGE
    assert not (working / "called").exists(), "the agent was called"


TAKEN = [
    ("workers: 1", "workers: 256"),
    ("workers: 1", "workers: 2, shards: 256"),
    ("workers: 1", "shared: true"),
    ("workers: 1", "shared: true, workers: 1, shards: 1"),
    ("  records:", "  timeout_s: 0.5\n  records:"),
    ("  records:", "  timeout_s: 3600\n  records:"),
    ("trials: 1", "trials: 1000"),
    ("trials: 1", "retries: {max: 1, on: [Busy]}"),
    ("trials: 1", "retries: {max: 10, on: [Busy, openai.RateLimitError, app.Desk.Gone, Übervoll], wait_s: 0}"),
    ("trials: 1", "retries: {max: 2, on: [Busy], wait_s: 3600}"),
]


@pytest.mark.parametrize(("old", "new"), TAKEN, ids=[new.strip() for _, new in TAKEN])
def test_how_often_and_where_the_system_is_run_is_taken_as_declared(working: Path, old: str, new: str) -> None:
    suite(old, new)(working)
    check(working)


def command_line(monkeypatch: pytest.MonkeyPatch, project: Path, *arguments: str) -> object:
    """The exit code of `oloproof ARGUMENTS --project PROJECT`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["oloproof", *arguments, "--project", str(project)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


ONE_A_STAGE = {
    "a key of oloproof.yaml": suite("trials: 1", "trails: 1"),
    "yaml": suite("trials: 1", "trials: ["),
    "a cron line": suite("0 2 * * *", "every night"),
    "a key of release.yaml": rule("id: x, metric: right, minimum: 1"),
    "a line of the dataset": case("{'id': 'c-2'}"),
    "a key of a case": member('"input"', '"inputs"'),
    "a value that a slice cannot name": member('"sum"', "[]"),
    "a field that a transform needs": member('"note"', '"text"'),
    "a line of a label file": written("labels/polite.jsonl", LABELS + "{}\n"),
    "an import of the system": app("till = Till()", "import nowhere_to_be_found"),
    "the system's contract": app("def replay(", "def again("),
    "an import of a check": removed("checks.py"),
}


@pytest.mark.parametrize("change", ONE_A_STAGE.values(), ids=ONE_A_STAGE)
@pytest.mark.parametrize("command", [["run", "--json"], ["check"]], ids=" ".join)
def test_a_mistake_ends_the_command_with_2_one_line_and_nothing_done(
    working: Path,
    command: list[str],
    change: Change,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    change(working)
    with pytest.raises(ConfigError) as caught:
        check(working)
    assert command_line(monkeypatch, working, *command) == 2
    assert capfd.readouterr() == ("", f"oloproof: {caught.value}\n")
    assert not (working / "called").exists(), "the agent was called"
    assert not list((working / ".oloproof" / "evidence").rglob("*.*")), "evidence was written"


@pytest.mark.parametrize(
    "command",
    [["versions"], ["inspect"], ["export"], ["labels", "status"], ["labels", "export", "--transform", "polite"]],
    ids=" ".join,
)
def test_every_command_refuses_a_project_that_cannot_be_loaded_in_one_line(
    working: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    suite("trials: 1", "trails: 1")(working)
    assert command_line(monkeypatch, working, *command) == 2
    assert capfd.readouterr() == (
        "",
        "oloproof: oloproof.yaml:10: trails: there is no such key; did you mean 'trials'?\n",
    )
    assert not (working / ".oloproof").exists()


@pytest.mark.parametrize("command", [["labels", "status"], ["labels", "export", "--transform", "polite"]], ids=" ".join)
@pytest.mark.parametrize("stage", ["a line of the dataset", "a field that a transform needs", "a line of a label file"])
def test_label_commands_refuse_cases_and_labels_in_one_line(
    working: Path, command: list[str], stage: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ONE_A_STAGE[stage](working)
    assert command_line(monkeypatch, working, *command) == 2
    assert re.fullmatch(r"oloproof: (data/cases|labels/polite)\.jsonl:2: [^\n]+\n", capfd.readouterr().err)


def test_debug_shows_where_a_mistake_was_found(working: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite("trials: 1", "trails: 1")(working)
    monkeypatch.setattr(sys, "argv", ["oloproof", "check", "--project", str(working), "--debug"])
    with pytest.raises(ConfigError, match="trails"):
        main()


def test_a_file_that_may_not_be_read_is_told_like_any_other_mistake(working: Path) -> None:
    (working / "data" / "cases.jsonl").chmod(0)
    if os.access(working / "data" / "cases.jsonl", os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(ConfigError, match=r"^data/cases\.jsonl: cannot be read: Permission denied$"):
        check(working)


@given(st.text(st.characters()) | st.text(st.sampled_from("a \n\r\t\x00\x1b\u2028\ud800"), max_size=3000))
def test_whatever_is_quoted_in_it_a_message_is_one_line_and_told_again_the_same(text: str) -> None:
    message = str(ConfigError.at("some.yaml", 3, text))
    assert message.startswith("some.yaml:3:")
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    assert str(ConfigError(message)) == message


def test_of_a_very_long_message_the_place_and_the_advice_are_kept() -> None:
    message = str(ConfigError.at("some.yaml", 3, f"{'x' * 10_000}; write y"))
    assert message.startswith("some.yaml:3: xxx")
    assert message.endswith("xxx; write y")


@pytest.mark.parametrize(
    ("word", "hint"), [("trails", "; did you mean 'trials'?"), ("colour", ""), ("", ""), ("t" * 10**6, "")]
)
def test_the_nearest_known_word_is_named_where_one_is_near(word: str, hint: str) -> None:
    assert did_you_mean(word, ["version", "trials"]) == hint
