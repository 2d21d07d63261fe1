"""The user's own files opened and read: text, and JSONL strictly, with a line number for everything wrong in them.

What the values must be stands in strict_yaml and validation for YAML, in suite/cases and suite/labels for JSONL.
"""

import hashlib
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oloproof_dagster.digests import deeper_than, integers_of_any_size
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.wording import shortened

MOST_LEVELS = 200
"""How deep a value may be nested: well under Python's own limit, so that it never depends on who reads the value."""

_SAVE_AS_UTF8 = "is not UTF-8; save the file as UTF-8"
TOO_DEEP = f"is nested more than {MOST_LEVELS} levels deep"
HALF_PAIR = "holds half of a surrogate pair (\\ud800 to \\udfff alone); write the character itself"


def open_file(path: Path, name: str) -> io.BufferedReader:
    """A file opened for reading. Reading a pipe or a device might never end, so those are refused.

    Raises:
        ConfigError: the file is absent, is no regular file, or cannot be opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError.at(name, None, "is not a file but a folder, a pipe or a device")
        return path.open("rb")
    except FileNotFoundError:
        raise ConfigError.at(name, None, f"there is no such file (looked in {path.parent})") from None
    except (OSError, ValueError) as error:
        raise ConfigError.at(name, None, f"cannot be read: {getattr(error, 'strerror', error)}") from None


def read_text(path: Path) -> str:
    """A file's text, UTF-8, a byte order mark dropped.

    Raises:
        ConfigError: the file is absent, is no file, or is not UTF-8.
    """
    with open_file(path, path.name) as stream:
        content = stream.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError.at(path.name, content[: error.start].count(b"\n") + 1, _SAVE_AS_UTF8) from None


def read_jsonl(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    """Every value of a JSONL file with its line number; blank lines are skipped, BOM and CRLF accepted.

    Memory holds one line at a time.

    Raises:
        ConfigError: the file is absent, or a line is not strict JSON (duplicate key, NaN, 1e400, trailing comma).
    """
    with open_file(path, name) as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r\n")
            except UnicodeDecodeError:
                raise ConfigError.at(name, number, _SAVE_AS_UTF8) from None
            if line:
                yield number, _strict_json(line, name, number)


def read_json(path: Path, name: str) -> Any:
    """The value of a JSON file, as strictly as `read_jsonl` reads a line.

    Raises:
        ConfigError: as there.
    """
    with open_file(path, name) as stream:
        content = stream.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError.at(name, content[: error.start].count(b"\n") + 1, _SAVE_AS_UTF8) from None
    return _strict_json(text, name, 1, "the file holds one whole JSON value")


def _strict_json(line: str, name: str, number: int, rule: str = "each line holds one whole JSON object") -> Any:
    try:
        with integers_of_any_size():
            value = json.loads(line, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite)
            if deeper_than(MOST_LEVELS, value, line):
                raise ConfigError.at(name, number, TOO_DEEP)
            if "\\u" in line:
                json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise ConfigError.at(
            name,
            number + error.lineno - 1,
            f"not JSON at column {error.colno}: {error.msg.lower().removesuffix(' at')}; {rule}",
        ) from None
    except RecursionError:
        raise ConfigError.at(name, number, TOO_DEEP) from None
    except UnicodeEncodeError:
        raise ConfigError.at(name, number, HALF_PAIR) from None
    except ValueError as error:
        raise ConfigError.at(name, number, str(error)) from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shortened(twice)} stands twice in one object; remove one")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write a number, text or null")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {shortened(text)[1:-1]} is too large for a double; write it as text")
    return number


def file_digest(path: Path, name: str) -> str:
    """The digest of a file's bytes.

    Raises:
        ConfigError: the file cannot be read.
    """
    with open_file(path, name) as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
