"""What is different in a replay: nothing, or the result of one call. Faults and what they look like to the agent."""

from dataclasses import dataclass
from typing import Literal

from oloproof_dagster.digests import dump
from oloproof_dagster.records.faults import FAULT_RESULTS, Fault


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """What is different in a replay: nothing (`resume`), or the result of one call (`inject_fault`).

    `step_index` is the faulted call's index in the recording.
    """

    kind: Literal["resume", "inject_fault"] = "resume"
    step_index: int | None = None
    fault: Fault | None = None

    @property
    def fault_result(self) -> dict[str, str] | None:
        """A fresh copy of the result that the faulted call returns; None for `resume`."""
        return dict(FAULT_RESULTS[self.fault]) if self.fault else None

    @property
    def text(self) -> str:
        """The change's canonical text, as replay keys take it."""
        return dump({"kind": self.kind, "step_index": self.step_index, "fault": self.fault})
