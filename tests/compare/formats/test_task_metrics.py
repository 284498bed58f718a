"""Values that are written in per cent become shares, and what may be either is left out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.formats.task_metrics import (
    PER_CENT,
    SHARE,
    ReportedMetric,
    divisor_of,
    mixed_names,
)
from pytest_touchstone.compare.load import read_file
from tests.support.lines import missing


def read(path: Path, results: dict[str, Any], **more: Any) -> Any:
    path.write_text(json.dumps({"results": results, **more}), encoding="utf-8")
    (one,) = read_file(path, {}).candidates
    return one


def values(one: Any) -> dict[str, dict[str, float]]:
    return {
        task: {name: metric.value for name, metric in entry.saved.metrics.items()}
        for task, entry in one.entries.items()
    }


@pytest.mark.parametrize(
    ("written", "divisor"),
    [
        (ReportedMetric("arc_easy", "acc", 0.6), SHARE),
        (ReportedMetric("arc_easy", "acc", 60.1), PER_CENT),
        (ReportedMetric("wmt16-ro-en", "bleu", 23.4), PER_CENT),
        (ReportedMetric("math", "exact_match", 0.8, 0.4, 500), PER_CENT),  # no share has such an error
        (ReportedMetric("math", "exact_match", 0.8, 0.018, 500), SHARE),
        (ReportedMetric("mt_bench", "judge", 7.8), None),
        (ReportedMetric("t", "acc", 515.0), None),
        (ReportedMetric("t", "mcc", -0.2), SHARE),
        (ReportedMetric("t", "logprob", -120.0), SHARE),
    ],
)
def test_a_value_is_a_share_or_in_per_cent_by_its_size_and_its_error(
    written: ReportedMetric, divisor: int | None
) -> None:
    assert divisor_of(written) == divisor


def test_scores_of_lm_eval_that_are_always_in_per_cent_are_so_below_one_too() -> None:
    for task, name in (
        ("squadv2", "HasAns_f1"),
        ("jsquad", "exact_match"),
        ("wmt", "bleu"),
        ("t", "rouge1_max"),
    ):
        assert divisor_of(ReportedMetric(task, name, 0.6), lm_eval=True) == PER_CENT
    assert divisor_of(ReportedMetric("truthfulqa_gen", "bleu_acc", 0.3), lm_eval=True) == SHARE


def test_a_metric_that_is_in_per_cent_elsewhere_in_a_file_is_told_by_its_error_or_not_at_all() -> None:
    found = [
        ReportedMetric("a", "acc", 60.0),
        ReportedMetric("b", "acc", 0.8),
        ReportedMetric("squad", "f1", 70.0),
    ]
    assert mixed_names(found) == {"acc"}
    assert divisor_of(found[1], mixed=True) is None
    assert divisor_of(ReportedMetric("b", "acc", 0.8, math.sqrt(0.16 / 99), 100), mixed=True) == SHARE


def test_a_file_in_per_cent_is_compared_as_shares_and_says_so(tmp_path: Path) -> None:
    results = {
        "squadv2": {"exact,none": 31.1, "f1,none": 34.1},
        "arc_easy": {"acc,none": 0.6, "acc_stderr,none": 0.01},
        "wmt16": {"bleu,none": 23.4, "bleu_stderr,none": 0.5, "ter,none": 60.0},
    }
    one = read(tmp_path / "results_x.json", results, config={"model": "hf"})
    found = values(one)
    assert found["squadv2"] == pytest.approx({"f1": 0.341, "exact": 0.311})
    assert found["arc_easy"] == {"acc": 0.6}
    assert found["wmt16"] == pytest.approx({"bleu": 0.234})  # fewer edits are better, so ter is no score
    assert one.entries["wmt16"].saved.metrics["bleu"].stderr == pytest.approx(0.005)
    assert not missing(one.notes[0], "squadv2 exact f1", "wmt16 bleu")


def test_a_value_of_an_unknown_scale_is_left_out_with_a_note(tmp_path: Path) -> None:
    one = read(tmp_path / "a_results.json", {"mt": {"judge": 7.8, "acc": 0.5}})
    assert values(one) == {"mt": {"acc": 0.5}}
    (note,) = one.notes
    assert not missing(note, "a_results.json", "mt judge 7.8")


@pytest.mark.parametrize("key", ["acc_stderr", "acc_stderr,none", "acc,none_stderr"])
@pytest.mark.parametrize("metric", ["acc", "acc,none"])
def test_an_error_is_its_metrics_wherever_the_ending_stands(tmp_path: Path, metric: str, key: str) -> None:
    one = read(tmp_path / "a_results.json", {"mt": {metric: 0.5, key: 0.02}})
    assert one.entries["mt"].saved.metrics["acc"].stderr == 0.02
    assert one.notes == ()


def test_fields_that_are_not_understood_are_left_out_with_a_note(tmp_path: Path) -> None:
    values = {"acc": 0.5, "f1_stderr": 0.1, "status": "ok", "em": "N/A", "runs": [1, 2]}
    others = {"acc_stderr": "N/A", "alias": "mt", "num_total": 9, "ter": 0.4, "x": None}
    one = read(tmp_path / "a_results.json", {"mt": values | others})
    (note,) = one.notes
    assert not missing(note, "a_results.json", "mt f1_stderr status em runs")


def test_a_file_of_our_own_is_taken_as_it_is(tmp_path: Path) -> None:
    one = read(tmp_path / "a_results.json", {"mt": {"judge": 7.8, "num_words": 30}}, schema=1)
    assert values(one) == {"mt": {"judge": 7.8, "num_words": 30}}


def test_counts_and_the_spread_of_repeats_are_no_metrics(tmp_path: Path) -> None:
    task = {
        "num_total": 30,
        "solved_avg": 4.9,
        "accuracy_avg": 0.163,
        "accuracy_std_err": 0.017,
        "num_repeat": 10,
    }
    one = read(tmp_path / "results_x.json", {"AIME24": task}, config={"model": "vllm"})
    saved = one.entries["AIME24"].saved
    assert (list(saved.metrics), saved.primary, saved.scored) == (["accuracy_avg"], "accuracy_avg", 30)
    assert saved.metrics["accuracy_avg"].stderr is None
