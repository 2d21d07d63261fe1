"""The Dagster instance that a project's runs are recorded in, opened the same way by every command."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._serdes import ConfigurableClassData
from filelock import FileLock
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import OLOPROOF_FOLDER, Project

DAGSTER_YAML = """\
# Written once by Oloproof; change it as you like.
telemetry:
  enabled: false
nux:
  enabled: false          # no sign-up dialog over the pages
concurrency:
  pools:
    default_limit: 1      # a sandbox that several runs share is held by one step at a time
    granularity: op
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 5   # a killed run lets the sandbox go
  max_runtime_seconds: 86400            # a run that died with its daemon does not stay under way for ever
"""


SHOWN_TO_THE_END = {"DAGSTER_COMPUTE_LOG_TAIL_WAIT_AFTER_FINISH": "0.05"}
"""How many seconds Dagster leaves the processes that show what steps print, once these have ended."""

FILES = ("history/runs.db", "schedules/schedules.db")
"""What Dagster makes of its own in a home, but for the events."""


def dagster_home(project: Project) -> Path:
    """The environment's DAGSTER_HOME, else `<project>/.oloproof/dagster`, made with its dagster.yaml where missing.

    Raises:
        ConfigError: DAGSTER_HOME is not an absolute path of a folder, or the project's folder cannot be written.
    """
    named = os.environ.get("DAGSTER_HOME")
    if named:
        if not Path(named).is_absolute() or not Path(named).is_dir():
            raise ConfigError(
                f"DAGSTER_HOME={named}: must be the absolute path of a folder that exists; unset it to"
                f" use {OLOPROOF_FOLDER}/dagster in the project"
            )
        return Path(named)
    home = project.root / OLOPROOF_FOLDER / "dagster"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not (home.parent / ".gitignore").exists():
            (home.parent / ".gitignore").write_text("*\n", encoding="utf-8")  # evidence is no source
        if not (home / "dagster.yaml").exists():
            (home / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{home}: cannot be written: {error.strerror}; set DAGSTER_HOME to a folder that can"
        ) from None
    return home if _survives_a_url(home) else _linked(home)


def _survives_a_url(home: Path) -> bool:
    """Whether Dagster, which names its history's files by a URL, finds them in this folder (`?` or `%` in its name)."""
    return make_url(f"sqlite:///{home}").database == str(home)


def _linked(home: Path) -> Path:
    """The folder by another name: a link to it among the user's caches. The files are where they always are."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    link = caches / "oloproof" / "homes" / sha256(os.fsencode(home)).hexdigest()[:16]
    try:
        if not link.is_symlink() or os.readlink(link) != str(home):
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            coming = link.with_name(f".{link.name}.{os.getpid()}")
            coming.unlink(missing_ok=True)
            coming.symlink_to(home)
            coming.replace(link)
    except OSError:
        return home  # refused where it is opened
    return link


@contextmanager
def open_instance(project: Project) -> Iterator[dg.DagsterInstance]:
    """The project's instance, never Dagster's temporary one.

    Raises:
        ConfigError: its folder, its dagster.yaml or its files cannot be used.
    """
    home = dagster_home(project)
    with _environment(DAGSTER_HOME=str(home), DAGSTER_DISABLE_TELEMETRY="1", **SHOWN_TO_THE_END):
        try:
            ref = for_commands(InstanceRef.from_dir(str(home)), home)
            with _made_by_one(home, ref):
                instance = dg.DagsterInstance.from_ref(ref)
        except dg.DagsterError as error:
            raise ConfigError(f"{home / 'dagster.yaml'}: {str(error).splitlines()[0]}") from error
        except (sqlite3.Error, SQLAlchemyError, OSError) as error:
            why = getattr(error, "orig", None) or getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{home}: its run history cannot be opened ({why}); mend it, or set DAGSTER_HOME to another folder"
            ) from error
        with instance:
            yield instance


def for_commands(ref: InstanceRef, home: Path) -> InstanceRef:
    """The same instance with quicker events, where its storage is Dagster's own for a folder and the quicker class
    fits it; other storage stays as configured.

    Raises:
        ConfigError: Dagster's own storage cannot be in this folder.
    """
    default = InstanceRef.config_defaults(str(home))
    if ref.storage_data != default["storage"]:
        return ref
    if not _survives_a_url(home):
        raise ConfigError(
            f"{home}: Dagster names its history's files by a URL, which this folder's name does not survive (? or %);"
            " rename the folder, or set DAGSTER_HOME to another"
        )
    if not _quicker_events_fit():
        return ref
    events = default["event_log_storage"]
    assert events is not None
    return ref._replace(
        storage_data=None,
        run_storage_data=default["run_storage"],
        event_storage_data=ConfigurableClassData("oloproof_dagster.local_run.history", "Events", events.config_yaml),
        schedule_storage_data=default["schedule_storage"],
    )


def _quicker_events_fit() -> bool:
    try:
        from oloproof_dagster.local_run import history
    except ImportError:  # another Dagster, which has these classes elsewhere
        return False
    return history.fits()


@contextmanager
def _made_by_one(home: Path, ref: InstanceRef) -> Iterator[None]:
    """Lets one process at a time make a history's files: of two, Dagster's own storage fails one."""
    if ref.storage_data is not None or all((home / each).is_file() for each in FILES):
        yield
        return
    with FileLock(home / "making.lock"):
        yield


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Sets what the environment lacks, and takes it out again: the next project in this process has a home of its
    own."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
