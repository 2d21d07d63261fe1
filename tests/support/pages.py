"""The pages of the documentation, read: their blocks, their marked tables, the commands that they show.

Blocks are marked as tests/cli/test_docs.py says.
"""

import contextlib
import importlib.metadata
import io
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from oloproof_dagster.cli.main import cli
from tests.support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REFERENCE = ROOT / "docs" / "reference.md"
VERDICTS = {0, 1, 3, 4, 5}
"""What `oloproof run` may exit with and have gone well."""


@dataclass(frozen=True)
class Block:
    """A fenced block with the comments right above it; `line` is that of its fence."""

    page: Path
    line: int
    language: str
    text: str
    marks: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


MARK = re.compile(r"\s*<!--\s*(file|into|edit|not run|table):\s*(.*?)\s*-->\s*")


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    marks: dict[str, str] = {}
    for number, line in lines:
        fence = re.fullmatch(r"(\s*)(```+)\s*(\w*).*", line)
        if fence:
            indent, ticks, language = fence.groups()
            inside = itertools.takewhile(lambda each, end=indent + ticks: each[1].rstrip() != end, lines)  # type: ignore[misc]
            text = "".join(text.removeprefix(indent) + "\n" for _, text in inside)
            yield Block(page, number, language, text, marks)
            marks = {}
        elif mark := MARK.fullmatch(line):
            marks[mark[1]] = mark[2]
        elif line.strip():
            marks = {}


def tables(page: Path) -> dict[str, list[list[str]]]:
    """The marked tables of a page by name: rows of cells, header left out, code ticks and escapes taken off."""
    found: dict[str, list[list[str]]] = {}
    name = None
    for line in page.read_text("utf-8").splitlines():
        mark = MARK.fullmatch(line)
        if mark and mark[1] == "table":
            name = mark[2]
            assert name not in found, f"{page.name} has the table {name} twice"
            found[name] = []
        elif name and line.startswith("|"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            found[name].append([re.sub(r"^`([^`]*)`$", r"\1", cell) for cell in cells])
        elif name and found[name]:
            name = None
    return {name: rows[2:] for name, rows in found.items()}


@dataclass(frozen=True)
class Command:
    """A line of a shell block with the output that the page shows under it and the exit code that it states."""

    line: str
    output: tuple[str, ...] = ()
    code: int | None = None


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block: after `$ ` in a console block, every line of a script."""
    text = re.sub(r"\\\n\s*", "", block.text)
    if block.language == "console":
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            line, _, output = part.partition("\n")
            yield _command(line, tuple(each for each in output.splitlines() if each.strip()))
    else:
        yield from (_command(line) for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _command(line: str, output: tuple[str, ...] = ()) -> Command:
    stated = re.search(r"#.*\bexit code (\d+)", line)
    return Command(line, output, int(stated[1]) if stated else None)


SHELLS = ("console", "sh", "bash", "shell")
KNOWN = ("make", "pip", "python", "python3", "git", "cd", "source", ".", "cp", "docker", "kubectl")
"""Programs of others that a page may ask its reader to run."""


def check_command(line: str) -> None:
    """That a command which is not run here could be: ours with these options, or a known installer."""
    words = list(itertools.takewhile(lambda word: word not in ("|", ">"), shlex.split(line, comments=True)))
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    program = Path(words[0]).name if words else ""
    if program in ("oloproof", "oloproof-dagster"):
        command: click.Command = cli
        args = words[1:]
        while isinstance(command, click.Group) and args and not args[0].startswith("-"):
            assert args[0] in command.commands, f"{line}: there is no command {args[0]}"
            command = command.commands[args.pop(0)]
        with contextlib.suppress(click.exceptions.Exit), contextlib.redirect_stdout(io.StringIO()):
            command.make_context(str(command.name), args)
    elif program in ("pip", "pip3") and words[1] == "install":
        name = importlib.metadata.metadata("oloproof-dagster")["Name"]
        assert any(word in (".", ".[dev]") or name.replace("-", "_") in word.replace("-", "_") for word in words[2:])
    elif program == "make":
        for target in words[1:]:
            assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text("utf-8"), re.M), line
    else:
        assert program in KNOWN, f"{line}: not run, not known"


def check_workflow(tree: Any) -> None:
    """Every `run` step of a CI file; other YAML only has to be YAML."""
    found = [tree]
    while found:
        value = found.pop()
        if isinstance(value, dict):
            for line in str(value.get("run", "")).splitlines():
                check_command(line)
            found.extend(value.values())
        elif isinstance(value, list):
            found.extend(value)


TABLES_OF = {page: tables(page) for page in PAGES}


def table(name: str, page: str = "reference.md") -> list[list[str]]:
    """A marked table of a page."""
    found = [each[name] for path, each in TABLES_OF.items() if path.name == page and name in each]
    assert found, f"{page} has no table {name!r}"
    return found[0]
