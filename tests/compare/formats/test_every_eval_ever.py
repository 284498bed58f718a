"""Results of Every Eval Ever: ours read back as they were, and those of others as far as they say what they are."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.answers import Shown, shown_answers
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.every_eval_ever_export import every_eval_ever_files
from pytest_touchstone.compare.formats.export import Export, ExportedSample, how_asked
from pytest_touchstone.compare.formats.run import candidates_of
from pytest_touchstone.compare.load import find_candidates, read_file
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import write_atomic, write_json
from pytest_touchstone.results.summary import Summary
from tests.support.every_eval_ever_schema import problems
from tests.support.exports import finished

BENCHMARKS = ["winogrande", "lambada_openai", "mmlu_stem", "real_coref"]


def exported(folder: Path, summary: Summary, samples: list[ExportedSample], **more: Any) -> Path:
    """The file of the run's checkpoint."""
    asked = how_asked(one.record for one in samples)
    export = Export(summary=summary, checkpoint="runs/a", samples=samples, asked=asked, **more)
    files = every_eval_ever_files(export)
    for name, content in files.items():
        (write_atomic if isinstance(content, str) else write_json)(folder / name, content)
    return folder / next(iter(files))


def only(path: Path) -> CheckpointResults:
    (candidate,) = read_file(path, {}).candidates
    return candidate


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


def test_a_run_reads_back_with_its_values_intervals_conditions_and_items(tmp_path: Path) -> None:
    summary, samples = finished(BENCHMARKS)
    back = only(exported(tmp_path, summary, samples))
    (run,) = candidates_of(summary, [one.record for one in samples], tmp_path)
    assert back.name == "runs/a"
    assert back.notes == ()
    assert [*back.entries] == [*run.entries]
    for name, ours in run.entries.items():
        theirs = back.entries[name]
        assert theirs.saved.metrics == ours.saved.metrics
        assert theirs.saved.primary == ours.saved.primary
        assert theirs.saved.known == {key: one for key, one in ours.saved.known.items() if one is not None}
        assert (theirs.saved.of, theirs.saved.mark) == (ours.saved.of, ours.saved.mark)
        for metric in ours.saved.metrics:
            assert theirs.saved.aggregation(metric) == ours.saved.aggregation(metric)
        assert (theirs.items.examples, theirs.items.rows) == (ours.items.examples, ours.items.rows)
        assert (theirs.items.groups, theirs.items.clusters) == (ours.items.groups, ours.items.clusters)
        assert theirs.items.scores == ours.items.scores
    found = compare_pair(run, back)
    assert all(line.paired and line.identical for line in found.judged.values())


def test_totals_alone_have_no_samples_and_the_same_values(tmp_path: Path) -> None:
    summary, _ = finished(["winogrande"])
    path = exported(tmp_path, summary, [])
    assert [*problems(tmp_path)] == []
    assert [*tmp_path.rglob("*.jsonl")] == []
    entry = only(path).entries["winogrande"]
    assert entry.saved.metrics == summary.results[0].metrics
    assert entry.items.examples == []


def test_an_item_is_shown_with_its_question_the_choice_and_the_right_one(tmp_path: Path) -> None:
    summary, samples = finished(["winogrande"])
    entry = only(exported(tmp_path, summary, samples)).entries["winogrande"]
    shown = shown_answers(entry, "acc", ["winogrande/3"])
    assert shown == {"winogrande/3": Shown("Question: ?\nAnswer:", "no", "yes")}


def test_a_folder_of_the_collection_is_found(tmp_path: Path) -> None:
    summary, samples = finished(["winogrande"])
    for number in (1, 2):
        exported(tmp_path / str(number), summary, samples)
    one, two = find_candidates([str(tmp_path / "1"), str(tmp_path / "2")], output=tmp_path)
    assert one.name.startswith("runs/a")
    assert [*one.entries] == [*two.entries] == ["winogrande"]


def test_a_file_never_names_a_function_to_be_run(tmp_path: Path) -> None:
    summary, samples = finished(["winogrande"])
    path = exported(tmp_path, summary, samples)
    content = json.loads(path.read_text(encoding="utf-8"))
    evil = {"by": "evil", "of": "acc", "at": ["evil", str(tmp_path / "evil.py"), "evil"]}
    content["evaluation_results"][0]["metric_config"]["additional_details"] = {
        "aggregation": json.dumps(evil)
    }
    write_json(path, content)
    assert only(path).entries["winogrande"].saved.aggregation("acc").at is None


