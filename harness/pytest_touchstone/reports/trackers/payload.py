"""The content of a tracker: a run of ours as a tree of the tracker's runs, as plain data.

    touchstone RUN_ID                 the parent: totals, tags, summary.json, results.csv, the page
      eval_BENCHMARK_CHECKPOINT       a result: parameters, metrics at the checkpoint's step, tasks, first samples
      eval_COMPOSITE_CHECKPOINT       a composite, such as score
    series_NAME                       a series: every metric at every step, which a tracker draws as a curve

A curve is drawn of the points of one run; several series are several runs, drawn in one chart. What is not valid is
sent, with the tag ``valid`` false and the reason; in a series its points have names of their own (``not valid/...``).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from pytest_touchstone.checkpoints.config_files import seq_len_of_row
from pytest_touchstone.compare.mlflow import METRICS, tracker_name
from pytest_touchstone.core.text import count, join_names, shortest_endings
from pytest_touchstone.results.store_entry import StoredResult, results_from_records
from pytest_touchstone.results.summary import (
    Result,
    ResultRow,
    Summary,
    count_items,
    result_rows,
    whole_results,
)

TrackerRunKind: TypeAlias = Literal["run", "result", "composite", "series"]

NOT_VALID: Final = "not valid"
THOUSANDTHS: Final = 1000


class MetricPoint(NamedTuple):
    """A number at a step."""

    name: str
    value: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A run in the tracker. ``key`` identifies it within the touchstone run.

    ``params`` are plain values: texts, numbers, lists. The tag ``valid`` says whether its numbers are valid; otherwise
    ``why_not`` has the reason. ``files`` are its artifacts, by name.
    """

    key: str
    name: str
    kind: TrackerRunKind
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    points: tuple[MetricPoint, ...] = ()
    why_not: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)


CheckpointBenchmark: TypeAlias = tuple[str, str]
"""A checkpoint and a benchmark."""


class ResultFiles(NamedTuple):
    """The files of a result and the sampling parameters of its records.

    ``asked`` has ``num_samples``, ``temperature`` and ``max_new_tokens``. It is empty without generated texts, and None
    without scored items.
    """

    files: Mapping[str, Path]
    asked: Mapping[str, float] | None = None


def identity(summary: Summary) -> str:
    """Return the name of a run that is unique across machines. The run id alone is made of the time of day."""
    return f"{summary.run_id}@{float(summary.manifest.get('began') or 0.0):.3f}"


def tracked_runs(
    summary: Summary, files: Mapping[str, Path], result_files: Mapping[CheckpointBenchmark, ResultFiles]
) -> list[TrackedRun]:
    """Return the tracker's runs for a touchstone run, the parent first.

    Args:
        summary: The run.
        files: Files of the whole run, by name.
        result_files: Files of each result.

    """
    rows = {row.checkpoint: row for row in result_rows(summary)}.values()
    fine = {row.series for row in rows if row.step is not None and row.step != int(row.step)}
    steps = {row.checkpoint: SeriesStep.of(row, fine=row.series in fine) for row in rows}
    measured = _measured(summary)
    return [
        _parent(summary, measured, files),
        *_results(summary, measured, steps, result_files),
        *_composites(summary, measured, steps),
        *_series(summary, measured, steps),
    ]


class SeriesStep(NamedTuple):
    """The step of a checkpoint in its series, as a whole number.

    Trackers take integers: steps of a series with fractional epochs are in thousandths, as the tag ``step_unit`` says.
    ``series`` is None for a checkpoint without a step.
    """

    series: str | None = None
    step: int = 0
    tags: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, row: ResultRow, *, fine: bool) -> SeriesStep:
        """Return the step of a checkpoint. With ``fine`` it is in thousandths."""
        if row.step is None:
            return cls()
        unit = {"step_unit": "thousandths of an epoch"} if fine else {}
        return cls(row.series, round(row.step * (THOUSANDTHS if fine else 1)), unit)


class TrackedScores(NamedTuple):
    """The scores of a checkpoint on a benchmark or composite. ``why_not`` is the reason if they are NOT VALID."""

    checkpoint: str
    name: str
    values: Mapping[str, float | None]
    why_not: str | None
    composite: bool = False


