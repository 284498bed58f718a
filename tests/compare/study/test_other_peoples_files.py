"""Studies of files that other programs wrote: by checkpoint, by task, and those of lm-evaluation-harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.compare.candidate import told_by_path
from harness.compare.study.points import Study
from harness.compare.study.reading import study_of


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
    study = study_of([named], output=tmp_path / "results")
    assert shape(study) == {"nouns": [100, 200], "plain": [100, 200]}
    assert [one.label for one in study.measures] == ["Real@1", "Real@5", "LAMBADA@1", "score"]


def test_files_by_task_are_read_one_by_one_and_by_the_folder(tmp_path: Path) -> None:
    tasks = {"gsm8k": {"exact_match,strict-match": 0.3, "exact_match_stderr,strict-match": 0.02}}
    files = [
        write(tmp_path / f"{model.replace('/', '-')}_results.json", {"model": model, "results": tasks})
        for model in ("Qwen", "lora/checkpoint-3000", "lora/checkpoint-6000")
    ]
    for named in ([str(tmp_path)], [str(one) for one in files], [str(tmp_path / "*_results.json")]):
        study = study_of(named, output=tmp_path / "results")
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
    study = study_of([str(tmp_path)], output=tmp_path / "results")
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
    assert told_by_path(path) == told
