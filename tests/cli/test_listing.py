"""Rows and texts on terminals of any width: words stay whole, and no text begins a line that is not its own."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from oloproof_dagster.cli.gate_view import print_gate
from oloproof_dagster.cli.listing import Hanging, Listing

GATE_LINE = "Gate: ALLOW   exit code 0"


def printed(what: object, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, emoji=False, highlight=False).print(what)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def decision(rule_id: str, state: str, **more: object) -> dict[str, object]:
    return {
        "rule_id": rule_id,
        "metric": "other_records_untouched",
        "state": state,
        "reasons": ["lower_below_bar_upper_above"],
        "direction": "min",
        "threshold": 0.95,
        "lower": 0.858,
        "upper": 1.0,
        "n_passed": 23,
        "n_observed": 24,
        "n_missing": 1,
        "advice": "12 more cases without a failure would decide it.",
        **more,
    }


@pytest.mark.parametrize("width", [60, 80, 99, 100, 120, 200])
def test_no_word_of_the_gate_is_broken_at_any_width(width: int) -> None:
    rows = [
        decision("refunds-leave-other-records-alone", "INSUFFICIENT_EVIDENCE"),
        decision("recovers-from-a-failed-refund", "MANUAL_REVIEW", metric="steady"),
    ]
    stream = io.StringIO()
    document = {
        "gate": {"action": "BLOCK", "exit_code": 3, "reasons": []},
        "decisions": rows,
        "metrics": [{"metric": "steady", "n_unexposed": 5}],
    }
    print_gate(Console(file=stream, width=width, markup=False), document)
    words = stream.getvalue().split()
    for word in (
        "INSUFFICIENT_EVIDENCE",
        "MANUAL_REVIEW",
        "unexposed)",
        "refunds-leave-other-records-alone",
        "0.858",
        "0.95",
    ):
        assert any(each.rstrip(":,") == word for each in words), (word, stream.getvalue())
    assert max(map(len, stream.getvalue().splitlines())) <= width
    assert stream.getvalue().splitlines()[-1] == "Gate: BLOCK   exit code 3"


def test_rows_that_fit_are_a_table_and_others_are_folded_into_lines_that_name_their_columns() -> None:
    rows = Listing("rule", "state", "bar")
    rows.add_row("no-failure", "PASS", "max_failures 0")
    assert printed(rows, 80) == ["rule        state  bar", "no-failure  PASS   max_failures 0"]
    assert printed(rows, 24) == ["no-failure", "  state PASS   bar", "    max_failures 0"]


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_long_text_never_begins_a_line_where_our_own_lines_do(width: int) -> None:
    text = " ".join(["x" * 10, *[GATE_LINE] * 9])
    rows = Listing("", "why")
    rows.add_row(f"  {text}", text)
    for lines in (printed(rows, width), printed(Hanging(Text(text)), width)):
        assert len(lines) > 1
        assert not any(line.startswith("Gate") for line in lines)


def test_markup_and_emoji_codes_of_a_text_are_shown_as_they_are() -> None:
    rows = Listing("case", "why")
    rows.add_row("[bold red]x[/]", ":warning:")
    assert printed(rows, 80)[1] == "[bold red]x[/]  :warning:"
