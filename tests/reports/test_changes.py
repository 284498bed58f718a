"""The changes against the best so far read the same in every output, and stay few lines however many checkpoints."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from pytest_touchstone.reports import ci
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.summary import Summary, summary_from_json, summary_json
from tests.support.lines import missing
from tests.support.summaries import sample

EVIL = "::error::x|`]<b>@all"


def change(checkpoint: str, metric: str, change: float, **more: Any) -> dict[str, Any]:
    found = {
        "checkpoint": checkpoint,
        "benchmark": "real_coref",
        "metric": metric,
        "value": 0.64 + change / 100,
        "best": 0.64,
        "change": change,
        "unit": "points",
        "against": "checkpoint-300",
        "run_id": "before",
        "of": 3,
    }
    return found | more


def run(*changes: dict[str, Any]) -> Summary:
    count = len({row["checkpoint"] for row in changes}) or 1
    found = sample(benchmarks=["real_coref", "ko_lambada_wiki"], checkpoints=count)
    return replace(found, changes=list(changes))


ONE = run(
    change("new", "real@1", 2.0),
    change("new", "real@5", -1.5, of=1),
    change("new", "composite", 0.25, benchmark="score_wiki"),
    change("new", "speed", 4.5, value=75.0, best=70.5, unit="", of=1),
)


def words(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_the_best_of_another_model_is_called_so_in_every_report() -> None:
    strange = run(change("new", "real@1", 2.0, against="smollm2", other_model="llama, 135M parameters"))
    for text in (render(strange, 100, color=False), ci.markdown_page(strange), run_page(strange)):
        plain = words(text)
        assert not missing(plain, "best so far", "smollm2 of run before")
        assert not missing(plain, "smollm2 is another model", "llama, 135M parameters", "new")
    again = run(change("new", "real@1", 2.0, against="new"))
    assert "best so far:" not in render(again, 100, color=False)


def test_a_long_report_has_a_line_per_metric_at_80_columns() -> None:
    lines = render(ONE, 80, color=False, details=True).splitlines()
    at = next(place for place, line in enumerate(lines) if line.split()[:1] == ["best"])
    assert [" ".join(line.split()) for line in lines[at : at + 7]] == [
        "best",
        "benchmark metric so far now change % against",
        "real_coref real@1 0.6400 0.6600 +2.00 points +3.1 checkpoint-300 (best of 3)",
        "real@5 0.6400 0.6250 -1.50 points -2.3 checkpoint-300",
        "score_wiki 0.6400 0.6425 +0.25 points +0.4 checkpoint-300 (best of 3)",
        "real_coref speed 70.50 75.00 +4.5000 +6.4 checkpoint-300",
        "best so far: checkpoint-300 of run before",
    ]
    assert max(map(len, lines)) <= 80


def test_long_names_leave_it_a_line_a_metric() -> None:
    names = ["real@1", "real@1_strict", "copy_baseline_strict"]
    rows = [change("checkpoint-1200", name, -0.001) for name in names]
    lines = render(run(*rows), 80, color=False, details=True).splitlines()
    at = next(place for place, line in enumerate(lines) if line.split()[:1] == ["best"])
    assert " ".join(lines[at].split()) == "best against the"
    assert lines[at + 1].split()[-4:] == ["%", "best", "of", "3"]
    assert [line.split()[-3:] for line in lines[at + 2 : at + 5]] == [["+0.00", "+0.0", "checkpoint-300"]] * 3


def test_names_of_a_series_are_not_broken_in_the_middle() -> None:
    rows = [
        change(
            f"nouns-checkpoint-{step}",
            "lambada@1",
            1.0,
            benchmark="ko_lambada_wiki",
            against="checkpoint-1200",
        )
        for step in (900, 1200)
    ]
    lines = render(run(*rows), 80, color=False).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.endswith(" % best of 3") for line in lines)
    for step in (900, 1200):
        assert any(line.startswith(f"nouns-checkpoint-{step} ") for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        "real_coref real@1 0.6400 0.6600 +2.00 points +3.1 checkpoint-300 (best of 3)",
        "real@5 0.6400 0.6250 -1.50 points -2.3 checkpoint-300",
        "speed 70.50 75.00 +4.5000 +6.4 checkpoint-300",
    ],
)
def test_the_page_has_what_the_terminal_has(text: str) -> None:
    page = run_page(ONE)
    assert text in words(page)
    assert page.index("<h2>Composite scores") < page.index(">Change against")


def test_a_best_of_the_same_name_is_told_apart_by_its_run() -> None:
    again = run(change("checkpoint-100", "real@1", 1.0, against="checkpoint-100"))
    assert "checkpoint-100 of run before" in words(render(again, 80, color=False, details=True))
    whole = "checkpoint-100 of run before (best of 3)"
    assert "checkpoint-100 of run before" in words(run_page(again))
    assert dict(ci.properties(again))["touchstone.checkpoint-100.real_coref.real@1.change"].endswith(whole)
    assert "checkpoint-100 of run before" in ci.markdown_page(again)


def test_junit_has_the_best_so_far_and_the_change_of_every_metric() -> None:
    found = dict(ci.properties(ONE))
    assert found["touchstone.new.real_coref.real@1.best_so_far"] == "0.64"
    best = "checkpoint-300 (best of 3)"
    assert not missing(found["touchstone.new.real_coref.real@1.change"], "+2.00 points", best)
    assert found["touchstone.new.real_coref.real@5.change"] == "-1.50 points against checkpoint-300"
    assert not missing(found["touchstone.new.score_wiki.change"], "+0.25 points", best)
    assert found["touchstone.new.real_coref.speed.change"] == "+4.5000 against checkpoint-300"


def test_without_anything_to_compare_with_nothing_is_said() -> None:
    plain = run()
    for text in (render(plain, 80, color=False), run_page(plain), ci.markdown_page(plain)):
        assert "best so far" not in text
    assert not any(name.endswith((".change", ".best_so_far")) for name, _ in ci.properties(plain))


def test_a_changed_name_becomes_no_tag_on_the_page() -> None:
    page = run_page(run(change("new", "real@1", 1.0, against=EVIL)))
    assert "<b>@all" not in page
    assert "&lt;b&gt;@all" in page


def test_of_several_checkpoints_the_primary_metrics_and_composites_are_shown() -> None:
    both = run(
        *(
            change(name, metric, 1.0, benchmark=benchmark)
            for name in ("a", "b")
            for benchmark, metric in (
                ("real_coref", "real@1"),
                ("real_coref", "real@5"),
                ("score_wiki", "composite"),
            )
        )
    )
    shown = words(render(both, 80, color=False))
    assert (
        "best against the checkpoint metric so far now points % best of 3 "
        "a real_coref real@1 0.6400 0.6500 +1.00 +1.6 checkpoint-300 "
        "score_wiki 0.6400 0.6500 +1.00 +1.6 checkpoint-300 "
        "b real_coref real@1 0.6400 0.6500 +1.00 +1.6 checkpoint-300 "
        "score_wiki 0.6400 0.6500 +1.00 +1.6 checkpoint-300"
    ) in shown
    assert words(run_page(both)).count("0.6400 0.6500 +1.00 +1.6") == 4


def test_of_many_checkpoints_each_metric_has_its_largest_change_and_the_rest_is_pointed_to() -> None:
    names = [f"checkpoint-{step}" for step in range(100, 4100, 100)]
    rows = [
        row
        for place, name in enumerate(names)
        for row in (
            change(name, "real@1", place / 10 if place < 30 else -place / 10),
            change(name, "composite", -place / 10, benchmark="score_wiki"),
        )
    ]
    many = run(*rows)
    told = "of each the largest of 40 checkpoints; all are in summary.json"
    for text in (render(many, 80, color=False, details=True), run_page(many), ci.markdown_page(many)):
        shown = words(text)
        assert told in shown
        assert len(re.findall(r"[+-]\d\.\d\d\b", shown)) == 2
        assert "+2.90" in shown
    terminal = words(render(many, 80, color=False, details=True))
    assert not missing(
        terminal, "checkpoint-3000 real_coref real@1", "0.6400 0.6690 +2.90 +4.5 checkpoint-300"
    )
    assert "checkpoint-100 score_wiki 0.6400 0.6400" in terminal
    assert len(summary_from_json(summary_json(many)).changes) == 80
    assert sum(name.endswith(".change") for name, _ in ci.properties(many)) == 80


def test_a_short_report_has_the_changes_of_primary_metrics_and_counts_those_that_stayed() -> None:
    rows = [
        change("new", "real@1", 2.0),
        change("new", "real@5", -1.5),
        change("new", "lambada@1", 0.0, benchmark="ko_lambada_wiki"),
        change("new", "composite", 0.25, benchmark="score_wiki"),
    ]
    shown = words(render(run(*rows), 80, color=False))
    assert "real_coref real@1 0.6400 0.6600 +2.00" in shown
    assert "score_wiki 0.6400 0.6425 +0.25" in shown
    assert re.search(r"besides: 1 .*\(-v\)", shown)
    assert "real@5 0.6400 0.6250 -1.50 -2.3" in shown
    assert "no primary metric has changed" in words(render(run(rows[2]), 80, color=False))


def test_a_short_report_leaves_out_small_changes() -> None:
    rows = [
        change("new", "composite", place / 10, benchmark=f"composite{place}", best=0.5, of=1)
        for place in range(1, 9)
    ]
    shown = words(render(run(*rows), 80, color=False))
    assert re.findall(r"composite(\d) 0", shown) == ["4", "5", "6", "7", "8"]
    assert re.search(r"besides: 3 .*\(-v\)", shown)
