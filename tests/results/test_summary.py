"""The numbers of a run in long form, and ``results.csv``."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.results.summary import (
    RESULT_COLUMNS,
    ResultRow,
    Summary,
    load_summary,
    result_rows,
    results_csv,
)
from tests.support.places import ROOT
from tests.support.summaries import SUBJECTS, checkpoint_row, sample

KEPT = Path(__file__).parent / "kept" / "20261122_041947_5582"


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def only(rows: list[ResultRow], **wanted: Any) -> ResultRow:
    (found,) = (one for one in rows if all(getattr(one, name) == value for name, value in wanted.items()))
    return found


def test_every_metric_of_every_result_and_every_composite_is_a_row() -> None:
    summary = sample(2)
    rows = result_rows(summary)
    numbers = [
        (result.checkpoint, result.benchmark, result.group, metric.name, metric.value, metric.n)
        for result in summary.results
        for metric in result.metrics.values()
    ]
    numbers += [
        (one["checkpoint"], one["name"], None, "composite", one["value"], 48) for one in summary.composites
    ]
    assert [(o.checkpoint, o.benchmark, o.group, o.metric, o.value, o.n) for o in rows] == numbers
    assert {one.group for one in rows} == {None, *SUBJECTS}
    assert {one.benchmark for one in rows} >= {"winogrande", "real_coref", "score_wiki"}


def test_the_file_has_the_rows_unrounded_with_nothing_for_none() -> None:
    summary = sample(2)
    lines = read(results_csv(summary))
    assert list(lines[0]) == list(RESULT_COLUMNS)
    for line, row in zip(lines, result_rows(summary), strict=True):
        for name in ("value", "low", "high"):
            value = getattr(row, name)
            assert line[name] == ("" if value is None else repr(value))
        assert (line["group"] or None, line["n"], line["valid"]) == (
            row.group,
            str(row.n),
            str(row.valid).lower(),
        )


def test_names_with_commas_quotes_and_line_breaks_come_back() -> None:
    name = 'a,"b"\r\nc 가'
    summary = sample(1)
    rows = [{**summary.checkpoints[0], "name": name}]
    renamed = replace(
        summary,
        checkpoints=rows,
        results=[replace(one, checkpoint=name) for one in summary.results],
        composites=[],
    )
    text = results_csv(renamed)
    assert {line["checkpoint"] for line in read(text)} == {name}
    assert text.endswith("\r\n")


def test_numbers_that_are_not_finite_are_empty() -> None:
    summary = sample(1, benchmarks=["winogrande"])
    (result,) = summary.results
    metric = replace(result.metrics["acc"], value=math.inf, low=math.nan)
    line = read(results_csv(replace(summary, results=[replace(result, metrics={"acc": metric})])))[0]
    assert (line["value"], line["low"]) == ("", "")


def changed(summary: Summary, **fields: Any) -> Summary:
    first, *others = summary.results
    return replace(summary, results=[replace(first, **fields), *others])


@pytest.mark.parametrize("fields", [{"invalid": "8 of 9 outputs ended"}, {"errors": 1}, {"lost": 1}], ids=str)
def test_a_number_over_too_few_or_cut_answers_is_not_valid(fields: dict[str, Any]) -> None:
    summary = changed(sample(1, benchmarks=["winogrande", "mmlu_stem"], faults=False), **fields)
    rows = result_rows(summary)
    assert {one.valid for one in rows if one.benchmark == "winogrande"} == {False}
    assert {one.valid for one in rows if one.benchmark == "mmlu_stem"} == {True}


def test_a_composite_is_valid_where_all_its_parts_are() -> None:
    summary = sample(1, benchmarks=["real_coref", "ko_lambada_wiki"], faults=False)
    assert only(result_rows(summary), metric="composite").valid
    assert not only(result_rows(changed(summary, timeouts=1)), metric="composite").valid


def test_a_place_in_a_series_is_a_step_but_the_number_in_a_lone_name_is_none() -> None:
    def steps(*rows: dict[str, Any]) -> set[float | None]:
        summary = sample(2, benchmarks=["winogrande"])
        return {one.step for one in result_rows(replace(summary, checkpoints=list(rows)))}

    placed = {"global_step": None, "step": 2, "series": "runs"}
    one = {**checkpoint_row("checkpoint-100", 0), **placed}
    other = {**checkpoint_row("checkpoint-200", 7), "series": "runs"}
    assert steps(one, other) == {2, 7}
    assert steps(one, {**other, "series": "elsewhere"}) == {None, 7}


def test_the_document_has_the_columns_in_their_order() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"## results\.csv\n(.*?)\n## ", text, re.DOTALL)
    named = [
        name
        for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    ]
    assert named == list(RESULT_COLUMNS)


def test_a_run_has_rows_and_the_command_prints_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(KEPT), "--format", "csv"]) == 0
    printed = capfd.readouterr().out
    assert {line["benchmark"] for line in read(printed)} >= {"arc_easy"}
    write_results(load_summary(KEPT), tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == printed.encode()
