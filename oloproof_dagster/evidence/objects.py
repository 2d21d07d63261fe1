"""Objects below one URL, by obstore: every way in which that can fail is one line of an EvidenceError.

Listings and sizes are asked for anew each time: other machines write here too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.object_client import connect, require_own_process
from oloproof_dagster.evidence.store_url import require_packages

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ObjectStore

PIECE_BYTES = 5 << 20
PIECES_AT_ONCE = 2
"""A large file goes out in pieces of so many bytes, of which so many are in memory at once."""
DOWNLOADS_AT_ONCE = 8

Tag = Mapping[str, str]
"""What the store calls one state of an object; another state has another one."""


class Objects:
    """What is stored below a URL, by names with `/`. `client` stands in for the server that the URL names.

    Raises:
        ConfigError: the packages that the URL's scheme needs are not installed.
    """

    def __init__(self, url: str, client: "ObjectStore | None" = None) -> None:
        self.url = url.rstrip("/")
        self._connected = client
        if client is None:
            require_packages(self.url)

    def at(self, name: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted; nothing where nothing lies below it."""
        import obstore

        with self._reading(folder):
            found = obstore.list_with_delimiter(self._client(), folder or None)
            paths = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
            return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})

    def read(self, name: str) -> bytes | None:
        """An object's bytes, None where there is none."""
        found = self.read_tagged(name)
        return None if found is None else found[0]

    def read_tagged(self, name: str) -> tuple[bytes, Tag] | None:
        """An object's bytes and the state that they are of; None where there is none."""
        import obstore

        with self._reading(name):
            try:
                found = obstore.get(self._client(), name)
                return bytes(found.bytes()), _tag(found.meta)
            except FileNotFoundError:
                return None

    def end(self, name: str, n_bytes: int) -> bytes | None:
        """An object's last bytes, all of a shorter one; None where there is none."""
        meta = self.head(name)
        return None if meta is None else self.range(name, max(0, meta["size"] - n_bytes), meta["size"], meta["e_tag"])

    def range(self, name: str, start: int, end: int, e_tag: str | None) -> bytes:
        """The bytes from `start` to before `end` of the object in one of its states; it must be there."""
        import obstore

        if start >= end:
            return b""
        with self._reading(name):
            options: Any = {"range": (start, end)} | ({"if_match": e_tag} if e_tag else {})
            return bytes(obstore.get(self._client(), name, options=options).bytes())

    def head(self, name: str) -> "ObjectMeta | None":
        """An object's size and state, None where there is none."""
        import obstore

        with self._reading(name):
            try:
                return obstore.head(self._client(), name)
            except FileNotFoundError:
                return None

    def modified(self, name: str) -> float | None:
        """When an object was last written, in seconds since 1970; None where there is none."""
        meta = self.head(name)
        return None if meta is None else meta["last_modified"].timestamp()

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        return self.head(name) is not None

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, in place of one that is there."""
        self._put(name, data, "overwrite")

    def upload(self, path: Path, name: str) -> None:
        """Writes a file of this machine as an object, in place of one that is there."""
        self._put(name, path, "overwrite")

    def create(self, name: str, data: bytes) -> Tag | None:
        """Writes an object that is not there; None, and nothing written, where there is one, whoever was first."""
        return self._put(name, data, "create")

    def replace(self, name: str, data: bytes, tag: Tag) -> Tag | None:
        """Writes an object that is still in a state; None, and nothing written, where it is in another one, or gone."""
        return self._put(name, data, cast("UpdateVersion", {**tag}))

    def download(self, names: Sequence[str], paths: Sequence[Path]) -> None:
        """Writes objects to files of this machine, many at a time."""
        import obstore

        def save(name: str, path: Path) -> None:
            with self._reading(name), path.open("wb") as target:
                for data in obstore.get(self._client(), name):
                    target.write(data)

        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            list(pool.map(save, names, paths))

    def copy(self, name: str, to: str) -> None:
        """Keeps an object under a second name as it is now; it must be there."""
        import obstore

        with self._writing(to):
            obstore.copy(self._client(), name, to)

    def remove(self, name: str) -> None:
        """Removes an object, or all that is below the name; nothing where there is neither."""
        import obstore

        with self._writing(name):
            client = self._client()
            with suppress(FileNotFoundError):
                obstore.delete(client, name)
            while found := [meta["path"] for batch in obstore.list(client, name) for meta in batch]:
                with suppress(FileNotFoundError):  # removed by another one meanwhile; the rest is listed again
                    obstore.delete(client, found)

    def _put(self, name: str, data: bytes | Path, mode: "PutMode") -> Tag | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._writing(name):
            try:
                put = obstore.put(
                    self._client(), name, data, mode=mode, chunk_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE
                )
                return _tag(put)
            except (AlreadyExistsError, PreconditionError):
                if mode == "overwrite":
                    raise
                return None

    def _client(self) -> "ObjectStore":
        require_own_process()
        if self._connected is None:
            self._connected = connect(self.url)
        return self._connected

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        with _in_one_line(f"cannot write evidence to {self.at(name)}"):
            yield

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with _in_one_line(f"cannot read evidence at {self.at(name)}"):
            yield


def _tag(found: Mapping[str, Any]) -> Tag:
    return {name: found[name] for name in ("e_tag", "version") if found[name] is not None}


@contextmanager
def _in_one_line(what: str) -> Iterator[None]:
    """Raises whatever goes wrong as an EvidenceError that names what could not be done, and why."""
    try:
        yield
    except EvidenceError as error:  # no credentials, or a process that was forked
        raise EvidenceError(f"{what}: {error}") from None
    except Exception as error:
        raise EvidenceError(f"{what}: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Why a request failed, in one line: what the server answered, or the system, or else obstore's own words."""
    text, _, details = str(error).partition("\n\nDebug source:")
    answered = re.search(r"<Message>\s*(.*?)\s*(?:\n|</Message>)", text) or re.search(r'"message":\s*"([^"]+)"', text)
    if answered:
        return answered[1]
    provider = re.search(r"External \w+ credential provider: (.*)", text, re.DOTALL)
    if provider:
        return _one_line(provider[1])
    server = re.search(r"Error performing \w+ (\w+://[^/\s?]+)", text)
    place = f"{server[1]}: " if server else ""
    if "://169.254." in place or "://metadata.google" in place:
        place = f"no credentials in the environment, and none from {place}"
    system = re.findall(r'message: "([^"]+)"|(failed to lookup address information[^"]*)', details)
    if system:
        return place + "".join(system[-1])
    if "TimedOut" in details:
        return f"{place}no answer in time"
    if "Account must be specified" in text:
        return "no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME"
    return _one_line(f"{place}{text.partition(' - ')[2] or text}" if server else text) or type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split()).removesuffix(":")
