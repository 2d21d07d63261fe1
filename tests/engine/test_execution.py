"""Execution: keys and what is in them, reuse of what is recorded, and parts that survive a killed process."""

import gc
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oloproof_dagster.digests import digest
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.resume_log import ResumeLog
from oloproof_dagster.execution.execute import PassOptions
from oloproof_dagster.execution.passes import ExecutionPass, PassTarget, write_tables
from oloproof_dagster.records.keys import Identity, execution_key, initial_digest
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.system.calls import Call, Outcome
from oloproof_dagster.workers.session import Session
from tests.support.engine import AGENT_SYSTEM, Engine, contents
from tests.support.former import lines_as_an_earlier_release_wrote_them
from tests.support.projects import TILL, case, write_project

CASE = SuiteRow(
    case_id="c-001",
    digest="sha256:0",
    line=1,
    input=JSONText('{"n":1}'),
    expected=JSONText("null"),
    metadata=JSONText("{}"),
    group_id=None,
    initial_state=JSONText("{}"),
    cluster="c-001",
)
WHO = Identity("till", "v1", "sha256:code")


@pytest.mark.parametrize(
    ("identity", "changed", "trial"),
    [
        (replace(WHO, system="other"), CASE, 0),
        (replace(WHO, version="v2"), CASE, 0),
        (replace(WHO, code="sha256:edited"), CASE, 0),
        (WHO, replace(CASE, case_id="c-002"), 0),
        (WHO, replace(CASE, input=JSONText('{"n":1.0}')), 0),
        (WHO, replace(CASE, initial_state=JSONText('{"a":1}')), 0),
        (WHO, replace(CASE, initial_state=None), 0),
        (WHO, CASE, 1),
    ],
)
def test_a_key_changes_with_the_system_the_case_what_it_is_given_and_the_trial(
    identity: Identity, changed: SuiteRow, trial: int
) -> None:
    assert execution_key(identity, changed, trial) != execution_key(WHO, CASE, 0)


@pytest.mark.parametrize(
    "edited",
    [
        {"digest": "sha256:1"},
        {"line": 7},
        {"expected": JSONText('{"state":{}}')},
        {"metadata": JSONText('{"a":1}')},
        {"group_id": "g"},
        {"cluster": "g"},
    ],
)
def test_a_key_does_not_change_with_what_the_system_is_not_given(edited: dict[str, Any]) -> None:
    assert execution_key(WHO, replace(CASE, **edited), 0) == execution_key(WHO, CASE, 0)


def test_a_key_is_the_digest_that_its_definition_says() -> None:
    given = digest("given/v1", {"input": {"n": 1}, "initial_state": {}})
    members = {"system": "till", "version": "v1", "code": "sha256:code", "case": "c-001", "given": given, "trial": 0}
    assert execution_key(WHO, CASE, 0) == digest("execution/v1", members)


def test_the_initial_state_is_named_by_its_digest_and_the_state_after_is_not_in_it(tmp_path: Path) -> None:
    assert initial_digest(replace(CASE, initial_state=None)) is None
    write_project(tmp_path, cases=[case(1), case(2)])
    engine = Engine(tmp_path)
    engine.execute()
    rows = engine.rows("environment_states")
    initial = digest("scenario.initial_state/v1", {"balance": 0, "other": "untouched"})
    assert [row.initial for row in rows] == [initial, initial]
    assert rows[0].state != rows[1].state


def run_again(root: Path, **again: bool) -> tuple[int, int]:
    counts = Engine(root).execute(**again)
    return counts.hit, counts.miss


def test_a_second_run_executes_nothing_and_writes_the_same_tables(tmp_path: Path) -> None:
    write_project(tmp_path)
    assert run_again(tmp_path) == (0, 3)
    before = contents(Engine(tmp_path))
    assert run_again(tmp_path) == (3, 0)
    assert contents(Engine(tmp_path)) == before
    assert len(Engine(tmp_path).rows("trajectories")) == 3


EDITS: list[tuple[str, dict[str, Any], int]] = [
    ("nothing", {}, 0),
    ("an expectation", {"expected": {"state": {"balance": 9}}}, 0),
    ("metadata", {"metadata": {"language": "en"}}, 0),
    ("a group", {"group_id": "g"}, 0),
    ("an input", {"input": {"amount": 2, "note": "edited"}}, 1),
    ("a state to start from", {"initial_state": {"balance": 1}}, 1),
    ("an id", {"id": "renamed"}, 1),
]


