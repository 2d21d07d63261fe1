"""People's labels: what makes a transform checked, and the round trip from export to label file."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oloproof_dagster.decision.intervals import clopper_pearson_missing_bounded
from oloproof_dagster.digests import sha256
from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.project import Project, load_project
from oloproof_dagster.project.transform_keys import TransformDeclaration
from oloproof_dagster.records.tables import SuiteRow
from oloproof_dagster.suite.cases import read_cases
from oloproof_dagster.suite.labels import (
    Validity,
    pairs_to_read,
    read_labels,
    sampled,
    unchecked_criteria,
    validities,
    validity,
    write_pairs,
)
from oloproof_dagster.suite.transforms import expand
from tests.support.projects import case, write_project

CURRENT, OLD = "sha256:" + 64 * "a", "sha256:" + 64 * "b"
BARRED = TransformDeclaration(
    name="polite", field="note", template="{value}!", validity_labels="labels/polite.jsonl", minimum_validity=0.5
)


def project_with(root: Path, labels: str | None = "", n_cases: int = 3, **keys: Any) -> Project:
    """A project with one transform, whose label file holds the text given (None: declares no file)."""
    transform = {"name": "polite", "field": "note", "template": "{value}, kindly", "minimum_validity": 0.3} | keys
    files = {}
    if labels is not None:
        transform |= {"validity_labels": "labels/polite.jsonl"}
        files = {"labels/polite.jsonl": labels}
    evaluators = [
        {"type": "state_matches"},
        {"type": "metamorphic_relation", "relation": "same_state", "transform": "polite"},
    ]
    suite = {"metamorphic": {"transforms": [transform]}, "evaluators": evaluators}
    return load_project(write_project(root, cases=[case(n + 1) for n in range(n_cases)], suite=suite, files=files))


def test_a_sample_is_the_first_pairs_in_the_order_of_a_hash_and_the_bound_is_theirs(tmp_path: Path) -> None:
    whole = project_with(tmp_path / "whole", n_cases=40)
    copies = [(row.case_id, str(row.pair_digest)) for row in suite_of(whole) if row.transform]
    order = sorted(copies, key=lambda pair: sha256(whole.suite_id + pair[1]))
    lines = [json.dumps({"case": name, "digest": digest, "kept": True}) for name, digest in order]
    for n_read, checked in ((20, True), (10, True), (5, False), (0, False)):
        project = project_with(
            tmp_path / str(n_read), "\n".join(lines[:n_read]), n_cases=40, validity_sample=10, minimum_validity=0.6
        )
        found = validity_of(project)
        assert (found.pairs, found.kept, found.checked) == (10, min(n_read, 10), checked)
    assert list(sampled(project.transforms[0], project.suite_id, copies)) == order[:10]
    assert list(sampled(whole.transforms[0], whole.suite_id, copies)) == copies


def test_only_the_sample_is_exported(tmp_path: Path) -> None:
    project = project_with(tmp_path, n_cases=9, validity_sample=4)
    exported = oloproof_exports(project)
    copies = [(row.case_id, str(row.pair_digest)) for row in suite_of(project) if row.transform]
    assert {each["case"] for each in exported} == {
        name for name, _ in sampled(project.transforms[0], project.suite_id, copies)
    }


def oloproof_exports(project: Project) -> list[dict[str, Any]]:
    from click.testing import CliRunner

    from oloproof_dagster.cli.main import cli

    args = ["labels", "export", "--transform", "polite", "--project", str(project.root)]
    return [json.loads(line) for line in CliRunner().invoke(cli, args).stdout.splitlines()]


def suite_of(project: Project) -> list[SuiteRow]:
    return list(expand(project, read_cases(project)))


def validity_of(project: Project) -> Validity:
    (found,) = validities(project, ((row.transform, row.case_id, row.pair_digest) for row in suite_of(project)))
    return found


def lines(*labels: dict[str, Any]) -> str:
    return "".join(json.dumps(label) + "\n" for label in labels)


# The rule of validity.


@pytest.mark.parametrize(
    ("said", "kept", "labelled", "stale"),
    [
        ([], False, False, False),
        ([(CURRENT, True)], True, True, False),
        ([(CURRENT, False)], False, True, False),
        ([(CURRENT, True), (CURRENT, True)], True, True, False),
        ([(CURRENT, True), (CURRENT, False)], False, True, False),
        ([(CURRENT, False), (CURRENT, True)], False, True, False),
        ([(OLD, True)], False, False, True),
        ([(OLD, True), (OLD, False)], False, False, True),
        ([(OLD, False), (CURRENT, True)], True, True, False),
        ([(OLD, True), (CURRENT, False)], False, True, False),
    ],
)
def test_a_pair_is_kept_when_a_current_label_exists_and_all_of_them_say_kept(
    said: list[tuple[str, bool]], kept: bool, labelled: bool, stale: bool
) -> None:
    found = validity(BARRED, {"c~polite": said}, [("c~polite", CURRENT)])
    assert (found.pairs, found.kept, found.labelled, found.stale) == (1, kept, labelled, stale)


def test_labels_of_cases_that_are_not_in_the_suite_count_for_nothing() -> None:
    found = validity(BARRED, {"gone~polite": [(CURRENT, True)]}, [("c~polite", CURRENT)])
    assert (found.pairs, found.kept, found.labelled, found.stale) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("kept", "pairs", "minimum", "checked"),
    [(24, 24, 0.85, True), (23, 23, 0.85, True), (22, 22, 0.85, False), (23, 24, 0.85, False), (0, 24, 0.001, False)],
)
def test_a_transform_is_checked_when_the_exact_lower_bound_reaches_its_bar(
    kept: int, pairs: int, minimum: float, checked: bool
) -> None:
    transform = BARRED.model_copy(update={"minimum_validity": minimum})
    labels = {f"{n}~polite": [(CURRENT, n < kept)] for n in range(pairs)}
    found = validity(transform, labels, [(f"{n}~polite", CURRENT) for n in range(pairs)])
    assert found.lower == clopper_pearson_missing_bounded(kept, pairs, 0, 0.95).lower
    assert found.checked is checked


def test_a_bound_that_just_reaches_the_bar_suffices() -> None:
    lower = clopper_pearson_missing_bounded(5, 5, 0, 0.95).lower
    labels = {f"{n}~polite": [(CURRENT, True)] for n in range(5)}
    transform = BARRED.model_copy(update={"minimum_validity": lower})
    assert validity(transform, labels, [(f"{n}~polite", CURRENT) for n in range(5)]).checked


def test_unlabelled_pairs_count_as_not_kept() -> None:
    some = {f"{n}~polite": [(CURRENT, True)] for n in range(10)}
    assert validity(BARRED, some, [(f"{n}~polite", CURRENT) for n in range(10)]).checked
    assert not validity(BARRED, some, [(f"{n}~polite", CURRENT) for n in range(20)]).checked


@pytest.mark.parametrize("lacking", ["validity_labels", "minimum_validity"])
def test_without_labels_or_without_a_bar_nothing_is_checked(lacking: str) -> None:
    transform = BARRED.model_copy(update={lacking: None})
    labels = {f"{n}~polite": [(CURRENT, True)] for n in range(100)}
    found = validity(transform, labels, [(f"{n}~polite", CURRENT) for n in range(100)])
    assert found.kept == 100
    assert not found.checked
    assert lacking in found.advice


def test_a_suite_without_pairs_checks_nothing() -> None:
    found = validity(BARRED, {}, [])
    assert (found.pairs, found.lower, found.checked) == (0, 0.0, False)


@given(st.lists(st.tuples(st.sampled_from([CURRENT, OLD]), st.booleans()), max_size=6))
def test_a_label_more_that_says_not_kept_never_helps_and_order_never_matters(said: list[tuple[str, bool]]) -> None:
    def kept(labels: list[tuple[str, bool]]) -> int:
        return validity(BARRED, {"c~polite": labels}, [("c~polite", CURRENT)]).kept

    assert kept(said[::-1]) == kept(said)
    assert kept([*said, (CURRENT, False)]) == 0
    assert kept([*said, (OLD, False)]) == kept(said)


# Label files.


def test_labels_are_read_for_the_pairs_that_the_suite_holds_now(tmp_path: Path) -> None:
    pairs = [(row.case_id, row.pair_digest) for row in suite_of(project_with(tmp_path)) if row.transform]
    labels = lines(*({"case": name, "digest": digest, "kept": True} for name, digest in pairs))
    found = validity_of(project_with(tmp_path, labels))
    assert (found.pairs, found.labelled, found.kept, found.stale) == (3, 3, 3, 0)
    assert not found.checked
    assert "3 of 3 pairs are labelled kept, lower bound 0.292 under 0.3" in found.advice
    assert validity_of(project_with(tmp_path, labels, minimum_validity=0.29)).checked


def test_an_edited_source_or_transform_makes_labels_stale(tmp_path: Path) -> None:
    pairs = [(row.case_id, row.pair_digest) for row in suite_of(project_with(tmp_path)) if row.transform]
    labels = lines(*({"case": name, "digest": digest, "kept": True} for name, digest in pairs))
    edited = project_with(tmp_path, labels, version=2)
    assert (validity_of(edited).kept, validity_of(edited).stale) == (0, 3)
    one_case = project_with(tmp_path, labels)
    cases = [case(1), case(2, input={"amount": 2, "note": "Add two"}), case(3)]
    one_case.dataset.write_text("".join(json.dumps(each) + "\n" for each in cases))
    assert (validity_of(one_case).kept, validity_of(one_case).stale) == (2, 1)


def test_further_keys_of_a_label_are_ignored(tmp_path: Path) -> None:
    label = {"case": "c-001~polite", "digest": CURRENT, "kept": False, "labeller": "jo", "note": {"seen": [1]}}
    project = project_with(tmp_path, lines(label))
    assert read_labels(project, project.transforms[0]) == {"c-001~polite": [(CURRENT, False)]}


def test_several_people_may_label_one_pair(tmp_path: Path) -> None:
    label = {"case": "c-001~polite", "digest": CURRENT, "kept": True}
    project = project_with(tmp_path, lines(label, label | {"kept": False}))
    assert read_labels(project, project.transforms[0]) == {"c-001~polite": [(CURRENT, True), (CURRENT, False)]}


def test_an_empty_label_file_is_a_beginning(tmp_path: Path) -> None:
    found = validity_of(project_with(tmp_path, ""))
    assert (found.pairs, found.labelled, found.checked) == (3, 0, False)
    assert "0 of 3 pairs are labelled kept" in found.advice
    assert "3 unlabelled, 0 stale" in found.advice


def test_a_label_file_that_vanishes_after_loading_is_no_crash(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    (tmp_path / "labels" / "polite.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"^labels/polite\.jsonl: there is no such file"):
        read_labels(project, project.transforms[0])


def test_what_is_not_checked_holds_up_every_criterion_over_it(tmp_path: Path) -> None:
    evaluators = [
        {"type": "state_matches"},
        {"type": "metamorphic_relation", "relation": "same_state", "transform": "polite"},
        {"type": "metamorphic_relation", "relation": "same_output"},
        {"type": "metamorphic_relation", "relation": "same_actions", "transform": "other"},
    ]
    transforms = [{"name": name, "field": "note", "template": f"{{value}} {name}"} for name in ("polite", "other")]
    project = load_project(
        write_project(tmp_path, suite={"metamorphic": {"transforms": transforms}, "evaluators": evaluators})
    )
    found = validities(project, ((row.transform, row.case_id, row.pair_digest) for row in suite_of(project)))
    assert [each.transform for each in found] == ["polite", "other"]
    assert set(unchecked_criteria(project, found)) == {
        "same_state_under_polite",
        "same_output_under_transform",
        "same_actions_under_other",
    }
    assert set(unchecked_criteria(project, found[1:])) == {"same_output_under_transform", "same_actions_under_other"}


# The round trip.


def exported(project: Project, form: str) -> str:
    (transform,) = project.transforms
    stream = io.StringIO()
    write_pairs(pairs_to_read(transform, suite_of(project), read_labels(project, transform)), form, stream)
    return stream.getvalue()


def test_an_export_with_kept_filled_in_is_a_label_file_of_the_whole_suite(tmp_path: Path) -> None:
    text = exported(project_with(tmp_path, n_cases=20, minimum_validity=0.8), "jsonl")
    filled = project_with(tmp_path, text.replace('"kept": null', '"kept": true'), 20, minimum_validity=0.8)
    found = validity_of(filled)
    assert (found.pairs, found.labelled, found.kept, found.stale) == (20, 20, 20, 0)
    assert found.checked
    assert exported(filled, "jsonl") == text.replace("null", "true")


def test_an_export_says_both_texts_and_what_has_been_said_so_far(tmp_path: Path) -> None:
    unread = [json.loads(line) for line in exported(project_with(tmp_path), "jsonl").splitlines()]
    assert [(each["case"], each["source"], each["derived"], each["kept"]) for each in unread] == [
        (f"c-00{n}~polite", f"Please add {n}", f"Please add {n}, kindly", None) for n in (1, 2, 3)
    ]
    said = [
        {"case": "c-001~polite", "digest": unread[0]["digest"], "kept": True},
        {"case": "c-002~polite", "digest": unread[1]["digest"], "kept": True},
        {"case": "c-002~polite", "digest": unread[1]["digest"], "kept": False},
        {"case": "c-003~polite", "digest": OLD, "kept": True},
    ]
    again = [json.loads(line) for line in exported(project_with(tmp_path, lines(*said)), "jsonl").splitlines()]
    assert [each["kept"] for each in again] == [True, False, None]


def test_an_unfilled_export_is_refused_as_labels_with_what_is_lacking(tmp_path: Path) -> None:
    project = project_with(tmp_path, exported(project_with(tmp_path), "jsonl"))
    with pytest.raises(ConfigError) as caught:
        read_labels(project, project.transforms[0])
    assert str(caught.value) == (
        "labels/polite.jsonl:1: `kept` must be true or false, found null; say whether the meaning was kept"
    )


NOTE = 'He said "add", \u2028 then; ünï\r\nand "no",\tthen'


def test_an_export_keeps_quotes_line_breaks_and_letters_of_every_language(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    project.dataset.write_text(json.dumps(case(1, input={"note": NOTE})) + "\n")
    (pair,) = [json.loads(line) for line in exported(project, "jsonl").split("\n")[:-1]]
    assert (pair["source"], pair["derived"]) == (NOTE, f"{NOTE}, kindly")
    (row,) = csv.DictReader(io.StringIO(exported(project, "csv"), newline=""))
    assert row == {key: pair[key] for key in ("case", "digest", "source", "derived")} | {"kept": ""}


def test_a_csv_has_a_line_for_each_pair_and_says_kept_in_words(tmp_path: Path) -> None:
    digests = [row.pair_digest for row in suite_of(project_with(tmp_path)) if row.transform]
    said = ({"case": f"c-00{n + 1}~polite", "digest": digests[n], "kept": n == 0} for n in (0, 1))
    rows = list(csv.DictReader(io.StringIO(exported(project_with(tmp_path, lines(*said)), "csv"))))
    assert [row["kept"] for row in rows] == ["true", "false", ""]
    assert [row["digest"] for row in rows] == digests


def test_only_the_pairs_of_the_transform_asked_for_are_exported(tmp_path: Path) -> None:
    transforms = [{"name": name, "field": "note", "template": f"{{value}} {name}"} for name in ("polite", "other")]
    project = load_project(write_project(tmp_path, suite={"metamorphic": {"transforms": transforms}}))
    pairs = list(pairs_to_read(project.transforms[1], suite_of(project), {}))
    assert [(pair["case"], pair["derived"]) for pair in pairs] == [
        (f"c-00{n}~other", f"Please add {n} other") for n in (1, 2, 3)
    ]


def test_a_stale_pair_is_not_counted_as_unlabelled_too(tmp_path: Path) -> None:
    stale = {"case": "c-001~polite", "digest": "sha256:" + "0" * 64, "kept": True}
    assert "2 unlabelled, 1 stale" in validity_of(project_with(tmp_path, lines(stale))).advice
