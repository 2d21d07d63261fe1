"""What the executions of a pass left running, in one line for tasks and one for threads."""

from collections.abc import Iterator

from oloproof_dagster.system.left_behind import LeftBehind
from oloproof_dagster.wording import counted


class LeftRunning:
    """Counts over the executions of a pass, and the first name met of each kind."""

    def __init__(self) -> None:
        self._tasks = self._threads = 0
        self._task: str | None = None
        self._thread: str | None = None

    def note(self, left: LeftBehind) -> None:
        """Adds what one execution left."""
        self._tasks += left.tasks
        self._threads += left.threads
        self._task, self._thread = self._task or left.task, self._thread or left.thread

    def lines(self) -> Iterator[str]:
        """What there is to say, once."""
        if self._tasks:
            yield (
                f"{counted(self._tasks, 'task')} (such as {self._task}) left running by a call, ended before the"
                " snapshot: await them in the call, let them finish with sandbox.settle_s, or start them in open()"
            )
        if self._threads:
            yield (
                f"{counted(self._threads, 'thread')} (such as {self._thread}) left running by a call: nothing can end"
                " them but a worker process, so join them in the call"
            )
