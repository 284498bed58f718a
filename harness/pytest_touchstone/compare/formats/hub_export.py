"""A run's results as a model's repository on the Hub has them (huggingface.co/docs/hub/eval-results and model-cards).

    .eval_results/BENCHMARK.yaml    the primary metric, for the leaderboard of the dataset
    README.md                       the metrics in the card's metadata (``model-index``)

A result of ``.eval_results`` has one number: its interval, number of items, prompts and version are in ``notes``; in
the card they are the arguments of the metric. Files that are there keep all but the results of the same tasks. Results
that are not valid are left out. Nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.formats.every_eval_ever_export import CANONICAL, OURS
from pytest_touchstone.compare.formats.export import ExportedCheckpoint, Files, began, row_of
from pytest_touchstone.core.aggregation import is_soft
from pytest_touchstone.core.dataset import read_text
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import file_name
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.results.summary import Metric, Result
from pytest_touchstone.statistics.comparison import LEVEL, fixed

CARD: Final = "README.md"
FOLDER: Final = ".eval_results"

MOST_BYTES: Final = 1 << 22
"""The largest file of a repository that is read."""


class HubFiles(NamedTuple):
    """The files of a repository by path, and what must be known of them."""

    files: Files
    notes: list[str]


def hub_files(export: ExportedCheckpoint, folder: Path) -> HubFiles:
    """Return the files of a checkpoint's repository in this folder, with what else is in them there.

    Raises ``DataError`` for a file that is there and cannot be read.
    """
    import yaml

    complete = [
        result
        for result in export.results
        if result.group is None and result.metrics[result.primary].value is not None
    ]
    valid = [result for result in complete if result.invalid is None]
    on_hub = [result for result in valid if export.on_hub(result)]
    card, replaced = _card(export, valid, folder / CARD)
    files: Files = {CARD: card}
    for result in on_hub:
        name = f"{FOLDER}/{file_name(result.benchmark)}.yaml"
        ours = _entries(export, result)
        kept = [entry for entry in _yaml_list(folder / name) if _task(entry) not in map(_task, ours)]
        files[name] = yaml.safe_dump([*kept, *ours], sort_keys=False, allow_unicode=True)
    notes = [f"{count(len(on_hub), 'result')} in {FOLDER}/ beside it"]
    if dropped := [result.name for result in complete if result.invalid is not None]:
        notes.append(f"not valid, left out: {join_names(dropped)}")
    if unpublished := [result.name for result in valid if result not in on_hub]:
        notes.append(f"of no dataset on the Hub that is known, in the card alone: {join_names(unpublished)}")
    if partial := [result.name for result in valid if result.mark]:
        notes.append(f"over a part of the items, as their notes say: {join_names(partial)}")
    if replaced:
        notes.append(f"{CARD}: {count(replaced, 'result')} of the same tasks replaced, all else kept")
    return HubFiles(files, notes)


# .eval_results


def _entries(export: ExportedCheckpoint, result: Result) -> list[dict[str, Any]]:
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    hub = export.on_hub(result)
    entry = EvalResultEntry(
        dataset_id=hub["path"],
        task_id=hub.get("config", "default"),
        value=result.metrics[result.primary].value,
        date=began(export.summary).astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        source_url=export.source,
        source_name=_library(export) if export.source else None,
        notes=_notes(export, result),
    )
    return eval_result_entries_to_yaml([entry])


def _notes(export: ExportedCheckpoint, result: Result) -> str:
    """Return all that must be known beside the number."""
    metric, asked = result.metrics[result.primary], export.asked.get((result.benchmark, None))
    limits = ""
    if metric.low is not None and metric.high is not None:
        limits = f"{LEVEL:.0%} interval {fixed(metric.low, 4)} to {fixed(metric.high, 4)} ({metric.method})"
    parts = (
        f"{result.benchmark} version {result.version}, {metric.name}",
        limits,
        f"{metric.n} items",
        result.mark,
        f"{result.shots}-shot",
        "chat template" if result.template == "chat" else "",
        f"prompts sha256 {asked.prompts}" if asked else "",
        _library(export),
    )
    return "; ".join(part for part in parts if part)


def _library(export: ExportedCheckpoint) -> str:
    version = export.summary.manifest.get("versions", {}).get(OURS)
    return f"{OURS} {version or ''}".rstrip() + f", run {export.summary.run_id}"


def _task(entry: Any) -> tuple[Any, Any] | None:
    """Return the dataset and the task of a result; None where it names none."""
    dataset = entry.get("dataset") if isinstance(entry, dict) else None
    return (dataset.get("id"), dataset.get("task_id")) if isinstance(dataset, dict) else None


# The card


def _card(export: ExportedCheckpoint, results: Sequence[Result], path: Path) -> tuple[str, int]:
    """Return the card with the results, and how many of the one that is there are replaced."""
    from huggingface_hub import RepoCard
    from huggingface_hub.repocard_data import eval_results_to_model_index

    name = (export.model_id or export.checkpoint).rpartition("/")[2]
    ours = [
        one
        for result in results  # not at once: two benchmarks of one dataset would be one result
        for one in eval_results_to_model_index(name, _evaluations(export, result))[0]["results"]
    ]
    text = _text_of(path)
    card = _parsed(path, lambda: RepoCard(text if text.lstrip().startswith("---") else f"---\n\n---\n{text}"))
    index = card.data.get("model-index") or [{"name": name, "results": []}]
    known = [_same(one) for one in ours]
    try:
        there = index[0]["results"]
        kept = [one for one in there if _same(one) not in known]
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path}: its model-index is of another form ({error!r}); mend it, or give another -o"
        ) from None
    card.data["model-index"] = [{**index[0], "results": [*kept, *ours]}, *index[1:]]
    if not text:
        card.text = f"\n# {name}\n"
    return str(card), len(there) - len(kept)


def _evaluations(export: ExportedCheckpoint, result: Result) -> list[Any]:
    """Return the metrics of a benchmark, but soft scores and those without a value."""
    from huggingface_hub import EvalResult

    hub, asked = export.on_hub(result), export.asked.get((result.benchmark, None))
    masked = row_of(export.summary, export.checkpoint).get("kind") == "masked"
    return [
        EvalResult(
            task_type="fill-mask" if masked else "text-generation",
            dataset_type=hub.get("path", result.dataset.name or result.benchmark),
            dataset_name=result.benchmark,
            dataset_config=hub.get("config"),
            dataset_split=hub.get("split"),
            dataset_args={"num_few_shot": result.shots},
            metric_type=CANONICAL.get(metric.name, metric.name),
            metric_name=metric.name,
            metric_value=metric.value,
            metric_args=_arguments(result, metric, asked.prompts if asked else None),
            source_name=_library(export) if export.source else None,
            source_url=export.source,
        )
        for metric in result.metrics.values()
        if metric.value is not None and not is_soft(metric.name)
    ]


def _arguments(result: Result, metric: Metric, prompts: str | None) -> dict[str, Any]:
    told = {
        "n": metric.n,
        "low": metric.low,
        "high": metric.high,
        "level": LEVEL,
        "interval": metric.method,
        "stderr": metric.stderr,
        "mark": result.mark or None,
        "version": result.version,
        "template": result.template,
        "prompts_sha256": prompts,
    }
    return {name: one for name, one in told.items() if one is not None}


def _same(result: Any) -> tuple[Any, ...]:
    """Return what makes two results of a card the same task."""
    found = (result["dataset"].get(name) for name in ("type", "config", "split", "name"))
    return tuple(one if isinstance(one, str) else None for one in found)


# Files that are there


def _text_of(path: Path) -> str:
    """Return the text of a file; empty where there is none."""
    return read_text(path, MOST_BYTES) if path.exists() else ""


def _yaml_list(path: Path) -> list[Any]:
    import yaml

    text = _text_of(path)
    found = _parsed(path, lambda: yaml.safe_load(text)) or []
    if not isinstance(found, list):
        raise DataError(
            f"{path}: a {type(found).__name__}, not a list of results; mend it, or give another -o"
        )
    return found


def _parsed(path: Path, parse: Callable[[], Any]) -> Any:
    import yaml

    try:
        return parse()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{path}: its YAML cannot be read ({told}); mend it, or give another -o") from None
