"""What a sandbox is to do and what it leaves behind: plain records of texts, which cross to worker processes as
they are."""

from dataclasses import dataclass
from typing import Literal

from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.system.left_behind import NOTHING, LeftBehind

Status = Literal["ok", "error", "timeout"]


@dataclass(frozen=True, slots=True)
class ReplayOf:
    """What a replay goes on from: a recording and one of its checkpoints as JSON texts, and what is changed."""

    recording: str
    checkpoint: str
    change: ReplayChange


@dataclass(frozen=True, slots=True)
class Call:
    """One case to be executed once, or (`replay`) replayed once. Texts are JSON.

    `wait_s` is how long to wait before it, in seconds: a retry gives a rate limit time to pass. `only_reset` leaves the
    system uncalled: the outcome's state is the world right after its reset.
    """

    case_id: str
    trial: int
    cluster: str
    input: str
    initial_state: str | None
    replay: ReplayOf | None = None
    wait_s: float = 0.0
    only_reset: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call left. `trajectory` is the recording or, of a replay, the continuation; texts are JSON.

    `duration_ms` covers reset, call and snapshot. `transient` says that the error is one of those that
    `retries.on` names, `raised_fault` that a replay's fault left the agent as an exception. `unreset` are the paths at
    which the world right after its reset was not as it should be.
    """

    status: Status
    error: str | None
    duration_ms: float
    output: str | None = None
    trajectory: str | None = None
    state: str | None = None
    transient: bool = False
    raised_fault: bool = False
    unreset: tuple[str, ...] = ()
    left: LeftBehind = NOTHING
