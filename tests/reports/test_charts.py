"""What is drawn of a study, as plain values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.document.formatting import cut_name
from pytest_touchstone.reports.charts import (
    ChartPoint,
    LineChart,
    bar_charts,
    best_of,
    chart_key,
    curve_line,
    extent,
    line_charts,
    ticks,
)
from pytest_touchstone.reports.plots import draw_bars, draw_curves, svg
from pytest_touchstone.study.reading import load_study
from tests.support.korean_table import row, write
from tests.support.lines import missing
from tests.support.published import published


def test_each_measure_is_a_chart_with_a_line_for_each_series(tmp_path: Path) -> None:
    charts = line_charts(load_study([str(published(tmp_path))], output=tmp_path))
    assert [chart.title for chart in charts] == ["Real@1", "Real@5", "LAMBADA@1", "score"]
    real = charts[0]
    assert (real.axis, real.percent, real.limits) == ("epoch", True, True)
    first = real.lines[0]
    assert (first.name, len(first.dots)) == ("mlm_v2/1536", 11)
    best = first.dots[first.best or 0]
    assert (best.place, best.value, best.name) == (3.0, 0.6604, "checkpoint-390")
    assert best.low is not None
    assert best.low < best.value
    low, high = extent(real)
    assert low < 0.6292
    assert high > 0.6778


def test_bars_are_by_benchmark_with_the_checkpoints_in_their_series(tmp_path: Path) -> None:
    charts = bar_charts(load_study([str(published(tmp_path))], output=tmp_path))
    coref = charts[0]
    assert [name for name, _ in coref.bars] == ["Real@1", "Real@5"]
    assert len(coref.groups) == 33
    assert coref.sections[:2] == ((0, "mlm_v2/1536"), (11, "mlm_v2/2048"))
    assert all(len(bars) == 33 for _, bars in coref.bars)


@pytest.mark.parametrize("folder", ["", "a_rather_long_name_of_a_training_of_tokens/of_several_heads/"])
def test_bars_of_checkpoints_of_one_name_are_told_apart(tmp_path: Path, folder: str) -> None:
    for training in ("base", "critic"):
        model = f"{training}/{folder}checkpoint_best.pt"
        content = {"model": model, "results": {"humaneval": {"pass@1": 0.2}}}
        (tmp_path / f"{training}_results.json").write_text(json.dumps(content), encoding="utf-8")
    (chart,) = bar_charts(load_study([str(tmp_path)], output=tmp_path))
    assert chart.groups == tuple(f"{name}/{folder}checkpoint_best.pt" for name in ("base", "critic"))
    text = svg(draw_bars(chart))
    for group in chart.groups:
        assert f">{cut_name(group, 40)}</text>" in text
        assert f"<title>{group}, pass@1: 20.00 %</title>" in text
    assert len({cut_name(group, 40) for group in chart.groups}) == 2


def test_every_pass_at_k_of_a_result_is_a_bar(tmp_path: Path) -> None:
    results = '{"model": "m", "results": {"humaneval": {"pass@10": 0.6, "pass@1": 0.2, "pass@5": 0.5, "samples": 164}}}'
    (tmp_path / "m_results.json").write_text(results, encoding="utf-8")
    (chart,) = bar_charts(load_study([str(tmp_path / "m_results.json")], output=tmp_path))
    assert [name for name, _ in chart.bars] == ["pass@1", "pass@5", "pass@10"]


def test_a_checkpoint_without_a_measure_has_no_bar_and_no_dot(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", row(step=100), row(step=200, lambada="", score=""), row(step=300))
    study = load_study([str(table)], output=tmp_path)
    (lambada,) = (chart for chart in line_charts(study) if chart.title == "LAMBADA@1")
    assert [dot.place for dot in lambada.lines[0].dots] == [1.0, 3.0]
    (bars,) = (chart for chart in bar_charts(study) if chart.key == "ko_lambada")
    assert [bar and bar.value for bar in bars.bars[0][1]] in ([0.35, None, 0.35], [0.35, 0.35])


def test_of_very_many_checkpoints_bars_show_the_first_the_best_and_the_last_of_each_series(
    tmp_path: Path,
) -> None:
    rows = [row("a", 100 * n, real1="0.7000" if n == 40 else "0.6000") for n in range(1, 71)]
    (coref, *_) = bar_charts(load_study([str(write(tmp_path / "t.csv", *rows))], output=tmp_path))
    assert coref.groups == ("checkpoint-100", "checkpoint-4000", "checkpoint-7000")
    assert not missing(coref.title, "real_coref", "Real@1")


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 12))
def test_ticks_are_round_and_hold_all_values(low: float, width: float, most: int) -> None:
    high = low + width
    found = ticks(low, high, most)
    slack = 1e-6 * max(abs(low), abs(high), 1e-6)
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert found == sorted(set(found))
    assert 2 <= len(found) <= 2 * most + 2


@pytest.mark.parametrize(
    ("values", "higher", "place"), [([1, 3, 3], True, 1), ([2, 1, 1], False, 1), ([], True, None)]
)
def test_the_best_is_the_first_of_equals(values: list[float], higher: bool, place: int | None) -> None:
    assert best_of(values, higher=higher) == place


def test_a_key_is_safe_in_files_and_documents() -> None:
    assert chart_key("real_coref:real@1") == "real_coref-real@1"
    assert chart_key("../<x> y") == "..-x-y"
    assert chart_key("//") == "chart"


def test_what_is_not_valid_is_a_grey_cross_and_never_the_best() -> None:
    dots = [
        (ChartPoint(300, 0.9), False),
        (ChartPoint(100, 0.2, 0.1, 0.3), True),
        (ChartPoint(200, 0.4, 0.3, 0.5), True),
    ]
    line = curve_line("nouns", dots, higher=True)
    assert [dot.place for dot in line.dots] == [100, 200]
    assert (line.best, [dot.value for dot in line.invalid]) == (1, [0.9])
    chart = LineChart(key="k", title="gsm8k acc", axis="step", lines=(line,))
    assert extent(chart) == (0.1, 0.9)
    picture = draw_curves(chart)
    assert "NOT VALID at 300" in picture.about
    text = svg(picture)
    assert text.count("the best of its series") == 1
    assert "grey crosses: NOT VALID" in text
    assert "90.00 %" not in text
