"""The sandbox: reset, call, snapshot around one case, copies on every side, and failures that stay their case's own."""

import asyncio
import datetime
import decimal
import json
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.digests import canonical_json
from oloproof_dagster.project.project import load_project
from oloproof_dagster.records.replay_change import ReplayChange
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.records.trajectory import AgentCheckpoint, AgentStep, AgentTrajectory, from_text, recorded_text
from oloproof_dagster.system.calls import Call, Outcome, ReplayOf
from oloproof_dagster.system.interrupts import INTERRUPTS
from oloproof_dagster.system.loading import System, load_system
from oloproof_dagster.system.own_files import OwnFiles
from oloproof_dagster.system.protocols import current_case
from oloproof_dagster.system.sandbox import Sandbox
from tests.support.engine import Engine
from tests.support.interrupts import ctrl_c, interruptible
from tests.support.projects import TILL, write_project

Returns = Callable[..., Any]


def suite_row(number: int = 1, *, state: Any = None, **given: Any) -> SuiteRow:
    """Case `c-1` and so on, with a state to start from unless `state` is ABSENT."""
    return SuiteRow(
        case_id=f"c-{number}",
        digest="",
        line=number,
        input=JSONText(canonical_json(given or {"n": number})),
        expected=JSONText("null"),
        metadata=JSONText("{}"),
        group_id=None,
        initial_state=JSONText(canonical_json({"log": []} if state is None else state)),
        cluster=f"c-{number}",
    )


class World:
    """A system and its world in one, each part replaceable; the log of what was called is its state."""

    def __init__(self, call: Returns | None = None, snapshot: Returns | None = None, reset: Returns | None = None):
        self.state: dict[str, Any] = {}
        self._call, self._snapshot, self._reset = call, snapshot, reset

    def reset(self, state: dict[str, Any]) -> Any:
        self.state = state
        return self._reset(state) if self._reset else None

    def __call__(self, given: Any) -> Any:
        return self._call(given) if self._call else {"n": given["n"]}

    def snapshot(self) -> Any:
        return self._snapshot() if self._snapshot else self.state

    def replay(self, trajectory: AgentTrajectory, *, checkpoint: AgentCheckpoint, change: ReplayChange) -> Any:
        return trajectory


def sandbox_of(world: Any, tmp_path: Path = Path("/nowhere")) -> Sandbox:
    return Sandbox(
        System(
            world,
            getattr(world, "reset", None),
            getattr(world, "snapshot", None),
            getattr(world, "replay", None),
            OwnFiles(tmp_path, {}),
        )
    )


def executed(sandbox: Sandbox, case: SuiteRow, trial: int = 0) -> Outcome:
    """Asks a sandbox to execute a case once."""
    return sandbox.answer(Call(case.case_id, trial, case.cluster, case.input, case.initial_state))


def replayed(
    sandbox: Sandbox, recording: AgentTrajectory, checkpoint: AgentCheckpoint, change: ReplayChange
) -> Outcome:
    """Asks a sandbox to replay the first case from a checkpoint of a recording."""
    case = suite_row()
    replay = ReplayOf(recorded_text(recording), canonical_json(checkpoint.model_dump()), change)
    return sandbox.answer(Call(case.case_id, 0, case.cluster, case.input, case.initial_state, replay))


GOOD = AgentTrajectory(steps=(AgentStep(index=1, kind="final"),))
START = AgentCheckpoint(checkpoint_id="start")


def state_of(outcome: Outcome) -> Any:
    assert outcome.state is not None
    return json.loads(outcome.state)


def output_of(outcome: Outcome) -> Any:
    assert outcome.output is not None
    return json.loads(outcome.output)


@pytest.mark.parametrize("mix", range(8))
def test_a_case_is_reset_called_and_snapshotted_in_this_order_plain_or_async_in_any_mix(mix: int) -> None:
    events: list[str] = []

    def part(name: str, bit: int, value: Any) -> Returns:
        async def awaited(*given: Any) -> Any:
            events.append(name)
            await asyncio.sleep(0)
            return value

        def plain(*given: Any) -> Any:
            events.append(name)
            return value

        return awaited if mix & bit else plain

    world = World()
    world.reset, world.snapshot = part("reset", 1, None), part("snapshot", 4, {"s": 1})  # type: ignore[method-assign]
    system = System(part("call", 2, "out"), world.reset, world.snapshot, None, OwnFiles(Path(), {}))
    sandbox = Sandbox(system)
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2)]
    sandbox.close()
    assert events == ["reset", "call", "snapshot"] * 2
    for outcome in outcomes:
        assert (outcome.status, outcome.error, outcome.output, outcome.state) == ("ok", None, '"out"', '{"s":1}')
        assert outcome.duration_ms >= 0