def _measured(summary: Summary) -> list[TrackedScores]:
    """Return the scores of all checkpoints, under names that trackers accept."""
    measured = []
    for result in whole_results(summary):
        values = {tracker_name(metric.name): metric.value for metric in result.metrics.values()}
        measured.append(TrackedScores(result.checkpoint, result.name, values, why_not(result)))
    reasons = {(benchmark.checkpoint, benchmark.name): benchmark.why_not for benchmark in measured}
    for row in summary.composites:
        names = dict.fromkeys(component["benchmark"] for component in row["parts"])
        whys = [f"{name}: {why}" for name in names if (why := reasons.get((row["checkpoint"], name)))]
        values = {tracker_name(row["name"]): row["value"]}
        measured.append(
            TrackedScores(row["checkpoint"], row["name"], values, "; ".join(whys) or None, composite=True)
        )
    return measured


def why_not(result: Result) -> str | None:
    """Return why a result is NOT VALID, None if valid."""
    faults = f"{count(result.faults, 'item')} of {result.collected} failed" if result.faults else ""
    return "; ".join(text for text in (result.invalid or "", faults) if text) or None


def _run(
    summary: Summary,
    kind: TrackerRunKind,
    key: str,
    name: str,
    *,
    params: Mapping[str, Any],
    tags: Mapping[str, Any],
    numbers: Iterable[tuple[int, Mapping[str, float | None]]] = (),
    wrong: str | None,
    files: Mapping[str, Path] = MappingProxyType({}),
) -> TrackedRun:
    """Return a tracker's run with the common tags, and the defined numbers as points."""
    commit = summary.manifest.get("commit") or {}
    common_tags = (
        {"commit": f"{commit['id']}{' with changes' * bool(commit.get('dirty'))}"} if commit.get("id") else {}
    )
    common_tags |= {"valid": str(wrong is None).lower(), "why_not_valid": wrong or ""}
    points = [(name, value, step) for step, values in numbers for name, value in values.items()]
    return TrackedRun(
        key=key,
        name=name,
        kind=kind,
        params=drop_missing(params),
        tags=texts({"kind": kind, **tags, **common_tags}),
        points=tuple(
            MetricPoint(name, float(value), step)
            for name, value, step in points
            if value is not None and math.isfinite(value)
        ),
        why_not=wrong,
        files=files,
    )


def _parent(summary: Summary, measured: Sequence[TrackedScores], files: Mapping[str, Path]) -> TrackedRun:
    gate = summary.gate or {}
    failed = [checkpoint["name"] for checkpoint in summary.failed_to_load]
    benchmarks = [score for score in measured if not score.composite]
    reasons = [
        f"{score.name} of {score.checkpoint}: {score.why_not}" for score in benchmarks if score.why_not
    ]
    reasons += [f"{name} failed to load" for name in failed]
    versions = summary.manifest.get("versions") or {}
    return _run(
        summary,
        "run",
        "run",
        f"touchstone {summary.run_id}",
        # Parameters: as metrics they would be the first charts of an experiment, before its curves.
        params={
            **{f"versions.{name}": value for name, value in versions.items()},
            **{f"items.{name}": n for name, n in count_items(summary).items()},
            "seconds": round(summary.seconds, 1),
            "run_id": summary.run_id,
        },
        tags={
            "checkpoints": join_names(str(row.get("name")) for row in summary.checkpoints),
            "benchmarks": join_names(dict.fromkeys(benchmark.name for benchmark in benchmarks)),
            "failed_to_load": ", ".join(failed),
            "gate": str(gate.get("decision") or ""),
            "gate_text": str(gate.get("text") or ""),
        },
        wrong="; ".join(reasons) or None,
        files=files,
    )


