"""The sandboxes of one run: calls go in, outcomes come back, from this process or from worker processes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from oloproof_dagster.project.oloproof_yaml import Retries
from oloproof_dagster.system.calls import Call, Outcome

Done = Callable[[Outcome], None]
Finished = Callable[[Outcome, tuple[str, ...]], None]
"""Takes the final outcome and the errors of the attempts before it."""


class Sandboxes(Protocol):
    """One sandbox or several. `done` is always called in the thread that submits and waits."""

    @property
    def workers(self) -> int:
        """How many calls are answered at the same time."""

    def submit(self, call: Call, done: Done) -> None:
        """Takes a call; `done` takes its outcome, before this returns or while `wait` does."""

    def wait(self) -> None:
        """Returns once at least one more outcome is there.

        Raises:
            ConfigError: the system cannot be loaded any more, or not as it was.
        """

    def close(self) -> None:
        """Ends the sandboxes; a call that is still under way is ended with them."""


def submit_with_retries(
    sandboxes: Sandboxes, call: Call, retries: Retries | None, finished: Finished, errors: tuple[str, ...] = ()
) -> None:
    """Submits a call, and again while its error is one that the user declares as transient; `errors` are those of the
    attempts before."""

    def finish(outcome: Outcome) -> None:
        if retries is None or not outcome.transient or len(errors) == retries.max:
            finished(outcome, errors)
        else:
            again = replace(call, wait_s=retries.wait_s * 2 ** len(errors))
            submit_with_retries(sandboxes, again, retries, finished, (*errors, outcome.error or ""))

    sandboxes.submit(call, finish)
