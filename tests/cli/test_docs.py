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

import contextlib
import importlib.metadata
import io
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click
import dagster as dg
import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import oloproof_dagster
from oloproof_dagster.cli.main import cli, main
from oloproof_dagster.decision.intervals import Clusters, clopper_pearson_missing_bounded, korn_graubard_guarded
from oloproof_dagster.definitions import EXAMPLE
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.evaluator_keys import EvaluatorDeclaration
from oloproof_dagster.project.files import read_jsonl
from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records import trajectory
from oloproof_dagster.records.reasons import DecisionReason, GateReason, VerdictReason
from oloproof_dagster.records.replay_change import FAULT_RESULTS
from oloproof_dagster.records.tables import TABLES
from oloproof_dagster.report.documents import DECISION, METRIC, SLICE
from oloproof_dagster.suite.cases import KEYS, read_cases
from oloproof_dagster.suite.labels import read_labels
from tests.support import ROOT

PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.is_file()]
REFERENCE = ROOT / "docs" / "reference.md"
VERDICTS = {0, 1, 3, 4, 5}
"""What `oloproof run` may exit with and have gone well."""


# Pages, read.


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


# Pages, followed.


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


class Reader:
    """Somebody who follows a page in a folder, with nothing but what the page says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        self.output, self.code = "", 0
        self._names: dict[str, Any] = {}
        monkeypatch.setenv("COLUMNS", "100")
        self._go(folder)

    def follow(self, block: Block) -> None:
        """Does what a block asks for, or checks it where it only shows something."""
        text = block.text
        if "edit" in block.marks:
            self._edit(block)
        elif "file" in block.marks:
            self._write(block.marks["file"], text)
        elif "not run" in block.marks:
            assert block.marks["not run"], "`not run` needs a reason"
            if block.language in SHELLS:
                for command in commands(block):
                    check_command(command.line)
        elif block.language in SHELLS:
            for command in commands(block):
                self._run(command)
        elif block.language == "python":
            self._python(block)
        elif block.language == "yaml":
            self._yaml(text, block.marks.get("into"))
        elif block.language == "json":
            json.loads(text)
        elif block.language == "jsonl":
            self._jsonl(text)
        elif block.language == "text":
            compare(text.splitlines(), self.output)
        else:
            raise AssertionError(f"a block in {block.language or 'no language'!r} is neither run nor checked here")

    @property
    def project(self) -> Path:
        """The project that the reader stands in; the packaged example where the page has not made one."""
        if not Path("oloproof.yaml").is_file():
            example = self.folder / ".example"
            shutil.copytree(EXAMPLE, example, dirs_exist_ok=True)
            return example
        return Path.cwd()

    def _go(self, folder: Path) -> None:
        self._patch.chdir(folder)
        self._patch.setenv("PWD", str(folder))

    def _write(self, name: str, text: str) -> None:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".py":
            compile(text, name, "exec")
        if path.name in ("oloproof.yaml", "release.yaml", "definitions.py") and Path("oloproof.yaml").is_file():
            self._whole(path.name)
        elif path.suffix in (".yml", ".yaml"):
            check_workflow(yaml.safe_load(text))

    def _whole(self, name: str) -> None:
        """A file of the project's, read as the product reads it; what it names may only come later on the page."""
        dataset = Path(str(yaml.safe_load(Path("oloproof.yaml").read_text("utf-8"))["dataset"]))
        dataset.parent.mkdir(parents=True, exist_ok=True)
        dataset.touch()
        project = load_project(".")
        if name == "definitions.py":
            dg.Definitions.validate_loadable(project_definitions(project))

    def _edit(self, block: Block) -> None:
        path = Path(block.marks["edit"])
        lines = block.text.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
        new = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
        text = path.read_text("utf-8")
        assert text.count(old) == 1, f"{path} holds the lines before the change {text.count(old)} times"
        self._write(str(path), text.replace(old, new))

    def _yaml(self, text: str, into: str | None) -> None:
        if into is not None:
            self._write(into, laid_into(Path(into).read_text("utf-8"), text))
            return
        tree = yaml.safe_load(text)
        if isinstance(tree, dict) and "ops" in tree:
            project = load_project(self.project)
            job = project_definitions(project).resolve_job_def(f"{project.slug}_release_run")
            assert dg.validate_run_config(job, tree)
        elif isinstance(tree, dict) and ({"on", True} & set(tree) or "steps" in tree):
            check_workflow(tree)
        else:
            check_fragment(tree, self.project, self.folder / ".fragment")

    def _jsonl(self, text: str) -> None:
        """Lines as they stand: cases are read as cases, labels as labels, and nothing else is expected."""
        path = self.folder / ".lines.jsonl"
        path.write_text(text, encoding="utf-8")
        rows = [value for _, value in read_jsonl(path, "lines.jsonl")]
        project = load_project(self.project)
        relative = os.path.relpath(path, project.root)
        if all("input" in row for row in rows):
            suite = project.suite.model_copy(update={"dataset": relative})
            assert list(read_cases(type(project)(project.root, suite, None)))
        else:
            assert read_labels(project, project.transforms[0].model_copy(update={"validity_labels": relative}))

    def _python(self, block: Block) -> None:
        module = types.ModuleType("__page__")
        self._names.setdefault("__name__", module.__name__)
        module.__dict__.update(self._names)
        self._names = module.__dict__
        self._patch.setitem(sys.modules, module.__name__, module)
        self._patch.syspath_prepend(str(Path.cwd()))
        with self._captured():
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), self._names)

    def _run(self, command: Command) -> None:
        for line in re.split(r"\s+&&\s+", command.line):
            self._run_line(line)
        compare(command.output, self.output)
        if command.line.startswith("echo $?"):
            return
        words = shlex.split(command.line, comments=True)
        fine = {command.code} if command.code is not None else VERDICTS if words[:2] == ["oloproof", "run"] else {0}
        assert self.code in fine, f"{command.line}: exit code {self.code}\n{self.output}"

    def _run_line(self, line: str) -> None:
        if line.startswith("echo $?"):
            self.output, self.code = f"{self.code}\n", 0
            return
        lexer = shlex.shlex(os.path.expandvars(line), posix=True, punctuation_chars="|<>;")
        lexer.whitespace_split = True
        words = list(lexer)
        target = words[words.index(">") + 1] if ">" in words else None
        piped = "|" in words
        words = list(itertools.takewhile(lambda word: word not in ("|", ">"), words))
        with self._captured():
            self.code = self._program(words)
        if target is not None:
            Path(target).write_text(self.output, encoding="utf-8")
        if target is not None or piped:  # what a program outside makes of it is not ours to check
            assert self.output
            self.output = ""

    def _program(self, words: list[str]) -> int:
        name, *args = words
        match name:
            case "oloproof":
                return oloproof(self._patch, args)
            case "dagster":
                forget_modules(self.folder)
                return dagster(args)
            case "python" if args[0].endswith(".py"):
                self._patch.setattr(sys, "argv", args)
                runpy.run_path(args[0], run_name="__main__")
            case "mkdir":
                Path(args[-1]).mkdir(parents="-p" in args)
            case "cd":
                self._go(Path.cwd() / args[0])
            case "export":
                self._patch.setenv(*args[0].split("=", 1))
            case "unset":
                self._patch.delenv(args[0])
            case "cat":
                print(Path(args[0]).read_text("utf-8"), end="")
            case _:
                check_command(shlex.join(words))
        return 0

    @contextlib.contextmanager
    def _captured(self) -> Iterator[None]:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                yield
            finally:
                self.output = shown.getvalue()


