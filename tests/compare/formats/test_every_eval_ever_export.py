"""Results as Every Eval Ever has them: valid by its schema, with the values, conditions and items of the run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_touchstone.compare.formats.every_eval_ever_export import every_eval_ever_files
from pytest_touchstone.compare.formats.export import ExportedCheckpoint, ExportedSample, how_asked
from pytest_touchstone.compare.formats.run import candidates_of
from pytest_touchstone.core.files import write_atomic, write_json
from pytest_touchstone.results.summary import Summary
from tests.support.every_eval_ever_schema import problems
from tests.support.exports import finished

BENCHMARKS = ["winogrande", "lambada_openai", "mmlu_stem", "real_coref"]


def exported(folder: Path, summary: Summary, samples: list[ExportedSample], **more: Any) -> Path:
    """The file of the run's checkpoint."""
    asked = how_asked(one.record for one in samples)
    export = ExportedCheckpoint(summary=summary, checkpoint="runs/a", samples=samples, asked=asked, **more)
    files = every_eval_ever_files(export)
    for name, content in files.items():
        (write_atomic if isinstance(content, str) else write_json)(folder / name, content)
    return folder / next(iter(files))


def test_a_run_is_written_by_the_rules_of_the_schema(tmp_path: Path) -> None:
    summary, samples = finished(BENCHMARKS)
    path = exported(tmp_path, summary, samples, model_id="org/a-1b", source="https://example.org/r")
    assert [*problems(tmp_path)] == []
    assert str(path.parent.relative_to(tmp_path)) == "data/pytest-touchstone/org/a-1b"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["schema_version"] == "0.3.0"
    assert content["detailed_evaluation_results"]["total_rows"] == 12 * (1 + 3 + 2 + 4)
    acc = next(
        one for one in content["evaluation_results"] if one["evaluation_result_id"] == "winogrande#acc"
    )
    metric = summary.results[0].metrics["acc"]
    known = acc["score_details"]["uncertainty"]
    assert known["num_samples"] == 12
    assert known["confidence_interval"] == {
        "lower": metric.low,
        "upper": metric.high,
        "confidence_level": 0.95,
        "method": "Wilson",
    }
    assert acc["metric_config"]["metric_id"] == "accuracy"
    assert (acc["metric_config"]["min_score"], acc["metric_config"]["max_score"]) == (0, 1)
    assert acc["generation_config"]["additional_details"]["shots"] == "5"
    assert len(acc["score_details"]["details"]["prompts_sha256"]) == 64


def test_items_and_conditions_are_those_of_the_run(tmp_path: Path) -> None:
    summary, samples = finished(BENCHMARKS)
    path = exported(tmp_path, summary, samples)
    content = json.loads(path.read_text(encoding="utf-8"))
    written = path.with_name(f"{path.stem}_samples.jsonl").read_text(encoding="utf-8")
    assert content["detailed_evaluation_results"]["checksum"] == hashlib.sha256(written.encode()).hexdigest()
    scores: dict[str, dict[str, float]] = {}
    rows: dict[str, str] = {}
    for line in map(json.loads, written.splitlines()):
        assert line["evaluation_id"] == content["evaluation_id"]
        scores.setdefault(line["evaluation_result_id"], {})[line["sample_id"]] = line["evaluation"]["score"]
        rows[line["sample_id"]] = line["metadata"]["row"]
    (run,) = candidates_of(summary, [sample.record for sample in samples], tmp_path)
    results = {result["evaluation_result_id"]: result for result in content["evaluation_results"]}
    for name, entry in run.entries.items():
        assert {example: rows[example] for example in entry.items.examples} == dict(
            zip(entry.items.examples, entry.items.rows, strict=True)
        )
        for metric in entry.saved.metrics.values():
            result = results[f"{name}#{metric.name}"]
            how = entry.saved.aggregation(metric.name)
            column = entry.items.scores.get(how.score)  # none where no item has a score of it
            of_items = dict(zip(entry.items.examples, column, strict=True)) if column else {}
            assert scores.get(f"{name}#{metric.name}", {}) == of_items
            assert result["score_details"]["score"] == metric.value
            conditions = result["generation_config"]["additional_details"]
            known = {key: json.dumps(value) for key, value in entry.saved.known.items() if value is not None}
            assert known.items() <= conditions.items()
            plain = {key: value for key, value in how.plain().items() if key != "at"}
            assert json.loads(result["metric_config"]["additional_details"]["aggregation"]) == plain


def test_totals_alone_have_no_samples_and_the_same_values(tmp_path: Path) -> None:
    summary, _ = finished(["winogrande"])
    content = json.loads(exported(tmp_path, summary, []).read_text(encoding="utf-8"))
    assert [*problems(tmp_path)] == []
    assert [*tmp_path.rglob("*.jsonl")] == []
    values = {
        result["metric_config"]["metric_name"]: result["score_details"]["score"]
        for result in content["evaluation_results"]
    }
    assert values == {metric.name: metric.value for metric in summary.results[0].metrics.values()}


def test_an_items_prompts_are_hashed_in_whatever_order_they_come() -> None:
    _, samples = finished(["mmlu_stem"])
    records = [one.record for one in samples]
    asked = how_asked(records)
    assert asked == how_asked(reversed(records))
    assert {group for _, group in asked} == {None, "abstract_algebra", "college_biology", "machine_learning"}
    other = replace(
        records[0],
        exchanges=[{**records[0].exchanges[0], "request": {"context": "Else", "continuation": "x"}}],
    )
    assert asked["mmlu_stem", None] != how_asked([other, *records[1:]])["mmlu_stem", None]
