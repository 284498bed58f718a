"""The result file of the Korean masked-language-model studies, one a checkpoint, and a table of all
checkpoints.

    checkpoint, seq_len            as in the run
    real1, real5, lambada_top1     lenient scores; NAME_strict and NAME_stderr beside each
    lambada_wiki_top1              the same question on its Wikipedia form, never mixed with the other
    score, score_wiki              0.4 real1 + 0.3 real5 + 0.3 lambada_top1 (or lambada_wiki_top1)
    coref_samples, ...             items scored
    coref_of, ...                  items that the set has with this data
    mark                           which of the numbers are over fewer items, or over a sample; empty for none
    coref_seconds, ...             time spent on them
    checkpoint_info                path, name, model_type, global_step, epoch, seq_len

What was not measured is null. Only checkpoints that ran one of these benchmarks have a file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness.results import Metric, Result, Summary, wholes

SCHEMA: Final = 1


class Column(NamedTuple):
    """A number of this form: its key, and which metric of which benchmark it is."""

    key: str
    benchmark: str
    metric: str


COLUMNS: Final = (
    Column("real1", "real_coref", "real@1"),
    Column("real5", "real_coref", "real@5"),
    Column("lambada_top1", "ko_lambada", "lambada@1"),
    Column("lambada_wiki_top1", "ko_lambada_wiki", "lambada@1"),
)
SETS: Final = {"coref": "real_coref", "lambada": "ko_lambada", "lambada_wiki": "ko_lambada_wiki"}
SCORES: Final = ("score", "score_wiki")
RANKED: Final = (*SCORES, "real1", "real5")
INFO: Final = ("path", "name", "model_type", "global_step", "epoch", "seq_len")


def rows(summary: Summary) -> list[dict[str, Any]]:
    """One object in this form for each checkpoint that ran one of its benchmarks, in the run's order."""
    found: dict[str, dict[str, Result]] = {}
    for result in wholes(summary):
        if result.benchmark in SETS.values():
            found.setdefault(result.checkpoint, {})[result.benchmark] = result
    return [_row(summary, checkpoint, results) for checkpoint, results in found.items()]


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each of score, score_wiki, real1, real5: the checkpoint with the highest value, the first of
    equals.

    What no checkpoint has is left out. A maximum over many noisy values is biased upwards: the standard error
    stands beside it.
    """
    found: dict[str, dict[str, Any]] = {}
    for key in RANKED:
        measured = [row for row in rows if row[key] is not None]
        if measured:
            top = max(measured, key=lambda row: row[key])
            found[key] = {
                "checkpoint": top["checkpoint"],
                "value": top[key],
                "stderr": top[f"{key}_stderr"],
                "of": len(measured),
            }
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as CSV with a header, one line a checkpoint; empty fields where not measured."""
    flat = [{**row["checkpoint_info"], **row} for row in rows]
    first = ("checkpoint", "global_step", "epoch", "seq_len")
    others = [key for key in rows[0] if key not in (*first, "checkpoint_info", "schema")] if rows else []
    text = io.StringIO()
    writer = csv.DictWriter(text, [*first, *others], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _row(summary: Summary, checkpoint: str, results: Mapping[str, Result]) -> dict[str, Any]:
    info = next((c for c in summary.checkpoints if c.get("name") == checkpoint), {"name": checkpoint})
    row: dict[str, Any] = {"schema": SCHEMA, "checkpoint": checkpoint, "seq_len": info.get("seq_len")}
    for key, benchmark, metric in COLUMNS:
        metrics = results[benchmark].metrics if benchmark in results else {}
        row |= _numbers(key, metrics.get(metric))
        strict = metrics.get(f"{metric}_strict")
        row[f"{key}_strict"] = None if strict is None else strict.value
    for name in SCORES:
        composites = (c for c in summary.composites if (c["name"], c["checkpoint"]) == (name, checkpoint))
        score = next(composites, {"value": None, "stderr": None})
        row |= {name: score["value"], f"{name}_stderr": score["stderr"]}
    for key, benchmark in SETS.items():
        row[f"{key}_samples"] = results[benchmark].scored if benchmark in results else None
    for key, benchmark in SETS.items():
        row[f"{key}_of"] = (results[benchmark].of or None) if benchmark in results else None
    row["mark"] = "; ".join(f"{name}: {one.mark}" for name, one in results.items() if one.mark)
    for key, benchmark in SETS.items():
        row[f"{key}_seconds"] = round(results[benchmark].seconds, 3) if benchmark in results else None
    row["total_seconds"] = round(sum(result.seconds for result in results.values()), 3)
    row["run_id"] = summary.run_id
    row["checkpoint_info"] = {key: info.get(key) for key in INFO}
    return row


def _numbers(key: str, metric: Metric | None) -> dict[str, float | None]:
    if metric is None:
        return {key: None, f"{key}_stderr": None}
    return {key: metric.value, f"{key}_stderr": metric.stderr}
