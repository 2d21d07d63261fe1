"""Another process that holds a version's evidence, until it is killed."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from oloproof_dagster.evidence.evidence import Evidence

HOLDER = """
    import sys, time
    from oloproof_dagster.evidence.evidence import Evidence
    with Evidence(sys.argv[1]).held("v1"):
        print("held", flush=True)
        time.sleep(60)
"""


@contextmanager
def another_holding(evidence: Evidence) -> Iterator["subprocess.Popen[str]"]:
    """The process that holds version v1 meanwhile."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(evidence.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()
