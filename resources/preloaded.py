"""All that a step needs to have imported, for an executor whose step processes are forked from one that has it.

What belongs here: imports. Hand this module's name to Dagster as `preload_modules`; a step process then begins within a
quarter of the time that it takes to import everything.
"""

import importlib
from contextlib import suppress

from oloproof_dagster import definitions

__all__ = ["definitions"]

OPENS_AN_INSTANCE = (
    "dagster._core.instance.factory",
    "dagster._core.storage.sqlite_storage",
    "dagster._core.storage.local_compute_log_manager",
    "upath",
)
"""What Dagster imports by name once a process opens its instance; one that is not there is only imported later."""

for _name in OPENS_AN_INSTANCE:
    with suppress(ImportError):
        importlib.import_module(_name)
