"""What a case leaves running: no task of one case writes into another's world, and what was ended is counted."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import Engine
from tests.support.projects import write_project

LEAVES = '''
import asyncio
import threading
import time

ended = []


class Desk:
    """Refunds in a task or a thread of its own, later, where the input says so."""

    async def open(self):
        self.pool = asyncio.ensure_future(asyncio.sleep(60))

    async def close(self):
        ended.append("closed")

    def reset(self, state):
        self.state = dict(state)

    def snapshot(self):
        return dict(self.state)

    async def refund_later(self):
        await asyncio.sleep(0.15)
        self.state["refunded"] = True

    async def __call__(self, given):
        if given.get("task"):
            asyncio.create_task(self.refund_later())
        if given.get("thread"):
            threading.Thread(target=time.sleep, args=(0.3,), name="later").start()
        if given.get("executor"):
            await asyncio.to_thread(int)
        await asyncio.sleep(0.2 if given.get("waits") else 0)
        return {"pool": not self.pool.done()}


desk = Desk()
'''


def engine(root: Path, *given: dict[str, Any], **sandbox: Any) -> Engine:
    cases = [
        {
            "id": f"c-{n}",
            "input": each,
            "initial_state": {"refunded": False},
            "expected": {"state": {"refunded": True}},
        }
        for n, each in enumerate(given)
    ]
    system = {"name": "desk", "version": "v1", "callable": "app:desk"}
    return Engine(write_project(root, app=LEAVES, cases=cases, suite={"system": system, "sandbox": sandbox}))


def test_a_task_of_one_case_never_writes_into_the_next_cases_world(tmp_path: Path) -> None:
    made = engine(tmp_path, {"task": True}, {"waits": True})
    counts = made.execute()
    assert [row.state for row in made.rows("environment_states")] == ['{"refunded":false}'] * 2
    assert [row.left_tasks for row in made.rows("trajectories")] == [1, None]
    (line,) = counts.lines(1)
    assert line.startswith("1 task (such as Desk.refund_later) left running by a call, ended before the snapshot")


def test_settle_s_lets_a_task_finish_first(tmp_path: Path) -> None:
    made = engine(tmp_path, {"task": True}, {"waits": True}, settle_s=5)
    made.execute()
    assert [row.state for row in made.rows("environment_states")] == ['{"refunded":true}', '{"refunded":false}']


def test_what_a_system_begins_in_open_lives_from_case_to_case(tmp_path: Path) -> None:
    made = engine(tmp_path, {}, {})
    made.execute()
    assert [row.output for row in made.rows("trajectories")] == ['{"pool":true}'] * 2
    assert [row.left_tasks for row in made.rows("trajectories")] == [None, None]


def test_threads_that_live_on_are_counted_and_idle_ones_of_an_executor_are_not(tmp_path: Path) -> None:
    made = engine(tmp_path, {"thread": True}, {"executor": True})
    counts = made.execute()
    assert [row.left_threads for row in made.rows("trajectories")] == [1, None]
    (line,) = counts.lines(1)
    assert line.startswith("1 thread (such as later) left running by a call")


def test_what_was_left_running_is_kept_by_a_killed_run_and_outside_of_data_versions(tmp_path: Path) -> None:
    made = engine(tmp_path, {"task": True}, {})
    made.execute()
    content = made.stored("trajectories").content
    made.stored("trajectories").remove()
    assert made.execute().miss == 0
    assert [row.left_tasks for row in made.rows("trajectories")] == [1, None]
    assert made.stored("trajectories").content == content


@pytest.mark.parametrize("written", [-1, "soon", float("inf")])
def test_settle_s_is_a_number_of_seconds(written: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"sandbox\.settle_s"):
        engine(tmp_path, {}, settle_s=written)
