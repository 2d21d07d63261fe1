"""A process lives until it has ended, and a later one with the same id is another."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from oloproof_dagster.liveness import began, descendants, is_alive, machine, same_start
from tests.support.waiting import until

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(600)"])
child.wait()
"""


@pytest.fixture
def parent() -> Iterator["subprocess.Popen[str]"]:
    """A process that waits for one that it has started."""
    command = [sys.executable, "-S", "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
        for pid, _ in [(process.pid, 0.0), *descendants(process.pid)]:
            os.kill(pid, 9)


def test_a_process_is_alive_until_it_ends_also_before_it_is_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    since = began(process.pid)
    assert since is not None
    assert is_alive(process.pid)
    assert is_alive(process.pid, since)
    process.kill()
    until(lambda: not is_alive(process.pid, since))
    assert not is_alive(process.pid)
    process.communicate()
    assert not is_alive(process.pid, since)


def test_a_later_process_of_the_same_id_is_another() -> None:
    since = began(os.getpid())
    assert since is not None
    assert not is_alive(os.getpid(), since - 60)
    assert not is_alive(os.getpid(), since + 60)


def test_other_processes_find_the_same_start() -> None:
    asked = f"from oloproof_dagster.liveness import began; print(began({os.getpid()}))"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert same_start(float(found), began(os.getpid()) or 0.0)


def test_another_users_process_is_alive() -> None:
    assert is_alive(1)


def test_descendants_are_found_as_long_as_their_parents_are_alive(parent: "subprocess.Popen[str]") -> None:
    ((child, since),) = descendants(parent.pid)
    assert is_alive(child, since)
    assert (child, since) in [(pid, began) for pid, began in descendants(os.getpid()) if pid == child]


def test_a_machine_has_one_name_in_all_its_processes() -> None:
    asked = "from oloproof_dagster.liveness import machine; print(machine())"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout.strip() == machine()
