"""The URLs that evidence can lie at, and the packages that reading one takes."""

import re
from importlib.util import find_spec

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.wording import shortened

PACKAGES = {
    "s3": ("obstore", "boto3"),
    "gs": ("obstore",),
    "gcs": ("obstore",),
    "az": ("obstore",),
    "abfs": ("obstore",),
    "abfss": ("obstore",),
}
"""What must be installed for the URLs of each scheme."""
EXTRAS = {"s3": "s3", "gs": "gs", "gcs": "gs"}
"""The extra that installs it; `az` for every other scheme."""


def store_url(url: str) -> str | None:
    """The URL without a slash at its end, when evidence can lie there; None for no text.

    Raises:
        ValueError: it names no such place; the message says what to write.
    """
    scheme, separator, rest = url.partition("://")
    if not url:
        return None
    if not separator:
        raise ValueError(
            f"{shortened(url)} is no URL; leave `store` out to keep evidence in the project's folder, or write"
            " s3://bucket/prefix, or file:///srv/evidence"
        )
    if scheme != "file" and scheme not in PACKAGES:
        raise ValueError(f"no evidence is kept at {shortened(scheme)}; write one of {', '.join(PACKAGES)} and file")
    if not re.fullmatch(r"[^\s?#*\[\]]+", rest) or (scheme == "file") != rest.startswith("/") or not rest.strip("/"):
        example = "file:///srv/evidence" if scheme == "file" else f"{scheme}://bucket/prefix"
        raise ValueError(f"{shortened(url)} names no place; write one such as {example}, without spaces and *?#[]")
    if ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise ValueError("holds a password; leave it out, credentials come from the environment")
    if scheme != "file" and {"", ".", ".."} & set(rest.rstrip("/").split("/")):
        raise ValueError(f"{shortened(url)} has an empty part, or . or .. as one; write every part of the prefix out")
    return url.rstrip("/")


def require_packages(url: str) -> None:
    """Returns when what a URL takes is installed.

    Raises:
        ConfigError: it is not; the message says what to install.
    """
    scheme = url.partition("://")[0]
    missing = [package for package in PACKAGES.get(scheme, ()) if find_spec(package) is None]
    if missing:
        extra = EXTRAS.get(scheme, "az")
        raise ConfigError(
            f"{url} needs {' and '.join(missing)}, which is not installed: pip install {' '.join(missing)}, or install"
            f" Oloproof's wheel file with its extra, oloproof_dagster-....whl[{extra}]"
        )
