"""Somebody who follows a page of the documentation, block by block, in a folder of their own."""

import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
import yaml

from oloproof_dagster.cli.main import main
from oloproof_dagster.definitions import EXAMPLE
from oloproof_dagster.local_run.release_run import project_definitions
from oloproof_dagster.project.files import read_jsonl
from oloproof_dagster.project.project import load_project
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.labels import read_labels
from tests.support.pages import SHELLS, VERDICTS, Block, Command, blocks, check_command, check_workflow, commands


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


def follow(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follows a page to its end; the first block that goes wrong is named."""
    reader = Reader(folder, monkeypatch)
    for block in blocks(page):
        try:
            reader.follow(block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error
