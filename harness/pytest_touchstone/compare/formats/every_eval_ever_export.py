"""A run's results as Every Eval Ever has them, schema 0.3.0 (github.com/evaleval/every_eval_ever).

    data/pytest-touchstone/ORG/NAME/UUID.json             every metric of every benchmark, and of every group
    data/pytest-touchstone/ORG/NAME/UUID_samples.jsonl    a line per item of a benchmark, and per metric made of items

The places are those of its collection of results. Details that are no text are written as JSON. A group has
``part_of`` among the details of its score: its items are among those of the whole. Composites are left out, as they
follow from their parts.

What a run does not know is ``unknown``: who evaluates, and whether the weights can be had.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.compare.formats.export import (
    READ_BY,
    ExportedCheckpoint,
    ExportedSample,
    Files,
    began,
    filtered,
    row_of,
    sanitized,
    text_hash,
)
from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.keys import redact_value
from pytest_touchstone.results.item_view import AnswerChoice, prompt_hash
from pytest_touchstone.results.store_entry import StoredResult, results_with_items
from pytest_touchstone.results.summary import Metric, Result, replace_non_finite
from pytest_touchstone.statistics.comparison import LEVEL

SCHEMA_VERSION: Final = "0.3.0"
OURS: Final = "pytest-touchstone"
CANONICAL: Final = {"acc": "accuracy"}
"""Our names of metrics that have another one there."""

UNKNOWN: Final = "unknown"

_MODEL: Final = ("parameters", "dtype", "format", "architecture", "fingerprint", "epoch", "seq_len")
"""The fields of a checkpoint's row that are told; no path, which is that of a machine."""


@dataclass(slots=True)
class _Record:
    """The file of a checkpoint: its path, its ids, and the results of whole benchmarks as saved."""

    export: ExportedCheckpoint
    model_id: str
    saved: Mapping[str, StoredResult]
    stem: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        run = self.export.summary
        told = f"{run.run_id}\0{self.export.checkpoint}\0{self.model_id}"
        digest = hashlib.sha256(told.encode("utf-8", "backslashreplace")).digest()
        folder = "/".join(sanitized(one) for one in self.model_id.split("/"))
        self.stem = f"data/{OURS}/{folder}/{uuid.UUID(bytes=digest[:16], version=4)}"
        self.id = f"{OURS}/{self.model_id}/{began(run).timestamp():.0f}"


def every_eval_ever_files(export: ExportedCheckpoint) -> Files:
    """Return the file of a checkpoint, and the one of its samples where it has any."""
    saved = {
        one.benchmark: one
        for one, _ in results_with_items(export.summary, {})
        if one.checkpoint == export.checkpoint
    }
    record = _Record(export, export.model_id or f"local/{sanitized(export.checkpoint)}", saved)
    content = _aggregate(record)
    lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(record)]
    if not lines:
        return {f"{record.stem}.json": content}
    samples = "".join(lines)
    content["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": f"{record.stem}_samples.jsonl",
        "hash_algorithm": "sha256",
        "checksum": text_hash(samples),
        "total_rows": len(lines),
    }
    return {f"{record.stem}.json": content, f"{record.stem}_samples.jsonl": samples}


def _aggregate(record: _Record) -> dict[str, Any]:
    run, export = record.export.summary, record.export
    start = began(run).timestamp()
    versions = {name: one for name, one in run.manifest.get("versions", {}).items() if one is not None}
    content = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": record.id,
        "evaluation_timestamp": f"{start:.0f}",
        "retrieved_timestamp": f"{start + run.seconds:.0f}",
        "source_metadata": {
            "source_name": f"{OURS}, run {run.run_id}",
            "source_type": "evaluation_run",
            "source_organization_name": UNKNOWN,
            **({"source_organization_url": export.source} if export.source else {}),
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": OURS,
            "version": str(versions.get(OURS, UNKNOWN)),
            "additional_details": _details({"run_id": run.run_id, **versions}),
        },
        "model_info": _model(record),
        "evaluation_results": [
            _result(record, result, metric)
            for result in export.results
            for metric in result.metrics.values()
            if metric.value is not None
        ],
    }
    found: dict[str, Any] = redact_value(replace_non_finite(content))
    return found


