"""Whatever a file holds, it is read, or refused in one line; nothing else happens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.errors import DataError
from tests.support.korean_table import HEADER

KEYS = st.sampled_from(
    [
        *("results", "model", "config", "configs", "versions", "n-shot", "n-samples", "effective", "samples"),
        *(
            "group_subtasks",
            "higher_is_better",
            "model_args",
            "model_name",
            "mmlu",
            "mmlu_a",
            "acc,none",
            "acc",
        ),
        *(
            "acc_stderr,none",
            "ppl",
            "real1",
            "real5",
            "lambada_top1",
            "score",
            "checkpoint",
            "seq_len",
            "step",
        ),
        *("evaluation_results", "model_info", "evaluation_name", "score_details", "metric_config"),
        *("checkpoint_info", "coref_samples", "real1_stderr", "series", "not_valid", "chat_template"),
    ]
)
NUMBERS = st.sampled_from([0, 1, 0.5, -1, 2.5, 20, 1e308, math.nan, math.inf, 0.1 + 0.2]) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
TASKS = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4)
EVALUATION = st.fixed_dictionaries(
    {
        "evaluation_name": st.sampled_from(["mmlu", "MMLU", "x/strict"]) | VALUES,
        "metric_config": st.fixed_dictionaries(
            {"lower_is_better": st.booleans() | VALUES},
            optional={
                "metric_id": st.sampled_from(["accuracy", "pass_at_k"]) | VALUES,
                "metric_unit": st.sampled_from(["percent", "points"]) | VALUES,
                "max_score": NUMBERS,
                "additional_details": VALUES,
            },
        ),
        "score_details": st.fixed_dictionaries(
            {"score": NUMBERS}, optional={"uncertainty": VALUES, "details": VALUES}
        ),
    }
)
EVALUATIONS = st.builds(
    lambda results, model, more: {
        **more,
        "evaluation_id": "x",
        "model_info": model,
        "evaluation_results": results,
    },
    st.lists(EVALUATION | VALUES, max_size=4),
    st.fixed_dictionaries({"name": st.text(max_size=5), "id": st.text(max_size=5)}) | VALUES,
    st.dictionaries(KEYS, VALUES, max_size=3),
)
FILES = (
    VALUES
    | EVALUATIONS
    | st.builds(lambda results, more: {**more, "results": results}, TASKS, st.dictionaries(KEYS, VALUES))
)


def tried(path: Path) -> tuple[CheckpointResults, ...]:
    said, table = "", ResultTable(())
    try:
        table = read_file(path, {})
    except DataError as error:
        said = str(error)
    assert "\n" not in said
    for bad in table.bad:
        assert "\n" not in str(bad)
    return table.candidates


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_any_json_is_read_or_refused_and_what_is_read_can_be_compared(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    for one in tried(path):
        assert all(
            metric.value is not None and math.isfinite(metric.value)
            for entry in one.entries.values()
            for metric in entry.saved.metrics.values()
        )
        if one.entries:
            pair = compare_pair(one, one)
            assert not pair.of_kind("worse")
            assert not pair.of_kind("better")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(alphabet="0123456789.,;%\"'-einfa \t\r", max_size=60), max_size=4), st.booleans())
def test_any_table_is_read_or_refused(tmp_path: Path, lines: list[str], headed: bool) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\n".join([HEADER, *lines] if headed else lines), encoding="utf-8", newline="")
    tried(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from([".csv", ".json", ".tsv", ".txt"]))
def test_any_bytes_are_refused_in_one_line(tmp_path: Path, data: bytes, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    path.write_bytes(data)
    tried(path)


def test_a_file_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match="not valid JSON"):
        read_file(path, {})


LINES = st.fixed_dictionaries(
    {
        "sample_id": st.sampled_from(["1", "2"]) | VALUES,
        "evaluation": st.fixed_dictionaries({"score": NUMBERS}) | VALUES,
    },
    optional={
        "evaluation_id": st.just("x"),
        "evaluation_name": st.just("mmlu") | VALUES,
        "evaluation_result_id": VALUES,
        "metadata": st.dictionaries(
            st.sampled_from(["group", "row", "filter", "lm_eval_metrics"]), VALUES | st.just('{"acc": 1}')
        ),
        "sample_hash": VALUES,
    },
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVALUATIONS, st.lists(LINES | VALUES, max_size=4))
def test_any_samples_are_read_or_refused(tmp_path: Path, content: Any, lines: list[Any]) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**content, "evaluation_id": "x"}), encoding="utf-8")
    samples = "".join(json.dumps(one) + "\n" for one in lines)
    (tmp_path / "x_samples.jsonl").write_text(samples, encoding="utf-8")
    for one in tried(path):
        for entry in one.entries.values():
            assert {len(column) for column in entry.items.scores.values()} <= {len(entry.items.examples)}
