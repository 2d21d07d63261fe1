"""What is different in a replay: nothing, or the result of one call. Faults and what they look like to the agent."""

from dataclasses import dataclass
from typing import Any, Literal

from oloproof_dagster.digests import dump
from oloproof_dagster.records.faults import FAULT_RESULTS, Delivery, Fault


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """What is different in a replay: nothing (`resume`), or the result of one call (`inject_fault`).

    `step_index` is the faulted call's index in the recording. `delivery` says whether that call returns the fault's
    result or raises a ToolFault.
    """

    kind: Literal["resume", "inject_fault"] = "resume"
    step_index: int | None = None
    fault: Fault | None = None
    delivery: Delivery = "result"

    @property
    def fault_result(self) -> dict[str, str] | None:
        """A fresh copy of the result that the faulted call returns; None for `resume`."""
        return dict(FAULT_RESULTS[self.fault]) if self.fault else None

    @property
    def text(self) -> str:
        """The change's canonical text, as replay keys take it."""
        members = {"kind": self.kind, "step_index": self.step_index, "fault": self.fault}
        # Written only where it is not the default, so that recorded replays keep their keys.
        return dump(members if self.delivery == "result" else members | {"delivery": self.delivery})


@dataclass(frozen=True, slots=True)
class Replayed:
    """What `replay` may return in place of the continuation alone: with it, what the agent answered, as JSON."""

    trajectory: Any
    output: Any = None
