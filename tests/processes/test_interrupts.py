"""Ctrl-C ends a pass and keeps what is finished; an agent's own KeyboardInterrupt is the error of its case."""

import time
from pathlib import Path

import pytest

from tests.support.engine import Engine
from tests.support.interrupts import interruptible
from tests.support.projects import case, write_project

SLEEPER = '''
import asyncio
import os
import signal
import threading
import time
from pathlib import Path

from oloproof_dagster import current_case


def ctrl_c_soon():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()


class Desk:
    """Sleeps in case c-003 until somebody presses Ctrl-C, in the way that a file names."""

    def __call__(self, request):
        how = Path(__file__).with_name("how.txt").read_text()
        with Path(__file__).with_name("calls.txt").open("a") as calls:
            calls.write(current_case().id + "\\n")
        return getattr(self, how)() if current_case().id == "c-003" else "fine"

    def answers(self):
        return "fine"

    def raises_itself(self):
        raise KeyboardInterrupt

    async def raises_later(self):
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    def sleeps(self):
        ctrl_c_soon()
        time.sleep(30)

    async def awaits(self):
        ctrl_c_soon()
        await asyncio.sleep(30)

    def swallows(self):
        try:
            self.sleeps()
        except BaseException:
            return "fine"

    async def swallows_later(self):
        try:
            await self.awaits()
        except BaseException:
            return "fine"

    def raises_another(self):
        try:
            self.sleeps()
        except BaseException as error:
            raise ValueError("the agent gave up") from error


desk = Desk()
'''
DESK = {"system": {"name": "desk", "version": "v1", "callable": "app:desk"}}
IDS = [f"c-{number:03d}" for number in range(1, 6)]


def written(root: Path, how: str) -> Engine:
    cases = [case(number) for number in range(1, 6)]
    return Engine(write_project(root, app=SLEEPER, suite=DESK, cases=cases, files={"how.txt": how}))


def called(root: Path) -> list[str]:
    """The cases that were called since this was last asked."""
    path = root / "calls.txt"
    found = path.read_text().split()
    path.unlink()
    return found


@pytest.mark.parametrize("how", ["raises_itself", "raises_later"])
def test_an_interrupt_that_an_agent_raises_itself_is_the_error_of_its_case(tmp_path: Path, how: str) -> None:
    engine = written(tmp_path, how)
    with interruptible():
        counts = engine.execute()
    assert (counts.miss, counts.errors) == (5, 1)
    rows = engine.rows("trajectories")
    assert [row.status for row in rows] == ["ok", "ok", "error", "ok", "ok"]
    assert rows[2].error.startswith("KeyboardInterrupt (app.py:")


WAYS = ["sleeps", "awaits", "swallows", "swallows_later", "raises_another"]


@pytest.mark.parametrize("how", WAYS)
def test_ctrl_c_while_a_case_sleeps_ends_the_pass_at_once_whatever_the_agent_makes_of_it(
    tmp_path: Path, how: str
) -> None:
    engine = written(tmp_path, how)
    start = time.monotonic()
    with interruptible(), pytest.raises(KeyboardInterrupt):
        engine.execute()
    assert time.monotonic() - start < 10
    assert called(tmp_path) == IDS[:3]


def test_what_was_finished_before_ctrl_c_is_kept_and_the_case_in_flight_is_executed_again(tmp_path: Path) -> None:
    engine = written(tmp_path, "sleeps")
    with interruptible(), pytest.raises(KeyboardInterrupt):
        engine.execute()
    called(tmp_path)
    assert not engine.stored("trajectories").exists
    assert not list(engine.evidence.folder("v1").glob(".*.staged"))
    (tmp_path / "how.txt").write_text("answers")
    counts = engine.execute()
    assert (counts.hit, counts.miss, counts.errors) == (2, 3, 0)
    assert called(tmp_path) == IDS[2:]
    assert [row.case_id for row in engine.rows("trajectories")] == IDS


def test_ctrl_c_leaves_the_tables_of_the_pass_before_as_they_were(tmp_path: Path) -> None:
    engine = written(tmp_path, "answers")
    engine.execute()
    engine.replay()
    before = engine.stored("trajectories").path.read_bytes()
    (tmp_path / "how.txt").write_text("sleeps")
    with interruptible(), pytest.raises(KeyboardInterrupt):
        engine.execute(fresh=True)
    assert engine.stored("trajectories").path.read_bytes() == before
