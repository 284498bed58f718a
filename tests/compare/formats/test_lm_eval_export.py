"""A run in the form of lm-evaluation-harness, read back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.export import ExportedCheckpoint, ExportedSample, filtered
from pytest_touchstone.compare.formats.lm_eval_export import lm_eval_files
from pytest_touchstone.compare.formats.task_metrics import metric_name
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.core.files import write_atomic, write_json
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.item_view import Question
from pytest_touchstone.results.summary import Summary
from tests.support.exports import finished, sample_of
from tests.support.summaries import collect, declaration, record

SAMPLE_FIELDS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
"""What a line of samples of lm-evaluation-harness 0.4.9 has."""

RESULTS_FIELDS = {
    *(
        "results",
        "group_subtasks",
        "configs",
        "versions",
        "n-shot",
        "higher_is_better",
        "n-samples",
        "config",
    ),
    *("date", "task_hashes", "model_source", "model_name", "model_name_sanitized", "chat_template"),
}
"""What its results have."""


def written(folder: Path, summary: Summary, samples: list[ExportedSample]) -> list[Path]:
    files = lm_eval_files(ExportedCheckpoint(summary=summary, checkpoint="runs/a", samples=samples, asked={}))
    for name, content in files.items():
        (write_atomic if isinstance(content, str) else write_json)(folder / name, content)
    return [folder / name for name in files]


def read_back(path: Path) -> CheckpointResults:
    (candidate,) = read_file(path, {}).candidates
    return candidate


def test_a_run_reads_back_with_its_values_errors_and_items(tmp_path: Path) -> None:
    summary, samples = finished(["winogrande", "lambada_openai"])
    results, *_ = written(tmp_path, summary, samples)
    assert results.parent.name == "runs__a"
    back = read_back(results)
    assert back.name == "runs/a"
    for name, result in (("winogrande", summary.results[0]), ("lambada", summary.results[1])):
        saved = back.entries[name].saved
        for metric in ("acc",) if name == "winogrande" else ("acc", "perplexity"):
            theirs, ours = saved.metrics[metric], result.metrics[metric]
            assert (theirs.value, theirs.n) == (ours.value, 12)
            assert theirs.stderr == pytest.approx(ours.stderr)
        assert saved.conditions["shots"] == result.shots
    items = back.entries["winogrande"].items
    assert sorted(items.examples) == sorted(one.record.example for one in samples[:12])
    expected = {one.record.example: one.record.scores["acc"] for one in samples[:12]}
    assert dict(zip(items.examples, items.scores["acc"], strict=True)) == expected
    perplexities = back.entries["lambada"].items.scores["perplexity_logprob"]
    assert sorted(map(float, filter(None, perplexities))) == sorted(
        one.record.scores["logprob"] for one in samples[12:]
    )


def test_groups_are_tasks_of_their_own_below_the_whole(tmp_path: Path) -> None:
    summary, samples = finished(["mmlu_stem"])
    results, *beside = written(tmp_path, summary, samples)
    content = json.loads(results.read_text(encoding="utf-8"))
    subjects = ["mmlu_abstract_algebra", "mmlu_college_biology", "mmlu_machine_learning"]
    assert content["group_subtasks"] == {"mmlu_stem": subjects}
    assert [*content["groups"]] == ["mmlu_stem"]
    assert len(beside) == len(subjects)
    back = read_back(results)
    assert [*back.entries] == subjects
    assert all(len(entry.items.examples) == 4 for entry in back.entries.values())


def test_files_have_the_fields_of_lm_evaluation_harness(tmp_path: Path) -> None:
    summary, samples = finished(["winogrande"])
    results, beside = written(tmp_path, summary, samples)
    assert json.loads(results.read_text(encoding="utf-8")).keys() >= RESULTS_FIELDS
    date = results.stem.removeprefix("results_")
    assert beside.name == f"samples_winogrande_{date}.jsonl"
    line = json.loads(beside.read_text(encoding="utf-8").splitlines()[5])
    assert line.keys() >= SAMPLE_FIELDS
    assert (line["doc_id"], line["target"], line["filter"], line["metrics"]) == (5, "1", "none", ["acc"])
    assert line["arguments"]["gen_args_1"] == {"arg_0": "Question: ?\nAnswer:", "arg_1": " yes"}
    assert line["resps"] == [[["-1.5", "True"]], [["-2.5", "False"]]]
    assert line["filtered_resps"] == [["-1.5", "True"], ["-2.5", "False"]]
    assert line["prompt_hash"] == hashlib.sha256(b"Question: ?\nAnswer:").hexdigest()


def test_a_text_has_a_line_for_each_filter_with_what_it_read() -> None:
    (item, *_) = collect(["winogrande"], ["runs/a"], 1)
    one = record(item, {"exact_match_strict": 0.0, "exact_match_flexible": 1.0})
    spec = declaration("winogrande", "exact_match_strict")
    summary = summarize(
        [one], {"winogrande": spec}, [item], run_id="r", directory="r", manifest={}, checkpoints=[]
    )
    request = {"prompt": "2+5", "stop": ["\n"], "max_new_tokens": 9, "temperature": 0.0, "top_p": 1.0}
    answer = {"samples": [{"text": " it is 7", "finish_reason": "eos", "tokens": 3}], "prompt_tokens": 3}
    exchange = {"kind": "Generate", "request": request, "answer": answer}
    program = {"kind": "RunProgram", "request": {"program": "7"}, "answer": {"outcome": "passed"}}
    sample = sample_of(one, [exchange, program], Question("Generate", "2+5"))
    samples = [replace(sample, requests=[request])]
    files = lm_eval_files(ExportedCheckpoint(summary=summary, checkpoint="runs/a", samples=samples, asked={}))
    strict, flexible = (json.loads(line) for line in [*files.values()][1].splitlines())
    assert (strict["filter"], strict["exact_match"], strict["filtered_resps"]) == (
        "strict-match",
        0.0,
        ["[invalid]"],
    )
    assert (flexible["filter"], flexible["exact_match"], flexible["filtered_resps"]) == (
        "flexible-extract",
        1.0,
        ["7"],
    )
    assert flexible["resps"] == [[" it is 7"]]
    assert flexible["arguments"]["gen_args_0"]["arg_1"]["until"] == ["\n"]
    assert flexible["target"] == "8"


@pytest.mark.parametrize("name", ["acc", "exact_match_strict", "exact_match_flexible", "real@5", "pass@1"])
def test_a_metrics_name_there_reads_back_as_ours(name: str) -> None:
    assert metric_name(",".join(filtered(name))) == name
