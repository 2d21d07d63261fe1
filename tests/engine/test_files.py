"""YAML and JSONL as they are read: source texts, line numbers, and nothing but what the formats allow."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.files import MOST_LEVELS, read_jsonl, read_text
from oloproof_dagster.project.project import load_project
from oloproof_dagster.project.strict_yaml import MOST_ALIASED, Mapping, line_of, plain, read_yaml
from oloproof_dagster.project.validation import FileModel, validate
from tests.support.projects import write_project


class Inner(FileModel):
    name: str
    size: int = 0


class Model(FileModel):
    """One key of each kind that the user's files hold."""

    text: str = ""
    maybe: str | None = None
    number: float = 0.0
    whole: int = 0
    flag: bool = False
    texts: tuple[str, ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()


def tree_of(tmp_path: Path, text: str | bytes) -> Mapping:
    path = tmp_path / "some.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def model_of(tmp_path: Path, text: str) -> Model:
    return validate(Model, tree_of(tmp_path, text), "some.yaml")


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(Model, tree_of(tmp_path, text), "some.yaml")
    return str(caught.value)


# Where text is expected, the source text is kept.


@pytest.mark.parametrize(
    "written",
    [
        *("1.10", "1.0", "1", "007", "0o17", "0x1F", "1e5", "1_000", "+1", "-0", ".5", "1:30", ".inf", ".nan"),
        *("2026-11-30", "2026-11-30T02:00:00Z", "2026-13-45", "12:30:45"),
        *("on", "off", "yes", "No", "y", "true", "False", "null", "Null", "~", "NULL"),
        *("=", "<<", "a:b", "a#b", "99999999999999999999999", "7" * 5000),
    ],
)
def test_where_text_is_expected_the_source_text_is_kept(tmp_path: Path, written: str) -> None:
    assert model_of(tmp_path, f"text: {written}").text == written
    assert model_of(tmp_path, f"texts: [{written}, {written}]").texts == (written, written)
    assert model_of(tmp_path, f"pairs: [[{written}]]").pairs == ((written,),)
    assert model_of(tmp_path, f"inner: {{name: {written}}}").inner == Inner(name=written)
    assert model_of(tmp_path, f"inners: [{{name: {written}}}]").inners == (Inner(name=written),)


@pytest.mark.parametrize("written", ["1.10", "on", "2026-11-30", "007"])
def test_text_that_may_be_left_out_is_kept_too(tmp_path: Path, written: str) -> None:
    assert model_of(tmp_path, f"maybe: {written}").maybe == written


@pytest.mark.parametrize("written", ["", "null", "~"])
def test_what_may_be_left_out_may_be_null(tmp_path: Path, written: str) -> None:
    assert model_of(tmp_path, f"maybe: {written}\ninner: {written}") == Model()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('"1.10"', "1.10"),
        ("'on'", "on"),
        ('"null"', "null"),
        ('""', ""),
        ('" a\\tb "', " a\tb "),
        ("!!str 1.10", "1.10"),
    ],
)
def test_quotes_say_text_and_are_no_part_of_it(tmp_path: Path, written: str, text: str) -> None:
    assert model_of(tmp_path, f"text: {written}\nmaybe: {written}") == Model(text=text, maybe=text)


def test_text_over_several_lines_is_folded_as_yaml_says(tmp_path: Path) -> None:
    assert model_of(tmp_path, "text: >-\n  one\n  two\nmaybe: |\n  one\n  two\n") == Model(
        text="one two", maybe="one\ntwo\n"
    )


def test_a_key_without_a_value_is_no_text(tmp_path: Path) -> None:
    assert refusal(tmp_path, "number: 1\ntext:\n") == "some.yaml:2: text: must be text, found nothing"


