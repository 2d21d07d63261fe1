"""What an evaluator reads of one case: its declaration, its execution, its state, its replays, its source."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.records.changed_texts import ChangedText, as_source, changed_texts, holds
from oloproof_dagster.records.keys import Identity, replay_key
from oloproof_dagster.records.paths import ABSENT
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow
from oloproof_dagster.records.trajectory import (
    AgentCheckpoint,
    AgentTrajectory,
    AgentUsage,
    digest_without_latency,
    drawn_trial,
    from_text,
)

FindReplay = Callable[["CaseEvidence", AgentCheckpoint, ReplayChange], ReplayRow | None]


class CaseEvidence:
    """One case and trial and what is recorded of it; values are read from their texts when they are first asked for,
    and a copy's state that has the text of its source's is the same value.

    `execution` is None where nothing is recorded under the case's key; `source` is the source case's evidence in the
    same trial.
    """

    def __init__(
        self,
        case: SuiteRow,
        trial: int,
        execution: ExecutionRow | None,
        state: StateRow | None,
        source: "CaseEvidence | None" = None,
        find_replay: FindReplay | None = None,
    ) -> None:
        self.case, self.trial, self.execution, self.source = case, trial, execution, source
        self.state_text = state.state if state else None
        self.trajectory_text = execution.trajectory if execution else None
        self._find_replay = find_replay

    @cached_property
    def input(self) -> Any:
        """What the system is called with."""
        return parse_canonical(self.case.input)

    @cached_property
    def expected(self) -> Any:
        """What the dataset expects of the case; null where it expects nothing."""
        return parse_canonical(self.case.expected)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The case's metadata."""
        found: dict[str, Any] = parse_canonical(self.case.metadata)
        return found

    @cached_property
    def initial_state(self) -> Any:
        """The state the case starts from, or ABSENT."""
        text, source = self.case.initial_state, self.source
        if source is not None and source.case.initial_state == text:
            return source.initial_state
        return ABSENT if text is None else parse_canonical(text)

    @cached_property
    def state(self) -> Any:
        """The state left behind, or ABSENT; a snapshot that is null is a state."""
        text, source = self.state_text, self.source
        if source is not None and source.state_text == text:
            return source.state
        return ABSENT if text is None else parse_canonical(text)

    @cached_property
    def world_changes(self) -> tuple[ChangedText, ...]:
        """The texts of a copy's world that its transform changed; none where the input was changed, or of a source."""
        source = self.source
        if source is None or self.case.initial_state == source.case.initial_state:
            return ()
        return tuple(changed_texts(source.initial_state, self.initial_state))

    @property
    def initial_as_source(self) -> Any:
        """The state that a copy's source starts from; a source's own."""
        return self.source.initial_state if self.source and self.world_changes else self.initial_state

    def state_as_source(self, reference: Any) -> Any:
        """The state left behind as it were without the changed texts, for a comparison with `reference`."""
        return as_source(self.state, self.world_changes, reference)

    @cached_property
    def exposed(self) -> bool | None:
        """Whether the agent was shown a changed text of the world, as some tool's result; None where no text of it was
        changed, or the recording does not say."""
        texts = tuple(change.text for change in self.world_changes if change.text)  # every text holds an empty one
        recording = self.trajectory if texts else None
        if recording is None:
            return None
        results = (step for step in recording.steps if step.kind == "tool_result")
        if any(holds(step.result, texts) or holds(step.error, texts) for step in results):
            return True
        return None if recording.truncated else False

    @cached_property
    def output(self) -> Any:
        """What the system returned, or ABSENT; null is an output."""
        text = self.execution.output if self.execution else None
        return ABSENT if text is None else parse_canonical(text)

    @cached_property
    def trajectory(self) -> AgentTrajectory | None:
        """The recording of this trial, or None."""
        return None if self.trajectory_text is None else from_text(self.trajectory_text)

    @cached_property
    def trajectory_digest(self) -> str | None:
        """What replay keys take of the recording."""
        return None if self.trajectory_text is None else digest_without_latency(self.trajectory_text)

    def replay_key(self, identity: Identity, checkpoint: AgentCheckpoint, change: ReplayChange) -> str | None:
        """The key that a replay of this case's recording is kept under; None where nothing was recorded."""
        recording, digest = self.trajectory, self.trajectory_digest
        if recording is None or digest is None:
            return None
        return replay_key(identity, self.case, digest, checkpoint, change, trial=drawn_trial(recording, self.trial))

    def replay(self, checkpoint: AgentCheckpoint, change: ReplayChange) -> ReplayRow | None:
        """The replay recorded for this case's recording, or None."""
        return self._find_replay(self, checkpoint, change) if self._find_replay else None


class CaseView:
    """A case as a python check sees it. Every value is the check's own copy, made when it is first asked for.

    `state`, `initial_state`, `trajectory` and `usage` are None where none was recorded or declared. `source` is the
    source case of a copy; `recorded`, where a fault replay is looked at, is the case as it was recorded.
    """

    def __init__(self, evidence: CaseEvidence, recorded: CaseEvidence | None = None) -> None:
        execution, case = evidence.execution, evidence.case
        self.id, self.trial, self.transform = case.case_id, evidence.trial, case.transform
        # Texts alone: nothing that a check reaches from here is another criterion's.
        self._texts = {
            "input": case.input,
            "expected": case.expected,
            "metadata": case.metadata,
            "output": execution.output if execution else None,
            "state": evidence.state_text,
            "initial_state": case.initial_state,
            "trajectory": evidence.trajectory_text,
        }
        self.source: CaseView | None = CaseView(evidence.source) if evidence.source else None
        self.recorded: CaseView | None = CaseView(recorded) if recorded else None

    @cached_property
    def input(self) -> Any:
        """What the system was called with."""
        return self._read("input")

    @cached_property
    def expected(self) -> Any:
        """What the dataset expects of the case."""
        return self._read("expected")

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The case's metadata."""
        found: dict[str, Any] = self._read("metadata")
        return found

    @cached_property
    def output(self) -> Any:
        """What the system returned, or None."""
        return self._read("output")

    @cached_property
    def state(self) -> Any:
        """The state left behind, or None."""
        return self._read("state")

    @cached_property
    def initial_state(self) -> Any:
        """The state that the case started from, or None."""
        return self._read("initial_state")

    @cached_property
    def trajectory(self) -> AgentTrajectory | None:
        """What the agent recorded, or None."""
        text = self._texts["trajectory"]
        return None if text is None else from_text(text)

    @cached_property
    def usage(self) -> AgentUsage | None:
        """What the case cost, or None where the agent recorded nothing of it."""
        return self.trajectory.usage if self.trajectory else None

    def _read(self, name: str) -> Any:
        text = self._texts[name]
        return None if text is None else parse_canonical(text)
