"""Values between the steps of one run, kept beside the evidence: every machine that shares it can read them.

What belongs here: small values between steps. The tables' own way is `evidence`.
"""

import json
from typing import Any

import dagster as dg

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.store import Store
from oloproof_dagster.resources.failures import failing_plainly

FOLDER = ".steps"


class StepValues(dg.IOManager):
    """JSON, `<root>/.steps/<run>/<step>/<output>[.<mapping key>].json`.

    A run that is executed again from its failure shares the folder of the first one, so that it finds the values
    of before. `forget` takes it away.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @failing_plainly
    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Writes a value as JSON."""
        self._store.write(_name(context.step_context.dagster_run, context), json.dumps(obj).encode())

    @failing_plainly
    def load_input(self, context: dg.InputContext) -> Any:
        """Reads a value that an earlier step wrote."""
        output = context.upstream_output
        assert output is not None, "these values come from steps only"
        data = self._store.read(_name(context.step_context.dagster_run, output))
        if data is None:
            raise EvidenceError(
                f"the values of the step {output.step_key} are gone; start a new run: what was executed is kept"
            )
        return json.loads(data)

    def forget(self, run: dg.DagsterRun) -> None:
        """Takes away the values of a run's steps."""
        self._store.remove(_folder(run))


class StepValuesIOManager(dg.ConfigurableIOManagerFactory[StepValues]):
    """Makes the IO manager of the values between a project's steps."""

    root: str

    def create_io_manager(self, context: dg.InitResourceContext) -> StepValues:
        """The IO manager at the root."""
        return StepValues(Evidence(self.root).store)


def _folder(run: dg.DagsterRun) -> str:
    return f"{FOLDER}/{run.root_run_id or run.run_id}"


def _name(run: dg.DagsterRun, output: dg.OutputContext) -> str:
    value = ".".join(filter(None, (output.name, output.mapping_key)))
    return f"{_folder(run)}/{output.step_key}/{value}.json"