def _model(record: _Record) -> dict[str, Any]:
    row = row_of(record.export.summary, record.export.checkpoint)
    engine = str(row.get("engine") or UNKNOWN)
    version = record.export.summary.manifest.get("versions", {}).get(engine)
    series = str(row.get("series") or "").rstrip("/").rpartition("/")[2]
    told = {name: row.get(name) for name in _MODEL} | {"step": step_of_row(row), "series": series or None}
    return {
        "name": record.export.checkpoint,
        "id": record.model_id,
        **({"developer": record.model_id.partition("/")[0]} if record.export.model_id else {}),
        "inference_engine": {"name": engine, **({"version": version} if version else {})},
        "additional_details": {
            "deployment_type": UNKNOWN if row.get("served") else "self_deployed",
            "model_availability": UNKNOWN,
            **_details(told),
        },
    }


def _details(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the details as texts: a text unchanged, any other value as JSON."""
    known = {name: value for name, value in values.items() if value is not None}
    return {
        name: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for name, one in known.items()
    }


def _result(record: _Record, result: Result, metric: Metric) -> dict[str, Any]:
    how = record.saved[result.benchmark].aggregation(metric.name)
    asked = record.export.asked.get((result.benchmark, result.group))
    limits = None if metric.low is None or metric.high is None else (metric.low, metric.high)
    uncertainty = {
        **(
            {}
            if metric.stderr is None
            else {"standard_error": {"value": metric.stderr, "method": metric.method}}
        ),
        **({} if limits is None else {"confidence_interval": _interval(*limits, metric.method)}),
        "num_samples": metric.n,
    }
    details = {
        "primary": True if metric.name == result.primary else None,
        "part_of": result.benchmark if result.group is not None else None,
        "of": result.of or None,
        "mark": result.mark or None,
        "invalid": result.invalid,
        "prompts_sha256": asked.prompts if asked else None,
    }
    return {
        "evaluation_result_id": _result_id(result, metric),
        "evaluation_name": result.name,
        "source_data": _source(record, result),
        "evaluation_timestamp": f"{began(record.export.summary).timestamp():.0f}",
        "metric_config": _metric_config(metric, how),
        "score_details": {"score": metric.value, "details": _details(details), "uncertainty": uncertainty},
        "generation_config": _generation(record, result),
    }


def _result_id(result: Result, metric: Metric) -> str:
    return f"{result.name}#{metric.name}"


def _interval(low: float, high: float, method: str) -> dict[str, Any]:
    return {"lower": low, "upper": high, "confidence_level": LEVEL, "method": method}


def _source(record: _Record, result: Result) -> dict[str, Any]:
    data, hub = result.dataset, record.export.on_hub(result)
    told = _details(
        {"rows": data.rows, "origin": data.origin, "sha256": data.sha256, "config": hub.get("config")}
    )
    source = {"source_type": "other"}
    if hub:
        source = {"source_type": "hf_dataset", "hf_repo": hub["path"], "hf_split": hub["split"]}
    return {"dataset_name": data.name or result.benchmark, **source, "additional_details": told}


def _metric_config(metric: Metric, how: Aggregation) -> dict[str, Any]:
    """Return the description of a metric.

    Without a unit it is said to lie in [0, 1] if its value and its interval do.
    """
    name, _, k = metric.name.partition("@")
    many = name == "pass" and k.isdecimal()
    told = {key: one for key, one in how.plain().items() if key != "at"}
    values = [one for one in (metric.value, metric.low, metric.high) if one is not None]
    share = how.by == "mean" and not how.unit and all(0 <= one <= 1 for one in values)
    return {
        "metric_id": "pass_at_k" if many else CANONICAL.get(metric.name, metric.name),
        "metric_name": metric.name,
        **({"metric_parameters": {"k": int(k)}} if many else {}),
        **({"metric_unit": how.unit or "proportion"} if how.unit or share else {}),
        "lower_is_better": not how.higher_is_better,
        "score_type": "continuous",
        "min_score": 0 if share or how.by == "perplexity" or how.unit == "bits" else "-Infinity",
        "max_score": 1 if share else "Infinity",
        "additional_details": _details({"aggregation": told}),
    }


def _generation(record: _Record, result: Result) -> dict[str, Any]:
    """Return how the items were asked: all conditions of the result, and the settings of the texts."""
    asked = record.export.asked.get((result.benchmark, result.group))
    request = asked.generation if asked else {}
    names = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_new_tokens"}
    arguments = {name: request[ours] for name, ours in names.items() if ours in request}
    conditions = record.saved[result.benchmark].known
    as_json = {name: json.dumps(value, ensure_ascii=False) for name, value in conditions.items()}
    return {
        **({"generation_args": arguments} if arguments else {}),
        "additional_details": as_json | _details({"stop": request.get("stop") or None}),
    }


# Samples


def _lines(record: _Record) -> Iterator[dict[str, Any]]:
    """Yield a line per item and metric, by benchmark and metric."""
    whole = {one.benchmark: one for one in record.export.results if one.group is None}
    for benchmark, result in whole.items():
        own = [one for one in record.export.samples if one.record.benchmark == benchmark]
        for metric in result.metrics.values():
            how = record.saved[benchmark].aggregation(metric.name)
            for sample in own if metric.value is not None else ():
                if math.isfinite(sample.record.scores.get(how.score, math.nan)):
                    yield _line(record, result, metric, how.score, sample)


def _line(
    record: _Record, result: Result, metric: Metric, score: str, sample: ExportedSample
) -> dict[str, Any]:
    item, value = sample.record, sample.record.scores[score]
    first = sample.view.asked[0] if sample.view.asked else None
    choices = first.choices if first is not None and first.kind == "choices" else ()
    reference = [one.text for one in choices if one.right] or [sample.target]
    answers = [one for said in sample.responses for one in said]
    told = {"row": item.row, "group": item.group, "cluster": item.cluster}
    if item.exchanges:
        told["prompt_sha256"] = prompt_hash(item.exchanges[0])
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": record.id,
        "model_id": record.model_id,
        "evaluation_name": result.name,
        "evaluation_result_id": _result_id(result, metric),
        "sample_id": item.example,
        **({"sample_hash": _sample_hash(sample.prompt, reference)} if sample.row else {}),
        "interaction_type": "single_turn",
        "input": {
            "raw": sample.prompt,
            "reference": reference,
            **({"choices": [one.text for one in choices]} if choices else {}),
        },
        "output": {"raw": [str(one[0] if isinstance(one, list) else one) for one in answers]},
        "answer_attribution": _attribution(sample, metric.name, result.primary, choices),
        "evaluation": {"score": value, "is_correct": value == 1},
        "metadata": _details(told),
    }


def _sample_hash(prompt: str, reference: list[str]) -> str:
    """Return the hash that identifies an item across files; the prompt must be whole."""
    content = {"raw": prompt, "reference": reference}
    return text_hash(json.dumps(content, sort_keys=True, separators=(",", ":")))


def _attribution(
    sample: ExportedSample, metric: str, primary: str, choices: Sequence[AnswerChoice]
) -> list[dict[str, Any]]:
    """Return the answer that the metric's rule extracted, or the choice of the primary metric."""
    rule = READ_BY.get(filtered(metric)[1], "")
    read = sample.view.extracted.get(rule)
    if read is None and metric == primary:
        rule, read = metric, next((one.text for one in choices if one.chosen), None)
    how = {"extraction_method": rule, "is_terminal": True}
    return [] if read is None else [{"turn_idx": 0, "source": "output.raw", "extracted_value": read, **how}]
