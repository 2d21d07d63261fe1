"""What the steps of one run tell each other, kept beside the evidence, where every machine that shares it can read it.

What belongs here: small values between steps. The tables' own way is `evidence`.
"""

import json
from typing import Any

import dagster as dg

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence
from oloproof_dagster.evidence.store import Store

FOLDER = ".steps"


class StepValues(dg.IOManager):
    """JSON, `<root>/.steps/<run>/<step>/<output>[.<mapping key>].json`.

    A run that is executed again from its failure shares the folder of the first one, so that it finds what was told
    before. `forget` takes it away.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Writes a value as JSON."""
        self._store.write(_name(context.step_context.dagster_run, context), json.dumps(obj).encode())

    def load_input(self, context: dg.InputContext) -> Any:
        """Reads a value that an earlier step wrote."""
        output = context.upstream_output
        assert output is not None, "these values come from steps only"
        told = self._store.read(_name(context.step_context.dagster_run, output))
        if told is None:
            raise EvidenceError(
                f"what the step {output.step_key} told is not there any more; start a new run: what was executed is"
                " kept"
            )
        return json.loads(told)

    def forget(self, run: dg.DagsterRun) -> None:
        """Takes away what the steps of a run told."""
        self._store.remove(_folder(run))


class StepValuesIOManager(dg.ConfigurableIOManagerFactory[StepValues]):
    """Makes the IO manager of what a project's steps tell each other."""

    root: str

    def create_io_manager(self, context: dg.InitResourceContext) -> StepValues:
        """The IO manager at the root."""
        return StepValues(Evidence(self.root).store)


def _folder(run: dg.DagsterRun) -> str:
    return f"{FOLDER}/{run.root_run_id or run.run_id}"


def _name(run: dg.DagsterRun, output: dg.OutputContext) -> str:
    value = ".".join(filter(None, (output.name, output.mapping_key)))
    return f"{_folder(run)}/{output.step_key}/{value}.json"