def _results(
    summary: Summary,
    measured: Sequence[TrackedScores],
    steps: Mapping[str, SeriesStep],
    result_files: Mapping[CheckpointBenchmark, ResultFiles],
) -> Iterator[TrackedRun]:
    rows = {str(row.get("name")): row for row in summary.checkpoints}
    reasons = {(score.checkpoint, score.name): score.why_not for score in measured}
    results_by_key: dict[CheckpointBenchmark, list[Result]] = {}
    for result in summary.results:
        results_by_key.setdefault((result.checkpoint, result.benchmark), []).append(result)
    for saved, _ in results_from_records(summary, ()):
        key = (saved.checkpoint, saved.benchmark)
        results = results_by_key[key]
        files, step = result_files.get(key, ResultFiles({})), steps.get(saved.checkpoint, SeriesStep())
        undefined = [
            f"{result.name} {metric.name}: {metric.why or 'no value'}"
            for result in results
            for metric in result.metrics.values()
            if metric.value is None
        ]
        yield _run(
            summary,
            "result",
            f"result/{saved.checkpoint}/{saved.benchmark}",
            f"eval_{saved.benchmark}_{saved.checkpoint}",
            params=_params(saved, rows.get(saved.checkpoint, {}), files.asked),
            numbers=[(step.step, numbers) for result in results for numbers in _numbers(result)],
            tags={**_tags(saved), **step.tags, "undefined": "; ".join(undefined)},
            wrong=reasons[key],
            files=files.files,
        )


def _numbers(result: Result) -> Iterator[dict[str, float | None]]:
    """Yield the values of each metric with its interval, then the item counts."""
    front = "" if result.group is None else f"{tracker_name(result.group)}/"
    for metric in result.metrics.values():
        name = f"{front}{tracker_name(metric.name)}"
        yield {name: metric.value, f"n/{name}": metric.n} | (
            _interval(name, asdict(metric)) if metric.n else {}
        )
    yield {f"items/{front}{name}": getattr(result, name) for name in COUNTS}


def _interval(name: str, values: Mapping[str, Any]) -> dict[str, float | None]:
    return {f"interval/{name}/{end}": values.get(end) for end in ("low", "high", "stderr")}


COUNTS: Final = (
    *("collected", "scored", "of", "skipped", "errors", "timeouts", "lost"),
    *("truncated", "no_answer", "at_limit"),
)


def _params(saved: StoredResult, row: Mapping[str, Any], asked: Mapping[str, float] | None) -> dict[str, Any]:
    conditions = dict(saved.conditions)
    settings = {
        "num_samples": conditions.pop("samples", None),
        **{name: conditions.pop(name, None) for name in ("temperature", "max_new_tokens")},
    }
    if asked and settings["max_new_tokens"] is not None:  # in place of what the benchmark asks for
        asked = {**asked, "max_new_tokens": settings["max_new_tokens"]}
    return {
        **conditions,
        "checkpoint_path": row.get("path"),
        "checkpoint": saved.checkpoint,
        "dataset": saved.benchmark,
        **(settings if asked is None else asked),
        "checkpoint_epoch": row.get("epoch"),
        "checkpoint_step": row.get("step") if row.get("global_step") is None else row["global_step"],
        "checkpoint_val_loss": row.get("val_loss"),
        "seq_len": seq_len_of_row(row),
    }


def _tags(saved: StoredResult) -> dict[str, Any]:
    json_tags = {
        "touchstone.conditions": saved.conditions,
        "touchstone.aggregate": saved.aggregate,
        "touchstone.composites": saved.composites,
        METRICS: {tracker_name(name): [name, metric.method] for name, metric in saved.metrics.items()},
    }
    return {
        "benchmark": saved.benchmark,
        "checkpoint": saved.checkpoint,
        "series": saved.checkpoint_info.get("series"),
        "fingerprint": saved.fingerprint,
        "primary": saved.primary,
        "mark": saved.mark,
        "reused_from": ", ".join(saved.reused_from),
        **{name: json.dumps(value, ensure_ascii=False) for name, value in json_tags.items()},
    }