def test_versions_transforms_and_tools_of_a_project_keep_their_source_text(tmp_path: Path) -> None:
    suite = """\
version: 1
project: 2026-11-30
dataset: data/cases.jsonl
system: {name: 007, version: 1.10, callable: app:till}
metamorphic:
  transforms:
    - {name: on, field: note, replace: [[1.0, yes], [Please, null]]}
evaluators:
  - {type: tool_calls, must: [off, 1e3]}
  - {type: metamorphic_relation, relation: same_state, transform: on}
"""
    write_project(tmp_path, files={"oloproof.yaml": suite})
    project = load_project(tmp_path)
    assert project.suite.project == "2026-11-30"
    assert (project.suite.system.name, project.version) == ("007", "1.10")
    assert project.transforms[0].name == "on"
    assert project.transforms[0].replace == (("1.0", "yes"), ("Please", "null"))
    assert project.evaluators[0].model_dump()["must"] == ("off", "1e3")
    assert project.criteria == ("tool_calls", "same_state_under_on")


# Where a number is expected, it is the number that everybody reads.


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1", 1.0),
        ("0.5", 0.5),
        ("-2.5", -2.5),
        ("1e-9", 1e-9),
        ("1E3", 1000.0),
        ("2.5e+3", 2500.0),
        (".5", 0.5),
        ("1_000", 1000.0),
    ],
)
def test_numbers_may_be_written_in_any_decimal_way(tmp_path: Path, written: str, number: float) -> None:
    assert model_of(tmp_path, f"number: {written}").number == number


@pytest.mark.parametrize("written", ["010", "0o17", "0x1F", "1:30", "0b1", "'1'", "1.0", "true", "9" * 30])
def test_a_whole_number_that_people_and_yaml_read_differently_is_refused(tmp_path: Path, written: str) -> None:
    said = refusal(tmp_path, f"whole: {written}")
    assert said.startswith("some.yaml:1: whole: must be a whole number in plain decimal digits, found ")
    assert written.strip("'") in said


@pytest.mark.parametrize("written", ["1", "'true'", "maybe", "0"])
def test_a_flag_is_true_or_false(tmp_path: Path, written: str) -> None:
    assert refusal(tmp_path, f"flag: {written}").startswith("some.yaml:1: flag: must be true or false, found ")


def test_a_model_given_in_python_is_as_strict(tmp_path: Path) -> None:
    assert Model(text="on", whole=3).whole == 3
    with pytest.raises(ValidationError, match="extra"):
        Model.model_validate({"text": "on", "colour": 1})
    with pytest.raises(ValidationError, match="frozen"):
        Model().text = "off"  # type: ignore[misc]


# Lines and keys.


