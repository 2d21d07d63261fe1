"""Dagster's run history in SQLite, as a command has it: every file is opened once.

Dagster opens and closes a file for every event, and each close makes SQLite write its log back and wait for the disk,
some hundred times a run. Files, tables and rows are Dagster's own here too: its pages read and write the same ones at
the same time.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._serdes import ConfigurableClassData
from filelock import FileLock

WAIT_SECONDS = 30
"""How long one process waits for another's write, as Dagster has it."""


class HistoryLost(BaseException):
    """The history cannot be written any more. Dagster prints every Exception that it meets there before it raises it,
    and tries again; of this one it lets go."""


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    try:
        yield
    except sa.exc.OperationalError as error:
        if any(why in str(error.orig) for why in ("disk is full", "disk I/O", "readonly")):
            raise HistoryLost(str(error.orig)) from error
        raise


class Engines:
    """An engine a file, made when it is first asked for."""

    def __init__(self) -> None:
        self._by_url: dict[str, sa.Engine] = {}

    def at(self, url: str) -> sa.Engine:
        if url not in self._by_url:
            arguments = {"timeout": WAIT_SECONDS, "check_same_thread": False}
            engine = sa.create_engine(url, poolclass=sa.pool.QueuePool, connect_args=arguments)
            sa.event.listen(engine, "connect", _set_up)
            self._by_url[url] = engine
        return self._by_url[url]

    def dispose(self) -> None:
        """Closes every file."""
        while self._by_url:
            self._by_url.popitem()[1].dispose()


class Runs(SqliteRunStorage):
    """The runs."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines = Engines()
        super().__init__(conn_string, inst_data)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        path = Path(config_value["base_dir"], "runs.db")
        _make(path, "instance_info", lambda: _in_one_go(path, SqliteRunStorage.from_local))
        return cls(_url(path), inst_data)

    @contextlib.contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        with _losses_told(), self._engines.at(self._conn_string).begin() as connection:
            yield connection

    def dispose(self) -> None:
        super().dispose()
        self._engines.dispose()


class Events(SqliteEventLogStorage):
    """The events: a file for each run, and an index over all of them."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines, self._tables = Engines(), set[str]()
        index = Path(base_dir, f"{INDEX_SHARD_NAME}.db")

        def make() -> None:
            super(Events, self).__init__(base_dir, inst_data)
            if not _is_made(index, "event_logs"):  # Dagster takes it for made once it is there, also half made
                self._initdb(self._engines.at(_url(index)), for_index_shard=True)
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
            engine = self._engines.at(self.conn_string_for_shard(shard))
            if shard not in self._initialized_dbs:
                if not _is_made(path, "event_logs"):
                    self._initdb(engine)
                self._initialized_dbs.add(shard)
            with _losses_told(), engine.begin() as connection:
                yield connection
            if shard != INDEX_SHARD_NAME:
                # Dagster's pages follow a run by the age of its file, and news stands in the log beside that.
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)

    def _initdb(self, engine: sa.Engine, for_index_shard: bool = False) -> None:
        super()._initdb(self._engines.at(str(engine.url)), for_index_shard)

    def has_table(self, table_name: str) -> bool:
        if table_name not in self._tables:
            with self._engines.at(self.conn_string_for_shard(INDEX_SHARD_NAME)).connect() as connection:
                if sa.inspect(connection).has_table(table_name):
                    self._tables.add(table_name)
        return table_name in self._tables

    def dispose(self) -> None:
        super().dispose()
        self._engines.dispose()


class Schedules(SqliteScheduleStorage):
    """The ticks of schedules and sensors, which a command does not read."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        path = Path(config_value["base_dir"], "schedules.db")
        _make(path, "job_ticks", lambda: _in_one_go(path, SqliteScheduleStorage.from_local))
        return cls(_url(path), inst_data)


def _url(path: Path) -> str:
    return f"sqlite:///{path.absolute()}"


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


def _in_one_go(path: Path, make: Callable[[str], object]) -> None:
    """Spares a file that is being made from being written back after every table."""
    with contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
        _set_up(connection, None)
        make(str(path.parent))


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
