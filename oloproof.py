"""The short name: `import oloproof` gives the public names of `oloproof_dagster`."""

from typing import TYPE_CHECKING, Any

import oloproof_dagster

if TYPE_CHECKING:
    from oloproof_dagster import *  # noqa: F403

__all__ = oloproof_dagster.__all__


def __getattr__(name: str) -> Any:
    return getattr(oloproof_dagster, name)


def __dir__() -> list[str]:
    return dir(oloproof_dagster)