@pytest.mark.parametrize(("edit", "misses"), [each[1:] for each in EDITS], ids=[each[0] for each in EDITS])
def test_editing_a_case_executes_it_again_only_where_the_system_could_see_it(
    tmp_path: Path, edit: dict[str, Any], misses: int
) -> None:
    group = {"group_id": "g"} if "group_id" in edit else {}
    write_project(tmp_path)
    assert run_again(tmp_path) == (0, 3)
    write_project(tmp_path, cases=[case(1, **group), case(2, **edit), case(3, **group)])
    assert run_again(tmp_path) == (3 - misses, misses)
    assert len(Engine(tmp_path).rows("trajectories")) == 3


def test_an_edit_of_the_agent_or_of_a_module_it_imports_executes_everything_again(tmp_path: Path) -> None:
    write_project(tmp_path, app="import prices\n" + TILL, files={"prices.py": "vat = 19\n"})
    assert run_again(tmp_path) == (0, 3)
    (tmp_path / "checks.py").write_text("def polite(case):\n    return True\n")
    assert run_again(tmp_path) == (3, 0)
    (tmp_path / "prices.py").write_text("vat = 7  # per cent\n")
    assert run_again(tmp_path) == (0, 3)
    (tmp_path / "app.py").write_text("import prices\n" + TILL + "\n# edited\n")
    assert run_again(tmp_path) == (0, 3)


def test_each_version_has_evidence_of_its_own(tmp_path: Path) -> None:
    write_project(tmp_path)
    assert run_again(tmp_path) == (0, 3)
    write_project(tmp_path, suite={"system": {"name": "till", "version": "v2", "callable": "app:till"}})
    assert run_again(tmp_path) == (0, 3)
    write_project(tmp_path)
    assert run_again(tmp_path) == (3, 0)


SOMETIMES = '''
from pathlib import Path

from oloproof_dagster import current_case


class Desk:
    """Raises for the cases that are named in a file; counts its calls in another."""

    def __call__(self, request):
        here = Path(__file__).parent
        with (here / "calls.txt").open("a") as calls:
            calls.write(current_case().id + "\\n")
        if current_case().id in (here / "failing.txt").read_text().split():
            raise ValueError("not now")
        return "fine"


desk = Desk()
'''
DESK = {"system": {"name": "desk", "version": "v1", "callable": "app:desk"}}


