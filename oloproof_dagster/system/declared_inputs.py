"""What a system is made of beside its code, as oloproof.yaml declares it: files by glob, environment variables by name;
and the project's other files, whose edits nothing takes note of."""

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from oloproof_dagster.project.files import file_digest
from oloproof_dagster.project.project import POLICY_FILE, PROJECT_FILE, Project
from oloproof_dagster.wording import shortened

Input = tuple[str, str, str | None]
"""Its kind, its name, and the digest of its content; None for a variable that is not set."""

MOST_OTHERS = 500
LARGEST_OTHER = 1 << 20
_READ = frozenset(
    (
        ".txt",
        ".md",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".ini",
        ".cfg",
        ".py",
        ".sql",
        ".xml",
        ".html",
        ".csv",
        ".j2",
        ".jinja",
        ".jinja2",
        ".tmpl",
        ".mustache",
        ".prompt",
    )
)
"""What a system may be made of; what it writes beside itself is mostly of another kind."""
_SKIPPED = frozenset({"node_modules", "site-packages", "build", "dist"})


def inputs(project: Project) -> tuple[Input, ...]:
    """The declared files and variables as they are now; values are hashed, never kept.

    Raises:
        ConfigError: a glob of `system.files` finds no file.
    """
    declared = project.suite.system
    found: dict[str, Input] = {}
    for position, pattern in enumerate(declared.files):
        names = [name for name in _matches(project.root, pattern) if (project.root / name).is_file()]
        if not names:
            raise project.problem(f"system.files.{position}", f"no file of the project fits {shortened(pattern)}")
        for name in names:
            found[name] = ("file", name, file_digest(project.root / name, name))
    return (*(found[name] for name in sorted(found)), *(_variable(name) for name in sorted(declared.env)))


_set_by_system: dict[str, tuple[str | None, str | None]] = {}


def note_set_by_system(before: Mapping[str, str]) -> None:
    """Notes which variables importing a system has set: what it sets itself is no change from outside."""
    for name in before.keys() | os.environ.keys():
        if before.get(name) != os.environ.get(name):
            _set_by_system[name] = (before.get(name), os.environ.get(name))


def _variable(name: str) -> Input:
    value = os.environ.get(name)
    was, became = _set_by_system.get(name, (value, value))
    value = was if value == became else value
    content = None if value is None else hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
    return ("env", name, content)


def other_files(project: Project, known: frozenset[Path]) -> dict[str, str]:
    """The contents, as short digests, of the project's files that are neither code that is followed (`known`) nor
    declared, nor Oloproof's own YAML, data and labels; at most MOST_OTHERS, none that is large."""
    suite = project.suite
    labels = [each.validity_labels for each in project.transforms if each.validity_labels]
    apart = {PROJECT_FILE, POLICY_FILE, suite.dataset, *labels}
    apart.update(name for pattern in suite.system.files for name in _matches(project.root, pattern))
    found: dict[str, str] = {}
    for path in _walk(project.root):
        name = path.relative_to(project.root).as_posix()
        if name in apart or path in known or path.suffix not in _READ:
            continue
        try:
            if path.stat().st_size > LARGEST_OTHER:
                continue
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        except OSError:
            continue
        if len(found) == MOST_OTHERS:
            break
    return found


def line_of_changed(recorded: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """One line that names the files that are not as they were, or None."""
    changed = sorted(name for name, content in recorded.items() if now.get(name) != content)
    if not changed:
        return None
    named = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    return (
        f"changed since the version was recorded, and in no key of its evidence: {named}. Where the system reads"
        " one of them, name it in system.files, or bump system.version"
    )


def _matches(root: Path, pattern: str) -> list[str]:
    names = glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True)
    return sorted(Path(name).as_posix() for name in names)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")) and name not in _SKIPPED)
        if (Path(folder) / "pyvenv.cfg").exists():
            folders[:] = []
            continue
        yield from (Path(folder) / name for name in sorted(files))