LONG = """\
text: a

# a comment
inners:
  - name: one
    size: 1
  - name: two
    size: many
  - {name: three,
     size: 3}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("size: many", "size: many", "8: inners.1.size: must be a whole number in plain decimal digits, found 'many'"),
        ("size: many", "siez: 2", "8: inners.1.siez: there is no such key; did you mean 'size'?"),
        ("name: two\n    size: many", "size: 2", "7: inners.1.name: is required and not there"),
        ("name: two\n    size: many", "two", "7: inners.1: must be a block of keys and values, found 'two'"),
        ("{name: three,\n     size: 3}", "{name: [],\n     size: x}", "8: inners.1.size: …"),
        ("text: a\n", "text: [a]\n", "1: text: must be text, found a list"),
    ],
)
def test_a_problem_is_told_with_the_line_of_its_own_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in LONG
    assert refusal(tmp_path, LONG.replace(old, new)).startswith(f"some.yaml:{said.rstrip('…')}")


def test_a_value_within_braces_has_its_own_line_too(tmp_path: Path) -> None:
    text = LONG.replace("many", "2").replace("size: 3", "size: x")
    assert refusal(tmp_path, text).startswith("some.yaml:10: inners.2.size: ")


def test_of_several_problems_the_one_that_stands_first_in_the_file_is_told(tmp_path: Path) -> None:
    assert refusal(tmp_path, "flag: no\nwhole: x\nnumber: y\n").startswith("some.yaml:2: whole:")
    assert refusal(tmp_path, "number: y\nflag: no\nwhole: x\n").startswith("some.yaml:1: number:")


def test_a_misspelt_key_is_told_before_the_missing_one_that_it_is(tmp_path: Path) -> None:
    assert refusal(tmp_path, "inner:\n  size: 1\n  nmae: x\n") == (
        "some.yaml:3: inner.nmae: there is no such key; did you mean 'name'?"
    )


def test_the_line_of_nested_keys_is_that_of_the_deepest_one_there(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, LONG)
    keys: list[tuple[str | int, ...]] = [(), ("inners",), ("inners", 1), ("inners", 1, "size"), ("inners", 9), ("no",)]
    assert [line_of(tree, *each) for each in keys] == [1, 4, 7, 8, 4, 1]


def test_lines_are_counted_alike_with_carriage_returns_and_a_byte_order_mark(tmp_path: Path) -> None:
    for content in (LONG.encode(), LONG.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + LONG.encode()):
        assert refusal(tmp_path, content).startswith("some.yaml:8: inners.1.size:")


# YAML's own rules.


@pytest.mark.parametrize(
    ("text", "line", "key", "first"),
    [
        ("text: a\nnumber: 1\ntext: b\n", 3, "text", 1),
        ("inner: {name: a, name: b}", 1, "name", 1),
        ("inners:\n  - {name: a}\n  - name: b\n    'name': c\n", 4, "name", 3),
    ],
)
def test_a_key_that_stands_twice_is_refused_at_any_depth(
    tmp_path: Path, text: str, line: int, key: str, first: int
) -> None:
    assert refusal(tmp_path, text) == (
        f"some.yaml:{line}: not readable as YAML: the key '{key}' stands twice, first on line {first}; remove one"
    )


def test_keys_are_their_source_text_and_never_numbers_or_truths(tmp_path: Path) -> None:
    assert list(tree_of(tmp_path, "1.10: a\non: b\n2026-11-30: c\nnull: d\n")) == ["1.10", "on", "2026-11-30", "null"]


def test_an_anchor_can_be_used_again(tmp_path: Path) -> None:
    model = model_of(tmp_path, "text: &t 1.10\nmaybe: *t\ntexts: &l [on, off]\npairs: [*l, *l]\n")
    assert (model.text, model.maybe) == ("1.10", "1.10")
    assert model.pairs == (("on", "off"), ("on", "off"))


def test_an_anchor_of_a_text_that_only_looks_like_a_date_can_be_used_again(tmp_path: Path) -> None:
    assert model_of(tmp_path, "text: &t 2026-13-45\nmaybe: *t\n") == Model(text="2026-13-45", maybe="2026-13-45")


@pytest.mark.parametrize("text", ["inner: &a {name: *a}", "texts: &a [x, [*a]]", "&a {inner: *a}"])
def test_an_alias_inside_what_it_names_is_refused(tmp_path: Path, text: str) -> None:
    said = "not readable as YAML: an alias (*) stands inside the very value that it names (&)"
    assert refusal(tmp_path, text) == f"some.yaml:1: {said}"


def test_a_project_may_share_its_paths_through_an_anchor(tmp_path: Path) -> None:
    suite = """\
version: 1
project: till
dataset: data/cases.jsonl
system: {name: till, version: v1, callable: app:till}
evaluators:
  - {type: state_matches, paths: &paths [balance, other]}
  - {type: state_unchanged, paths: *paths}
