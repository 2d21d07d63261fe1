"""Evidence on disk: a folder for each version whatever its name, attempts, and one run at a time."""

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import FORMER_ATTEMPTS_KEPT, Attempt, Evidence, encode_version
from oloproof_dagster.evidence.parquet import stage
from oloproof_dagster.records.schema import JSONText
from oloproof_dagster.records.tables import GATE, GateRow

unhurried = settings(deadline=None)  # on a busy machine an example may take long

VERSIONS = st.text(min_size=1, max_size=200) | st.text(alphabet="aA.%~/\\ -_1é", min_size=1, max_size=12)
RESERVED = [
    *("con", "prn", "aux", "nul", "CON", "Aux", "con.txt", "nul.tar.gz", "aux.", "COM1", "com0"),
    *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)),
]
AWKWARD = [
    *RESERVED,
    *("v1", "V1", "v1/v2", "v1\\v2", "v1%2fv2", "..", ".", "...", ".hidden", "v1.", "v1..", "a b", "a:b", "a*b?"),
    *("a~b", "%", "%%", "é", "e\u0301", "Ⅷ", "ß", "ẞ", "İ", "ı", "ſ", "K", "k", "日本", "🚀", "x" * 200, "X" * 200),
    *("x" * 199 + "y", "🚀" * 200, "/" * 200, "." * 200, "v\n", "v.\n", "attempt.json"),
]


@pytest.mark.parametrize("version", AWKWARD, ids=ascii)
def test_a_version_becomes_one_plain_name_that_any_file_system_takes(version: str, tmp_path: Path) -> None:
    name = encode_version(version)
    assert re.fullmatch(r"[a-z0-9_%~.-]{1,255}", name)
    assert not name.startswith(".")
    assert not name.endswith(".")
    assert not re.fullmatch(r"(con|prn|aux|nul|(com|lpt)[1-9])(\..*)?", name)
    (tmp_path / name).mkdir()
    assert (tmp_path / name).parent == tmp_path


@unhurried
@given(VERSIONS)
@example("con")
@example("." * 200)
@example("\U0001f680" * 200)
def test_a_name_never_nests_and_is_short_and_lower_case(version: str) -> None:
    name = encode_version(version)
    assert re.fullmatch(r"(?!\.)[a-z0-9_%~.-]{1,255}(?<!\.)", name)


@unhurried
@given(VERSIONS, VERSIONS)
@example("v1", "V1")
@example("con", "%63on")
@example("a/b", "a%2fb")
@example("a~b", "a%7eb")
@example("x" * 200, "x" * 199 + "X")
def test_two_versions_never_share_a_folder(one: str, other: str) -> None:
    assert (encode_version(one) == encode_version(other)) == (one == other)


def test_names_stay_apart_where_file_systems_fold_case_or_compose_characters() -> None:
    folded = {unicodedata.normalize("NFC", encode_version(version)).casefold() for version in AWKWARD}
    assert len(folded) == len(set(AWKWARD))


def test_a_readable_version_stays_readable() -> None:
    assert encode_version("2026-11-30_v1.2-rc1") == "2026-11-30_v1.2-rc1"