def _composites(
    summary: Summary, measured: Sequence[TrackedScores], steps: Mapping[str, SeriesStep]
) -> Iterator[TrackedRun]:
    rows = {str(row.get("name")): row for row in summary.checkpoints}
    for composite, score in zip(
        summary.composites, (score for score in measured if score.composite), strict=True
    ):
        checkpoint, name = composite["checkpoint"], composite["name"]
        row, step = rows.get(checkpoint, {}), steps.get(checkpoint, SeriesStep())
        terms = [
            f"{component['weight']} {component['benchmark']}:{component['metric']}"
            for component in composite["parts"]
        ]
        yield _run(
            summary,
            "composite",
            f"composite/{checkpoint}/{name}",
            f"eval_{name}_{checkpoint}",
            params={"checkpoint_path": row.get("path"), "checkpoint": checkpoint, "parts": " + ".join(terms)},
            numbers=[(step.step, {**score.values, **_interval(tracker_name(name), composite)})],
            tags={
                "composite": name,
                "checkpoint": checkpoint,
                "fingerprint": row.get("fingerprint"),
                "series": row.get("series"),
                "mark": composite.get("mark"),
                **step.tags,
            },
            wrong=score.why_not,
        )


def _series(
    summary: Summary, measured: Sequence[TrackedScores], steps: Mapping[str, SeriesStep]
) -> Iterator[TrackedRun]:
    endings = shortest_endings(step.series for step in steps.values() if step.series is not None)
    for series, ending in endings.items():
        names = [name for name, step in steps.items() if step.series == series]
        checkpoint_at = {steps[name].step: name for name in reversed(names)}
        if len(checkpoint_at) < 2:
            continue
        curve = [
            (step, {f"{_front(score)}{name}": value for name, value in score.values.items()}, score.why_not)
            for step, checkpoint in sorted(checkpoint_at.items())
            for score in measured
            if score.checkpoint == checkpoint
        ]
        invalid_points = sum(
            value is not None for _, values, why in curve if why for value in values.values()
        )
        left_out = [name for name in names if name not in checkpoint_at.values()]
        yield _run(
            summary,
            "series",
            f"series/{series}",
            f"series_{ending}",
            params={"series": series, "checkpoints": len(checkpoint_at), "run_id": summary.run_id},
            numbers=[(step, values) for step, values, _ in curve],
            tags={
                "series": series,
                "checkpoints": join_names(checkpoint_at.values(), len(checkpoint_at)),
                "left_out": f"{', '.join(left_out)}: at the step of another" if left_out else "",
                **steps[names[0]].tags,
            },
            wrong=f"{count(invalid_points, 'point')} of results that are not valid"
            if invalid_points
            else None,
        )


def _front(score: TrackedScores) -> str:
    """Return the prefix of metric names in a series."""
    return f"{NOT_VALID}/" * bool(score.why_not) + ("" if score.composite else f"{tracker_name(score.name)}/")


def drop_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as text, without None and empty ones."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in drop_missing(values).items()
    }


Pictures: TypeAlias = Callable[[], Mapping[str, Path]]
"""Draws the curves and bars of the whole run, by name. It is called last, since drawing takes long."""

PLACE: Final = "touchstone"
"""The experiment or project, unless another is named."""


@dataclass(frozen=True, slots=True)
class UploadResult:
    """What a tracker received.

    ``runs`` counts the runs in the tracker, ``new`` those created now; ``numbers`` and ``files`` were sent now.
    ``left_out`` are files that were not sent, with the reason.
    """

    where: str
    runs: int
    new: int
    numbers: int
    files: int
    left_out: tuple[str, ...] = ()


class Tracker(Protocol):
    """An experiment tracker."""

    name: str
    """The name in options and in ``reports.trackers.sending``."""
    title: str
    where: str
    """The words of the help on where it is."""
    place: str
    """Its word for what holds runs, such as experiment; ``--NAME-PLACE`` gives its name."""
    variable: str
    """Its own variable for that name."""

    def missing(self) -> str | None:
        """Return what must be installed or configured first, None if nothing; must be quick."""

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> UploadResult:
        """Send what the tracker lacks. ``pictures`` belong to the first run. Raises ``TrackerError``."""


def place_option(tracker: Tracker) -> str:
    """Return the name of the setting for the experiment or project."""
    return f"{tracker.name}_{tracker.place}"


def place_name(tracker: Tracker, settings: Mapping[str, Any]) -> str:
    """Return the experiment or project, from the settings, the tracker's environment variable, or the default."""
    return str(settings.get(place_option(tracker)) or os.environ.get(tracker.variable) or PLACE)