def test_cases_of_several_threads_never_interleave() -> None:
    events: list[tuple[str, int]] = []

    async def reset(state: Any) -> None:
        events.append(("reset", state["n"]))
        await asyncio.sleep(0.001)

    def call(given: Any) -> None:
        events.append(("call", given["n"]))

    world = World(call=call, reset=reset)
    world.snapshot = lambda: events.append(("snapshot", world.state["n"])) or world.state  # type: ignore[func-returns-value,method-assign]
    sandbox = sandbox_of(world)
    threads = [threading.Thread(target=executed, args=(sandbox, suite_row(n, state={"n": n}))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sandbox.close()
    assert len(events) == 18
    for at in range(0, 18, 3):
        n = events[at][1]
        assert events[at : at + 3] == [("reset", n), ("call", n), ("snapshot", n)]


def test_a_system_that_keeps_and_mutates_what_it_is_given_changes_no_case() -> None:
    kept: list[Any] = []

    def call(given: Any) -> str:
        kept.append(given)
        world.state["log"].append(1)
        for each in kept:
            each["n"] = "mutated"
        return canonical_json(current_case().input)

    world = World(call=call, reset=kept.append)
    sandbox, case = sandbox_of(world), suite_row(1)
    before = (case.input, case.initial_state)
    for _ in range(3):
        outcome = executed(sandbox, case)
        assert output_of(outcome) == '{"n":1}'
        assert state_of(outcome) == {"log": [1], "n": "mutated"}
    assert (case.input, case.initial_state) == before


def test_two_cases_of_equal_input_and_state_are_two_executions() -> None:
    calls: list[Any] = []
    sandbox = sandbox_of(World(call=calls.append))
    for number in (1, 2):
        executed(sandbox, suite_row(number, same=True))
    assert len(calls) == 2


def test_a_snapshot_that_shares_objects_is_not_changed_by_the_next_case() -> None:
    shared: dict[str, Any] = {"log": []}

    def reset(state: Any) -> None:
        shared["log"].clear()

    sandbox = sandbox_of(
        World(call=lambda given: shared["log"].append(given["n"]), reset=reset, snapshot=lambda: shared)
    )
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2)]
    assert [state_of(outcome) for outcome in outcomes] == [{"log": [1]}, {"log": [2]}]


def test_an_output_object_that_is_reused_is_copied_for_each_case() -> None:
    reused: dict[str, Any] = {}

    def call(given: Any) -> Any:
        reused["answer"] = given["n"]
        return reused

    def snapshot() -> Any:
        return reused.update(answer="changed by the snapshot") or {}

    sandbox = sandbox_of(World(call=call, snapshot=snapshot))
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2)]
    assert [output_of(outcome) for outcome in outcomes] == [{"answer": 1}, {"answer": 2}]


def test_a_recording_is_a_copy_taken_when_it_is_recorded() -> None:
    def call(given: Any) -> None:
        arguments = {"n": [1]}
        current_case().agent_trajectory(
            AgentTrajectory(steps=(AgentStep(index=1, kind="tool_call", tool_name="t", arguments=arguments),))
        )
        arguments["n"].append(2)

    outcome = executed(sandbox_of(World(call=call)), suite_row())
    assert outcome.trajectory is not None
    assert json.loads(outcome.trajectory)["steps"][0]["arguments"] == {"n": [1]}


def test_one_event_loop_lives_as_long_as_the_sandbox() -> None:
    loops: list[Any] = []
    clients: list[asyncio.Queue[int]] = []

    async def reset(state: Any) -> None:
        loops.append(asyncio.get_running_loop())

    async def call(given: Any) -> int:
        if not clients:  # a client bound to the loop it was first used on
            clients.append(asyncio.Queue())
            asyncio.get_running_loop().call_soon(clients[0].put_nowait, 7)
        loops.append(asyncio.get_running_loop())
        return await clients[0].get() if given["n"] == 1 else clients[0].qsize()

    sandbox = sandbox_of(World(call=call, reset=reset))
    assert [output_of(executed(sandbox, suite_row(number))) for number in (1, 2)] == [7, 0]
    sandbox.close()
    assert len(loops) == 4
    assert len(set(map(id, loops))) == 1
    assert loops[0].is_closed()


