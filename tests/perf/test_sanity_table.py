"""The table of ``perf.sanity``: a line for each benchmark, with what is published beside both means."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

from perf.sanity_table import Row, by_benchmark, markdown, rows_of


def row(name: str, farthest: float = 1e-5, **means: tuple[float, float]) -> Row:
    return Row(name, 0, 24, 24, 23, farthest, 24, means)


def cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]


def test_a_line_has_counts_both_means_and_what_is_published() -> None:
    assert cells(markdown([row("piqa", acc=(0.5, 0.5), acc_norm=(0.625, 0.62))])) == [
        *("piqa", "0", "24", "24", "23", "24", "1e-05"),
        *("`acc_norm`", "0.625", "0.620", "0.663 (card); 0.669 (others)"),
    ]


def test_another_metric_of_what_is_published_is_named() -> None:
    assert cells(markdown([row("arc_challenge", acc=(0.2, 0.2))]))[-1] == "0.277 `acc_norm` (others)"


def test_texts_have_no_distance_and_a_task_without_a_metric_no_means() -> None:
    assert cells(markdown([row("drop", 0.0, f1=(0.1, 0.1))]))[6] == "texts"
    assert cells(markdown([row("drop", math.inf)]))[6:] == ["different texts", "", "", "", ""]


def test_the_files_of_several_runs_make_one_table(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, name in zip(files, ("piqa", "drop"), strict=True):
        file.write_text(json.dumps([asdict(row(name, acc=(1.0, 1.0)))]), encoding="utf-8")
    assert [one.name for one in rows_of(files)] == ["piqa", "drop"]
    assert len(markdown(rows_of(files)).splitlines()) == 4


def test_of_a_task_in_two_files_the_last_counts(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, mean in zip(files, (0.0, 1.0), strict=True):
        file.write_text(json.dumps([asdict(row("piqa", acc=(mean, mean)))]), encoding="utf-8")
    assert [one.means["acc"] for one in rows_of(files)] == [(1.0, 1.0)]


def test_the_tasks_of_one_benchmark_are_one_line() -> None:
    small = Row("mmlu/anatomy", 5, 2, 2, 1, 1e-3, 2, {"acc": (1.0, 0.5)}, ["mmlu/9: another prompt"])
    large = Row("mmlu/marketing", 5, 6, 6, 6, 1e-5, 5, {"acc": (0.0, 0.5)})
    (found,) = by_benchmark([small, large])
    assert found == Row(
        *("mmlu, 2 tasks", 5, 8, 8, 7, 1e-3, 7),
        {"acc": (0.25, 0.5)},
        ["mmlu/9: another prompt"],
    )
    assert by_benchmark([small]) == [small]
