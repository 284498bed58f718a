"""The table in the terminal, and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from harness.reports import formatting, notes
from harness.reports.html import page
from harness.reports.terminal import render
from harness.results.summary import Summary
from tests.support.summaries import sample

WIDTHS = [60, 80, 100, 132, 200]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("checkpoints", [1, 2, 5])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width, checkpoints):
    assert max(map(len, render(sample(checkpoints), width, False).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_colour_changes_nothing_but_colour(width):
    plain, coloured = (render(sample(1), width, color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    stripped = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
    assert stripped == plain.splitlines()


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_plain_text_is_ascii(checkpoints):
    assert render(sample(checkpoints), 80, False).isascii()


def test_no_name_is_broken_at_80_columns():
    text = render(sample(1), 80, False)
    for name in (
        "winogrande 5-shot",
        "lambada@1_strict",
        "acc_norm_macro",
        "abstract algebra",
        "ko_lambada_wiki",
    ):
        assert name in text


def test_a_row_has_value_interval_n_errors_and_skipped():
    [line] = [line for line in render(sample(1), 80, False).splitlines() if line.startswith("winogrande")]
    assert re.fullmatch(r"winogrande 5-shot +\* acc +0\.\d{4} +\[0\.\d{4}, 0\.\d{4}\] +20 +3 +1", line)


@pytest.mark.parametrize("width", [80, 140])
def test_the_data_pack_is_named_with_rows_hash_and_origin(width):
    text = " ".join(render(sample(1), width, False).split())
    assert "winogrande/validation, 32 rows, 15151515, shipped" in text


def test_groups_stand_above_micro_and_macro():
    lines = render(sample(1), 80, False).splitlines()
    at = [
        next(i for i, line in enumerate(lines) if word in line)
        for word in ("machine learning", "mmlu_stem", "acc_macro")
    ]
    assert at == sorted(at)


def test_composites_show_their_formula():
    text = " ".join(render(sample(1), 80, False).split())
    assert (
        "score_wiki = 0.4 real_coref:real@1 + 0.3 real_coref:real@5 + 0.3 ko_lambada_wiki:lambada@1" in text
    )


def test_checkpoints_stand_below_each_other():
    lines = render(sample(2), 80, False).splitlines()
    first = next(i for i, line in enumerate(lines) if "* acc" in line)
    assert "checkpoint-100" in lines[first]
    assert "checkpoint-200" in lines[first + 1]


def test_the_best_of_several_is_named_with_its_error_and_never_of_one():
    assert re.search(
        r"best +real1: checkpoint-\d00 of 3, 0\.\d{4}, standard error", render(sample(3), 90, False)
    )
    assert "best" not in render(sample(1), 80, False)


def test_many_checkpoints_leave_groups_to_the_page():
    text = render(sample(5), 80, False)
    assert "machine learning" not in text
    assert "report.html" in text
    assert "machine_learning" in page(sample(5))


def test_what_was_left_out_and_why_stands_below_the_table():
    text = render(sample(1), 120, False)
    assert "left out" in text
    assert "humaneval: asks Generate" in text
    assert "1 error, 1 timeout, 1 lost" in text
    assert "RequestError: the text has two masks" in text


def test_benchmarks_left_out_for_one_reason_share_a_line():
    lines = ["a: asks X: no", "b: asks X: no", "c: no data", "odd"]
    assert notes.left_out(replace(sample(1), deselected=lines)) == [
        "a, b: asks X: no",
        "c: no data",
        "odd",
    ]


def test_faults_with_one_message_share_a_line_and_many_messages_are_counted():
    faults = [{"item": f"t.py::t[{n}]", "status": "error", "message": "same"} for n in range(9)]
    text = render(replace(sample(1), faults=faults), 80, False)
    assert "9 items, first t.py::t[0]: same" in text
    different = [{**fault, "message": f"message {n}"} for n, fault in enumerate(faults)]
    text = render(replace(sample(1), faults=different), 80, False)
    assert text.count("t.py::t[") == 5
    assert "and 4 other messages, in errors.log" in text


def test_cut_contexts_and_left_over_records_are_said():
    summary = sample(1)
    cut = [replace(result, truncated=2) for result in summary.results if result.benchmark == "winogrande"]
    text = render(replace(summary, results=cut, uncollected=1), 120, False)
    assert "2 requests were longer than the checkpoint takes" in text
    assert "1 record in the journal" in text


def test_an_undefined_metric_is_a_dash_with_its_reason():
    summary = sample(1, benchmarks=["winogrande"])
    [result] = summary.results
    nothing = replace(result.metrics["acc"], value=None, low=None, high=None, why="no items were scored", n=0)
    text = render(replace(summary, results=[replace(result, metrics={"acc": nothing})]), 80, False)
    assert re.search(r"\* acc +- +- +0", text)
    assert "no items were scored: winogrande acc" in text


def test_a_run_without_results_still_says_what_was_left_out():
    empty = Summary(
        run_id="r", directory="results/r", manifest={}, checkpoints=[], results=[], deselected=["x: no data"]
    )
    assert "x: no data" in render(empty, 80, False)
    assert "x: no data" in page(empty)


def test_it_says_how_to_see_the_table_again():
    assert "touchstone report results/20260102_030405_77" in render(sample(1), 80, False)


class Checker(HTMLParser):
    """Remembers tags left open and everything that could fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetches: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object") or any(
            k in ("src", "href") for k, _ in attrs
        ):
            self.fetches.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_the_page_is_well_formed_and_fetches_nothing(checkpoints):
    text = page(sample(checkpoints))
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.fetches == []
    assert "url(" not in text
    assert "http:" not in text
    assert "@import" not in text


