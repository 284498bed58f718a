"""Studies of files that other programs wrote: by checkpoint, by task, and those of lm-evaluation-harness."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.candidate import series_and_step_from_path
from pytest_touchstone.study.curves import DROP, curves_of
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.series_comparison import compare_series
from pytest_touchstone.study.sparklines import sparklines
from tests.support.compared import ran
from tests.support.entries import right
from tests.support.studies import of_totals, placed, study_of_candidates


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def by_checkpoint(root: Path) -> None:
    """Results beside the checkpoints of two trainings, as evaluation scripts of masked models write them."""
    for series in ("nouns", "plain"):
        for step in (100, 200):
            name = f"checkpoint-{step}"
            path = f"runs/{series}/{name}"
            row = {
                "checkpoint": path,
                "seq_len": 512,
                "real1": 0.6,
                "real5": 0.8,
                "lambada_top1": 0.3,
                "score": 0.57,
            }
            row |= {
                "coref_samples": 400,
                "checkpoint_info": {"path": path, "global_step": step, "epoch": step / 100},
            }
            write(root / series / f"{name}_eval_results.json", row)


def shape(study: Study) -> dict[str, list[int | None]]:
    return {one.name: [point.step for point in one.points] for one in study.series}


@pytest.mark.parametrize(
    "named", ["runs", "runs/*", "runs/*/*_eval_results.json", "runs/*/checkpoint-*.json"]
)
def test_results_beside_checkpoints_are_one_series_for_each_folder(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_checkpoint(tmp_path / "runs")
    study = load_study([named], output=tmp_path / "results")
    assert shape(study) == {"nouns": [100, 200], "plain": [100, 200]}
    assert [one.label for one in study.measures] == ["Real@1", "Real@5", "LAMBADA@1", "score"]


def test_files_by_task_are_read_one_by_one_and_by_the_folder(tmp_path: Path) -> None:
    tasks = {"gsm8k": {"exact_match,strict-match": 0.3, "exact_match_stderr,strict-match": 0.02}}
    files = [
        write(tmp_path / f"{model.replace('/', '-')}_results.json", {"model": model, "results": tasks})
        for model in ("Qwen", "lora/checkpoint-3000", "lora/checkpoint-6000")
    ]
    for named in ([str(tmp_path)], [str(one) for one in files], [str(tmp_path / "*_results.json")]):
        study = load_study(named, output=tmp_path / "results")
        assert shape(study) == {"Qwen": [None], "lora": [3000, 6000]}
        value = study.value(study.points[0], study.measures[0])
        assert value is not None
        assert value.low is not None


def test_files_of_lm_evaluation_harness_have_the_step_of_the_revision(tmp_path: Path) -> None:
    for step in (1000, 143000):
        config = {
            "model": "hf-causal",
            "model_args": f"pretrained=org/model,revision=step{step}",
            "num_fewshot": 0,
        }
        content = {
            "results": {"sciq": {"acc": 0.5, "acc_stderr": 0.01}},
            "versions": {"sciq": 0},
            "config": config,
        }
        write(tmp_path / f"model_step{step}.json", content)
    study = load_study([str(tmp_path)], output=tmp_path / "results")
    assert shape(study) == {"model": [1000, 143000]}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("runs/nouns/checkpoint-300", {"series": "runs/nouns", "step": 300}),
        ("/a/step_5/", {"series": "/a", "step": 5}),
        ("checkpoint-300", {}),
        ("org/gpt2", {}),
        ("", {}),
    ],
)
def test_only_a_path_that_ends_in_a_step_tells_a_series(path: str, told: dict[str, Any]) -> None:
    assert series_and_step_from_path(path) == told


def shots(folder: Path, name: str, acc: float, step: int, number: Any) -> Path:
    config = {"model_args": f"pretrained=org/m,revision=step{step}", "num_fewshot": number}
    error = math.sqrt(acc * (1 - acc) / 2375)
    results = {"arc_easy": {"acc": acc, "acc_stderr": error}}
    return write(folder / f"{name}.json", {"results": results, "config": config})


def test_results_that_were_asked_in_two_ways_are_two_series_and_two_measures(tmp_path: Path) -> None:
    for name, acc, step, number in (
        ("a", 0.3, 1000, 0),
        ("b", 0.4, 2000, 0),
        ("c", 0.4, 3000, 0),
        ("d", 0.6, 2000, 5),
    ):
        shots(tmp_path, name, acc, step, number)
    study = load_study([str(tmp_path)], output=tmp_path / "results")
    assert shape(study) == {"m 0-shot": [1000, 2000, 3000], "m 5-shot": [2000]}
    assert {one.label for one in study.measures} == {"arc_easy 0-shot acc", "arc_easy 5-shot acc"}
    (curve,) = curves_of(study)
    assert (curve.tests[DROP].value, [value.value for value in curve.values]) == (None, [0.3, 0.4, 0.4])
    assert all(not row.duels for row in study.compute_once(compare_series))


def test_results_that_do_not_say_how_they_were_asked_are_no_other_way(tmp_path: Path) -> None:
    shots(tmp_path, "a", 0.3, 1000, 0)
    shots(tmp_path, "b", 0.4, 2000, None)
    assert shape(load_study([str(tmp_path)], output=tmp_path / "results")) == {"m": [1000, 2000]}


@pytest.mark.parametrize(
    ("names", "arguments", "found"),
    [
        (("a", "b"), "iteration={}", {"neox": [1000, 2000]}),
        (("m_step1000", "m_step2000"), "dtype=float16", {"neox": [1000, 2000]}),
        (("m-checkpoint-1000_results", "m-checkpoint-2000_results"), "", {"neox": [1000, 2000]}),
        (("a", "b"), "", {"neox": [None], "neox [2]": [None]}),
        (("m_1000", "m_2000"), "", {"neox": [None], "neox [2]": [None]}),
    ],
)
def test_steps_are_read_or_there_is_no_order(
    tmp_path: Path, names: tuple[str, str], arguments: str, found: dict[str, list[int | None]]
) -> None:
    for name, step in zip(names, (1000, 2000), strict=True):
        config = {"model": "neox", "model_args": arguments.format(step)}
        results = {"sciq": {"acc": step / 4000, "acc_stderr": 0.01}}
        write(tmp_path / f"{name}.json", {"results": results, "config": config, "versions": {}})
    study = load_study([str(tmp_path)], output=tmp_path / "results")
    assert shape(study) == found
    assert len(curves_of(study)) == (1 if found == {"neox": [1000, 2000]} else 0)


def test_files_by_task_have_the_step_of_their_names(tmp_path: Path) -> None:
    for step in (1000, 2000):
        content = {"model": "neox", "results": {"sciq": {"acc": 0.5, "acc_stderr": 0.01}}}
        write(tmp_path / f"neox_step{step}_results.json", content)
    assert shape(load_study([str(tmp_path)], output=tmp_path / "results")) == {"neox": [1000, 2000]}


def test_a_checkpoint_that_is_named_by_its_step_alone_is_of_no_known_training(tmp_path: Path) -> None:
    for name in ("checkpoint-100", "checkpoint-200"):
        write(tmp_path / f"{name}_results.json", {"model": name, "results": {"sciq": {"acc": 0.5}}})
    study = load_study([str(tmp_path)], output=tmp_path / "results")
    assert shape(study) == {"checkpoint-100": [None], "checkpoint-200": [None]}


def test_files_of_a_trainer_stop_nothing(tmp_path: Path) -> None:
    shots(tmp_path, "a_results", 0.3, 1000, 0)
    for name in ("all_results", "train_results", "trainer_state", "results"):
        write(tmp_path / f"{name}.json", {"epoch": 3.0, "eval_loss": 1.2})
    assert shape(load_study([str(tmp_path)], output=tmp_path / "results")) == {"m": [1000]}


def test_a_checkpoint_without_a_step_has_no_place_in_a_curve() -> None:
    study = of_totals({"a": [0.5, 0.6, 0.7]})
    points = [point.candidate for point in study.points]
    last = replace(points[-1], about={"series": "a"})
    (curve,) = curves_of(study_of_candidates([*points[:2], last]))
    assert [point.step for point in curve.points] == [1, 2]


def test_what_is_not_valid_is_in_no_curve_and_is_best_of_nothing() -> None:
    right_, wrong = {"b": right(20, 40)}, {"b": right(38, 40)}
    found = [placed(ran(f"a/{n}", right_), "a", float(n)) for n in (1, 2)]
    study = study_of_candidates([*found, placed(ran("a/3", wrong, invalid="cut off"), "a", 3.0)])
    (curve,) = curves_of(study)
    assert len(curve.points) == 2
    (spark, *_) = sparklines(study, {})
    assert "·" in spark[-1]
    assert "47.50" not in spark[-1]


def test_all_right_or_all_wrong_is_not_without_noise() -> None:
    study = of_totals({"a": [1.0], "b": [0.75]}, n=4)
    value = study.value(study.points[0], study.measures[0])
    assert value is not None
    assert value.stderr
    assert value.stderr > 0.2