def test_what_is_left_running_on_the_loop_is_cancelled_when_the_sandbox_closes() -> None:
    told: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def call(given: Any) -> None:
        left.append(asyncio.ensure_future(background()))
        await asyncio.sleep(0)

    left: list[Any] = []
    sandbox = sandbox_of(World(call=call))
    assert executed(sandbox, suite_row()).status == "ok"
    sandbox.close()
    sandbox.close()
    assert told == ["cancelled"]
    assert left[0].cancelled()


@pytest.mark.parametrize("kept", ["neither reset nor snapshot", "no initial state"])
def test_without_a_world_or_an_initial_state_a_case_runs_and_records_no_state(kept: str) -> None:
    calls: list[str] = []
    world = World(reset=lambda state: calls.append("reset"), snapshot=lambda: calls.append("snapshot"))
    case = suite_row()
    if kept == "no initial state":
        members = {name: getattr(case, name) for name in SuiteRow.__dataclass_fields__}
        outcome = executed(sandbox_of(world), SuiteRow(**{**members, "initial_state": None}))
    else:
        outcome = executed(sandbox_of(lambda given: given), case)
    assert (outcome.status, outcome.output, outcome.state, calls) == ("ok", '{"n":1}', None, [])


def test_null_is_an_output_and_a_state() -> None:
    outcome = executed(sandbox_of(World(call=lambda given: None, snapshot=lambda: None)), suite_row())
    assert (outcome.status, outcome.output, outcome.state) == ("ok", "null", "null")


def raising(error: BaseException | type[BaseException]) -> Returns:
    def plain(*given: Any) -> Any:
        raise error

    return plain


def raising_later(error: BaseException | type[BaseException]) -> Returns:
    async def awaited(*given: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return awaited


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even its message raises")


ERRORS: list[tuple[Any, str]] = [
    (ValueError("no money"), "ValueError: no money"),
    (KeyError("order"), "KeyError: 'order'"),
    (AssertionError(), "AssertionError"),
    (SystemExit(3), "SystemExit: 3"),
    (asyncio.CancelledError(), "CancelledError"),
    (TimeoutError("slow"), "TimeoutError: slow"),
    (RecursionError("deep"), "RecursionError: deep"),
    (MemoryError(), "MemoryError"),
    (StopIteration(), "StopIteration"),
    (Unspeakable(), "Unspeakable: (its message cannot be shown)"),
    (OSError("no file \udcff"), "OSError: no file \\udcff"),
    (ValueError("two\nlines"), "ValueError: two\nlines"),
]
ONLY_SECOND = {"n": 2}


@pytest.mark.parametrize("how", [raising, raising_later])
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[str(each[1]).split("\n")[0] for each in ERRORS])
def test_a_call_that_raises_costs_its_own_case_and_leaves_its_state_as_evidence(
    error: BaseException, told: str, how: Callable[[Any], Returns]
) -> None:
    if how is raising_later and isinstance(error, StopIteration):
        told = "RuntimeError: coroutine raised StopIteration"  # what Python makes of it

    def call(given: Any) -> Any:
        world.state["log"].append(given["n"])
        return how(error)(given) if given == ONLY_SECOND else "fine"

    world = World(call=call)
    sandbox = sandbox_of(world)
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2, 3)]
    sandbox.close()
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert [state_of(outcome) for outcome in outcomes] == [{"log": [1]}, {"log": [2]}, {"log": [3]}]
    assert outcomes[1].output is None
    assert outcomes[1].error == told
    canonical_json(outcomes[1].error)


@pytest.mark.parametrize("how", [raising, raising_later])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError("no")])
def test_a_reset_that_raises_costs_its_own_case_and_the_system_is_not_called(
    error: BaseException, how: Callable[[Any], Returns]
) -> None:
    calls: list[Any] = []

    def reset(state: Any) -> Any:
        return how(error)(state) if state == ONLY_SECOND else None

    sandbox = sandbox_of(World(call=lambda given: calls.append(given["n"]), reset=reset))
    outcomes = [executed(sandbox, suite_row(number, state={"n": number})) for number in (1, 2, 3)]
    sandbox.close()
    assert calls == [1, 3]
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith(f"reset: {type(error).__name__}")
    assert (outcomes[1].output, outcomes[1].state) == (None, None)