def test_the_page_shows_results_data_checkpoints_manifest_and_faults():
    text = page(sample(1))
    for part in (
        "[0.2188, 0.6134]",
        "15" * 32,
        "0123456789abcdef" * 4,
        "2.13.0",
        "no answer within 60 s",
        "Partial scoring.",
    ):
        assert part in text


def test_the_page_escapes_what_others_wrote():
    fault = {"item": "<script>", "status": "error", "message": "<img src=x>"}
    text = page(replace(sample(1), faults=[fault], deselected=["<b>"], run_id="<i>"))
    for tag in ("<script>", "<img", "<b>", "Results of <i>"):
        assert tag not in text.replace('<b style="left', "")


def test_bars_lie_within_their_track():
    numbers = re.findall(r"left:([\d.]+)%(?:;width:([\d.]+)%)?", page(sample(3)))
    assert numbers
    assert all(float(left) >= 0 and float(left) + float(width or 0) <= 100.1 for left, width in numbers)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.5, "0.5000"), (-2.51792, "-2.5179"), (12.3456, "12.35"), (123456.7, "1.235e+05")],
)
def test_numbers_have_as_many_digits_as_they_deserve(value, shown):
    assert formatting.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (7.4, "0:07"), (750, "12:30"), (7500, "2:05:00"), (-1, "0:00")]
)
def test_durations_are_minutes_and_seconds(seconds, shown):
    assert formatting.duration(seconds) == shown


def test_each_of_many_checkpoints_has_one_row_with_a_column_a_metric():
    lines = render(sample(5), 140, False).splitlines()
    heading = next(line for line in lines if "* real@1" in line)
    for name in ("real@1_strict", "real@5", "real@5_strict", "95 % interval", " n"):
        assert name in heading
    at = lines.index(heading)
    rows = [line.split()[0] for line in lines[at + 1 : at + 6]]
    assert rows == [f"checkpoint-{step}00" for step in range(1, 6)]


def test_metrics_that_do_not_fit_beside_each_other_follow_in_another_table():
    lines = render(sample(5), 60, False).splitlines()
    first, second = (
        next(number for number, line in enumerate(lines) if name in line)
        for name in ("* real@1", "real@5_strict")
    )
    assert second > first + 5
    assert "checkpoint" in lines[second]


def test_series_stand_apart():
    whole = sample(5)
    rows = [{**one, "series": "a" if number < 2 else "b"} for number, one in enumerate(whole.checkpoints)]
    lines = render(replace(whole, checkpoints=rows), 140, False).splitlines()
    at = next(number for number, line in enumerate(lines) if "* real@1" in line)
    assert [bool(line) for line in lines[at + 1 : at + 7]] == [True, True, False, True, True, True]


def test_what_was_reused_is_said_a_line_a_benchmark():
    whole = sample(2)
    results = [
        replace(one, reused=one.collected if one.checkpoint.endswith("100") else 3, reused_from=["r1"])
        if one.benchmark == "winogrande"
        else one
        for one in whole.results
    ]
    assert notes.reused(replace(whole, results=results)) == [
        "winogrande of 1 checkpoint, 3 of 24 items of winogrande of checkpoint-200, from r1"
    ]
    assert notes.reused(whole) == []


def test_a_checkpoint_that_could_not_be_used_is_named_in_the_table_and_the_page():
    failed = [{"name": "checkpoint-7", "path": "runs/checkpoint-7", "message": "config.json: cut off"}]
    whole = replace(sample(1), failed_to_load=failed)
    for text in (render(whole, 100, False), page(whole)):
        assert "checkpoint-7 failed to load: config.json: cut off" in text