def forget_modules(folder: Path) -> None:
    """Lets Python read the modules under a folder afresh, as a process of its own would."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


SHELLS = ("console", "sh", "bash", "shell")
KNOWN = ("make", "pip", "python", "python3", "git", "cd", "source", ".", "cp", "docker", "kubectl")
"""Programs of others that a page may ask its reader to run."""


def oloproof(monkeypatch: pytest.MonkeyPatch, args: list[str]) -> int:
    """The command line, in this process, as a process of its own would find the environment."""
    if args[0] == "ui":
        check_command(shlex.join(["oloproof", *args]))
        return 0
    before = dict(os.environ)
    monkeypatch.setattr(sys, "argv", ["oloproof", *args])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        os.environ.clear()
        os.environ.update(before)
    raise AssertionError("main() ends by exiting")


def dagster(args: list[str]) -> int:
    """Dagster's own command line, in this process."""
    from dagster._cli import create_dagster_cli

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.SupersessionWarning)  # another command line is newer and not installed
            create_dagster_cli()(args, standalone_mode=False, prog_name="dagster")
    except click.ClickException as error:
        error.show()
        return 1
    except dg.DagsterError as error:
        print(error)
        return 1
    return 0


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
    elif program == "make" and (ROOT / "Makefile").is_file():
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


