"""The rules of Every Eval Ever's schemas, as JSON schemas of draft 7, written anew without their descriptions.

They say what the published ones do: ``eval.schema.json``, version 0.3.0 (commit 3edb577b), and
``instance_level_eval.schema.json``, version 0.2.2 (commit 21b3d1ab), the newest that was at hand, both of
github.com/evaleval/every_eval_ever. No licence was found beside them, so they are not copied. What is allowed for
agents, judges and several turns, which no run of this harness has, is not repeated: its fields are refused.
``problems`` adds what the project's own validator asks of a file beside its schema.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
WHOLE: Final = {"type": "integer"}
TEXTS: Final = {"type": "array", "items": TEXT}
DETAILS: Final = {"type": "object", "additionalProperties": TEXT}
BOUND: Final = {"oneOf": [NUMBER, {"enum": ["Infinity", "-Infinity"]}, {"type": "null"}]}
UUID: Final = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"


def table(required: str = "", **fields: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": fields,
        "additionalProperties": False,
    }


def one_of(*words: str) -> dict[str, Any]:
    return {"enum": list(words)}


SOURCE: Final = table(
    "source_type source_organization_name evaluator_relationship",
    source_name=TEXT,
    source_type=one_of("documentation", "evaluation_run"),
    source_organization_name=TEXT,
    source_organization_url=TEXT,
    source_organization_logo_url=TEXT,
    evaluator_relationship=one_of("first_party", "third_party", "collaborative", "other"),
    additional_details=DETAILS,
)
MODEL: Final = table(
    "name id additional_details",
    name=TEXT,
    id=TEXT,
    developer=TEXT,
    inference_platform=TEXT,
    inference_engine=table(name=TEXT, version=TEXT),
    additional_details={
        **DETAILS,
        "required": ["deployment_type", "model_availability"],
        "properties": {
            "deployment_type": one_of("self_deployed", "externally_managed", "unknown"),
            "model_availability": one_of("open_weights", "closed_weights", "unknown"),
        },
    },
)
DATA: Final = {
    "oneOf": [
        table(
            "dataset_name source_type",
            dataset_name=TEXT,
            source_type={"const": "hf_dataset"},
            hf_repo=TEXT,
            hf_split=TEXT,
            samples_number=WHOLE,
            sample_ids=TEXTS,
            additional_details=DETAILS,
        ),
        table(
            "dataset_name source_type",
            dataset_name=TEXT,
            source_type={"const": "other"},
            additional_details=DETAILS,
        ),
    ]
}
METRIC: Final = {
    **table(
        "lower_is_better",
        evaluation_description=TEXT,
        metric_id=TEXT,
        metric_name=TEXT,
        metric_kind=TEXT,
        metric_unit=TEXT,
        metric_parameters={
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        },
        lower_is_better={"type": "boolean"},
        score_type=one_of("binary", "continuous", "levels"),
        min_score=BOUND,
        max_score=BOUND,
        additional_details=DETAILS,
    ),
    "if": {"required": ["score_type"], "properties": {"score_type": {"const": "continuous"}}},
    "then": {"required": ["min_score", "max_score"]},
}
SCORE: Final = table(
    "score",
    score=NUMBER,
    details=DETAILS,
    uncertainty=table(
        standard_error=table("value", value=NUMBER, method=TEXT),
        confidence_interval=table(
            "lower upper",
            lower=NUMBER,
            upper=NUMBER,
            confidence_level={**NUMBER, "minimum": 0, "maximum": 1},
            method=TEXT,
        ),
        standard_deviation=NUMBER,
        num_samples=WHOLE,
        num_bootstrap_samples=WHOLE,
    ),
)
GENERATION: Final = table(
    generation_args=table(
        temperature={"type": ["null", "number"]},
        top_p={"type": ["null", "number"]},
        top_k={"type": ["null", "number"]},
        max_tokens={**WHOLE, "minimum": 1},
        execution_command=TEXT,
        reasoning={"type": "boolean"},
        prompt_template=TEXT,
    ),
    additional_details=DETAILS,
)
AGGREGATE: Final = table(
    "schema_version evaluation_id retrieved_timestamp source_metadata model_info eval_library evaluation_results",
    schema_version=TEXT,
    evaluation_id=TEXT,
    evaluation_timestamp=TEXT,
    retrieved_timestamp=TEXT,
    source_metadata=SOURCE,
    eval_library=table("name version", name=TEXT, version=TEXT, additional_details=DETAILS),
    model_info=MODEL,
    evaluation_results={
        "type": "array",
        "items": table(
            "evaluation_name source_data metric_config score_details",
            evaluation_result_id=TEXT,
            evaluation_name=TEXT,
            source_data=DATA,
            evaluation_timestamp=TEXT,
            metric_config=METRIC,
            score_details=SCORE,
            generation_config=GENERATION,
        ),
    },
    detailed_evaluation_results=table(
        "format file_path",
        format={"const": "jsonl"},
        file_path={**TEXT, "pattern": rf"^data/[^/]+/[^/]+/[^/]+/{UUID}_samples\.jsonl(?:\.gz)?$"},
        hash_algorithm=one_of("sha256", "md5"),
        checksum=TEXT,
        total_rows=WHOLE,
        additional_details=DETAILS,
    ),
)
SAMPLE: Final = table(
    "schema_version evaluation_id model_id evaluation_name sample_id interaction_type input output "
    "answer_attribution evaluation",
    schema_version=TEXT,
    evaluation_id=TEXT,
    model_id=TEXT,
    evaluation_name=TEXT,
    evaluation_result_id=TEXT,
    sample_id=TEXT,
    sample_hash={"type": ["string", "null"]},
    interaction_type={"const": "single_turn"},
    input=table("raw reference", raw=TEXT, formatted=TEXT, reference=TEXTS, choices=TEXTS),
    output=table("raw", raw=TEXTS, reasoning_trace=TEXTS),
    answer_attribution={
        "type": "array",
        "items": table(
            "turn_idx source extracted_value extraction_method is_terminal",
            turn_idx={**WHOLE, "minimum": 0},
            source=TEXT,
            extracted_value=TEXT,
            extraction_method=TEXT,
            is_terminal={"type": "boolean"},
        ),
    },
    evaluation=table("score is_correct", score=NUMBER, is_correct={"type": "boolean"}),
    error={"type": ["string", "null"]},
    metadata=DETAILS,
)


def problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the files below a folder that has the layout of the project's collection."""
    for path in sorted(folder.glob("data/**/*.json")):
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: f"{word}, no JSON")
        yield from _errors(AGGREGATE, content, path.name)
        yield from _beyond_the_schema(content, path, folder)


