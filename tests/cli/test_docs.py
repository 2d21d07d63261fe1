"""The pages, followed: every code block of README.md and docs/ is run or checked, and every table is the code's own.

A page is followed from top to bottom in a folder of its own, as its reader would. What a block is for is said by its
language and by HTML comments right above it:

    <!-- file: app.py -->             the block is written to that file
    <!-- into: oloproof.yaml -->      its top-level keys replace those of the file
    <!-- edit: app.py -->             a diff, applied to the file
    <!-- not run: why -->             nobody runs it here; its `oloproof` commands are still checked
    <!-- table: name -->              the Markdown table that follows is compared with the code

Commands are run in this process. Output that a page shows must be what the command prints, line by line; a line
`...` stands for lines left out. `# exit code 1` after a command, or `echo $?`, says how it ends; without either, a run
may end with any verdict and everything else with 0.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oloproof_dagster.cli.main import cli
from tests.support import CHECKOUT, ROOT
from tests.support.pages import PAGES
from tests.support.reader import follow, forget_modules

LONG = ("guide.md", "dagster.md")


@pytest.fixture
def _modules_let_go(tmp_path: Path) -> Iterator[None]:
    """What a page's project brings into Python leaves with it."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget_modules(tmp_path)


@pytest.mark.usefixtures("_modules_let_go")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in LONG else ()) for page in PAGES],
)
def test_whoever_follows_a_page_gets_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(page, tmp_path, monkeypatch)


EDITED = "<!-- file: a.py -->\n```python\na = 1\n```\n<!-- edit: a.py -->\n```diff\n-b = 1\n+b = 2\n```"
WRONG = {
    "output that is not printed": ("```console\n$ oloproof init --example list\nno\n```", "not printed: no"),
    "another exit code": ("```sh\noloproof init --example list   # exit code 3\n```", "exit code 0"),
    "a command that fails": ("```sh\noloproof init --example nothing\n```", "exit code 2"),
    "an option that is not there": ("<!-- not run: why -->\n```sh\noloproof ui --colour\n```", "--colour"),
    "a command that is not there": ("<!-- not run: why -->\n```sh\noloproof judge\n```", "no command judge"),
    "a program that nobody knows": ("```sh\nreboot\n```", "not run, not known"),
    "a language that nobody reads": ("```\nwhat is this\n```", "neither run nor checked"),
    "Python that raises": ("```python\nprint(1 / 0)\n```", "ZeroDivisionError"),
    "a file that is not Python": ("<!-- file: app.py -->\n```python\ndef :\n```", "SyntaxError"),
    "a change that does not fit": (EDITED, "0 times"),
    "a key that is not there": ("```yaml\nslicing: [first_tool]\n```", "belong to no file"),
    "a value that is refused": ("```yaml\nmin_slice_support: -1\n```", "min_slice_support"),
    "a rule over no criterion": ("```yaml\n- {id: a, metric: beauty, min: 0.5}\n```", "beauty"),
    "no such config": ("```yaml\nops: {refund_desk_execution: {config: {fast: true}}}\n```", "InvalidConfig"),
    "JSON with a trailing comma": ("```json\n[1,]\n```", "JSONDecodeError"),
    "a case without input": ('```jsonl\n{"id": "a"}\n```', "`case`"),
}


@pytest.mark.usefixtures("_modules_let_go")
@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_a_page_that_is_wrong_is_found_out(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError, match=re.escape(why)):
        follow(page, tmp_path, monkeypatch)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    folder = (CHECKOUT / page.relative_to(ROOT)).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = folder / name if name else page
        assert found.exists(), f"{page.name}: there is no {name}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {found.name} has no heading for #{anchor}"


def test_the_limits_name_the_commands_that_are_still_to_come() -> None:
    limits = (ROOT / "docs" / "limits.md").read_text("utf-8")
    assert ("No HTML report and no comparison" in limits) == cli.commands.keys().isdisjoint({"report", "compare"})