"""
    write_project(tmp_path, files={"oloproof.yaml": suite})
    assert [each.model_dump()["paths"] for each in load_project(tmp_path).evaluators] == 2 * [("balance", "other")]


def test_a_list_of_many_values_is_no_list_of_many_aliases(tmp_path: Path) -> None:
    names = [f"n{n}" for n in range(2 * MOST_ALIASED)]
    assert model_of(tmp_path, f"texts: [{', '.join(names)}]").texts == tuple(names)


def test_aliases_are_bounded_so_that_a_short_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    just_enough = f"text: &a x\ntexts: [{', '.join(['*a'] * MOST_ALIASED)}]"
    assert len(model_of(tmp_path, just_enough).texts) == MOST_ALIASED
    assert "aliases (*) repeat more than 10000 values" in refusal(tmp_path, just_enough.replace("*a", "*a, *a", 1))


@pytest.mark.parametrize("levels", [MOST_LEVELS - 1, MOST_LEVELS, 100_000])
def test_yaml_is_read_down_to_a_fixed_depth(tmp_path: Path, levels: int) -> None:
    text = "text: " + "[" * levels + "]" * levels
    said = refusal(tmp_path, text)
    assert ("must be text" in said) == (levels < MOST_LEVELS)
    assert ("nested more than 200 levels deep" in said) == (levels >= MOST_LEVELS)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "[]", "text", "- text: a", b"\xef\xbb\xbf"])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, text: str | bytes) -> None:
    assert refusal(tmp_path, text) == "some.yaml:1: must hold keys and values, such as `version: 1`"


def test_no_tag_makes_anything_run(tmp_path: Path) -> None:
    for tag in ("!!python/object/apply:os.system", "!!python/name:os.system", "!mine", "!!set"):
        assert f"the tag '{tag.replace('!!', 'tag:yaml.org,2002:')}' is not supported; leave it out" in refusal(
            tmp_path, f"inner: {tag} {{name: touch}}"
        )


@pytest.mark.parametrize("tagged", ["!!timestamp soon", "!!bool perhaps", "!!int many", "!!float much", "!!binary '?'"])
def test_a_tag_that_its_value_does_not_bear_is_no_crash(tmp_path: Path, tagged: str) -> None:
    said = refusal(tmp_path, f"whole: {tagged}")
    assert said.startswith("some.yaml:1:")


@pytest.mark.parametrize("position", [0, 10_000])
def test_a_character_that_yaml_forbids_is_named_with_its_line(tmp_path: Path, position: int) -> None:
    said = refusal(tmp_path, "# a\n" * position + "text: a\x07b\n")
    assert said == f"some.yaml:{position + 1}: not readable as YAML: the character #x0007 is not allowed; remove it"


YAML_TEXT = st.text(st.sampled_from("ab:-[]{}&*!|>'\"#%@`?, \n\t~1.0<"), max_size=40)


@given(YAML_TEXT)
def test_no_text_makes_reading_yaml_fail_in_any_other_way(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("yaml", numbered=True)
    with contextlib.suppress(ConfigError):
        plain(tree_of(folder, text))


# JSONL.


def lines_of(tmp_path: Path, content: str | bytes) -> list[tuple[int, Any]]:
    path = tmp_path / "some.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_jsonl(path, "data/some.jsonl"))


def refused_line(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        lines_of(tmp_path, content)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b'{"a":1}\n\n[2]\n',
        b'{"a":1}\n\n[2]',
        b'{"a":1}\r\n\r\n[2]\r\n',
        b'\xef\xbb\xbf{"a":1}\n \t \n  [2]  \n\n',
    ],
    ids=["plain", "no last line break", "carriage returns", "byte order mark and blanks"],
)
def test_every_line_is_a_value_with_its_number(tmp_path: Path, content: bytes) -> None:
    assert lines_of(tmp_path, content) == [(1, {"a": 1}), (3, [2])]


def test_line_ends_are_those_of_files_and_no_characters_of_text(tmp_path: Path) -> None:
    assert lines_of(tmp_path, '"a\u2028b\u0085c\x0b"\n1\n'.replace("\x0b", "")) == [(1, "a\u2028b\u0085c"), (2, 1)]


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_a_value_yields_none(tmp_path: Path, content: bytes) -> None:
    assert lines_of(tmp_path, content) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": 1,}', "not JSON at column "),
        ("[1, 2,]", "not JSON at column "),
        ("{'a': 1}", "not JSON at column 2: "),
        ("{a: 1}", "not JSON at column 2: "),
        ('{"a": 1} {"b": 2}', "not JSON at column 10: extra data"),
        ('{"a": 1', "not JSON at column 8: "),
        ('{"a": 01}', "not JSON at column 8: "),
        ('{"a": .5}', "not JSON at column 7: "),
        ('{"a": +1}', "not JSON at column 7: "),
        ('{"a": True}', "not JSON at column 7: "),
        ('{"a": undefined}', "not JSON at column 7: "),
        ('{"a": 1} // note', "not JSON at column 10: extra data"),
        ('\ufeff{"a": 1}', "not JSON at column 1: "),
        ('\xa0{"a": 1}', "not JSON at column 1: "),
        ('{"a": "x\ty"}', "not JSON at column 9: invalid control character"),
        ('{"a": "\\x41"}', "not JSON at column "),
        ('{"a": NaN}', "NaN is not JSON; write a number, text or null"),
        ("[-Infinity]", "-Infinity is not JSON; write a number, text or null"),
        ('{"a": 1e400}', "the number 1e400 is too large for a double; write it as text"),
        ('{"a": -1.5e999}', "the number -1.5e999 is too large for a double; write it as text"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' stands twice in one object; remove one"),
        ('[{"b": {"c": 1, "c": 2}}]', "the key 'c' stands twice in one object; remove one"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' stands twice in one object; remove one"),
        ('"\\ud800"', "holds half of a surrogate pair"),
        ('{"\\udfff": 1}', "holds half of a surrogate pair"),
        ('["\\udc00\\ud800"]', "holds half of a surrogate pair"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_strict_json_is_refused_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    assert refused_line(tmp_path, f"[1]\n\n{line}\n[2]\n").startswith(f"data/some.jsonl:3: {said}")


@pytest.mark.parametrize("content", [b"[1]\n\xff\xfe\n", b'[1]\n"caf\xe9"\n', b'[1]\n"\xed\xa0\x80"\n'])
def test_a_line_that_is_not_utf8_is_refused_with_its_number(tmp_path: Path, content: bytes) -> None:
    assert refused_line(tmp_path, content) == "data/some.jsonl:2: is not UTF-8; save the file as UTF-8"


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    assert lines_of(tmp_path, '"\\ud83d\\ude00"') == [(1, "\U0001f600")]


@pytest.mark.parametrize("escape", ["", '"\\u00e9", '])
def test_integers_of_any_size_are_kept_exactly(tmp_path: Path, escape: str) -> None:
    (found,) = lines_of(tmp_path, f"[{escape}{'7' * 5000}, -{10**25}]")
    assert found[1][-2] % 10**20 == 77777777777777777777
    assert found[1][-2] // 10**4999 == 7
    assert found[1][-1] == -(10**25)


def test_floats_are_doubles(tmp_path: Path) -> None:
    assert lines_of(tmp_path, "[0.1, 1E+2, -0.0, 1.7976931348623157e308, 5e-324]") == [
        (1, [0.1, 100.0, -0.0, 1.7976931348623157e308, 5e-324])
    ]


@pytest.mark.parametrize(("levels", "read"), [(MOST_LEVELS, True), (MOST_LEVELS + 1, False), (100_000, False)])
def test_json_is_read_down_to_a_fixed_depth(tmp_path: Path, levels: int, read: bool) -> None:
    line = '{"a":' * (levels - 1) + "[]" + "}" * (levels - 1)
    if read:
        assert len(lines_of(tmp_path, line)) == 1
    else:
        assert refused_line(tmp_path, line) == "data/some.jsonl:1: is nested more than 200 levels deep"


def test_brackets_in_text_are_no_levels(tmp_path: Path) -> None:
    line = json.dumps({"a": "[" * 1000, "b": [{"c": 1}] * 300})
    assert lines_of(tmp_path, line) == [(1, json.loads(line))]


def test_reading_holds_a_line_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("1\n2\nnot json\n")
    values = read_jsonl(path, "some.jsonl")
    assert [next(values), next(values)] == [(1, 1), (2, 2)]
    with pytest.raises(ConfigError, match=r"^some\.jsonl:3: "):
        next(values)


@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
), max_size=4), st.booleans())  # fmt: skip
def test_what_json_writes_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], ascii_only: bool
) -> None:
    folder = tmp_path_factory.mktemp("jsonl", numbered=True)
    text = "".join(json.dumps(value, ensure_ascii=ascii_only) + "\n" for value in values)
    assert lines_of(folder, text) == list(enumerate(values, 1))


# Files themselves.


def test_text_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf\xc3\xbc\r\n")
    assert read_text(tmp_path / "a") == "ü\r\n"


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, said in (
        ("pipe", "is not a file but a folder, a pipe or a device"),
        ("folder", "is not a file but a folder, a pipe or a device"),
        ("nowhere", f"there is no such file (looked in {tmp_path})"),
        ("x" * 300, "cannot be read: File name too long"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("a\0b", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_text(tmp_path / name)
        assert str(caught.value).endswith(said)
        with pytest.raises(ConfigError) as caught:
            next(read_jsonl(tmp_path / name, "data.jsonl"))
        assert str(caught.value) == f"data.jsonl: {said}"
