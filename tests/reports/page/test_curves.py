"""Curves as SVG in a page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.reports.charts import Dot, Line, LineChart
from pytest_touchstone.reports.page.curves import svg

NAME = "{http://www.w3.org/2000/svg}"
CHART = LineChart(
    key="real",
    title="Real@1",
    axis="epoch",
    lines=(
        Line(
            "a",
            (Dot(1, 0.6, 0.58, 0.62, "checkpoint-1"), Dot(2, 0.65, 0.63, 0.67), Dot(3, 0.64, 0.62, 0.66)),
            1,
        ),
        Line("한국어/2", (Dot(2, 0.61),), 0),
    ),
)


def texts(root: ET.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{NAME}text")]


def test_a_screen_reader_is_told_the_title_and_the_values() -> None:
    root = ET.fromstring(svg(CHART))
    title, about = root.find(f"{NAME}title"), root.find(f"{NAME}desc")
    assert title is not None
    assert about is not None
    assert root.get("role") == "img"
    assert (root.get("aria-labelledby") or "").split() == [title.get("id"), about.get("id")]
    assert title.text == "Real@1, %"
    assert "a: 60.00 % at 1, best 65.00 % at 2, 64.00 % at 3." in (about.text or "")


def test_every_point_says_where_it_is_and_how_sure() -> None:
    titles = [one.text or "" for one in ET.fromstring(svg(CHART)).iter(f"{NAME}title")]
    assert "a, epoch 1: 60.00 % [58.00 %, 62.00 %] (checkpoint-1)" in titles
    assert "a, epoch 2: 65.00 % [63.00 %, 67.00 %], the best of its series" in titles
    assert "한국어/2, epoch 2: 61.00 %, the best of its series" in titles


def test_only_series_have_colours_and_no_part_has_a_style_or_an_address() -> None:
    root = ET.fromstring(svg(CHART))
    for one in root.iter():
        assert "style" not in one.attrib
        assert not any("href" in name or name.startswith("on") for name in one.attrib)
        assert not (one.get("fill") or "").startswith("#")
        if (one.get("color") or "").startswith("#"):
            assert (one.get("class") or "").startswith("curve-")
    assert root.get("fill") == "currentColor"
    assert {one.get("class") for one in root.iter(f"{NAME}g")} >= {"curve-1", "curve-2"}


def test_names_are_text_whatever_they_hold() -> None:
    hostile = '</svg><script>alert(1)</script>"&'
    line = replace(CHART.lines[0], name=hostile)
    chart = replace(CHART, title=hostile, key='x"y', lines=(line,))
    root = ET.fromstring(svg(chart))
    assert not list(root.iter(f"{NAME}script"))
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
        Line(
            f"series {place}",
            tuple(
                Dot(at, value, None if half is None else value - half, None if half is None else value + half)
                for at, value, half in sorted(dots, key=lambda one: one[0])
            ),
            0,
        )
        for place, dots in enumerate(drawn)
    )
    root = ET.fromstring(svg(LineChart(key="k", title="t", axis="step", lines=lines, percent=False)))
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for one in root.iter(f"{NAME}polyline"):
        for point in (one.get("points") or "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