@pytest.mark.parametrize("how", [raising, raising_later])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError("no")])
def test_a_snapshot_that_raises_costs_its_own_case_and_the_output_stays(
    error: BaseException, how: Callable[[Any], Returns]
) -> None:
    def snapshot() -> Any:
        return how(error)() if world.state == ONLY_SECOND else world.state

    world = World(snapshot=snapshot)
    sandbox = sandbox_of(world)
    outcomes = [executed(sandbox, suite_row(number, state={"n": number})) for number in (1, 2, 3)]
    sandbox.close()
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith(f"snapshot: {type(error).__name__}")
    assert (outcomes[1].output, outcomes[1].state) == ('{"n":2}', None)


def test_of_a_call_and_a_snapshot_that_both_raise_the_call_is_told() -> None:
    world = World(call=raising(ValueError("first")), snapshot=raising(ValueError("second")))
    outcome = executed(sandbox_of(world), suite_row())
    assert (outcome.error, outcome.state) == ("ValueError: first", None)


@pytest.mark.parametrize("step", ["reset", "call", "snapshot", "replay"])
def test_an_interrupt_by_a_person_ends_the_run_at_any_step_and_lets_the_sandbox_go(step: str) -> None:
    stops = True

    def stopping(*given: Any, **named: Any) -> Any:
        if stops:
            ctrl_c()
        return GOOD if step == "replay" else {}

    world = World()
    if step == "replay":
        world.replay = stopping  # type: ignore[method-assign]
    else:
        world = World(**{step: stopping})
    sandbox = sandbox_of(world)

    def asked() -> Outcome:
        return replayed(sandbox, GOOD, START, ReplayChange()) if step == "replay" else executed(sandbox, suite_row())

    with interruptible(), INTERRUPTS.watched(), pytest.raises(KeyboardInterrupt):
        asked()
    stops = False
    assert asked().status == "ok"


@pytest.mark.parametrize("how", [raising, raising_later])
@pytest.mark.parametrize("step", ["reset", "call", "snapshot"])
def test_an_interrupt_that_the_system_raises_itself_costs_its_own_case(
    step: str, how: Callable[[Any], Returns]
) -> None:
    world = World(**{step: lambda *given: how(KeyboardInterrupt)() if current_case().id == "c-2" else {}})
    sandbox = sandbox_of(world)
    with interruptible(), INTERRUPTS.watched():
        outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2, 3)]
    sandbox.close()
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error == ("" if step == "call" else f"{step}: ") + "KeyboardInterrupt"


def test_where_nobody_watches_an_interrupt_is_taken_for_a_wish_to_stop() -> None:
    with pytest.raises(KeyboardInterrupt):
        executed(sandbox_of(World(raising(KeyboardInterrupt))), suite_row())


def test_an_interrupt_of_a_former_pass_is_none_of_the_next() -> None:
    sandbox = sandbox_of(World(lambda given: ctrl_c() if given == ONLY_SECOND else raising(KeyboardInterrupt)()))
    with interruptible():
        with INTERRUPTS.watched(), pytest.raises(KeyboardInterrupt):
            executed(sandbox, suite_row(2))
        with INTERRUPTS.watched():
            assert executed(sandbox, suite_row(1)).error == "KeyboardInterrupt"


def test_what_handled_interrupts_before_still_does_while_they_are_watched_and_after() -> None:
    told: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    try:
        handler = signal.getsignal(signal.SIGINT)
        with INTERRUPTS.watched():
            signal.raise_signal(signal.SIGINT)
        assert told == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, former)


def test_interrupts_are_not_watched_where_they_are_ignored_or_outside_the_main_thread() -> None:
    def watched() -> bool:
        before = signal.getsignal(signal.SIGINT)
        with INTERRUPTS.watched():
            return signal.getsignal(signal.SIGINT) is not before

    with interruptible():
        assert watched()
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(watched).result()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert not watched()


class Hostile(dict[str, Any]):
    """An object of some library that passes for a dict and fails when it is read."""

    def items(self) -> Any:
        raise LookupError("the connection is gone")


