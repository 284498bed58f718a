"""Curves as lines of text."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_touchstone.document import Verbatim
from pytest_touchstone.document.formatting import cell_width
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.sparklines import (
    BARS,
    Spark,
    axis_labels,
    columns_of,
    fit_encoding,
    sparkline,
    sparklines,
    sparklines_section,
)
from tests.support.korean_table import row, write
from tests.support.lines import missing
from tests.support.published import published


def drawn(spark: Spark, *others: Spark) -> str:
    known = [value for one in (spark, *others) for value in one.values if value is not None]
    return sparkline(spark, columns_of([spark, *others]), min(known), max(known))


def test_the_peak_stands_in_brackets_and_heights_follow_the_values() -> None:
    assert drawn(Spark("a", (1, 2, 3), (0.1, 0.5, 0.3))) == " ▁[█]▅ "


def test_the_peak_of_a_metric_that_falls_is_its_smallest_value() -> None:
    assert drawn(Spark("a", (1, 2, 3), (9.0, 2.0, 5.0), higher_is_better=False)) == " █[▁]▄ "


def test_series_of_different_epochs_stand_below_one_another_by_epoch() -> None:
    one, other = Spark("a", (1, 2, 3, 4), (1, 2, 3, 4)), Spark("b", (2, 4), (4, 1))
    assert drawn(one, other) == " ▁ ▃ ▆[█]"
    assert drawn(other, one) == "  [█]  ▁ "
    assert axis_labels(columns_of([one, other])) == " 1 2 3 4"


def test_no_number_between_two_columns_stands_on_the_axis() -> None:
    spark = Spark("a", (1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    assert axis_labels(columns_of([spark])) == " 1 2 3 4 5"


def test_numbers_on_the_axis_are_those_of_the_columns_that_they_stand_at() -> None:
    spark = Spark("a", (5, 10, 15, 20), (1, 2, 3, 4))
    assert axis_labels(columns_of([spark])) == " 5 10  20"


@given(st.sets(st.integers(1, 500), min_size=2, max_size=12))
@example({1, 5, 10})
@example({4, 8, 16, 24})
def test_every_number_on_the_axis_is_a_checkpoints_and_stands_above_it(places: set[int]) -> None:
    spark = Spark("a", tuple(sorted(places)), (1.0,) * len(places))
    columns = columns_of([spark])
    numbers = list(re.finditer(r"\S+", axis_labels(columns)))
    assert all(columns[int(number[0])] == (number.start() - 1) / 2 for number in numbers)
    assert {int(number[0]) for number in numbers} <= places
    assert int(numbers[0][0]) == min(places)


def test_one_five_and_ten_are_drawn_as_such() -> None:
    spark = Spark("a", (1, 5, 10), (1, 2, 3))
    assert axis_labels(columns_of([spark])) == " 1 5 10"


def test_what_was_not_measured_is_a_gap_with_a_point() -> None:
    assert drawn(Spark("a", (1, 2, 3), (1.0, None, 2.0))) == " ▁ ·[█]"


def test_a_flat_curve_is_flat() -> None:
    assert drawn(Spark("a", (1, 2), (0.5, 0.5))) == "[▅]▅ "


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.floats(0, 1)),
        min_size=1,
        max_size=300,
        unique_by=lambda one: one[0],
    )
)
def test_any_curve_fits_its_columns_and_shows_its_peak(points: list[tuple[int, float]]) -> None:
    points.sort()
    spark = Spark("a", tuple(float(at) for at, _ in points), tuple(value for _, value in points))
    text = drawn(spark)
    assert len(text) == 2 * min(20, len(points)) + 1
    assert text.count("[") == text.count("]") == 1
    values = [value for _, value in points]
    if max(values) > min(values):
        assert text[text.index("[") + 1] == BARS[-1]


def test_published_curves_have_their_peaks_and_fit_a_narrow_terminal(tmp_path: Path) -> None:
    signs = {("mlm_v2/1536", "real_coref:real@1"): "~"}
    study = load_study([str(published(tmp_path))], output=tmp_path)
    lines = [line for block in sparklines(study, signs) for line in block]
    assert max(map(cell_width, lines)) <= 76
    (head,) = (place for place, one in enumerate(lines) if one.startswith("Real@1"))
    assert not missing(lines[head], "by epoch", "62.92 %", "67.78 %")
    assert lines[head + 1].startswith("mlm_v2/1536")
    assert lines[head + 1].split()[-6:] == ["66.04", "[64.12,", "67.91]", "at", "3", "~"]
    assert lines[0].startswith("score")
    assert sum(one.startswith("LAMBADA@1") for one in lines) == 1


def test_long_and_korean_names_keep_the_columns(tmp_path: Path) -> None:
    long = "a-very-long-name-of-a-training-run"
    table = write(tmp_path / "t.csv", *(row(name, step) for name in ("한국어", long) for step in (100, 200)))
    (lines, *_) = sparklines(load_study([str(table)], output=tmp_path), {})
    korean, other = (next(one for one in lines if name in one) for name in ("한국어", "a-very-"))
    assert other.split()[0].endswith("-run")
    assert cell_width(korean[: korean.index("[")]) == cell_width(other[: other.index("[")])


def test_a_peak_says_whether_it_is_more_than_noise(tmp_path: Path) -> None:
    noise = write(tmp_path / "n.csv", row(step=100, real1="0.65"), row(step=200, real1="0.66"))
    clear = write(tmp_path / "c.csv", row(step=100, real1="0.45"), row(step=200, real1="0.66"))
    for table, sign in ((noise, " ~"), (clear, "")):
        section = sparklines_section(load_study([str(table)], output=tmp_path))
        assert section is not None
        first = section.parts[0]
        assert isinstance(first, Verbatim)
        about = "".join(part for part in section.parts if isinstance(part, str))
        assert re.search(rf"60\.90 \[[\d., ]+\] at 2{sign}$", first.lines[-1])
        assert "~   not more than noise" in about
    unknown = write(tmp_path / "u.csv", row(step=100, sizes=","), row(step=200, sizes=","))
    section = sparklines_section(load_study([str(unknown)], output=tmp_path))
    assert section is not None
    assert any("cannot be tested" in str(part) for part in section.parts)


def test_a_terminal_without_bars_gets_numbers() -> None:
    assert fit_encoding(" ▁[█]·", "ascii") == " 1[8]."
    assert fit_encoding(" ▁[█]·", None) == " 1[8]."
    assert fit_encoding(" ▁[█]·", "utf-8") == " ▁[█]·"
