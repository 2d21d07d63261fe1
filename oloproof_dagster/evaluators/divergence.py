"""What a replay has to repeat of a recording, and the first difference where it does not."""

from dataclasses import dataclass, field
from typing import Any, Literal

from oloproof_dagster.evaluators.call_order import Pair
from oloproof_dagster.evaluators.call_results import result_of
from oloproof_dagster.project.evaluator_keys import FaultRecovery
from oloproof_dagster.records.compared import compare_at
from oloproof_dagster.records.comparison import Comparison
from oloproof_dagster.records.paths import ABSENT, Path, parse_path
from oloproof_dagster.records.reasons import VerdictReason
from oloproof_dagster.records.trajectory import AgentStep, AgentTrajectory
from oloproof_dagster.wording import shortened


@dataclass(frozen=True, slots=True)
class Diverged:
    """Why a replay shows nothing, with the first difference; `at_step` counts as the recording does.

    `path` is where in a result or state the two differ; null where all of it does.
    """

    reason: VerdictReason
    what: Literal["call", "result", "status", "state"] | None = None
    at_step: int | None = None
    recorded: Any = None
    replayed: Any = None
    path: str | None = None

    @property
    def detail(self) -> str | None:
        """The difference in one line."""
        if self.what is None:
            return None
        where = f"at step {self.at_step} " if self.at_step is not None else ""
        what = self.what + (f" {self.path}" if self.path not in (None, "$") else "")
        sides = (
            "missing" if each is None and self.what == "call" else shortened(each)
            for each in (self.replayed, self.recorded)
        )
        return f"{where}the {what} is {', not '.join(sides)}"

    def members(self) -> dict[str, Any] | None:
        """The difference as JSON members, None where there is nothing to compare."""
        if self.what is None:
            return None
        found = {"at_step": self.at_step, "what": self.what, "recorded": self.recorded, "replayed": self.replayed}
        return found if self.path is None else found | {"path": self.path}


@dataclass(frozen=True, slots=True)
class Repeats:
    """What a replay has to repeat beside the calls: `results` of the tools, `ignored` paths (tool first) left out."""

    results: bool = False
    ignored: tuple[Path, ...] = field(default=())

    @classmethod
    def of(cls, declared: FaultRecovery, recording: AgentTrajectory) -> "Repeats":
        """What an evaluator asks of the replays of a recording."""
        return cls(
            control_of(declared, recording) == "calls_and_results",
            tuple(parse_path(path) for path in declared.ignore_results),
        )

    def difference(self, pairs: tuple[Pair, ...], recording: AgentTrajectory, made: AgentTrajectory) -> Diverged | None:
        """The first result that is not the recorded one."""
        for recorded, again in pairs if self.results else ():
            wanted, found = result_of(recording, recorded), result_of(made, again)
            if wanted is None and found is None:
                continue
            ignored = tuple(path[1:] for path in self.ignored if path[0] in ("*", recorded.tool_name))
            rows = compare_at(Comparison(ignored=ignored), (), seen(wanted), seen(found))
            first = next((row for row in rows[1:] if not row.matches), rows[0])
            if not rows[0].matches:
                at = wanted.index if wanted is not None else recorded.index
                sides = (_side(first.expected), _side(first.actual))
                return Diverged(VerdictReason.CONTROL_DIVERGED, "result", at, *sides, path=first.path)
        return None


CALLS = Repeats()


def state_difference(comparison: Comparison, recorded: Any, replayed: Any) -> Diverged | None:
    """The first place at which the state after a control replay is not the recorded one."""
    rows = compare_at(comparison, (), recorded, replayed)
    if rows[0].matches:
        return None
    first = next((row for row in rows[1:] if not row.matches), rows[0])
    sides = (_side(first.expected), _side(first.actual))
    return Diverged(VerdictReason.CONTROL_DIVERGED, "state", None, *sides, path=first.path)


def control_of(declared: FaultRecovery, recording: AgentTrajectory) -> str:
    """What a control has to repeat: as declared; else calls, and results too where the model's answers are played
    back: there equal calls are no news."""
    return declared.control or ("calls_and_results" if recording.answers else "calls")


def seen(result: AgentStep | None) -> Any:
    """What an agent sees of a call; null where no result of it is recorded."""
    if result is None:
        return None
    return result.result if result.error is None else {"result": result.result, "error": result.error}


def _side(value: Any) -> Any:
    """A side of a compared row as JSON: null where it is not there."""
    return None if value is ABSENT else value