# Those of others


def result(name: str, score: float, **more: Any) -> dict[str, Any]:
    config = more.pop("config", {"lower_is_better": False})
    return {
        "evaluation_name": name,
        "source_data": {"dataset_name": name, "source_type": "other"},
        "metric_config": config,
        "score_details": {"score": score, **more},
    }


def log(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "0.2.2",
        "evaluation_id": "board/org/b/1",
        "retrieved_timestamp": "1",
        "source_metadata": {},
        "eval_library": {"name": "lm_eval", "version": "0.4"},
        "model_info": {"name": "b", "id": "org/b"},
        "evaluation_results": list(results),
        **more,
    }


def line(name: str, sample: str, score: float, **metadata: str) -> dict[str, Any]:
    return {
        "schema_version": "0.2.2",
        "evaluation_id": "board/org/b/1",
        "model_id": "org/b",
        "evaluation_name": name,
        "sample_id": sample,
        "sample_hash": f"hash of {sample}",
        "interaction_type": "single_turn",
        "input": {"raw": f"Question {sample}?", "reference": ["yes"]},
        "output": {"raw": ["no"]},
        "answer_attribution": [],
        "evaluation": {"score": score, "is_correct": score == 1},
        "metadata": metadata,
    }


def written(folder: Path, content: dict[str, Any], lines: list[dict[str, Any]] | None = None) -> Path:
    path = folder / "0b5a2c1e-1111-4222-8333-444455556666.json"
    write_json(path, content)
    if lines is not None:
        text = "".join(json.dumps(one) + "\n" for one in lines)
        write_atomic(path.with_name(f"{path.stem}_samples.jsonl"), text)
    return path


def described(text: str, **more: Any) -> dict[str, Any]:
    return {"lower_is_better": False, "evaluation_description": text, **more}


@pytest.mark.parametrize(
    ("name", "config", "benchmark", "metric"),
    [
        ("MMLU-PRO", described("Accuracy on MMLU-PRO"), "mmlu_pro", "acc"),
        (
            "gsm8k/strict-match",
            described("exact_match (filter: strict-match)"),
            "gsm8k",
            "exact_match_strict",
        ),
        (
            "HumanEval",
            {"lower_is_better": False, "metric_id": "pass_at_k", "metric_parameters": {"k": 10}},
            "humaneval",
            "pass@10",
        ),
        ("arc", {"lower_is_better": False, "metric_name": "Exact Match"}, "arc", "exact_match"),
        ("lambada_openai", {"lower_is_better": False, "metric_id": "accuracy"}, "lambada", "acc"),
        ("x", {"lower_is_better": False}, "x", "score"),
    ],
)
def test_names_of_others_are_read_as_ours(
    tmp_path: Path, name: str, config: dict[str, Any], benchmark: str, metric: str
) -> None:
    saved = only(written(tmp_path, log(result(name, 0.5, config=config)))).entries[benchmark].saved
    assert saved.metrics[metric].value == 0.5
    assert saved.checkpoint == "org/b"


def test_per_cent_are_shares_and_other_scales_keep_their_unit(tmp_path: Path) -> None:
    uncertainty = {
        "standard_error": {"value": 2.0},
        "num_samples": 400,
        "confidence_interval": {"lower": 40, "upper": 48},
    }
    back = only(
        written(
            tmp_path,
            log(
                result("a", 44, config=described("acc", metric_unit="percent"), uncertainty=uncertainty),
                result("b", 44, config=described("acc", min_score=0, max_score=100)),
                result("c", 1250.0, config=described("elo", metric_unit="points", max_score="Infinity")),
                result("d", 3.5, config={**described("loss", metric_unit="nats"), "lower_is_better": True}),
                result("e", 7.5, config=described("judged")),
            ),
        )
    )
    a = back.entries["a"].saved.metrics["acc"]
    assert (a.value, a.stderr, a.low, a.high, a.n) == (0.44, 0.02, 0.4, 0.48, 400)
    assert back.entries["b"].saved.metrics["acc"].value == 0.44
    assert back.entries["c"].saved.aggregation("elo").unit == "points"
    assert not back.entries["d"].saved.aggregation("loss").higher_is_better
    assert "e" not in back.entries
    assert any("a acc, b acc: written in per cent" in note for note in back.notes)
    assert any(
        "e judged: left out, as neither a share nor on a scale that is told" in note for note in back.notes
    )