def circular() -> Any:
    value: dict[str, Any] = {"orders": []}
    value["orders"].append(value)
    return value


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: list[tuple[str, Any, str]] = [
    ("set", {"tags": {1}}, "$.tags is of type set"),
    ("datetime", {"orders": [{"at": datetime.datetime(2026, 11, 30)}]}, "$.orders.0.at is of type datetime"),
    ("date", {"at": datetime.date(2026, 11, 30)}, "$.at is of type date"),
    ("bytes", [b"raw"], "$.0 is of type bytes"),
    ("NaN", {"a": {"b": float("nan")}}, "$.a.b is nan"),
    ("infinity", [1.0, float("-inf")], "$.1 is -inf"),
    ("tuple", {"pair": (1, 2)}, "$.pair is of type tuple"),
    ("Decimal", {"price": decimal.Decimal("1.10")}, "$.price is of type Decimal"),
    ("key that is a number", {"orders": {1: "a"}}, "$.orders has the key 1 of type int"),
    ("key that is null", {None: 1}, "$ has the key None of type NoneType"),
    ("key that is true", {"a": {True: 1}}, "$.a has the key True of type bool"),
    ("circle", circular(), "$.orders.0 contains itself"),
    ("object", {"x": object()}, "$.x is of type object"),
    ("exception", ValueError("no"), "$ is of type ValueError"),
    ("half a character", {"name": "\ud800"}, "$.name holds half of a surrogate pair"),
    ("key of half a character", {"\ud800": {1}}, "$ has the key '\\ud800', which holds half"),
    ("generator", (n for n in "ab"), "$ is of type generator"),
    ("too deep", nested(5_000), "is nested more than 400 levels deep"),
    ("hostile", {"rows": Hostile(a=1)}, "LookupError: the connection is gone"),
]


@pytest.mark.parametrize("side", ["output", "snapshot"])
@pytest.mark.parametrize(("value", "told"), [each[1:] for each in NOT_JSON], ids=[each[0] for each in NOT_JSON])
def test_what_is_not_json_costs_its_own_case_and_the_path_is_named(value: Any, told: str, side: str) -> None:
    def bad(*given: Any) -> Any:
        return value if current_case().id == "c-2" else {"fine": True}

    world = World(call=bad if side == "output" else None, snapshot=bad if side == "snapshot" else None)
    sandbox = sandbox_of(world)
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2, 3)]
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith(f"{side}: ")
    assert told in outcomes[1].error
    assert (outcomes[1].output is None) == (side == "output")
    assert (outcomes[1].state is None) == (side == "snapshot")
    canonical_json(outcomes[1].error)


MALFORMED: list[tuple[str, Any]] = [
    ("records what is no trajectory", lambda: current_case().agent_trajectory([])),  # type: ignore[arg-type]
    ("records a step with a gap", lambda: current_case().agent_trajectory({"steps": [{"index": 2, "kind": "final"}]})),
    ("builds a step of no kind", lambda: AgentStep(index=1, kind="thought")),
    ("builds a trajectory with a gap", lambda: AgentTrajectory(steps=(AgentStep(index=2, kind="final"),))),
    (
        "records a value that is not JSON",
        lambda: current_case().agent_trajectory(AgentTrajectory(steps=(AgentStep(index=1, kind="final", result={1}),))),
    ),
]


@pytest.mark.parametrize("record", [each[1] for each in MALFORMED], ids=[each[0] for each in MALFORMED])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_malformed_trajectory_is_its_cases_error_and_says_what_is_wrong(record: Returns, awaited: bool) -> None:
    def plain(given: Any) -> str:
        if given == ONLY_SECOND:
            record()
        return "fine"

    async def later(given: Any) -> str:
        return plain(given)

    sandbox = sandbox_of(World(call=later if awaited else plain))
    outcomes = [executed(sandbox, suite_row(number)) for number in (1, 2, 3)]
    sandbox.close()
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith("malformed_trajectory: ")
    assert outcomes[1].trajectory is None


def test_a_malformed_recording_that_the_agent_swallows_is_an_error_all_the_same() -> None:
    def call(given: Any) -> str:
        current_case().agent_trajectory(GOOD)
        try:
            current_case().agent_trajectory({"steps": 1})
        except Exception:
            return "went on"
        return "was told nothing"

    outcome = executed(sandbox_of(World(call=call)), suite_row())
    assert (outcome.status, outcome.trajectory) == ("error", None)
    assert outcome.error is not None
    assert outcome.error.startswith("malformed_trajectory: AgentTrajectory.steps")


