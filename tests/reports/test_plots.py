"""Pictures by matplotlib."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.reports import plots
from pytest_touchstone.reports.charts import Bar, BarChart, Dot, Line, LineChart
from tests.support.published import published

BARS = BarChart(
    key="passes",
    title="humaneval",
    groups=tuple(f"checkpoint_epoch_{number}" for number in range(20)),
    bars=tuple(
        (f"pass@{k}", tuple(Bar(0.1 + 0.02 * n, 0.05 + 0.02 * n, 0.15 + 0.02 * n) for n in range(20)))
        for k in (1, 5, 10)
    ),
    sections=((0, "baseline"), (10, "critic")),
)
CURVES = LineChart(
    key="ko",
    title="정확도",
    axis="epoch",
    lines=(
        Line("한국어", tuple(Dot(n, 0.5 + n / 50, 0.45, 0.65) for n in range(4)), 3),
        Line("one", (Dot(2, 0.5),), 0),
    ),
)


def test_without_matplotlib_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    table = str(published(tmp_path))
    assert main(["study", table, "--plots", str(tmp_path / "p")]) == 4
    assert capsys.readouterr().err == (
        "touchstone: --plots needs matplotlib: pip install 'pytest-touchstone[plots]'\n"
    )
    assert not (tmp_path / "p").exists()
    assert main(["study", table, "-o", str(tmp_path / "o")]) == 0
    assert "no pictures: matplotlib is not installed" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_said_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["study", str(published(tmp_path)), "--plots", str(tmp_path / "file" / "p")]) == 4
    assert "is no folder; choose another folder" in capsys.readouterr().err


def test_korean_letters_that_no_font_has_are_written_in_latin_ones() -> None:
    assert "".join(map(plots.latin, "한국어 é中")) == "hangugeo e?"


@pytest.mark.slow
def test_names_of_twenty_checkpoints_do_not_overlap() -> None:
    with plots._style("passes"):
        figure = plots.draw_bars(BARS, str)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        labels = [one for one in axes.get_xticklabels() if one.get_text()]
        assert len(labels) == 20
        ends = sorted(one.get_window_extent().x1 for one in labels)
        height = labels[0].get_window_extent().height
        gaps = [after - before for before, after in itertools.pairwise(ends)]
        assert min(gaps) > figure.dpi * 8 / 72  # letters of 8 points, at a slant
        assert height < figure.bbox.height / 2


@pytest.mark.slow
def test_pictures_are_png_and_svg_with_the_names_as_text() -> None:
    files = plots.pictures("x", plots.draw_curves, CURVES)
    assert [*files] == ["x.png", "x.svg"]
    assert files["x.png"].startswith(b"\x89PNG")
    svg = files["x.svg"].decode()
    assert "정확도, % by epoch" in svg
    assert "한국어" in svg
    assert files["x.svg"] == plots.pictures("x", plots.draw_curves, CURVES)["x.svg"]


@pytest.mark.slow
def test_many_series_get_a_panel_each_within_one_pair_of_axes() -> None:
    """Axes of their own, with ticks and labels each, take four times as long to draw."""
    dots = [tuple(Dot(n, 0.4 + n / 100 + row / 50, 0.3, 0.9) for n in range(4)) for row in range(6)]
    known = [*dots[:5], (Dot(0, 0.5), Dot(1, 0.6, 0.5, 0.7), Dot(2, 0.5))]
    lines = tuple(Line(f"training-{number}", own, 1) for number, own in enumerate(known))
    chart = LineChart(key="many", title="gsm8k", axis="epoch", lines=lines)
    with plots._style("many"):
        figure = plots.draw_curves(chart, str)
        (axes,) = figure.axes
        figure.draw_without_rendering()
        texts = [text.get_text() for text in axes.texts]
        frame = figure.bbox
        assert all(
            frame.contains(*point) for text in axes.texts for point in text.get_window_extent().get_points()
        )
        assert len(axes.lines) == 6
        for line in axes.lines:
            places = axes.transData.transform(line.get_path().vertices)
            assert all(frame.contains(x, y) for x, y in places)
    assert {line.name for line in lines} < {*texts}
    assert texts.count("40") == 2  # a number on the axis at the left of each of two rows
    assert texts.count("3") == 3  # and below each of three columns


@pytest.mark.slow
def test_a_study_is_drawn_into_the_folder_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    assert main(["study", str(published(tmp_path)), "--plots", str(tmp_path / "p")]) == 0
    assert "drawn:   7 pictures, as PNG and SVG, in " in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "p").glob("*.png"))
    assert names == [
        *(
            "bars_composites.png",
            "bars_ko_lambada.png",
            "bars_real_coref.png",
            "curve_ko_lambada-lambada@1.png",
        ),
        *("curve_real_coref-real@1.png", "curve_real_coref-real@5.png", "curve_score.png"),
    ]
    for name in names:
        image = Image.open(io.BytesIO((tmp_path / "p" / name).read_bytes()))
        assert image.width > 700
        assert image.getextrema() != ((255, 255), (255, 255), (255, 255), (255, 255))
        svg = (tmp_path / "p" / name).with_suffix(".svg").read_text(encoding="utf-8")
        assert not re.search(r"href=\"https?:|<script", svg)