def test_items_of_a_converter_of_lm_evaluation_harness_pair_by_their_metrics(tmp_path: Path) -> None:
    names = ("acc", "acc_norm")
    results = [result("arc", 0.5, config=described("acc")), result("arc", 0.25, config=described("acc_norm"))]
    lines = [
        line(
            "arc",
            str(number),
            acc,
            doc_hash=f"d{number}",
            filter="none",
            lm_eval_metrics=json.dumps({"acc": acc, "acc_norm": norm}),
        )
        for number, (acc, norm) in enumerate([(1.0, 0.0), (0.0, 0.0), (1.0, 1.0), (0.0, 0.0)])
    ]
    items = only(written(tmp_path, log(*results), lines)).entries["arc"].items
    assert items.examples == ["arc/0", "arc/1", "arc/2", "arc/3"]
    assert items.rows == ["d0", "d1", "d2", "d3"]
    assert {name: items.scores[name] for name in names} == {"acc": [1, 0, 1, 0], "acc_norm": [0, 0, 1, 0]}


def test_a_score_of_several_that_it_may_be_is_that_whose_mean_it_has(tmp_path: Path) -> None:
    results = [result("arc", 0.5, config=described("acc")), result("arc", 0.25, config=described("f1"))]
    back = only(written(tmp_path, log(*results), [line("arc", str(one), one % 2) for one in range(4)]))
    assert back.entries["arc"].items.scores == {"acc": [0, 1, 0, 1]}


@pytest.mark.parametrize(
    ("scores", "n", "why"),
    [
        ([1.0, 0.0], 4, "samples of 2 of 4 items"),
        ([1.0, 1.0, 1.0, 0.0], 4, "samples whose mean is not the score"),
    ],
)
def test_samples_that_do_not_make_the_score_are_not_used(
    tmp_path: Path, scores: list[float], n: int, why: str
) -> None:
    one = result("arc", 0.5, config=described("acc"), uncertainty={"num_samples": n})
    back = only(written(tmp_path, log(one), [line("arc", str(k), score) for k, score in enumerate(scores)]))
    assert back.entries["arc"].items.examples == []
    assert any(f"arc: {why}: totals are compared" in note for note in back.notes)


def test_samples_with_another_checksum_are_not_used(tmp_path: Path) -> None:
    told = {"format": "jsonl", "file_path": "data/x", "hash_algorithm": "sha256", "checksum": "0" * 64}
    content = log(result("arc", 1.0, config=described("acc")), detailed_evaluation_results=told)
    path = written(tmp_path, content, [line("arc", "1", 1.0)])
    back = only(path)
    assert back.entries["arc"].items.examples == []
    assert "another checksum" in back.notes[0]
    content["detailed_evaluation_results"]["checksum"] = hashlib.sha256(
        path.with_name(f"{path.stem}_samples.jsonl").read_bytes()
    ).hexdigest()
    assert only(written(tmp_path, content)).entries["arc"].items.examples == ["arc/1"]


def test_a_file_of_samples_is_taken_from_the_same_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_atomic(tmp_path / "outside.jsonl", json.dumps(line("arc", "1", 1.0)) + "\n")
    told = {"format": "jsonl", "file_path": "../outside.jsonl"}
    content = log(result("arc", 1.0, config=described("acc")), detailed_evaluation_results=told)
    assert only(written(tmp_path / "in", content)).entries["arc"].items.examples == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (log({"evaluation_name": "x"}), "evaluation_results.0.metric_config"),
        (log(result("x", math.nan)), "the score is nan"),
        (log(result("x", 0.5, uncertainty={"num_samples": -3})), "-3 is no number of items"),
        (
            log(result("x", 0.5, uncertainty={"standard_error": {"value": "many"}})),
            "standard_error.value is 'many'",
        ),
        (log(model_info=[]), "model_info"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_file(path, {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sample_id": 3}, "row 1: sample_id is 3"),
        ({"evaluation_id": "other"}, "row 1: evaluation_id is not that of the results"),
        ({"evaluation": {"score": "1"}}, "row 1: the score is '1'"),
        ({"evaluation": []}, "row 1: the score is None"),
    ],
)
def test_a_sample_that_is_none_is_refused_in_one_line(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    path = written(tmp_path, log(result("arc", 1.0)), [{**line("arc", "1", 1.0), **wrong}])
    with pytest.raises(DataError, match=said):
        read_file(path, {})


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
