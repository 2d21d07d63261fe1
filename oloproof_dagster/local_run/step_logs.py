"""What steps print, kept where Dagster's pages look for it, without the processes that Dagster starts to show it."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dagster._core.storage.compute_log_manager import CapturedLogContext, ComputeIOType
from dagster._core.storage.local_compute_log_manager import IO_TYPE_EXTENSION, LocalComputeLogManager
from dagster._serdes import ConfigurableClassData

from oloproof_dagster.local_run.mirror import kept_in_files


class StepLogs(LocalComputeLogManager):
    """Dagster's own files, written by this process itself."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Generator[CapturedLogContext, None, None]:
        out, err = (
            Path(self.get_captured_local_path(log_key, IO_TYPE_EXTENSION[kind]))
            for kind in (ComputeIOType.STDOUT, ComputeIOType.STDERR)
        )
        with kept_in_files(out, err):
            yield CapturedLogContext(log_key)
        Path(self.get_captured_local_path(log_key, "complete")).touch()