def laid_into(text: str, fragment: str) -> str:
    """A YAML file with a fragment's top-level keys in place of its own; new keys stand at the end."""

    def sections(source: str) -> dict[str, str]:
        parts = re.split(r"^(?=[A-Za-z_]+:)", source, flags=re.M)
        return {part.partition(":")[0]: part if part.endswith("\n") else part + "\n" for part in parts if part}

    return "".join({**sections(text), **sections(fragment)}.values())


def check_fragment(tree: Any, project: Path, scratch: Path) -> None:
    """A part of oloproof.yaml or release.yaml, laid over a working project and read by the real models."""
    suite, policy = (yaml.safe_load((project / name).read_text("utf-8")) for name in ("oloproof.yaml", "release.yaml"))
    models = load_project(project)
    suite_keys, policy_keys = set(type(models.suite).model_fields), set(type(models.policy).model_fields)
    system_keys = set(type(models.suite.system).model_fields)
    if isinstance(tree, list):
        kind = {"type": "evaluators", "metric": "rules", "field": "transforms"}
        name = next(name for key, name in kind.items() if key in tree[0])
        tree = {"metamorphic": {"transforms": tree}} if name == "transforms" else {name: tree}
    elif set(tree) <= system_keys and "version" in tree and "callable" in tree:
        tree = {"system": suite["system"] | tree}
    if "metamorphic" in tree:  # beside those of the project, which its evaluators read
        tree["metamorphic"]["transforms"] += suite.get("metamorphic", {}).get("transforms", [])
    assert set(tree) <= suite_keys or set(tree) <= policy_keys, f"{sorted(tree)} belong to no file of a project"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(project, scratch, ignore=shutil.ignore_patterns(".oloproof", ".fragment"))
    if set(tree) <= policy_keys - {"version"} or (set(tree) <= policy_keys and "rules" in tree):
        (scratch / "release.yaml").write_text(json.dumps(policy | tree), encoding="utf-8")
    else:
        (scratch / "release.yaml").unlink()  # its rules may name criteria that the fragment leaves out
        (scratch / "oloproof.yaml").write_text(json.dumps(suite | tree), encoding="utf-8")
    load_project(scratch)


def compare(shown: Any, printed: str) -> None:
    """That every line shown was printed, in this order; spacing and milliseconds may differ."""

    def normal(line: str) -> str:
        line = re.sub(r"\d+\.\d+ ms", "0.0 ms", line)
        return re.sub(r"─{3,}", "───", " ".join(line.split()))

    lines = iter(printed.splitlines())
    for line in map(normal, shown):
        if line and line != "...":
            wanted = re.compile(re.escape(line).replace(r"\.\.\.", ".*"))
            assert any(wanted.fullmatch(normal(each)) for each in lines), f"not printed: {line}\n\n{printed}"