def test_of_several_recordings_the_last_counts_also_after_the_call_raised() -> None:
    def call(given: Any) -> str:
        for n in (1, 2):
            current_case().agent_trajectory(GOOD.model_copy(update={"step_limit": n}))
        raise ValueError("after it was recorded")

    outcome = executed(sandbox_of(World(call=call)), suite_row())
    assert outcome.status == "error"
    assert outcome.trajectory is not None
    assert json.loads(outcome.trajectory)["step_limit"] == 2


def test_the_current_case_tells_its_id_and_fresh_copies_of_what_it_starts_from() -> None:
    def call(given: Any) -> Any:
        case = current_case()
        case.input["n"] = case.initial_state["log"] = "mutated"  # type: ignore[index]
        return [case.id, case.trial, case.input, case.initial_state]

    for trial in (0, 2):
        outcome = executed(sandbox_of(World(call=call)), suite_row(), trial)
        assert output_of(outcome) == ["c-1", trial, {"n": 1}, {"log": []}]


def test_the_current_case_is_known_in_tasks_and_threads_that_take_the_context_along() -> None:
    async def call(given: Any) -> list[str]:
        async def task() -> str:
            return current_case().id

        return [await asyncio.to_thread(lambda: current_case().id), *await asyncio.gather(task(), task())]

    sandbox = sandbox_of(World(call=call))
    assert [output_of(executed(sandbox, suite_row(n))) for n in (1, 2)] == [["c-1"] * 3, ["c-2"] * 3]
    sandbox.close()


def test_outside_a_case_and_in_a_bare_thread_there_is_no_current_case() -> None:
    with pytest.raises(LookupError, match="outside a case"):
        current_case()

    def call(given: Any) -> str:
        told: list[str] = []

        def ask() -> None:
            try:
                told.append(current_case().id)
            except LookupError as error:
                told.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return told[0]

    assert "contextvars.copy_context().run" in output_of(executed(sandbox_of(World(call=call)), suite_row()))


FAILING = """
import json

from shop import pay


def first(amount):
    return second(amount)


def second(amount):
    return pay(amount)


class Desk:
    def __call__(self, request):
        return first(request["amount"])


desk = Desk()
"""
SHOP = """
import json


def pay(amount):
    return json.loads("{" * amount)
"""


def test_an_error_names_the_last_frames_of_the_users_own_files_and_no_other(tmp_path: Path) -> None:
    suite = {"system": {"name": "desk", "version": "v1", "callable": "app:desk"}}
    write_project(tmp_path, app=FAILING, suite=suite, files={"shop.py": SHOP})
    sandbox = Sandbox(load_system(load_project(tmp_path)))
    outcome = executed(sandbox, suite_row(amount=1))
    assert outcome.error is not None
    message, _, frames = outcome.error.partition(" (app.py")
    assert message.startswith("JSONDecodeError: Expecting property name")
    assert frames == ":8 in first, app.py:12 in second, shop.py:6 in pay)"