def _errors(schema: dict[str, Any], content: Any, where: str) -> Iterator[str]:
    for error in jsonschema.Draft7Validator(schema).iter_errors(content):
        yield f"{where}, {error.json_path}: {error.message[:200]}"


def _beyond_the_schema(content: dict[str, Any], path: Path, folder: Path) -> Iterator[str]:
    for one in content["evaluation_results"]:
        low, high = (float(one["metric_config"][name]) for name in ("min_score", "max_score"))
        if not (
            math.isfinite(one["score_details"]["score"]) and low <= one["score_details"]["score"] <= high
        ):
            yield f"{one['evaluation_result_id']}: outside its bounds"
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    told = content.get("detailed_evaluation_results")
    if told is None:
        if samples.exists():
            yield f"{samples.name}: not told of"
        return
    if told["file_path"] != str(samples.relative_to(folder)):
        yield f"{samples.name}: told to be at {told['file_path']}"
    data = samples.read_bytes()
    lines = [json.loads(line) for line in data.decode().splitlines()]
    if (told["checksum"], told["total_rows"]) != (hashlib.sha256(data).hexdigest(), len(lines)):
        yield f"{samples.name}: another checksum, or another number of rows"
    known = {one["evaluation_result_id"]: one["evaluation_name"] for one in content["evaluation_results"]}
    for number, line in enumerate(lines, start=1):
        yield from _errors(SAMPLE, line, f"row {number}")
        ids = (line["evaluation_id"], line["model_id"], line["schema_version"])
        if ids != (content["evaluation_id"], content["model_info"]["id"], content["schema_version"]):
            yield f"row {number}: of another evaluation or model: {ids}"
        if known.get(line["evaluation_result_id"]) != line["evaluation_name"]:
            yield f"row {number}: of no result: {line['evaluation_result_id']}"
