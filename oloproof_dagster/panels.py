"""The case panel: everything recorded of one case, read from the tables and brought together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from oloproof_dagster.digests import parse_canonical
from oloproof_dagster.execution import execution_key, identity_of
from oloproof_dagster.parquet import Index, Stored
from oloproof_dagster.tables import ExecutionRow, ReplayRow, StateRow, SuiteRow, VerdictRow

FindTable = Callable[[str], Stored[Any]]


@dataclass(frozen=True)
class CasePanel:
    """One case and trial; `source` is the source case of a derived one."""

    case: SuiteRow
    source: SuiteRow | None
    execution: ExecutionRow | None
    state: StateRow | None
    verdicts: tuple[VerdictRow, ...]
    replays: tuple[ReplayRow, ...]

    @property
    def failed(self) -> bool:
        """Whether some verdict failed."""
        return any(row.status == "failed" for row in self.verdicts)

    def members(self) -> dict[str, Any]:
        """The panel as `case_panels/v1` has it."""
        execution = self.execution
        return {
            "case_id": self.case.case_id,
            "trial": execution.trial if execution else 0,
            "cluster": self.case.cluster,
            "source_case": self.case.source_case,
            "transform": self.case.transform,
            "execution": execution
            and {"status": execution.status, "error": execution.error, "duration_ms": execution.duration_ms},
            "output": parse_canonical(execution.output) if execution and execution.output is not None else None,
            "verdicts": [
                {
                    "criterion": row.criterion,
                    "status": row.status,
                    "reason": row.reason,
                    "compared": [
                        {key: each[key] for key in ("path", "expected", "actual", "absent", "matches")}
                        for each in compared(row)
                    ],
                }
                for row in self.verdicts
            ],
        }


def compared(row: VerdictRow) -> list[dict[str, Any]]:
    """A verdict's compared paths."""
    return parse_canonical(row.compared) if row.compared else []


def case_panels(find: FindTable, *, ids: set[str] | None = None, failures: bool = False) -> Iterator[CasePanel]:
    """The panels of a run in the suite's order: all, some by id, or those with a failed verdict.

    A case shows the execution that its verdicts were reached on: one that was recorded before the case was edited is
    none of its. The tables follow the suite's order too, so each is read once, front to back.
    """
    wanted = _failing(find) if failures else None
    identity = identity_of(find("trajectories").facts())
    with ExitStack() as open_files:

        def index(name: str, *by: str) -> Index[Any]:
            return open_files.enter_context(closing(Index(find(name), by=by or None)))

        executions, states = index("trajectories"), index("environment_states")
        verdicts, replays = index("verdicts", "case_id"), index("fault_replays", "case_id")
        source: SuiteRow | None = None
        for case in find("transformed_cases").rows():
            if case.source_case is None:
                source = case
            if (ids is not None and case.case_id not in ids) or (wanted is not None and case.case_id not in wanted):
                continue
            key = execution_key(identity, case, 0) if identity else None
            execution = executions.get(key)
            yield CasePanel(
                case=case,
                source=source if case.source_case else None,
                execution=execution,
                state=states.get(key),
                verdicts=verdicts.all(case.case_id),
                replays=replays.all(case.case_id) if execution else (),
            )


def _failing(find: FindTable) -> set[str]:
    return {case_id for case_id, status in find("verdicts").columns("case_id", "status") if status == "failed"}
