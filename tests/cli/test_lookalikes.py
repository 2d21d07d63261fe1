"""Two texts that differ and look alike are told apart."""

import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from oloproof_dagster.cli.lookalikes import apart


def test_one_text_in_two_normal_forms_is_shown_by_its_code_points() -> None:
    composed, decomposed = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    assert apart(composed, decomposed, (composed, decomposed)) == ("caf\\xe9", "cafe\\u0301")
    assert apart("a\u200bb", "ab", ("a\u200bb", "ab")) == ("a\\u200bb", "ab")


def test_long_texts_that_were_cut_before_they_differ_are_shown_from_where_they_do() -> None:
    expected, actual = "x" * 500 + "A" + "y" * 100, "x" * 500 + "B" + "y" * 100
    shown = (expected[:197] + "...", actual[:197] + "...")
    assert apart(expected, actual, shown) == (
        "..." + "x" * 20 + "A" + "y" * 39 + "...",
        "..." + "x" * 20 + "B" + "y" * 39 + "...",
    )


def test_what_was_recorded_only_as_far_as_it_is_alike_says_so() -> None:
    text = "x" * 2_000
    assert apart(text, text, (text[:200], text[:200])) == ("(the first 2,000 characters are alike)",) * 2


def test_texts_that_people_tell_apart_stay_as_they_are() -> None:
    assert apart("lent", "on_hold", ("lent", "on_hold")) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_different_texts_are_never_shown_alike(expected: str, actual: str) -> None:
    assume(expected != actual)
    cut = (expected[:50], actual[:50])
    assert len(set(apart(expected, actual, cut) or cut)) == 2
