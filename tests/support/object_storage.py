"""Servers of object storage of the tests' own: they live on loopback and forget everything when they end."""

import base64
import hashlib
import hmac
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from importlib.util import find_spec

import pytest

from oloproof_dagster.evidence.evidence import Evidence

BUCKET = "evidence"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that every Azurite has."""


@dataclass(frozen=True)
class Server:
    """A server that takes connections on loopback, with one empty bucket. `environment` is what leads to it."""

    endpoint: str
    scheme: str = "s3"
    environment: dict[str, str] = field(default_factory=dict)

    def url(self) -> str:
        """A place that nothing was ever stored at."""
        return f"{self.scheme}://{BUCKET}/{uuid.uuid4().hex}"

    def evidence(self) -> Evidence:
        return Evidence(self.url())


def require(found: object, what: str) -> None:
    """Skips the test where something optional is not installed; in CI it must be."""
    if not found:
        assert not os.environ.get("CI"), f"{what} is not installed"
        pytest.skip(f"{what} is not installed")


@contextmanager
def running_server() -> Iterator[Server]:
    """An S3 server, with this process's environment set to it."""
    for package in ("moto", "boto3", "obstore"):
        require(find_spec(package), package)
    import boto3
    import moto.server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = moto.server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        try:
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            yield Server(f"http://{host}:{port}", environment=environment)
        finally:
            running.stop()


@contextmanager
def running_azurite() -> Iterator[Server]:
    """A server of Azure's blobs, with this process's environment set to it."""
    program = shutil.which("azurite-blob")
    require(program, "azurite (npm)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    command = [str(program), "--blobPort", str(port), *options]
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
        "AZURE_STORAGE_ENDPOINT": endpoint,
    }
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process, pytest.MonkeyPatch.context() as patch:
        try:
            _make_container(endpoint)
            for name, value in environment.items():
                patch.setenv(name, value)
            yield Server(endpoint, "az", environment)
        finally:
            process.kill()


def _make_container(endpoint: str, seconds: float = 60) -> None:
    """Asks for it until the server is up."""
    date = formatdate(usegmt=True)
    place = f"/devstoreaccount1/devstoreaccount1/{BUCKET}\nrestype:container"
    empty = "\n" * 12
    text = f"PUT{empty}x-ms-date:{date}\nx-ms-version:2023-11-03\n{place}"
    digest = hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2023-11-03",
        "Authorization": f"SharedKey devstoreaccount1:{base64.b64encode(digest).decode()}",
    }
    asked = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT", headers=headers)
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(asked, timeout=10).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@contextmanager
def relay(server: Server) -> Iterator[tuple[str, Callable[[], None]]]:
    """An endpoint that leads to the server until it is cut: then connections end, and no new one is taken."""
    host, port = server.endpoint.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    ends = [listener]

    def pour(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def take() -> None:
        with suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection((host, int(port)))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pour, args=pair, daemon=True).start()

    def cut() -> None:
        while ends:
            end = ends.pop()
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    threading.Thread(target=take, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", cut
    finally:
        cut()