@pytest.fixture
def _modules_let_go(tmp_path: Path) -> Iterator[None]:
    """What a page's project brings into Python leaves with it."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget_modules(tmp_path)


def follow(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follows a page to its end; the first block that goes wrong is named."""
    reader = Reader(folder, monkeypatch)
    for block in blocks(page):
        try:
            reader.follow(block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error


@pytest.mark.usefixtures("_modules_let_go")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
    in_checkout = (ROOT / "pyproject.toml").is_file() and (ROOT / "oloproof_dagster").is_dir()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = page.parent / name if name else page
        if found.suffix != ".md" or found in PAGES or in_checkout:
            assert found.exists(), f"{page.name}: there is no {name}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {found.name} has no heading for #{anchor}"


# Tables, compared with the code.

TABLES_OF = {page: tables(page) for page in PAGES}


def table(name: str, page: str = "reference.md") -> list[list[str]]:
    """A marked table of a page."""
    found = [each[name] for path, each in TABLES_OF.items() if path.name == page and name in each]
    assert found, f"{page} has no table {name!r}"
    return found[0]


def column(name: str, at: int = 0) -> list[str]:
    return [row[at] for row in table(name)]


def models() -> dict[str, list[type[BaseModel]]]:
    """The models of the user's files and of recordings, by the tables that describe them."""
    project = load_project(EXAMPLE)
    suite, policy = type(project.suite), type(project.policy)
    assert project.policy is not None
    assert issubclass(policy, BaseModel)
    evaluators = {
        get_args(each.model_fields["type"].annotation)[0]: each for each in get_args(get_args(EvaluatorDeclaration)[0])
    }
    schedule = next(each for each in get_args(suite.model_fields["schedule"].annotation) if each is not type(None))
    found: dict[str, list[type[BaseModel]]] = {
        "keys of oloproof.yaml": [suite],
        "keys of system": [type(project.suite.system)],
        "keys of sandbox": [type(project.suite.sandbox)],
        "keys of retries": [Retries],
        "keys of transforms": [type(project.transforms[0])],
        "keys of schedule": [schedule],
        "keys of release.yaml": [policy],
        "keys of rules": [type(project.policy.rules[0])],
        "keys of every evaluator": [evaluators["python"].__mro__[1]],
        "keys of exact_match, contains": [evaluators.pop("exact_match"), evaluators.pop("contains")],
    }
    found |= {f"keys of {name}": [model] for name, model in evaluators.items()}
    for name in ("AgentTrajectory", "AgentStep", "AgentConstraintCheck", "AgentCheckpoint"):
        found[f"fields of {name}"] = [getattr(trajectory, name)]
    return found


def default_of(field: Any) -> str:
    """A field's default as the pages write it."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return "defaults below"
    return "none" if default is None else json.dumps(default)


@pytest.mark.parametrize("name", models())
def test_a_table_of_keys_has_the_models_keys_and_defaults(name: str) -> None:
    is_evaluator = name == "keys of every evaluator" or any("type" in each.model_fields for each in models()[name])
    shared = models()["keys of every evaluator"][0].model_fields
    written = {row[0]: row[2] if name.startswith("keys") else row[1] for row in table(name)}
    for model in models()[name]:
        left_out = {"type", *(() if name == "keys of every evaluator" or not is_evaluator else shared)}
        fields = {key: default_of(field) for key, field in model.model_fields.items() if key not in left_out}
        assert written == fields


def test_the_keys_of_a_case_are_those_that_are_read() -> None:
    assert tuple(column("keys of a case")) == KEYS


@pytest.mark.parametrize(
    ("name", "reasons"),
    [("verdict reasons", VerdictReason), ("decision reasons", DecisionReason), ("gate reasons", GateReason)],
)
def test_a_table_of_reason_codes_is_the_enumeration(name: str, reasons: Any) -> None:
    assert table(name) == [[reason.value, reason.meaning] for reason in reasons]


def test_the_faults_results_are_those_that_an_agent_sees() -> None:
    assert {fault: json.loads(result) for fault, result in table("fault results")} == FAULT_RESULTS


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield " ".join(path), command


COMMON = {"--project", "--debug", "--help"}


@pytest.mark.parametrize(("name", "command"), list(leaves(cli)), ids=lambda each: each if isinstance(each, str) else "")
def test_every_option_of_a_command_is_named(name: str, command: click.Command) -> None:
    options = {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)}
    assert set(column(f"options of {name}")) == options - COMMON
    assert "--debug" in options
    assert ("--project" in options) == (name != "init")


def test_no_command_is_described_that_is_not_there() -> None:
    described = {name.removeprefix("options of ") for name in tables(REFERENCE) if name.startswith("options of ")}
    assert described == {name for name, _ in leaves(cli)}


TYPES = {
    "string": "text",
    "large_string": "JSON text",
    "int64": "integer",
    "double": "number",
    "bool": "true or false",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_columns_is_the_tables_schema(name: str) -> None:
    schema = TABLES[name].schema
    assert [row[:3] for row in table(f"columns of {name}")] == [
        [each.name, TYPES[str(each.type)], "yes" if each.nullable else ""] for each in schema
    ]
    assert all(row[3] for row in table(f"columns of {name}"))


def test_the_public_names_are_listed() -> None:
    assert sorted(column("public names")) == sorted(oloproof_dagster.__all__)


def test_the_attributes_of_a_case_view_are_listed() -> None:
    from oloproof_dagster.evaluators.case import CaseEvidence
    from oloproof_dagster.records.tables import JSONText, SuiteRow

    empty = JSONText("{}")
    row = SuiteRow("c", "sha256:0", 1, empty, empty, empty, None, None, cluster="c")
    view = oloproof_dagster.CaseView(CaseEvidence(row, 0, None, None))
    assert set(column("attributes of CaseView")) == {name for name in dir(view) if not name.startswith("_")}


def test_the_exit_codes_are_all_there_are() -> None:
    from oloproof_dagster.cli.main import BROKEN_PIPE, CRASH, INTERRUPTED, USAGE

    assert {int(code) for code in column("exit codes")} == VERDICTS | {USAGE, CRASH, INTERRUPTED, BROKEN_PIPE}


COUNTED_BY_REASON = (".missing", ".excluded")
ANY_JSON = (".output", ".expected", ".actual")


def members(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of a document's members, a list's items under `[]`."""
    if isinstance(value, dict) and not path.endswith(COUNTED_BY_REASON + ANY_JSON):
        for key, member in value.items():
            yield from members(member, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict) and not path.endswith(ANY_JSON):
        for member in value:
            yield from members(member, f"{path}[]")
    else:
        yield path


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both documents of a run of the packaged example."""
    folder = tmp_path_factory.mktemp("documents") / "desk"
    shutil.copytree(EXAMPLE, folder)
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, args in (("release_run/v1", ["run", "--json"]), ("case_panels/v1", ["inspect", "--json"])):
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                oloproof(patch, [*args, "--project", str(folder)])
            printed[name] = json.loads(shown.getvalue())
    path = str(folder)
    if path in sys.path:
        sys.path.remove(path)
    forget_modules(folder)
    return printed


@pytest.mark.parametrize("schema", ["release_run/v1", "case_panels/v1"])
def test_a_documents_members_are_those_that_are_listed(schema: str, documents: dict[str, Any]) -> None:
    document = documents[schema]
    assert document["schema"] == schema
    listed = set(column(f"members of {schema}"))
    # What holds further members is listed where it may be null, and is met by itself where it is an empty list.
    holders = {name for name in listed if any(each.startswith((f"{name}.", f"{name}[]")) for each in listed)}
    empty = {name for name in members(document) if any(each.startswith(f"{name}[]") for each in listed)}
    assert set(members(document)) - empty == listed - holders


def test_rows_of_the_release_run_have_the_listed_members_in_order() -> None:
    listed = column("members of release_run/v1")
    for prefix, names in (("decisions[].", DECISION), ("metrics[].", (*METRIC, "noop_passed")), ("slices[].", SLICE)):
        assert [name.removeprefix(prefix) for name in listed if name.startswith(prefix)] == list(names)


# Numbers, computed again.


def test_the_lower_bounds_of_n_of_n_are_the_intervals() -> None:
    for n, *bounds in table("lower bounds", "statistics.md"):
        for fails, bound in enumerate(bounds):
            exact = clopper_pearson_missing_bounded(int(n) - fails, int(n), 0, 0.95)
            assert bound == f"{exact.lower:.3f}"


def test_the_number_of_cases_for_a_bar_is_the_smallest_that_reaches_it() -> None:
    for bar, *numbers in table("cases for a bar", "statistics.md"):
        for fails, number in enumerate(map(int, numbers)):
            reached = [clopper_pearson_missing_bounded(n - fails, n, 0, 0.95).lower for n in (number - 1, number)]
            assert reached[0] < float(bar) <= reached[1]


def test_the_lower_bounds_of_clusters_are_the_guarded_intervals() -> None:
    for n_clusters, *bounds in table("lower bounds of clusters", "statistics.md"):
        for size, bound in zip((2, 3, 5), bounds, strict=True):
            guarded = korn_graubard_guarded(Clusters.of([(size, 0, 0)] * int(n_clusters)), 0.95)
            assert guarded is not None
            assert bound == f"{guarded.lower:.3f}"


# What the pages say is not there.


def test_the_limits_name_the_commands_that_are_still_to_come() -> None:
    limits = (ROOT / "docs" / "limits.md").read_text("utf-8")
    assert ("No HTML report and no comparison" in limits) == cli.commands.keys().isdisjoint({"report", "compare"})
