"""Release runs of test projects, materialised in this process on an instance of their own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from oloproof_dagster import build_definitions, load_project, load_run
from tests.support.projects import TILL, case

TABLES = (
    "cases",
    "transformed_cases",
    "trajectories",
    "environment_states",
    "fault_replays",
    "verdicts",
    "metrics",
    "slices",
    "decisions",
    "gate",
)

COUNTED_TILL = (
    TILL.replace(
        "class Till:",
        """import pathlib


def note(name):
    with pathlib.Path(__file__).with_name(name).open("a", encoding="utf-8") as stream:
        stream.write(current_case().id + "\\n")


class Till:""",
    )
    .replace(
        "        recording = self.work(request, None)\n",
        '        note("calls")\n        recording = self.work(request, None)\n',
    )
    .replace(
        "        return self.work(current_case().input, change.fault_result)\n",
        '        note("replays")\n        return self.work(current_case().input, change.fault_result)\n',
    )
)
"""The till of `projects`, writing the case's id into a file beside it at every call, and at every replay."""

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Result:
    """A run that has ended: what its steps said of each table, and what failed."""

    dagster: dg.ExecuteInProcessResult

    @property
    def success(self) -> bool:
        return self.dagster.success

    def said(self, table: str) -> dict[str, Any]:
        """The metadata of a table's materialisation in this run."""
        return {name: value.value for name, value in self._materialization(table).metadata.items()}

    def data_version(self, table: str) -> str:
        return str((self._materialization(table).tags or {})["dagster/data_version"])

    @property
    def materialized(self) -> set[str]:
        return {
            event.asset_key.path[-1] for event in self.dagster.get_asset_materialization_events() if event.asset_key
        }

    @property
    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        return {each.check_name: each for each in self.dagster.get_asset_check_evaluations()}

    @property
    def failed_steps(self) -> set[str]:
        return {event.step_key for event in self.dagster.all_events if event.is_step_failure and event.step_key}

    @property
    def why(self) -> str:
        """The message of the first step that failed, its causes, and what a dagster.Failure says."""
        for event in self.dagster.all_events:
            if event.is_step_failure:
                data, texts = event.step_failure_data, []
                if data.user_failure_data is not None:
                    texts.append(data.user_failure_data.description or "")
                error = data.error
                while error is not None:
                    texts.append(error.message)
                    error = error.cause
                return "\n".join(texts)
        return ""

    def _materialization(self, table: str) -> dg.AssetMaterialization:
        for event in self.dagster.get_asset_materialization_events():
            if event.asset_key and event.asset_key.path[-1] == table:
                return event.step_materialization_data.materialization
        raise AssertionError(f"{table} was not materialised: {self.why}")


@dataclass
class Home:
    """A project folder and the instance that its runs are recorded in."""

    root: Path
    instance: dg.DagsterInstance

    @property
    def slug(self) -> str:
        return load_project(self.root).slug

    def key(self, table: str) -> dg.AssetKey:
        return dg.AssetKey([self.slug, table])

    def definitions(self, *assets: dg.AssetsDefinition) -> dg.Definitions:
        """What the project's files define now, and assets of a user's own."""
        return dg.Definitions.merge(build_definitions(self.root), dg.Definitions(assets=assets))

    def run(
        self,
        version: str | None = None,
        *,
        job: str = "release_run",
        definitions: dg.Definitions | None = None,
        select: Sequence[dg.AssetKey] | None = None,
        register: bool = True,
        fresh: bool = False,
        retry_errors: bool = False,
    ) -> Result:
        """One run of a version, the current one by default."""
        slug, version = self.slug, version or load_project(self.root).version
        if register:
            self.instance.add_dynamic_partitions(f"{slug}_system_version", [version])
        config: dict[str, Any] = dict(QUIET)
        if fresh or retry_errors:
            config["ops"] = {
                f"{slug}_execution": {"config": {"fresh": fresh, "retry_errors": retry_errors}},
                f"{slug}__fault_replays": {"config": {"retry_errors": retry_errors}},
            }
        return Result(
            (definitions or self.definitions())
            .resolve_job_def(f"{slug}_{job}")
            .execute_in_process(
                instance=self.instance,
                # Dagster itself refuses an unregistered key here, but not where a run is launched with its tag alone.
                **({"partition_key": version} if register else {"tags": {"dagster/partition": version}}),
                asset_selection=select,
                raise_on_error=False,
                run_config=config,
            )
        )

    def noted(self, name: str = "calls") -> list[str]:
        """The cases that the counted till was called with since this was last asked."""
        path = self.root / name
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def verdicts(
        self, version: str | None = None, attempt: int | None = None
    ) -> dict[tuple[str, str], tuple[str, Any]]:
        """(case, criterion) to (status, reason)."""
        frame = load_run(self.root, version, attempt).verdicts
        return {
            (row.case_id, row.criterion): (row.status, row.reason)
            for row in frame.astype(object).where(frame.notna(), None).itertuples()
        }

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces a text that stands in a file of the project."""
        text = (self.root / name).read_text("utf-8")
        assert old in text, f"{old!r} is not in {name}"
        (self.root / name).write_text(text.replace(old, new), encoding="utf-8")


@contextmanager
def home(root: Path) -> Iterator[Home]:
    """A project folder with an instance that lives in memory, which is much faster than one in a folder."""
    with dg.DagsterInstance.ephemeral(settings={"telemetry": {"enabled": False}}) as instance:
        yield Home(root, instance)


RECOVERY = {"type": "fault_recovery", "tool": "add", "fault": "error"}
DECLARED: dict[str, Any] = {"evaluators": [{"type": "state_matches"}, RECOVERY], "slices": ["first_tool"]}
EXECUTED = [case(number)["id"] for number in range(1, 4)]
"""The ids of the till's cases."""


def rule_states(home: Home, version: str | None = None) -> dict[str, str]:
    """The decision on each rule of a recorded run."""
    frame = load_run(home.root, version).decisions
    return dict(zip(frame.rule_id, frame.state, strict=True))
