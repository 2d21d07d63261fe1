"""An S3 server of the tests' own: it lives in this process, on loopback, and forgets everything with it."""

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from oloproof_dagster.evidence.evidence import Evidence

BUCKET = "evidence"


@dataclass(frozen=True)
class Server:
    """A server that takes connections on loopback, with one empty bucket."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """What AWS's libraries read; failures are not repeated for long."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def url(self) -> str:
        """A place that nothing was ever stored at."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def evidence(self) -> Evidence:
        return Evidence(self.url())


@contextmanager
def running_server() -> Iterator[Server]:
    """A server, with this process's environment set to it. Without moto the test is skipped: the wheel's tests run
    without the extras."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    fsspec = pytest.importorskip("fsspec")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    server = Server(f"http://{host}:{port}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        files = fsspec.filesystem("s3", use_listings_cache=False)
        files.mkdir(BUCKET)
        try:
            yield server
        finally:
            type(files).clear_instance_cache()
            running.stop()


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
