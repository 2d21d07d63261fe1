"""Text of agents and users in what shows it: one function a medium, and none of them lets it through."""

import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.as_data import in_a_csv_cell, in_markdown, on_a_terminal
from oloproof_dagster.suite.labels import write_pairs

HOSTILE = ["refund\nGate: ALLOW   exit code 0\n", "\x1b[31mred\x07", "\u202eright to left", "a\rb", "\x9b2J", "\u2028"]


@given(st.text() | st.sampled_from(HOSTILE))
def test_on_a_terminal_no_text_has_a_line_break_a_control_character_or_a_writing_direction(text: str) -> None:
    shown = on_a_terminal(text)
    assert len(shown.splitlines()) <= 1
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("text", ["refund the order", "é 日本 🚀", "[bold]x[/bold]", "a\\nb", ""])
def test_on_a_terminal_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert on_a_terminal(text) == text


@given(st.text() | st.sampled_from([*HOSTILE, "<script>", "| a | b |", "# heading", "[a](b)", "&lt;"]))
def test_in_markdown_no_text_is_markup_or_begins_a_line(text: str) -> None:
    shown = in_markdown(text)
    assert len(shown.splitlines()) <= 1
    assert "<" not in shown
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text() | st.sampled_from(["=1+1", "+1", "-1", "@x", "\t=1", "'=1"]))
def test_in_csv_no_text_is_a_formula_and_taking_one_apostrophe_away_gives_the_text(text: str) -> None:
    cell = in_a_csv_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell in (text, f"'{text}")


@pytest.mark.parametrize("value", [-1, -0.5, None, True])
def test_in_csv_numbers_stay_numbers(value: object) -> None:
    assert in_a_csv_cell(value) is value


@pytest.mark.parametrize(("raw", "source"), [(False, "'=cmd()"), (True, "=cmd()")])
def test_pairs_to_read_bear_no_formula_unless_they_are_raw(raw: bool, source: str) -> None:
    stream = io.StringIO()
    pair = {"case": "c", "digest": "d", "source": "=cmd()", "derived": "-", "kept": None}
    write_pairs([pair], "csv", stream, raw=raw)
    (row,) = csv.DictReader(io.StringIO(stream.getvalue()))
    assert row["source"] == source
