"""The sections of a study, and the forms that they are shown in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.document import Facts, Section, Table, Verbatim
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.sections import render_study, sections_of, study_markdown
from tests.support.korean_table import row, write
from tests.support.lines import missing
from tests.support.studies import of_items, of_totals, study_of_candidates

SECTION = Section(
    key="x",
    title="A | title",
    parts=(
        "Text with <b> and `code`.",
        Table(
            header=("name", "two\nlines"),
            rows=(("a|b", "1\n[0, 2]"), ("c", "2"))[:2],
            signs={(1, 1): "*"},
        ),
        Facts((("note", "*not bold*"),)),
        Verbatim(("```", "▁▂█")),
    ),
)


def test_texts_of_others_cannot_break_out_of_markdown() -> None:
    page = study_markdown([SECTION])
    assert "| 1<br>&#91;0, 2&#93; |" in page
    assert "| a&#124;b |" in page
    assert "| c | **2** |" in page
    assert "&#60;b&#62;" in page
    assert page.count("\n```") == 2


def test_unless_more_is_asked_for_sections_have_their_brief_parts_and_lines() -> None:
    sections = [
        Section(key="a", title="A title", parts=("Short.", "Long."), brief_parts=1),
        Section(key="b", title="Another", parts=("Long.",), line="none of 3 tests"),
        Section(key="c", title="A third", parts=("Long.",)),
        Section(key="d", title="Last", parts=("End.", "Long."), brief_parts=1, line="none of 2"),
    ]
    text = render_study(sections, width=80, color=False, brief=True)
    assert "Long." not in text
    assert "A third" not in text
    told = [
        text.index(one)
        for one in ("A title", "Short.", "What is more than noise", "b  none of 3 tests", "Last")
    ]
    assert told == sorted(told)
    assert not missing(text, "--section NAME[,NAME]", "a, b, c, d")


def test_the_best_value_is_marked_in_a_terminal() -> None:
    assert "2*" in render_study([SECTION], width=80, color=False)


def test_a_study_of_one_checkpoint_has_no_curve(tmp_path: Path) -> None:
    study = load_study([str(write(tmp_path / "t.csv", row()))], output=tmp_path)
    assert not {"curves", "stability", "early_stopping", "starts"} & {one.key for one in sections_of(study)}


def test_drops_that_cannot_be_tested_are_shown_with_their_values() -> None:
    bare = {"a": [0.6, 0.7, 0.65], "b": [0.5, 0.6, 0.7]}
    section = next(one for one in sections_of(of_totals(bare, 0)) if one.key == "early_stopping")
    assert not missing(section.line, "1 cannot be tested", "b acc of a", "-5.00")
    (first, second) = section.data
    (drop,) = first["drops"]
    assert (drop["peak"]["value"], drop["last"]["value"], drop["drop"]["value"]) == (
        0.7,
        0.65,
        pytest.approx(-0.05),
    )
    assert second["drops"] == []
    shown = render_study([section], width=80, color=False)
    assert "-5.00" in shown
    assert "1 of the curves" in shown


def test_drops_that_are_not_tested_are_not_counted_among_those_that_are() -> None:
    counted = of_totals({"a": [0.6, 0.7, 0.69]})
    points = [
        point.candidate for study in (counted, of_totals({"b": [0.6, 0.7, 0.2]}, 0)) for point in study.points
    ]
    section = next(one for one in sections_of(study_of_candidates(points)) if one.key == "early_stopping")
    assert not missing(section.line, "none of 1 drops", "1 cannot be tested", "b acc of b")


def test_rows_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", row(), row(step=200, real1="lots", score="0.6"))
    text = render_study(sections_of(load_study([str(table)], output=tmp_path)), width=300, color=False)
    assert "line 3, real1: 'lots'" in text


def test_values_over_part_of_the_items_are_marked(tmp_path: Path) -> None:
    header = "checkpoint,step,epoch,real1,coref_samples,coref_of"
    table = write(tmp_path / "t.csv", "x,1,1,0.66,24,2400", "y,2,2,0.66,24,2400", header=header)
    text = render_study(sections_of(load_study([str(table)], output=tmp_path)), width=100, color=False)
    assert "real_coref: 24 of 2,400 items" in text


def test_bits_are_told_in_bits_though_all_of_them_are_below_one() -> None:
    drawn = [[0.5 + 0.01 * place + 0.001 * (item % 7) for item in range(80)] for place in range(6)]
    runs = [{"b": {"bits_per_byte": values}} for values in drawn]
    study = of_items({"a": runs[:3], "z": runs[3:]})
    (measure,) = study.measures
    assert (measure.share, measure.unit, measure.higher_is_better) == (False, "bits", False)
    text = " ".join(render_study(sections_of(study), width=120, color=False).split())
    assert not missing(text, "b bits_per_byte", "gaps in bits")
    assert "b bits_per_byte (bits, at epoch)" in text
    assert "+0.0300" in text
    assert "+3.00" not in text
