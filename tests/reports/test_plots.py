"""Pictures of curves and bars, as SVG."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.cli import main
from pytest_touchstone.reports import png
from pytest_touchstone.reports.charts import BarChart, ChartPoint, CurveLine, LineChart
from pytest_touchstone.reports.plots import WIDTH, Picture, PlotText, draw_bars, draw_curves, svg
from pytest_touchstone.study.points import Value
from tests.support.lines import missing
from tests.support.published import published


def bar(value: float) -> Value:
    return Value(value=value, low=value - 0.05, high=value + 0.05, stderr=None, n=9, method="")


BARS = BarChart(
    key="passes",
    title="humaneval",
    groups=tuple(f"checkpoint_epoch_{number}" for number in range(20)),
    bars=tuple((f"pass@{k}", tuple(bar(0.1 + 0.02 * n) for n in range(20))) for k in (1, 5, 10)),
    sections=((0, "baseline"), (10, "critic")),
)
CHART = LineChart(
    key="real",
    title="Real@1",
    axis="epoch",
    lines=(
        CurveLine(
            "a",
            (
                ChartPoint(1, 0.6, 0.58, 0.62, "checkpoint-1"),
                ChartPoint(2, 0.65, 0.63, 0.67),
                ChartPoint(3, 0.64, 0.62, 0.66),
            ),
            1,
        ),
        CurveLine("한국어/2", (ChartPoint(2, 0.61),), 0),
    ),
)


def texts(root: ET.Element) -> list[str]:
    return [one.text or "" for one in root.iter("text")]


def test_a_screen_reader_is_told_the_title_and_the_values() -> None:
    root = ET.fromstring(svg(draw_curves(CHART)))
    title, about = root.find("title"), root.find("desc")
    assert title is not None
    assert about is not None
    assert root.get("role") == "img"
    assert (root.get("aria-labelledby") or "").split() == [title.get("id"), about.get("id")]
    assert title.text == "Real@1, %"
    assert not missing(about.text or "", "60.00 % at 1", "best 65.00 % at 2", "64.00 % at 3")


def test_every_point_says_where_it_is_and_how_sure() -> None:
    titles = [one.text or "" for one in ET.fromstring(svg(draw_curves(CHART))).iter("title")]
    assert "a, epoch 1: 60.00 % [58.00 %, 62.00 %] (checkpoint-1)" in titles
    assert "a, epoch 2: 65.00 % [63.00 %, 67.00 %], the best of its series" in titles
    assert "한국어/2, epoch 2: 61.00 %, the best of its series" in titles


def test_only_series_have_colours_and_no_part_has_a_style_or_an_address() -> None:
    root = ET.fromstring(svg(draw_curves(CHART)))
    for one in root.iter():
        assert "style" not in one.attrib
        assert not any("href" in name or name.startswith("on") for name in one.attrib)
        assert not (one.get("fill") or "").startswith("#")
        if (one.get("color") or "").startswith("#"):
            assert (one.get("class") or "").startswith("curve-")
    assert root.get("fill") == "currentColor"
    assert {one.get("class") for one in root.iter("g")} >= {"curve-1", "curve-2"}


def test_names_are_text_whatever_they_hold() -> None:
    hostile = '</svg><script>alert(1)</script>"&'
    line = replace(CHART.lines[0], name=hostile)
    chart = replace(CHART, title=hostile, key='x"y', lines=(line,))
    root = ET.fromstring(svg(draw_curves(chart)))
    assert not list(root.iter("script"))
    assert hostile in texts(root)


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(
            st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0, 10) | st.none()),
            min_size=1,
            max_size=5,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_values_are_drawn_within_the_picture(
    drawn: list[list[tuple[float, float, float | None]]],
) -> None:
    lines = tuple(
        CurveLine(
            f"series {place}",
            tuple(
                ChartPoint(
                    at, value, None if half is None else value - half, None if half is None else value + half
                )
                for at, value, half in sorted(dots, key=lambda one: one[0])
            ),
            0,
        )
        for place, dots in enumerate(drawn)
    )
    root = ET.fromstring(
        svg(draw_curves(LineChart(key="k", title="t", axis="step", lines=lines, percent=False)))
    )
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for one in root.iter("polyline"):
        for point in (one.get("points") or "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def words(picture: Picture) -> list[PlotText]:
    return [part for part in picture.parts if isinstance(part, PlotText)]


def test_many_series_get_a_panel_each() -> None:
    dots = [tuple(ChartPoint(n, 0.4 + n / 100 + row / 50, 0.3, 0.9) for n in range(4)) for row in range(6)]
    known = [*dots[:5], (ChartPoint(0, 0.5), ChartPoint(1, 0.6, 0.5, 0.7), ChartPoint(2, 0.5))]
    lines = tuple(CurveLine(f"training-{number}", own, 1) for number, own in enumerate(known))
    picture = draw_curves(LineChart(key="many", title="gsm8k", axis="epoch", lines=lines))
    names = [part for part in words(picture) if part.text.startswith("training-")]
    assert len({part.at for part in names}) == 6
    texts = [part.text for part in words(picture)]
    assert texts.count("40") == 2  # a number on the axis at the left of each of two rows
    assert texts.count("0") == 3  # and below each of three columns
    assert all(0 <= x <= WIDTH and 0 <= y <= picture.height for x, y in (part.at for part in words(picture)))


def test_names_of_twenty_checkpoints_do_not_overlap() -> None:
    labels = [part for part in words(draw_bars(BARS)) if part.text.startswith("checkpoint_epoch_")]
    assert len(labels) == 20
    steps = {round(after.at[0] - before.at[0], 3) for before, after in itertools.pairwise(labels)}
    apart = min(steps) * math.sin(math.radians(50))
    assert {(part.angle, part.anchor) for part in labels} == {(-50, "end")}
    assert apart > labels[0].size


def test_bars_say_which_they_are_and_how_sure() -> None:
    titles = [one.text or "" for one in ET.fromstring(svg(draw_bars(BARS))).iter("title")]
    (title,) = [title for title in titles if title.startswith("checkpoint_epoch_1, pass@5:")]
    assert not missing(title, "12.00 %", "[7.00 %, 17.00 %]")


def test_a_file_is_on_white_and_asks_for_nothing() -> None:
    text = svg(draw_curves(CHART), alone=True)
    assert text == svg(draw_curves(CHART), alone=True)
    assert 'fill="#ffffff"' in text
    assert "한국어/2" in text
    assert not re.search(r"href|<script", text)
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_without_matplotlib_files_are_svg_and_a_line_says_how_to_get_png(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(png, "find_spec", lambda _: None)
    table = str(published(tmp_path))
    assert main(["study", table, "-o", str(tmp_path / "o")]) == 0
    told = "as SVG (as PNG too with matplotlib: pip install 'pytest-touchstone[plots]'), in "
    assert f"drawn:   7 pictures, {told}" in capsys.readouterr().out
    assert {path.suffix for path in (tmp_path / "o").glob("curve_*")} == {".svg"}
    assert "![curve score](curve_score.svg)" in (tmp_path / "o" / "study.md").read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written_is_said_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["study", str(published(tmp_path)), "-o", str(tmp_path / "file" / "p")]) == 4
    assert not missing(capsys.readouterr().err, "no folder", "another folder")