@pytest.mark.parametrize("version", ["v1/v2", "..", "x" * 200, "Ünïcode 🚀"])
def test_every_version_finds_its_own_evidence_again(version: str, tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    evidence.open_attempt("v1", fresh=False)
    evidence.open_attempt(version, fresh=False)
    assert evidence.attempt(version) == Attempt(version, 1)
    assert set(evidence.versions()) == {"v1", version}


def completed(evidence: Evidence, version: str = "v1", *, fresh: bool = False) -> Attempt:
    """An attempt opened, its gate written with the attempt's number in it, and completed."""
    attempt = evidence.open_attempt(version, fresh=fresh)
    row = GateRow("ALLOW", attempt.number, JSONText("[]"))
    evidence.put(stage(evidence.staging("gate", version), GATE, [row], dict).path, "gate", version)
    evidence.complete(attempt)
    return attempt


def gate_of(evidence: Evidence, attempt: int | None = None) -> list[int]:
    return [row.exit_code for row in evidence.table("gate", "v1", attempt).rows()]


def test_nothing_is_recorded_before_the_first_attempt(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path / "not there")
    assert evidence.attempt("v1") is None
    assert evidence.versions() == ()
    assert evidence.former_attempts("v1") == ()
    assert not evidence.table("gate", "v1").exists
    assert not evidence.root.exists()


def test_a_complete_attempt_is_worked_on_further_unless_a_fresh_one_is_asked_for(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    assert completed(evidence) == Attempt("v1", 1)
    assert evidence.open_attempt("v1", fresh=False) == Attempt("v1", 1, complete=True)
    assert evidence.open_attempt("v1", fresh=True) == Attempt("v1", 2)
    assert Evidence(tmp_path).attempt("v1") == Attempt("v1", 2)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_unfinished_attempt_is_resumed_fresh_or_not_with_the_parts_it_has(tmp_path: Path, fresh: bool) -> None:
    evidence = Evidence(tmp_path)
    completed(evidence)
    attempt = evidence.open_attempt("v1", fresh=True)
    parts = evidence.resume_log(attempt, "executions")
    parts.append("k", [])
    parts.close()
    again = evidence.open_attempt("v1", fresh=fresh)
    assert again == attempt
    assert "k" in evidence.resume_log(again, "executions")
    assert "k" not in evidence.resume_log(again, "replays")


def test_parts_go_when_the_attempt_is_complete_and_are_not_those_of_the_next(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    attempt = evidence.open_attempt("v1", fresh=False)
    parts = evidence.resume_log(attempt, "executions")
    parts.append("k", [])
    parts.close()
    evidence.complete(attempt)
    assert "k" not in evidence.resume_log(attempt, "executions")
    late = evidence.resume_log(attempt, "executions")  # work on a complete attempt that was killed
    late.append("late", [])
    late.close()
    assert "late" not in evidence.resume_log(evidence.open_attempt("v1", fresh=True), "executions")


def test_the_last_ten_former_attempts_stay_readable_and_the_attempt_in_force_is_none_of_them(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    n = FORMER_ATTEMPTS_KEPT + 3
    for number in range(1, n + 1):
        assert completed(evidence, fresh=True).number == number
    assert evidence.former_attempts("v1") == tuple(range(n - FORMER_ATTEMPTS_KEPT, n))
    assert gate_of(evidence) == [n]
    for number in evidence.former_attempts("v1"):
        assert gate_of(evidence, number) == [number]
    assert gate_of(evidence, 1) == []


def test_opening_a_fresh_attempt_leaves_the_tables_until_new_ones_replace_them(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    completed(evidence)
    evidence.open_attempt("v1", fresh=True)
    assert gate_of(evidence) == [1]
    assert gate_of(evidence, 1) == [1]


def test_what_a_kill_left_while_tables_were_kept_aside_counts_for_nothing_and_is_made_anew(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    completed(evidence)
    torn = evidence.folder("v1") / "attempts" / "1"
    torn.mkdir(parents=True)
    (torn / "gate.parquet").write_bytes(b"half")
    (torn / "decisions.parquet").write_bytes(b"of another time")
    assert evidence.former_attempts("v1") == ()
    assert evidence.open_attempt("v1", fresh=True).number == 2
    assert gate_of(evidence, 1) == [1]
    assert evidence.former_attempts("v1") == (1,)
    assert not evidence.table("decisions", "v1", 1).exists


def test_versions_go_by_when_they_were_last_completed(tmp_path: Path) -> None:
    import os

    evidence = Evidence(tmp_path)
    for second, version in enumerate(("b", "c", "a")):
        completed(evidence, version)
        os.utime(evidence.folder(version) / "attempt.json", (second, second))
    assert evidence.versions() == ("b", "c", "a")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "v1"}', '{"version": "v1", "number": 1, "colour": 2}'])
def test_an_attempt_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    evidence = Evidence(tmp_path)
    evidence.open_attempt("v1", fresh=False)
    (evidence.folder("v1") / "attempt.json").write_text(text)
    with pytest.raises(EvidenceError, match=r"attempt\.json cannot be read"):
        evidence.attempt("v1")
    with pytest.raises(EvidenceError, match=r"attempt\.json cannot be read"):
        evidence.versions()


def test_a_hold_is_let_go_when_what_it_holds_fails(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    with pytest.raises(ZeroDivisionError), evidence.held("v1"):
        raise ZeroDivisionError
    with evidence.held("v1"), pytest.raises(EvidenceError), evidence.held("v1"):
        pass


def test_a_root_that_is_no_folder_is_said_to_be_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    evidence = Evidence(tmp_path / "file")
    with pytest.raises(EvidenceError, match="cannot write evidence to"), evidence.held("v1"):
        pass
    with pytest.raises(EvidenceError, match="cannot write evidence to"):
        evidence.open_attempt("v1", fresh=False)