def test_a_replay_is_given_copies_and_the_same_case_in_a_world_that_is_reset() -> None:
    recording = AgentTrajectory(
        steps=(AgentStep(index=1, kind="tool_call", tool_name="t", arguments={"n": [1]}),),
        checkpoints=(AgentCheckpoint(checkpoint_id="start", payload={"log": [0]}),),
    )
    seen: list[Any] = []

    class Replays(World):
        def replay(self, trajectory: AgentTrajectory, *, checkpoint: AgentCheckpoint, change: ReplayChange) -> Any:
            seen.append((current_case().id, current_case().input, list(self.state["log"]), change.fault_result))
            seen.append((trajectory.model_dump(), checkpoint.model_dump()))
            self.state["log"].append("replayed")
            trajectory.steps[0].arguments["n"].append(2)
            checkpoint.payload["log"].append(1)
            if change.fault_result is not None:
                change.fault_result["error"] = "mutated"
            return GOOD

    sandbox, change = sandbox_of(Replays()), ReplayChange("inject_fault", 1, "error")
    before = (recording.model_dump(), recording.checkpoints[0].model_dump())
    for _ in range(2):
        outcome = replayed(sandbox, recording, recording.checkpoints[0], change)
        assert (outcome.status, outcome.error, outcome.output) == ("ok", None, None)
        assert from_text(outcome.trajectory or "") == GOOD
        assert outcome.state == '{"log":["replayed"]}'
    assert seen == [("c-1", {"n": 1}, [], {"error": "internal error"}), before] * 2
    assert (recording.model_dump(), recording.checkpoints[0].model_dump()) == before


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda: raising(ValueError("no"))(), "ValueError: no"),
        (lambda: sys.exit(2), "SystemExit: 2"),
        (lambda: raising_later(ValueError("later"))(), "ValueError: later"),
        (lambda: None, "malformed_trajectory: expected an AgentTrajectory, got NoneType"),
        (lambda: [GOOD], "malformed_trajectory: expected an AgentTrajectory, got list"),
        (
            lambda: {"steps": [{"index": 3, "kind": "final"}]},
            "malformed_trajectory: AgentTrajectory: step 1 has index 3",
        ),
        (
            lambda: AgentTrajectory(steps=(AgentStep(index=1, kind="final", result={1}),)),
            "malformed_trajectory: $.steps",
        ),
    ],
)
def test_a_replay_that_raises_or_returns_nonsense_is_an_error_and_its_state_is_kept(
    returned: Returns, told: str
) -> None:
    world = World()
    world.replay = lambda *given, **named: returned()  # type: ignore[method-assign]
    sandbox = sandbox_of(world)
    outcome = replayed(sandbox, GOOD, START, ReplayChange())
    sandbox.close()
    assert (outcome.status, outcome.trajectory, outcome.state) == ("error", None, '{"log":[]}')
    assert outcome.error is not None
    assert outcome.error.startswith(told)


class Unusual(BaseException):
    """What no `except Exception` catches, as pytest.fail raises."""


def test_an_exception_outside_of_exception_costs_its_case_and_no_other() -> None:
    def call(given: Any) -> Any:
        if given["n"] == 1:
            raise Unusual("no")
        return given

    sandbox = sandbox_of(World(call))
    assert [executed(sandbox, suite_row(number)).error for number in (1, 2)] == ["Unusual: no", None]


UNSPEAKABLE = """
class Odd(Exception):
    def __str__(self):
        raise {what}


class Dagster(Exception):
    pass


Dagster.__module__ = {module}


class Agent:
    def reset(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def __call__(self, given):
        if given["n"] == 2:
            raise {raised}
        return {{"answer": "done"}}


agent = Agent()
"""


@pytest.mark.parametrize(
    ("what", "module", "raised"),
    [
        ("SystemExit(3)", "None", "Odd()"),
        ("KeyboardInterrupt()", "None", "Odd()"),
        ("ValueError()", "None", "Dagster('x')"),
        ("ValueError()", "'dagster.anything'", "Dagster('x')"),
        ("ValueError()", "'x'", "SyntaxError('x', (5, 6, 7, 8))"),
    ],
)
def test_an_exception_of_any_make_costs_its_own_case(what: str, module: str, raised: str, tmp_path: Path) -> None:
    app = UNSPEAKABLE.format(what=what, module=module, raised=raised)
    system = {"name": "odd", "version": "v1", "callable": "app:agent"}
    cases = [{"id": f"c{n}", "input": {"n": n}, "initial_state": {}} for n in (1, 2, 3)]
    write_project(tmp_path, app=app, suite={"system": system}, cases=cases)
    engine = Engine(tmp_path)
    engine.execute()
    assert [row.status for row in engine.rows("trajectories")] == ["ok", "error", "ok"]


def test_a_replay_that_tampers_with_its_change_is_recorded_as_what_was_asked(tmp_path: Path) -> None:
    tampering = (
        '        object.__setattr__(change, "kind", "resume")\n        object.__setattr__(change, "fault", None)\n'
    )
    recovery = {"type": "fault_recovery", "tool": "add", "fault": "error"}
    signature = "    def replay(self, trajectory, *, checkpoint, change):\n"
    write_project(tmp_path, app=TILL.replace(signature, signature + tampering), suite={"evaluators": [recovery]})
    engine = Engine(tmp_path)
    engine.run()
    assert {row.kind for row in engine.rows("fault_replays")} == {"control", "fault"}
