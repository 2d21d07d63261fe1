"""Dagster's events in SQLite, as a command has them: every file is opened once.

Dagster opens and closes a file for every event, and each close makes SQLite write its log back and wait for the disk,
some hundred times a run. Files, tables and rows are Dagster's own here too: its pages read and write the same ones at
the same time. `fits` says whether the names of Dagster's that this stands on, which are not public, are there.
"""

import contextlib
import inspect
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._serdes import ConfigurableClassData
from filelock import FileLock

from oloproof_dagster.local_run.losses import losses_raised

WAIT_SECONDS = 30
"""How long one process waits for another's write, as Dagster has it."""

PARAMETERS = {
    "__init__": ["self", "base_dir", "inst_data"],
    "_connect": ["self", "shard"],
    "_initdb": ["self", "engine", "for_index_shard"],
    "path_for_shard": ["self", "run_id"],
    "has_table": ["self", "table_name"],
    "reindex_events": ["self", "print_fn", "force"],
    "reindex_assets": ["self", "print_fn", "force"],
    "dispose": ["self"],
}
"""The methods of Dagster's class that are called or replaced here."""

USED = {
    "__init__": {"_initialized_dbs", "_db_lock"},
    "run_connection": {"_connect"},
    "index_connection": {"_connect"},
}
"""What Dagster's own methods have to use for it to matter here."""


def fits() -> bool:
    """Whether Dagster's class is the one that `Events` was written for."""
    try:
        methods = {name: getattr(SqliteEventLogStorage, name) for name in (*PARAMETERS, *USED)}
        takes = all(list(inspect.signature(methods[name]).parameters) == given for name, given in PARAMETERS.items())
        return takes and all(names <= set(methods[name].__code__.co_names) for name, names in USED.items())
    except (AttributeError, TypeError, ValueError):
        return False


class Engines:
    """An engine a file, made when it is first asked for."""

    def __init__(self) -> None:
        self._by_path: dict[Path, sa.Engine] = {}

    def at(self, path: Path) -> sa.Engine:
        if path not in self._by_path:
            url = sa.URL.create("sqlite", database=str(path))
            arguments = {"timeout": WAIT_SECONDS, "check_same_thread": False}
            engine = sa.create_engine(url, poolclass=sa.pool.QueuePool, connect_args=arguments)
            sa.event.listen(engine, "connect", _set_up)
            self._by_path[path] = engine
        return self._by_path[path]

    def dispose(self) -> None:
        """Closes every file."""
        while self._by_path:
            self._by_path.popitem()[1].dispose()


class Events(SqliteEventLogStorage):
    """The events: a file for each run, and an index over all of them."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines, self._tables = Engines(), set[str]()
        index = Path(base_dir, f"{INDEX_SHARD_NAME}.db").absolute()

        def make() -> None:
            super(Events, self).__init__(base_dir, inst_data)
            if not _is_made(index, "event_logs"):  # Dagster takes it for made once it is there, also half made
                self._initdb(self._engines.at(index), for_index_shard=True)
                self.reindex_events()
                self.reindex_assets()

        _make(index, "event_logs", make)
        super().__init__(base_dir, inst_data)
        self._initialized_dbs.add(INDEX_SHARD_NAME)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        return cls(config_value["base_dir"], inst_data)

    @contextlib.contextmanager
    def _connect(self, shard: str) -> Iterator[sa.Connection]:
        path = Path(self.path_for_shard(shard))
        with self._db_lock:
            engine = self._engines.at(path)
            if shard not in self._initialized_dbs:
                if not _is_made(path, "event_logs"):
                    self._initdb(engine)
                self._initialized_dbs.add(shard)
            with losses_raised(), engine.begin() as connection:
                yield connection
            if shard != INDEX_SHARD_NAME:
                # Dagster's pages follow a run by the age of its file, and news stands in the log beside that.
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)

    def _initdb(self, engine: sa.Engine, for_index_shard: bool = False) -> None:
        super()._initdb(self._engines.at(Path(str(engine.url.database))), for_index_shard)

    def has_table(self, table_name: str) -> bool:
        if table_name not in self._tables:
            with self._engines.at(Path(self.path_for_shard(INDEX_SHARD_NAME))).connect() as connection:
                if sa.inspect(connection).has_table(table_name):
                    self._tables.add(table_name)
        return table_name in self._tables

    def dispose(self) -> None:
        super().dispose()
        self._engines.dispose()


def _set_up(connection: sqlite3.Connection, _: Any) -> None:
    """Writes go to a log beside the file. A process that is killed loses none of them, a power cut maybe the last."""
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=NORMAL").close()


def _make(path: Path, table: str, make: Callable[[], object]) -> None:
    """Has a file made where there is none or a killed process left it half made, by one process at a time."""
    if not _is_made(path, table):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not _is_made(path, table):
                make()


def _is_made(path: Path, table: str) -> bool:
    """Whether Dagster has made a file's tables and noted their version; to ask that, it would load every migration."""
    if not path.is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {table, "alembic_version"} <= tables:
                return False
            return connection.execute("SELECT 1 FROM alembic_version").fetchone() is not None
    except sqlite3.Error:
        return False  # Dagster says what is wrong with it
