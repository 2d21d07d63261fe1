"""Opens the bucket or container that a URL names: where its server is, who asks, how long a failure is retried.

obstore reads each cloud's own environment variables. For S3 what it does not read is boto3's to find: profiles, SSO,
roles to be assumed.
"""

import functools
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oloproof_dagster.errors import EvidenceError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MOST_ATTEMPTS = 5
"""How often a request is made at most, unless AWS_MAX_ATTEMPTS says otherwise."""
RETRY_SECONDS = 10
"""After how long none is repeated any more."""
REQUEST_SECONDS = 30
CREDENTIALS_MINUTES = 5
"""How long credentials are used before boto3 is asked again, which renews them ten minutes before their end."""

ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The environment variables that name another server than the cloud's own."""


def connect(url: str) -> "ObjectStore":
    """The place at a URL, to be used by this process alone: obstore's threads do not survive a fork.

    Raises:
        EvidenceError: there are no credentials for it.
    """
    from obstore.store import AzureStore, GCSStore

    scheme, _, rest = url.partition("://")
    place, _, prefix = rest.partition("/")
    if scheme == "s3":
        return _bucket_on_s3(place, prefix)
    if scheme in ("gs", "gcs"):
        return GCSStore(place, **_options("gs", prefix))
    container, _, host = place.rpartition("@") if "@" in place else (place, "", "")
    config: Any = {"account_name": host.partition(".")[0]} if host else {}
    return AzureStore(container, config=config, **_options("az", prefix))


def require_own_process() -> None:
    """Returns in the process that used object storage first, and in any that shares no memory with it.

    Raises:
        EvidenceError: this process was forked from one that did; there a request would never end.
    """
    if _first_process() != os.getpid():
        raise EvidenceError(
            "this process was forked from one that uses object storage; start it by spawn or forkserver instead"
        )


@functools.cache
def _first_process() -> int:
    return os.getpid()


def _bucket_on_s3(bucket: str, prefix: str) -> "ObjectStore":
    from obstore.store import S3Store

    if _environment_says_all():
        return S3Store(bucket, **_options("s3", prefix))
    import boto3
    import botocore.session
    from obstore.auth.boto3 import Boto3CredentialProvider

    found = botocore.session.get_session()
    session = boto3.Session(botocore_session=found)
    if session.get_credentials() is None:
        raise EvidenceError("no AWS credentials were found; set AWS_PROFILE, or see `aws configure`")
    config: dict[str, Any] = {}
    region = os.environ.get("AWS_REGION") or session.region_name
    if region:
        config["region"] = region
    endpoint = found.get_scoped_config().get("endpoint_url")
    if endpoint and not any(map(os.environ.get, ENDPOINTS["s3"])):
        config["endpoint"] = endpoint
    provider = Boto3CredentialProvider(session, ttl=timedelta(minutes=CREDENTIALS_MINUTES))
    options = _options("s3", prefix, endpoint=config.get("endpoint"))
    return S3Store(bucket, config=config, credential_provider=provider, **options)  # type: ignore[arg-type]


def _environment_says_all() -> bool:
    """Whether boto3 would find nothing beyond what obstore reads itself, so that it need not be loaded."""
    value = os.environ.get
    if value("AWS_SKIP_SIGNATURE"):
        return True
    keys = value("AWS_ACCESS_KEY_ID") and value("AWS_SECRET_ACCESS_KEY")
    return bool(keys and (value("AWS_REGION") or value("AWS_DEFAULT_REGION")) and not value("AWS_PROFILE"))


def _options(cloud: str, prefix: str, *, endpoint: str | None = None) -> dict[str, Any]:
    """The options that every cloud's store takes. A server that was named with http:// is reached so."""
    named = [endpoint, *map(os.environ.get, ENDPOINTS[cloud])]
    client: dict[str, Any] = {"timeout": timedelta(seconds=REQUEST_SECONDS)}
    if any(each and each.startswith("http://") for each in named) or os.environ.get("AZURE_STORAGE_USE_EMULATOR"):
        client["allow_http"] = True
    bundle = os.environ.get("AWS_CA_BUNDLE") if cloud == "s3" else None
    if bundle:
        client["root_certificate"] = Path(bundle).read_bytes()
    attempts = os.environ.get("AWS_MAX_ATTEMPTS", "") if cloud == "s3" else ""
    backoff = {"init_backoff": timedelta(seconds=0.25), "max_backoff": timedelta(seconds=3), "base": 2}
    return {
        "prefix": prefix or None,
        "client_options": client,
        "retry_config": {
            "max_retries": (int(attempts) if attempts.isdecimal() and int(attempts) else MOST_ATTEMPTS) - 1,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            "backoff": backoff,
        },
    }