def calls(root: Path) -> list[str]:
    """The cases that were called since this was last asked."""
    path = root / "calls.txt"
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def test_errors_are_evidence_and_are_repeated_only_when_asked_for(tmp_path: Path) -> None:
    write_project(tmp_path, app=SOMETIMES, suite=DESK, files={"failing.txt": "c-002"})
    counts = Engine(tmp_path).execute()
    assert (counts.hit, counts.miss, counts.errors) == (0, 3, 1)
    counts = Engine(tmp_path).execute()
    assert (counts.hit, counts.miss, counts.errors) == (3, 0, 1)
    assert calls(tmp_path) == ["c-001", "c-002", "c-003"]
    counts = Engine(tmp_path).execute(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (2, 1, 1)
    (tmp_path / "failing.txt").write_text("")
    counts = Engine(tmp_path).execute(retry_errors=True)
    assert (counts.hit, counts.miss, counts.errors) == (2, 1, 0)
    assert calls(tmp_path) == ["c-002", "c-002"]
    assert [row.status for row in Engine(tmp_path).rows("trajectories")] == ["ok", "ok", "ok"]
    assert run_again(tmp_path, retry_errors=True) == (3, 0)


def test_the_sandbox_is_not_made_where_nothing_has_to_be_executed(tmp_path: Path) -> None:
    write_project(tmp_path)
    engine = Engine(tmp_path)
    engine.execute()
    attempt = engine.evidence.open_attempt("v1", fresh=False)

    def refused() -> Any:
        raise AssertionError("nothing was to be executed")

    target = PassTarget(engine.evidence, attempt, engine.identity, refused, PassOptions(3))
    _, counts = write_tables(ExecutionPass(engine.stored("transformed_cases")), target)
    assert (counts.hit, counts.miss) == (3, 0)


def test_progress_is_reported_before_each_case_and_at_the_end(tmp_path: Path) -> None:
    write_project(tmp_path)
    engine = Engine(tmp_path)
    reported: list[tuple[str, int, int]] = []
    suite, attempt = engine.expand(), engine.evidence.open_attempt("v1", fresh=False)
    options = PassOptions(3, progress=lambda *step: reported.append(step))
    with closing(Session(engine.project)) as session:
        write_tables(ExecutionPass(suite), engine.target(attempt, session, options))
    assert reported == [("executing", 0, 3), ("executing", 1, 3), ("executing", 2, 3), ("executing", 3, 3)]


def test_a_fresh_attempt_executes_everything_again_and_an_unfinished_one_is_resumed(tmp_path: Path) -> None:
    write_project(tmp_path)
    engine = Engine(tmp_path)
    engine.execute()
    engine.replay()
    assert run_again(tmp_path, fresh=True) == (0, 3)
    assert run_again(tmp_path, fresh=True) == (3, 0)
    attempt = engine.evidence.attempt("v1")
    assert attempt is not None
    assert (attempt.number, attempt.complete) == (2, False)


def kept(folder: Path, *records: tuple[str, Any]) -> None:
    """A part file of its own with these records."""
    parts = ResumeLog(folder)
    for key, value in records:
        parts.append(key, [value])
    parts.close()


def read(folder: Path) -> dict[str, Any]:
    parts = ResumeLog(folder)
    found = {key: record[0] for key in "abck" if (record := parts.get(key)) is not None}
    assert len(found) == len(parts)
    parts.close()
    return found


def test_parts_give_back_what_was_kept_before_they_were_opened(tmp_path: Path) -> None:
    value = {"text": 'a "quoted" line\nand \u2028 é e\u0301 \x00', "n": None}
    kept(tmp_path, ("k", value))
    parts = ResumeLog(tmp_path)
    assert "k" in parts
    assert len(parts) == 1
    assert parts.get("k") == [value]
    assert parts.get("absent") is None
    parts.close()


def test_a_record_has_all_that_it_was_kept_with_in_its_order(tmp_path: Path) -> None:
    parts = ResumeLog(tmp_path)
    parts.append("k", ("c-001", 0, None, 1.5, True))
    parts.append("nothing", ())
    parts.close()
    parts = ResumeLog(tmp_path)
    assert parts.get("k") == ["c-001", 0, None, 1.5, True]
    assert parts.get("nothing") == []
    parts.close()


def test_of_one_key_the_last_record_counts_within_a_file_and_across_files(tmp_path: Path) -> None:
    kept(tmp_path, ("a", 1), ("a", 2), ("b", 1))
    assert read(tmp_path) == {"a": 2, "b": 1}
    kept(tmp_path, ("b", 2), ("c", 1))
    assert len(list(tmp_path.iterdir())) == 2
    assert read(tmp_path) == {"a": 2, "b": 2, "c": 1}


def part_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("cut", range(1, len(b'["b", 2]\n')))
def test_a_torn_last_line_is_passed_over_and_what_comes_after_has_a_file_of_its_own(tmp_path: Path, cut: int) -> None:
    kept(tmp_path, ("a", 1), ("b", 2))
    path = part_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert read(tmp_path) == {"a": 1}
    kept(tmp_path, ("b", 3))
    assert read(tmp_path) == {"a": 1, "b": 3}


GARBAGE = [
    b"",
    b"\x00" * 40,
    b"\xff\xfe not text",
    b"{",
    b"[]",
    b"1",
    b"null",
    b'"key"',
    b"{}",
    b'{"key": ["a"]}',
    b"[" * 200_000,
    b'["a", 9',
    b'[["a"], 9]',
    b'[9, "a"]',
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_a_line_that_is_no_record_hides_no_other(tmp_path: Path, garbage: bytes) -> None:
    kept(tmp_path, ("a", 1), ("b", 2))
    path = part_file(tmp_path)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + garbage + b"\n" + second)
    assert read(tmp_path) == {"a": 1, "b": 2}


def test_any_bit_of_a_resume_file_turned_over_costs_no_more_than_the_lines_that_it_touches(tmp_path: Path) -> None:
    kept(tmp_path, ("a", "J[1]"), ("b", ["*[", {"c": "\u00ca["}]), ("c", 3))
    whole, as_kept = part_file(tmp_path).read_bytes(), read(tmp_path)
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for place in range(len(whole)):
        number = sum(end < place for end in ends)
        touched = set("abc"[number : number + 2 if place in ends else number + 1])
        for bit in range(8):
            part_file(tmp_path).write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert read(tmp_path) == {key: value for key, value in as_kept.items() if key not in touched}, (place, bit)


def killed(root: Path) -> tuple[Engine, Path]:
    """A run that came to its end before its tables were written, and its resume file."""
    engine = Engine(write_project(root))
    engine.execute()
    for table in ("trajectories", "environment_states"):
        engine.stored(table).path.unlink()
    (file,) = (engine.evidence.folder("v1") / "parts" / "1" / "executions").glob("*.jsonl")
    return engine, file


def test_a_killed_runs_damaged_line_is_executed_again_and_no_verdict_changes(tmp_path: Path) -> None:
    engine, file = killed(tmp_path)
    whole = file.read_bytes()
    places = [place for place, byte in enumerate(whole[: whole.index(b"\n")]) if byte == ord(":")]
    assert places
    for place in places:
        file.write_bytes(whole[:place] + b";" + whole[place + 1 :])
        assert run_again(tmp_path) == (2, 1)
        assert {row.status for row in engine.rows("trajectories")} == {"ok"}
        for table in ("trajectories", "environment_states"):
            engine.stored(table).path.unlink()
        for made in file.parent.iterdir():
            made.unlink()
    file.write_bytes(whole)
    assert run_again(tmp_path) == (3, 0)


def test_lines_of_an_earlier_release_bear_no_digest_and_are_read(tmp_path: Path) -> None:
    _, file = killed(tmp_path)
    lines_as_an_earlier_release_wrote_them(file)
    assert file.read_bytes().startswith(b'["')
    assert run_again(tmp_path) == (3, 0)


def test_a_record_that_could_not_be_written_is_an_error_and_what_follows_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ResumeLog(tmp_path / "parts")
    parts.append("a", [1])

    class Full:
        """A file on a disk that runs full in the middle of a line."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

        def write(self, line: bytes) -> None:
            self._stream.write(line[:5])
            self._stream.flush()
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "_writer", Full(parts._writer))
    with pytest.raises(EvidenceError, match="No space left on device"):
        parts.append("b", [2])
    parts.append("c", [3])
    parts.close()
    assert read(tmp_path / "parts") == {"a": 1, "c": 3}


def test_parts_that_cannot_be_written_say_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EvidenceError, match="cannot write evidence to"):
        ResumeLog(tmp_path / "file" / "parts").append("a", [])


def test_a_kill_between_the_writing_of_the_two_tables_pairs_no_new_row_with_an_old_one(tmp_path: Path) -> None:
    write_project(tmp_path)
    engine = Engine(tmp_path)
    engine.execute()
    engine.replay()  # from now on the tables alone hold the evidence
    engine.stored("environment_states").path.unlink()
    assert run_again(tmp_path) == (0, 3)
    assert [len(engine.rows(name)) for name in ("trajectories", "environment_states")] == [3, 3]


def test_rows_follow_the_suites_order_whatever_was_executed_first(tmp_path: Path) -> None:
    write_project(tmp_path, cases=[case(number) for number in (5, 6)])
    run_again(tmp_path)
    order = (6, 1, 5, 2)
    write_project(tmp_path, cases=[case(number) for number in order])
    assert run_again(tmp_path) == (2, 2)
    for table in ("trajectories", "environment_states"):
        assert [row.case_id for row in Engine(tmp_path).rows(table)] == [f"c-{number:03d}" for number in order]


def test_a_case_that_was_taken_out_leaves_no_row(tmp_path: Path) -> None:
    write_project(tmp_path)
    run_again(tmp_path)
    write_project(tmp_path, cases=[case(2)])
    assert run_again(tmp_path) == (1, 0)
    assert [row.case_id for row in Engine(tmp_path).rows("trajectories")] == ["c-002"]


def test_what_a_call_took_is_freed_once_it_is_recorded_without_a_search_for_cycles(tmp_path: Path) -> None:
    write_project(tmp_path, cases=[case(number) for number in range(5)])
    gc.collect()
    gc.disable()
    try:
        before = {id(each) for each in gc.get_objects()}
        Engine(tmp_path).execute()
        left = [each for each in gc.get_objects() if isinstance(each, Call | Outcome) and id(each) not in before]
        assert not left
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "tampered",
    [
        lambda record: record[:1],
        lambda record: [*record, 1, 1, 1],
        lambda record: [record[0], "another", *record[2:]],
        lambda record: [*record[:2], 7, *record[3:]],
        lambda record: [*record[:5], None, *record[6:]],
        lambda record: [*record[:7], "long", *record[8:]],
    ],
)
def test_a_part_that_does_not_fit_is_as_good_as_not_recorded(tampered: Any, tmp_path: Path) -> None:
    write_project(tmp_path, cases=[case(1), case(2)])
    engine = Engine(tmp_path)
    engine.execute()
    (part,) = tmp_path.glob(".oloproof/evidence/*/parts/1/executions/*.jsonl")
    lines_as_an_earlier_release_wrote_them(part)
    first, second = part.read_text("utf-8").splitlines()
    part.write_text(json.dumps(tampered(json.loads(first))) + "\n" + second + "\n", "utf-8")
    for table in ("trajectories", "environment_states"):
        Path(str(engine.stored(table).path)).unlink()
    counts = engine.execute()
    assert (counts.hit, counts.miss) == (1, 1)
    assert [row.case_id for row in engine.rows("trajectories")] == ["c-1", "c-2"] or len(
        engine.rows("trajectories")
    ) == 2


HANDED_OVER = '''
from oloproof_dagster import AgentStep, AgentTrajectory, current_case


class Reads:
    """Says which keys it meets in which order, and leaves a world in an order of its own."""

    def reset(self, state):
        self.state = state

    def snapshot(self):
        return {"z": 1, "queue": self.state["queue"], "a": 2}

    def __call__(self, given):
        case, steps = current_case(), (AgentStep(index=1, kind="tool_call", tool_name="t", arguments=given),)
        case.agent_trajectory(AgentTrajectory(steps=steps))
        return {"queue": list(self.state["queue"]), "given": list(given), "case": list(case.initial_state["queue"])}


agent = Reads()
'''


def test_the_order_of_keys_is_the_files_in_all_that_is_handed_over_and_the_agents_in_all_that_it_gives(
    tmp_path: Path,
) -> None:
    line = '{"id": "c", "input": {"z": 1, "a": 2}, "initial_state": {"queue": {"2": "urgent", "10": "later"}}}\n'
    seen = "def keys(case):\n    return list(case.input) == ['z', 'a'] and list(case.state) == ['z', 'queue', 'a']\n"
    evaluators = [{"type": "python", "criterion": "seen", "callable": "checks:keys"}]
    suite = {"system": AGENT_SYSTEM, "evaluators": evaluators}
    engine = Engine(write_project(tmp_path, app=HANDED_OVER, cases=line, suite=suite, files={"checks.py": seen}))
    verdicts = engine.run()
    (execution,), (state,) = engine.rows("trajectories"), engine.rows("environment_states")
    assert execution.output == '{"queue":["2","10"],"given":["z","a"],"case":["2","10"]}'
    assert '"arguments":{"z":1,"a":2}' in execution.trajectory
    assert state.state == '{"z":1,"queue":{"2":"urgent","10":"later"},"a":2}'
    assert verdicts["c", "seen"].status == "passed"


def test_reordering_keys_changes_no_digest_and_executes_nothing(tmp_path: Path) -> None:
    first = '{"id": "c", "input": {"z": 1, "a": 2}, "initial_state": {"queue": {"2": "u", "10": "l"}}}\n'
    other = (
        '{"metadata": {}, "initial_state": {"queue": {"10": "l", "2": "u"}}, "input": {"a": 2, "z": 1}, "id": "c"}\n'
    )
    engine = Engine(write_project(tmp_path, app=HANDED_OVER, cases=first, suite={"system": AGENT_SYSTEM}))
    engine.run()
    before = contents(engine)
    (tmp_path / "data/cases.jsonl").write_text(other)
    assert engine.execute().miss == 0
    assert contents(engine) == before
    (row,) = engine.rows("transformed_cases")
    assert row.input == '{"a":2,"z":1}'
    assert engine.execute(fresh=True).miss == 1
    assert engine.rows("trajectories")[0].output == '{"queue":["10","2"],"given":["a","z"],"case":["10","2"]}'


def test_rows_of_a_release_that_stored_no_digests_have_the_keys_that_they_had(tmp_path: Path) -> None:
    line = '{"id": "c", "input": {"z": 1, "a": 2}, "initial_state": {"queue": {"2": "u", "10": "l"}}}\n'
    engine = Engine(write_project(tmp_path, app=HANDED_OVER, cases=line, suite={"system": AGENT_SYSTEM}))
    (row,) = engine.expand().rows()
    former = replace(row, given_digest=None, initial_digest=None)
    assert execution_key(engine.identity, former, 0) == execution_key(engine.identity, row, 0)
    assert initial_digest(former) == initial_digest(row)
    assert row.initial_digest == digest("scenario.initial_state/v1", {"queue": {"2": "u", "10": "l"}})
