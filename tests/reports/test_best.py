"""Who is best in a sentence, and the table of checkpoints by benchmarks in each form."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.standings import ALL, Standing
from pytest_touchstone.document import render_text
from pytest_touchstone.reports.best import best_line, best_of_run, best_sections, standings_of_run
from pytest_touchstone.reports.score_table import (
    BenchmarkColumn,
    ScoreCell,
    ScoreTable,
    latex_table,
    latex_text,
    markdown_table,
    table_of_run,
)
from tests.support.lines import missing
from tests.support.studies import answers, of_items
from tests.support.summaries import sample


def standing(benchmark: str, checkpoint: str = "a", **more: Any) -> Standing:
    given: dict[str, Any] = {"metric": "acc", "of": 3, "told": False, "rival": "b", "p": 0.31, **more}
    return Standing(benchmark=benchmark, checkpoint=checkpoint, **given)


OVERALL = standing(ALL, metric="pooled")


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], ""),
        ([standing("x")], "a leads on x; it cannot be told apart from b (p 0.31)"),
        (
            [standing("x", told=True, p=0.004)],
            "a is the best on x, significantly better than all others (p 0.004)",
        ),
        ([standing("x", tied=True, p=1.0)], "a and b are equally good on x"),
        (
            [standing("x", p=None)],
            "a leads on x; it cannot be told apart from b (no test: item scores are missing)",
        ),
        (
            [standing("x"), standing("y"), standing("z", "b", rival="a"), OVERALL],
            "over all items a is first, but cannot be told apart from b (p 0.31); a leads on 2 of 3 benchmarks",
        ),
        (
            [standing("x"), standing("y"), OVERALL._replace(told=True, p=0.01)],
            "over all items a is the best, significantly better than all others (p 0.01); a leads on 2 of 2 benchmarks",
        ),
        (
            [standing("x"), standing("y"), OVERALL._replace(checkpoint="c", told=True, p=0.01)],
            "over all items c is the best, significantly better than all others (p 0.01); a leads on 2 of 2 benchmarks",
        ),
        (
            [standing("x"), standing("y", "b"), OVERALL._replace(checkpoint="c", rivals=("a", "b"))],
            "over all items c is first, but cannot be told apart from a, b (p 0.31)",
        ),
        ([standing("x"), standing("y")], "a leads on 2 of 2 benchmarks"),
        (
            [standing("x", tied=True), standing("y", tied=True), OVERALL._replace(tied=True)],
            "over all items a and b are equally good; no checkpoint leads alone on any of 2 benchmarks",
        ),
    ],
)
def test_who_is_best_is_one_sentence(standings: list[Standing], expected: str) -> None:
    assert best_line(standings) == expected


def test_what_was_not_compared_is_named() -> None:
    assert best_line([standing("x")], ["x", "gsm8k"]).endswith("; not compared: gsm8k")


def test_standings_of_former_versions_are_those_that_were_told() -> None:
    former = {"benchmark": "x", "metric": "acc", "checkpoint": "a", "of": 3, "more": 1}
    (found,) = standings_of_run(replace(sample(3), leaders=[former]))
    assert (found.told, found.p) == (True, None)
    best = best_of_run(replace(sample(3), leaders=[former]))
    assert not missing(best, "a is the best", "on x", "significantly")


def test_the_table_of_a_run_has_its_checkpoints_and_marks_what_is_best_or_not_valid() -> None:
    whole = sample(3, benchmarks=["winogrande", "real_coref"], faults=False)
    results = [
        replace(one, invalid="cut") if one.checkpoint == "checkpoint-200" else one for one in whole.results
    ]
    told = {"benchmark": "winogrande", "metric": "acc", "checkpoint": "checkpoint-100", "of": 3, "told": True}
    lead = {**told, "benchmark": "real_coref", "checkpoint": "checkpoint-300", "told": False}
    table = table_of_run(replace(whole, results=results, leaders=[told, lead]))
    assert [name for name, _ in table.rows] == ["checkpoint-100", "checkpoint-200", "checkpoint-300"]
    assert [one.benchmark for one in table.columns][:2] == ["winogrande 5-shot", "real_coref"]
    marks = [[(one.best, one.invalid) for one in row[:2] if one] for _, row in table.rows]
    assert marks == [[(True, False), (False, False)], [(False, True)] * 2, [(False, False)] * 2]


HOSTILE = "=a|b_&%$#{}~^\\`<x>--\n"
TABLE = ScoreTable(
    columns=(
        BenchmarkColumn("real_coref", "real@1"),
        BenchmarkColumn(HOSTILE, "bits", share=False, lower=True),
    ),
    rows=(
        ("c_1", (ScoreCell(0.1175, 0.0894, 0.1529, 0.016, "*"), ScoreCell(1.25, None, None, None))),
        ("c_2", (ScoreCell(0.12, 0.09, 0.15, 0.016, "!"), None)),
    ),
    notes=("real_coref: sample: 4 of 400",),
)


def test_a_latex_table_has_rules_of_booktabs_and_no_name_is_a_command() -> None:
    text = latex_table(TABLE)
    for rule in ("\\toprule", "\\midrule", "\\bottomrule", "\\begin{tabular}{lrr}"):
        assert rule in text
    assert "c\\_1 & \\textbf{11.75} {[8.94, 15.29]} & 1.2500 \\\\" in text
    assert "c\\_2 & 12.00 {[9.00, 15.00]}$^\\dagger$ & -- \\\\" in text
    assert "sample: 4 of 400" in text
    assert "lower is better for bits" in text
    rows = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert latex_text("[2pt] *") == "{[}2pt] {*}"
    assert latex_text("50% of $x_1 \\input{a}") == "50\\% of \\$x\\_1 \\textbackslash{}input\\{a\\}"


def test_standard_errors_stand_in_the_place_of_intervals() -> None:
    assert "\\textbf{11.75} {$\\pm$ 1.60}" in latex_table(TABLE, stderr=True)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("stderr", [True, False])
def test_latex_takes_the_table_whatever_the_names_are(tmp_path: Path, stderr: bool) -> None:
    hostile = "".join(map(chr, range(33, 127)))
    table = replace(TABLE, rows=((hostile, TABLE.rows[0][1]), *TABLE.rows[1:]))
    head, end = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n", "\\end{document}\n"
    (tmp_path / "table.tex").write_text(head + latex_table(table, stderr=stderr) + end)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "**11.75** ± 1.60" in markdown_table(TABLE, stderr=True)
    assert "95 %" not in markdown_table(TABLE, stderr=True)


def test_a_markdown_table_keeps_its_columns_whatever_the_names() -> None:
    lines = markdown_table(TABLE).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines[:4]} == {4}
    assert "**11.75** [8.94, 15.29]" in lines[2]
    assert "~~12.00~~ [9.00, 15.00] not valid" in lines[3]
    assert lines[-1].endswith("sample: 4 of 400.")


# What the choice costs

SLOW = [0.6 - 0.4 * (place / 10 - 0.6) ** 2 for place in range(11)]


def test_luck_is_told_in_a_sentence_for_one_benchmark_and_in_a_table_for_several() -> None:
    one = of_items({"a": answers(SLOW, 200, 5)})
    text = " ".join(render_text(best_sections(one), width=80, color=False).split())
    assert re.search(r"measures \d\d\.\d\d % on b; .*best of 11 .*\d\.\d\d points: ", text)
    runs = zip(answers(SLOW, 200, 5), answers(SLOW, 300, 6), strict=True)
    several = render_text(
        best_sections(of_items({"a": [{"b": x["b"], "c": y["b"]} for x, y in runs]})), width=80, color=False
    )
    head = ["benchmark", "measured", "luck", "expected", "95", "%", "interval"]
    rows = [line.split() for line in several.splitlines()]
    assert [row[0] for row in rows[rows.index(head) + 1 :][:3]] == ["b", "c", "all"]
    assert "best of 11" in " ".join(several.split())
    assert max(map(len, several.splitlines())) <= 80
