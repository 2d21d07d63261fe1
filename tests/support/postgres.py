"""A PostgreSQL server of the tests' own: made in a folder of its own, on a port of its own, gone when they are through.

It stands outside pytest's folders, which only their owner may enter: PostgreSQL refuses to run as root, so root's tests
run it as another user of the machine.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_SECONDS, until

USER, PASSWORD = "dagster", "not a secret: 100% of /tests@home"


@dataclass(frozen=True)
class Server:
    """A server that takes connections on loopback, with one database to begin with."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What deploy/dagster.yaml reads."""
        return {
            "POSTGRES_HOST": "127.0.0.1",
            "POSTGRES_PORT": str(self.port),
            "POSTGRES_USER": USER,
            "POSTGRES_PASSWORD": PASSWORD,
            "POSTGRES_DB": "postgres",
        }


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A server that signs in with a password. Where none is installed the test is skipped, but never in CI, which
    installs one."""
    binaries = _binaries()
    if binaries is None:
        if os.environ.get("CI") == "true":
            pytest.fail("PostgreSQL's server is not installed; .ci/run is to install it")
        pytest.skip("PostgreSQL's server is not installed (Debian's package postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="oloproof-postgres-"))
    runs_as = _other_user(folder)
    try:
        _make(binaries, folder, runs_as)
        port = free_port()
        command = [binaries / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, "-F"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*command, "-c", "listen_addresses=127.0.0.1"], stderr=log, **runs_as)
        try:
            _wait_until_ready(binaries, port, process, folder / "log")
            yield Server(port)
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing has to be kept
            process.wait(timeout=PATIENCE_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _binaries() -> Path | None:
    """The folder of the newest server's programs: Debian keeps them off the PATH, one folder a version."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _other_user(folder: Path) -> dict[str, Any]:
    """How a process is started as a user that may run the server; the folder becomes that user's."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": folder}


def _make(binaries: Path, folder: Path, runs_as: dict[str, Any]) -> None:
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    made = subprocess.run(
        [
            *(binaries / "initdb", "-D", folder / "data", "--no-sync", "--no-instructions"),
            *("--encoding=UTF8", "--locale=C", "--auth=password", f"--username={USER}", f"--pwfile={password}"),
        ],
        capture_output=True,
        text=True,
        **runs_as,
    )
    assert made.returncode == 0, made.stdout + made.stderr


def _wait_until_ready(binaries: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return not subprocess.run([binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode

    until(is_ready, why=log.read_text, pause=0.05)
