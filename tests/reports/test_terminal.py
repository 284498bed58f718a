"""The table in the terminal, and the page."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.document import Commands, Facts, formatting
from pytest_touchstone.reports import notes
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.reports.next_steps import next_steps
from pytest_touchstone.reports.pages import run_page as page
from pytest_touchstone.reports.run_report import run_report
from pytest_touchstone.reports.score_table import SIGNS
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.summary import Summary
from pytest_touchstone.results.usage import Usage
from tests.support.lines import missing
from tests.support.summaries import sample

WIDTHS = [60, 80, 100, 132, 200]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("checkpoints", [1, 2, 7])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width, checkpoints, details):
    whole = sample(checkpoints)
    words = [
        "evals/",
        "--checkpoint",
        "runs/*",
        "--eval-limit",
        "100",
        "-k",
        "not mmlu",
        "--eval-output",
        "r/s",
    ]
    gone = [{**one, "message": "the server is gone"} for one in whole.faults]
    long = replace(whole, faults=gone, manifest={**whole.manifest, "command": words * 2})
    lines = render(long, width, False, details=details).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    command = text[text.index("next ") + 4 :].replace("\\\n", " ").splitlines()[0]
    assert shlex.split(command)[: 2 * len(words) + 1] == ["pytest", *words * 2]


@pytest.mark.parametrize("width", [80, 140])
def test_colour_changes_nothing_but_colour(width):
    plain, coloured = (render(sample(1), width, color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    stripped = [line.rstrip() for line in ANSI.sub("", coloured).splitlines()]
    assert stripped == plain.splitlines()


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("checkpoints", [1, 2, 7])
def test_plain_text_is_ascii(checkpoints, details):
    assert render(sample(checkpoints), 80, False, details=details).isascii()


def test_no_name_is_broken_at_80_columns():
    short, long = (render(sample(1), 80, False, details=details) for details in (False, True))
    for name in ("winogrande 5-shot", "lambada_openai", "ko_lambada_wiki"):
        assert name in short
    for name in ("lambada@1_strict", "acc_norm_macro"):
        assert name not in short
        assert name in long


def with_groups(number: int, benchmarks: int) -> str:
    """The report of benchmarks that have so many groups each."""
    [whole] = sample(1, benchmarks=["winogrande"], faults=False).results
    results = [
        replace(whole, benchmark=f"mine{one}", name=f"mine{one}", group=group)
        for one in range(benchmarks)
        for group in (None, *(f"topic_{place}" for place in range(number)))
    ]
    return render(replace(sample(1), results=results, leaders=[]), 80, False)


@pytest.mark.parametrize(("groups", "shown", "rest"), [(3, 3, ""), (8, 8, ""), (11, 8, "    and 3 more")])
def test_groups_stand_below_their_benchmark_up_to_a_bound(groups, shown, rest):
    lines = with_groups(groups, 1).splitlines()
    assert [line.split()[:2] for line in lines if "topic " in line] == [
        ["topic", str(n)] for n in range(shown)
    ]
    assert rest in lines or not rest


def test_where_all_groups_would_need_a_screen_each_row_says_how_many_there_are():
    text = with_groups(7, 4)
    assert "topic" not in text
    assert len(re.findall(r"^  mine\d .* 7 groups$", text, re.MULTILINE)) == 4


def test_a_name_that_does_not_fit_folds_between_its_words():
    summary = sample(1, benchmarks=["winogrande"], faults=False)
    name = "exact_match_flexible_of_all_answers"
    [result] = summary.results
    metrics = {name: replace(result.metrics["acc"], name=name)}
    found = replace(summary, results=[replace(result, primary=name, metrics=metrics)])
    pieces = render(found, 60, False).split()
    at = pieces.index("exact_")
    assert "".join(piece for piece in pieces[at:] if piece[-1] == "_" or piece == "answers") == name


def row(text: str, name: str) -> str:
    """The line of a benchmark."""
    [line] = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
    return line


def test_each_benchmark_has_one_row_with_value_interval_items_and_what_went_wrong():
    line = row(render(sample(1), 110, False), "winogrande")
    assert re.fullmatch(
        r"  winogrande 5-shot +acc +0\.\d{4} +\[0\.\d{4}, 0\.\d{4}\] +20 "
        "1 error, 1 timeout, 1 lost item, 1 skipped",
        line,
    )


def test_items_are_counted_against_what_was_published():
    summary = sample(1, benchmarks=["winogrande"], faults=False)
    [result], [declared] = summary.results, summary.declarations
    part = replace(result, of=32, published=1267, mark="24 of 32 items, sample of 1,267")
    line = row(render(replace(summary, results=[part]), 100, False), "winogrande")
    assert line.endswith(" 24/1,267 sample")
    own = replace(declared, own_rows="problems of our own")
    line = row(render(replace(summary, results=[part], declarations=[own]), 100, False), "winogrande")
    assert line.endswith(" 24/32 own rows")


def test_a_short_report_leaves_data_and_other_metrics_to_a_long_one():
    short, long = (words(render(sample(1), 120, False, details=details)) for details in (False, True))
    for text in (
        "winogrande/validation, 32 rows, 15151515, shipped",
        "acc_macro",
        "score_wiki = 0.4 real_coref:real@1 + 0.3 real_coref:real@5 + 0.3 ko_lambada_wiki:lambada@1",
        "lower is better for perplexity",
    ):
        assert text not in short
        assert text in long
    assert "touchstone report results/20260102_030405_77 -v" in short


def test_groups_stand_below_their_benchmark():
    lines = render(sample(1), 80, False, details=True).splitlines()
    names = ("mmlu_stem", "acc_macro", "machine learning", "lambada_openai")
    at = [next(i for i, line in enumerate(lines) if word in line) for word in names]
    assert at == sorted(at)


def test_each_of_few_checkpoints_has_its_rows():
    lines = render(sample(2), 80, False).splitlines()
    at = [next(i for i, line in enumerate(lines) if line.startswith(f"checkpoint-{n}00 ")) for n in (1, 2)]
    assert sum(line.startswith("  winogrande") for line in lines[at[0] : at[1]]) == 1
    assert sum(line.startswith("  winogrande") for line in lines[at[1] :]) == 1


def test_the_best_of_several_is_named_with_its_error_and_never_of_one():
    text = render(sample(3), 90, False, details=True)
    assert re.search(r"real1: checkpoint-\d00 of 3, 0\.\d{4},", text)
    assert "real1" not in render(sample(1), 80, False, details=True)


def test_many_checkpoints_leave_groups_to_the_page():
    for details in (False, True):
        assert "machine learning" not in render(sample(7), 80, False, details=details)
    assert "machine_learning" in page(sample(7))


def test_what_was_left_out_and_why_stands_below_the_table():
    text = render(sample(1), 120, False)
    assert not missing(text, "humaneval: asks Generate", "checkpoint-100")
    assert not missing(text, "116 scored", "1 skipped", "1 error", "1 timeout", "1 lost")
    assert "the text has two masks" in text


def test_benchmarks_left_out_for_one_reason_share_a_line():
    lines = ["a: asks X: no", "b: asks X: no", "c: no data", "odd"]
    assert notes.left_out(replace(sample(1), deselected=lines)) == [
        "a, b: asks X: no",
        "c: no data",
        "odd",
    ]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["a: no data (a/b); give DIR", "c: no data (c/d); give DIR"], "a, c: no data; give DIR"),
        (["a: no data (a/b); " + "long " * 30], "a: no data; -v says what helps"),
        (["a: no data (a/b); give DIR", "c: it needs a GPU"], "a: no data; give DIR\nc: it needs a GPU"),
        (["a: no data (a/b); nearest: a/c"], "a: no data (a/b); nearest: a/c"),
        (["a: too long; ask all", "b: too hard; ask all"], "a: too long; ask all\nb: too hard; ask all"),
    ],
)
def test_a_short_report_tells_what_helps_where_it_is_short(reasons: list[str], expected: str) -> None:
    text = render(replace(sample(1, faults=False), deselected=reasons), 120, False)
    assert re.findall(r"left out((?:    .*\n)+)", text) == [
        "".join(f"    {line}\n" for line in expected.split("\n")).replace("\n   ", "\n           ")
    ]


def test_a_short_report_names_what_no_checkpoint_was_asked_once_in_one_line():
    lines = [
        "apps: asks Generate, which tiny (masked LM) cannot answer",
        "apps: no data (apps/selected); give --eval-data DIR",
        "winogrande: asks Loglikelihood, which checkpoint-100 (causal LM) cannot answer",
        "other: no data (other/test); put it there",
    ]
    text = render(replace(sample(1), deselected=lines), 80, False)
    (line,) = re.findall("left out.*", text)
    assert not missing(line, "apps, other", "no data", "-v")
    long = words(render(replace(sample(1), deselected=lines), 80, False, details=True))
    assert all(line in long for line in lines)


def test_faults_with_one_message_share_a_line_and_many_messages_are_counted():
    faults = [{"item": f"t.py::t[{n}]", "status": "error", "message": "same"} for n in range(9)]
    text = render(replace(sample(1), faults=faults), 80, False)
    assert "9 items, first t.py::t[0]: same" in text
    different = [{**fault, "message": f"message {n}"} for n, fault in enumerate(faults)]
    text = render(replace(sample(1), faults=different), 80, False)
    assert text.count("t.py::t[") == 5
    assert not missing(text, "4 other messages", "errors.log")


@pytest.mark.parametrize("details", [False, True])
def test_cut_contexts_and_left_over_records_are_said(details):
    summary = sample(1)
    cut = [replace(result, truncated=2) for result in summary.results if result.benchmark == "winogrande"]
    text = render(replace(summary, results=cut, uncollected=1), 120, False, details=details)
    assert "2 requests were longer" in text
    assert "1 record in the journal" in text


def test_requests_that_lm_eval_scores_otherwise_are_counted_for_its_tasks_alone():
    summary = sample(1)
    (winogrande,) = [result for result in summary.results if result.benchmark == "winogrande"]
    results = [
        replace(winogrande, name=name, benchmark=name, joins=joins)
        for name, joins in (("winogrande", 7), ("lm_eval:a", 5), ("lm_eval:b", 0))
    ]
    text = render(replace(summary, results=results), 200, False, details=True)
    assert not missing(text, "joins", "lm_eval:a", "5 requests")
    assert "7 requests" not in text


def test_likelihoods_that_a_chat_was_asked_for_are_named():
    summary = sample(1)
    (winogrande,) = [result for result in summary.results if result.benchmark == "winogrande"]
    results = [
        replace(winogrande, name=name, benchmark=name, outputs=n) for name, n in (("mc", 0), ("gen", 9))
    ]

    def note(**settings: object) -> list[str]:
        manifest = {**summary.manifest, "settings": settings}
        return notes.plain_likelihoods(replace(summary, results=results, manifest=manifest))

    (line,) = note(chat="on", system="Be brief.")
    assert not missing(line, "mc", "--eval-chat on", "--eval-set system")
    assert "gen" not in line
    assert note(chat="auto", system=None) == note(chat="off") == []


def test_notes_of_one_kind_are_one_line():
    slow = [{"way": "generating", "reason": "chunks", "computed": 300, "enough": 100}]
    effort = [
        Usage(who="main", checkpoint=name, engine={"slow": slow, "notes": [f"{name}: odd"]}) for name in "ab"
    ]
    whole = sample(1)
    weak = [
        replace(one, weak_tests={"t/1": ["nothing"]}, reused=3, reused_from=["r1"]) for one in whole.results
    ]
    text = render(replace(whole, results=weak, effort=effort), 400, False)
    for line in (
        r"slow        a: every text is generated by itself, .*, 3\.0 times as many; b: .*",
        "note        a: odd; and 1 more",
        "weak tests  winogrande: the tests of 1 of 20 tasks accept nothing: t/1; mmlu_stem: .*; and 3 more",
        "reused      15 of 116 scores, from r1",
    ):
        assert re.search(f"^{line}$", text, re.MULTILINE)


def test_programs_that_import_what_the_sandbox_lacks_are_added_up_over_many_checkpoints():
    for checkpoints, note in (
        (1, "winogrande: 3 programs import what the sandbox lacks: numpy, scipy"),
        (2, "checkpoint-100, winogrande: 3 programs import what the sandbox lacks: numpy, scipy"),
        (4, "4 checkpoints, winogrande: 12 programs import what the sandbox lacks: numpy, scipy"),
    ):
        summary = sample(checkpoints, benchmarks=["winogrande"])
        results = [replace(one, missing_modules={"numpy": 2, "scipy": 1}) for one in summary.results]
        for details in (False, True):
            assert note in words(render(replace(summary, results=results), 160, False, details=details))


def test_an_undefined_metric_is_a_dash_with_its_reason():
    summary = sample(1, benchmarks=["winogrande"])
    [result] = summary.results
    nothing = replace(result.metrics["acc"], value=None, low=None, high=None, why="no items were scored", n=0)
    text = render(replace(summary, results=[replace(result, metrics={"acc": nothing})]), 80, False)
    assert re.search(r"acc +- +- +0", text)
    assert "undefined (no items were scored)" in words(text)


def test_a_legend_explains_the_signs_that_occur_and_no_others():
    whole = sample(2, faults=False)
    assert "legend" not in render(whole, 80, False)
    sampled = [replace(one, of=32, mark="24 of 32 items, sample of 99") for one in whole.results]
    leader = {
        "benchmark": "winogrande",
        "metric": "acc",
        "checkpoint": "checkpoint-100",
        "of": 2,
        "told": True,
    }
    text = words(render(replace(whole, results=sampled, leaders=[leader]), 80, False))
    assert re.search(r"legend best: .*; n/N .*; sample: ", text)
    assert "own rows" not in text


def test_a_run_without_results_still_says_what_was_left_out():
    empty = Summary(
        run_id="r", directory="results/r", manifest={}, checkpoints=[], results=[], deselected=["x: no data"]
    )
    assert "x: no data" in render(empty, 80, False)
    assert "x: no data" in page(empty)


def test_the_demonstration_says_what_it_is_first():
    told = {
        "what": "8 rows of each",
        "all": "pytest evals/ --eval-limit all",
        "own": "pytest evals/ --checkpoint PATH",
    }
    manifest = {"demonstration": told}
    lines = render(replace(sample(1, faults=False), manifest=manifest), 80, False).splitlines()
    assert lines[0] == "touchstone  8 rows of each"
    assert lines[1].split(maxsplit=2) == ["all", "rows", told["all"]]
    assert lines[-1].startswith("next        pytest evals/ --checkpoint PATH ")


def test_a_limit_above_the_rows_that_are_here_says_how_many_they_are():
    whole = sample(1, benchmarks=["winogrande", "real_coref"], faults=False)
    results = [
        replace(one, of=24, published=1267 if one.benchmark == "winogrande" else 24) for one in whole.results
    ]
    said = "limit 500 rows, but here are 24 of winogrande; all rows: --eval-data hub"
    for limit, told in ((500, True), (24, False), (0.5, False), (None, False)):
        manifest = {**whole.manifest, "settings": {"limit": limit}}
        assert (said in words(render(replace(whole, results=results, manifest=manifest), 100, False))) is told


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
            name in ("src", "href") and not value.startswith("#") for name, value in attrs
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
        assert tag not in text


def test_bars_lie_within_their_track():
    numbers = re.findall(r'<rect class="(?:band|tick)" x="([-\d.]+)" width="([\d.]+)"', page(sample(3)))
    assert numbers
    assert all(float(left) >= 0 and float(left) + float(width) <= 100.1 for left, width in numbers)


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


# Many checkpoints


def rows_of(lines: list[str], heading: str) -> list[str]:
    """The lines below the first that has this heading, up to an empty one."""
    at = next(number for number, line in enumerate(lines) if heading in line)
    return lines[at + 1 : lines.index("", at)]


def test_each_of_many_checkpoints_has_one_row_with_a_column_per_benchmark():
    lines = render(sample(9), 100, False).splitlines()
    names = [line.split()[0] for line in rows_of(lines, "checkpoint n/N")]
    assert names == [*(f"checkpoint-{step}00" for step in range(1, 10)), "+-"]
    assert words(" ".join(lines[:3])) == (
        "winogrande mmlu_stem lambada_ ko_lambada_ 5-shot 5-shot openai real_coref wiki score_wiki "
        "acc acc acc real@1 lambada@1 composite"
    )


def test_columns_that_do_not_fit_beside_each_other_follow_in_another_block():
    lines = render(sample(9), 60, False).splitlines()
    headings = [number for number, line in enumerate(lines) if line.startswith("checkpoint n/N ")]
    assert len(headings) == 2
    assert all(line.startswith("checkpoint-") for first in headings for line in lines[first + 1 : first + 10])


def test_series_stand_apart_and_kinds_of_checkpoints_have_tables_of_their_own():
    whole = sample(9)
    rows = [{**one, "series": "a" if number < 2 else "b"} for number, one in enumerate(whole.checkpoints)]
    lines = render(replace(whole, checkpoints=rows), 140, False).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("checkpoint n/N"))
    assert [bool(line) for line in lines[at + 1 : at + 5]] == [True, True, False, True]
    rows = [
        {**one, "kind": "masked" if number < 2 else "causal"} for number, one in enumerate(whole.checkpoints)
    ]
    text = render(replace(whole, checkpoints=rows), 140, False)
    assert text.count("checkpoint n/N") == 2


def test_the_best_of_a_column_is_marked_only_where_it_is_told():
    whole = sample(9, faults=False)
    text = words(render(whole, 100, False))
    assert "no best is marked" in text
    leader = {
        "benchmark": "mmlu_stem",
        "metric": "acc",
        "checkpoint": "checkpoint-500",
        "of": 9,
        "told": True,
    }
    text = render(replace(whole, leaders=[leader]), 100, False)
    [line] = [line for line in text.splitlines() if re.search(r"\d\*", line)]
    assert line.startswith("checkpoint-500 ")
    assert not missing(words(text), "best of its column", "paired test")


def test_signs_beside_a_value_say_what_is_wrong_with_it():
    whole = sample(9, faults=False)
    changed: dict[str, Any] = {
        "checkpoint-100": {"invalid": "cut"},
        "checkpoint-200": {"errors": 2, "scored": 22},
        "checkpoint-300": {"scored": 12},
        "checkpoint-400": {"template": "chat"},
    }
    results = [
        replace(one, **changed.get(one.checkpoint, {})) if one.benchmark == "real_coref" else one
        for one in whole.results
    ]
    text = render(replace(whole, results=results), 100, False)
    found = {line.split()[0]: re.findall(r"\d([!c~]+)", line) for line in rows_of(text.splitlines(), "n/N")}
    assert {name: signs for name, signs in found.items() if signs} == {
        "checkpoint-100": ["!", "!"],  # of the benchmark, and of the composite that it is a part of
        "checkpoint-200": ["!", "!"],
        "checkpoint-300": ["~"],
        "checkpoint-400": ["c"],
    }
    for sign in "!c~":
        assert f" {sign} {SIGNS[sign]}" in words(text)


def test_a_long_report_of_many_has_all_metrics_of_each_below_the_table_of_all():
    text = render(sample(9), 140, False, details=True)
    lines = text[text.index("95 % interval") :].splitlines()
    for name in ("real@1_", "real@5"):
        assert len([line for line in lines if line.split()[:1] and line.split()[0].startswith(name)]) >= 9
    assert "1 group" in text or "groups" in text


@pytest.mark.parametrize(("checkpoints", "form"), [(1, "95 % interval"), (4, "95 % interval"), (5, "n/N")])
def test_the_form_is_chosen_by_what_fits_a_screen(checkpoints, form):
    text = render(sample(checkpoints, faults=False), 100, False)
    assert form in text.splitlines()[1] or text.splitlines()[3].startswith("checkpoint ")
    assert len(text.splitlines()) <= 45


@pytest.mark.parametrize("checkpoints", [2, 9])
def test_checkpoints_with_the_same_single_benchmark_are_the_rows_of_one_table(checkpoints: int) -> None:
    whole = sample(checkpoints, benchmarks=["mmlu_stem"], faults=False)
    names = [str(one["name"]) for one in whole.checkpoints]
    series = [{**one, "series": f"s{place > 0}"} for place, one in enumerate(whole.checkpoints)]
    text = render(replace(whole, checkpoints=series), 80, False)
    assert max(map(len, text.splitlines())) <= 80
    heading = next(
        place for place, line in enumerate(text.splitlines()) if line.startswith("mmlu_stem  5-shot")
    )
    rows = text.splitlines()[heading + 1 : heading + 3 + checkpoints]
    assert rows[0].split()[:2] == ["checkpoint", "metric"]
    assert [row.split()[0] for row in rows[1:] if row] == names
    assert rows[2] == ""  # between series
    assert "[" in rows[1]
    assert "acc_norm" not in text
    assert "acc_norm" in render(whole, 80, False, details=True)


def test_what_was_reused_is_said_a_line_a_benchmark():
    whole = sample(2)
    results = [
        replace(one, reused=one.collected if one.checkpoint.endswith("100") else 3, reused_from=["r1"])
        if one.benchmark == "winogrande"
        else one
        for one in whole.results
    ]
    whole_run, winogrande = notes.reused_scores(replace(whole, results=results))
    assert not missing(whole_run, "27 of 236 scores", "r1")
    assert not missing(winogrande, "winogrande", "27 of 44 scores", "r1")
    assert notes.reused_scores(whole) == []


def test_a_checkpoint_that_could_not_be_used_is_named_in_the_table_and_the_page():
    failed = [{"name": "checkpoint-7", "path": "runs/checkpoint-7", "message": "config.json: cut off"}]
    whole = replace(sample(1), failed_to_load=failed)
    for text in (render(whole, 100, False), page(whole)):
        assert not missing(text, "checkpoint-7 failed to load", "config.json: cut off")


def test_three_checkpoints_with_the_same_benchmarks_are_one_table() -> None:
    lines = render(sample(3), 100, False).splitlines()
    rows = [line for line in lines if re.match(r" *checkpoint-\d00 ", line) and "0." in line]
    assert len(rows) == 3
    assert any(line.split()[:1] == ["+-"] for line in lines)


ARGUMENTS = ["evals/", "--checkpoint", "runs/*", "--eval-run-id", "today", "--eval-limit=8", "--checkpoint=b"]


def run(checkpoints: int = 1, *, faults: bool = False, **more: Any) -> Summary:
    found = sample(checkpoints, faults=faults)
    return replace(found, **{"manifest": {**found.manifest, "command": ARGUMENTS}, **more})


def commands(summary: Summary) -> list[str]:
    return [one.command for one in next_steps(summary)]


def test_after_a_checkpoint_of_ones_own_comes_a_gate_for_the_next() -> None:
    assert commands(run()) == ["pytest evals/ --eval-limit=8 --checkpoint NEW --gate"]


def test_what_belongs_to_the_old_checkpoint_is_not_said_of_the_new_one() -> None:
    found = run()
    served = [
        "evals/",
        "--checkpoint",
        "http://h:1",
        "--eval-set",
        "model_name=m",
        "--eval-set=tokenizer=t",
        "-q",
    ]
    told = replace(found, manifest={**found.manifest, "command": served})
    assert commands(told) == ["pytest evals/ -q --checkpoint NEW --gate"]


def test_what_was_run_by_touchstone_is_run_by_it_again() -> None:
    found = run()
    command = [
        "-p",
        "pytest_touchstone.plugin.default_files",
        "--eval-tasks=a,b",
        "--eval-limit",
        "8",
        "-k",
        "not c",
    ]
    by_touchstone = replace(found, manifest={**found.manifest, "command": command})
    assert commands(by_touchstone) == [
        "touchstone run --tasks a,b --eval-limit 8 -k 'not c' --checkpoint NEW --gate"
    ]


def test_where_there_are_earlier_results_comes_a_verdict_against_them() -> None:
    change = {"checkpoint": "checkpoint-100", "benchmark": "winogrande", "metric": "acc"}
    assert commands(run(changes=[change])) == [
        "pytest evals/ --checkpoint 'runs/*' --eval-limit=8 --checkpoint=b --gate"
    ]


def test_several_checkpoints_are_compared_if_they_have_the_same_benchmarks() -> None:
    assert commands(run(3)) == ["touchstone compare 20260102_030405_77"]
    both = run(2)
    apart = [
        one for one in both.results if (one.benchmark == "winogrande") == (one.checkpoint == "checkpoint-100")
    ]
    assert commands(replace(both, results=apart))[0].endswith(" --checkpoint NEW --gate")


def test_faults_are_asked_again_or_looked_at() -> None:
    again = "pytest evals/ --checkpoint 'runs/*' --eval-limit=8 --checkpoint=b"
    look = "touchstone items results/20260102_030405_77 --error"
    whole = run(faults=True)
    gone = [{**one, "message": "the server is gone"} for one in whole.faults]
    assert commands(whole) == [look, again]
    assert commands(replace(whole, faults=gone)) == [again]


@pytest.mark.parametrize("decision", ["passed", "failed", "not valid"])
def test_after_a_gate_comes_the_baseline_or_the_items_that_were_lost(decision: str) -> None:
    old = {
        "checkpoint": "old",
        "run_id": "r1",
        "step": None,
        "measured": 1,
        "shrunk": 1,
        "runs": 1,
        "candidates": 1,
    }
    line = {"checkpoint": "checkpoint-100", "benchmark": "b", "metric": "acc", "verdict": "worse", "why": ""}
    failed = {**line, "fails": ["worse"], "against": old}
    fine = {**line, "verdict": "not worse", "against": old}
    gate = {"decision": decision, "lines": [failed if decision == "failed" else fine]}
    expected = {
        "passed": ["touchstone baseline set 20260102_030405_77"],
        "failed": [
            "touchstone compare 'r1#old' '20260102_030405_77#checkpoint-100' --show-flips 3",
            'touchstone accept 20260102_030405_77 --benchmark b --because "..."',
        ],
        "not valid": [],
    }
    assert commands(run(gate=gate)) == expected[decision]


@pytest.mark.parametrize(
    "line",
    [
        {"verdict": None, "state": "first"},
        {"verdict": None, "state": "none"},
        {"verdict": None, "state": "apart"},
        {"verdict": "inconclusive"},
        {"verdict": "worse", "accepted": "as of July"},
    ],
    ids=["first", "no baseline", "not compared", "inconclusive", "accepted"],
)
def test_a_run_that_was_not_found_as_good_is_not_offered_as_the_baseline(line: dict[str, Any]) -> None:
    line = {"checkpoint": "checkpoint-100", "benchmark": "b", "metric": "acc", "why": "", **line}
    gate = {"decision": "passed", "lines": [line]}
    assert not [command for command in commands(run(gate=gate)) if "baseline" in command]
    fine = {**line, "verdict": "not worse", "accepted": "", "state": "chosen", "benchmark": "c"}
    assert not [
        command for command in commands(run(gate={**gate, "lines": [fine, line]})) if "baseline" in command
    ]


def test_a_run_in_another_folder_is_named_with_it(tmp_path: Path) -> None:
    found = run(2, directory=str(tmp_path / "my results" / "r"))
    assert shlex.split(commands(found)[0])[-2:] == ["--output", str(tmp_path / "my results")]


def test_the_files_that_are_there_are_named_and_the_long_report_can_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    folder = tmp_path / "my results" / "r"
    folder.mkdir(parents=True)
    found = run(directory=str(folder))
    write_results(found)
    names = ["report.html", "summary.json", "results.csv", "details/checkpoints.csv"]
    short, long_one = (
        {
            section.key: part.rows[0][1]
            for section in run_report(found, details=details)
            for part in section.parts
            if isinstance(part, Commands | Facts)
        }
        for details in (False, True)
    )
    assert short["files"].split("   ") == [f"{folder}/", *names]
    assert main(shlex.split(short["again"])[1:]) == 0
    long = capsys.readouterr().out
    assert main(shlex.split(long_one["again"])[1:]) == 0
    assert "acc_norm_macro" in long
    assert "acc_norm_macro" not in capsys.readouterr().out


LEADER = {
    "benchmark": "winogrande",
    "metric": "acc",
    "checkpoint": "checkpoint-200",
    "of": 3,
    "told": False,
    "rival": "checkpoint-100",
    "p": 0.31,
    "tied": False,
}


def test_a_run_of_several_checkpoints_ends_with_who_is_best_and_the_commands_that_say_more() -> None:
    whole = replace(run(3), leaders=[LEADER])
    text = words(render(whole, 100, False))
    assert not missing(text, "checkpoint-200 leads", "on winogrande", "from checkpoint-100", "p 0.31")
    assert "*" not in text.partition("legend")[0]
    found = commands(whole)
    assert found[0] == "touchstone best 20260102_030405_77"
    series = [{**row, "series": "nouns"} for row in whole.checkpoints]
    assert commands(replace(whole, checkpoints=series)) == [found[0], "touchstone study 20260102_030405_77"]
    assert commands(replace(run(2), leaders=[LEADER])) == ["touchstone compare 20260102_030405_77"]


def test_several_checkpoints_are_compared_next_also_where_one_is_not_valid() -> None:
    whole = sample(3, faults=False)
    results = [
        replace(one, invalid="cut") if one.checkpoint == "checkpoint-100" else one for one in whole.results
    ]
    commands = [step.command for step in next_steps(replace(whole, results=results))]
    assert any(command.startswith("touchstone compare ") for command in commands), commands
