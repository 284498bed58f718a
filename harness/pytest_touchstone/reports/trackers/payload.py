"""The content of a tracker: a run of ours as a tree of the tracker's runs. Pure: from a summary to plain data.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from pytest_touchstone.compare.mlflow import METRICS, tracker_name
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.results.rows import result_rows
from pytest_touchstone.results.store_entry import StoredResult, saved_of
from pytest_touchstone.results.summary import Metric, Result, Summary, totals, wholes

Kind: TypeAlias = Literal["run", "result", "composite", "series"]

NOT_VALID: Final = "not valid"
THOUSANDTHS: Final = 1000


class MetricPoint(NamedTuple):
    """A number at a step."""

    name: str
    value: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A run in the tracker; ``key`` tells it from the others of the same run of ours.

    ``params`` are plain values: texts, numbers, lists. ``why_not`` says why its numbers must not be believed, None
    where nothing is known against them. ``files`` are its artifacts, by name.
    """

    key: str
    name: str
    kind: Kind
    params: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[MetricPoint, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    why_not: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def all_tags(self) -> dict[str, str]:
        """The tags, with whether it is valid, and why not."""
        why = {} if self.why_not is None else {"why_not_valid": self.why_not}
        return {**self.tags, "valid": str(self.why_not is None).lower(), **why}


class TrackedPlace(NamedTuple):
    """A checkpoint and a benchmark, or a composite."""

    checkpoint: str
    benchmark: str


class ResultFiles(NamedTuple):
    """The facts about a result that its records have: files to send, and how texts were asked for.

    ``asked`` has ``num_samples``, ``temperature`` and ``max_new_tokens``; it is empty where no text was asked for, and
    None where no item was scored.
    """

    files: Mapping[str, Path]
    asked: Mapping[str, float] | None = None


def identity(summary: Summary) -> str:
    """The name of a run among all runs of all machines: ids alone are made of the time of day."""
    return f"{summary.run_id}@{float(summary.manifest.get('began') or 0.0):.3f}"


def tracked_runs(
    summary: Summary, files: Mapping[str, Path], found: Mapping[TrackedPlace, ResultFiles]
) -> list[TrackedRun]:
    """Return what is sent of a run, the parent first; ``files`` are the run's own, ``found`` those of its results."""
    steps = Steps(summary)
    return [
        _parent(summary, files),
        *_results(summary, steps, found),
        *_composites(summary, steps),
        *_series(summary, steps),
    ]


class Steps:
    """The steps of the checkpoints as whole numbers, as trackers take them; 0 for one that has no place in a series."""

    def __init__(self, summary: Summary) -> None:
        rows = {row.checkpoint: row for row in result_rows(summary)}
        self.series = {name: row.series for name, row in rows.items()}
        self._places = {name: row.step for name, row in rows.items() if row.step is not None}
        parts = {self.series[name] for name, place in self._places.items() if place != int(place)}
        self._fine = {name for name, series in self.series.items() if series in parts}

    def known(self, checkpoint: str) -> bool:
        """Return whether the checkpoint has a place in a series."""
        return checkpoint in self._places

    def of(self, checkpoint: str) -> int:
        """Return the step; in thousandths where the series has fractions of an epoch."""
        return round(self._places.get(checkpoint, 0) * (THOUSANDTHS if checkpoint in self._fine else 1))

    def tags(self, checkpoint: str) -> dict[str, str]:
        """Return the tag about the unit of steps, where that is not the step itself."""
        return {"step_unit": "thousandths of an epoch"} if checkpoint in self._fine else {}


def _parent(summary: Summary, files: Mapping[str, Path]) -> TrackedRun:
    manifest, gate = summary.manifest, summary.gate or {}
    failed = [one["name"] for one in summary.failed_to_load]
    wrong = [f"{one.name} of {one.checkpoint}: {why}" for one in wholes(summary) if (why := why_not(one))]
    wrong += [f"{name} failed to load" for name in failed]
    tags = {
        "kind": "run",
        **_commit(manifest),
        "checkpoints": listed(str(row.get("name")) for row in summary.checkpoints),
        "benchmarks": listed(dict.fromkeys(one.benchmark for one in wholes(summary))),
        "failed_to_load": ", ".join(failed),
        "gate": str(gate.get("decision") or ""),
        "gate_text": str(gate.get("text") or ""),
    }
    versions = manifest.get("versions") or {}
    told = {f"versions.{name}": value for name, value in versions.items()}
    # Parameters: as metrics they would be the first charts of an experiment, before its curves.
    told |= {f"items.{name}": n for name, n in totals(summary).items()}
    told |= {"seconds": round(summary.seconds, 1), "run_id": summary.run_id}
    return TrackedRun(
        key="run",
        name=f"touchstone {summary.run_id}",
        kind="run",
        params=known(told),
        tags=texts(tags),
        why_not="; ".join(wrong) or None,
        files=files,
    )


def _results(
    summary: Summary, steps: Steps, found: Mapping[TrackedPlace, ResultFiles]
) -> Iterator[TrackedRun]:
    rows = {str(row.get("name")): row for row in summary.checkpoints}
    groups: dict[TrackedPlace, list[Result]] = {}
    for result in summary.results:
        groups.setdefault(TrackedPlace(result.checkpoint, result.benchmark), []).append(result)
    for saved, _ in saved_of(summary, ()):
        place = TrackedPlace(saved.checkpoint, saved.benchmark)
        of_place = groups[place]
        (whole,) = (one for one in of_place if one.group is None)
        more = found.get(place, ResultFiles({}))
        step = steps.of(saved.checkpoint)
        yield TrackedRun(
            key=f"result/{saved.checkpoint}/{saved.benchmark}",
            name=f"eval_{saved.benchmark}_{saved.checkpoint}",
            kind="result",
            params=_params(saved, rows.get(saved.checkpoint, {}), more.asked),
            points=tuple(point for one in of_place for point in _of_result(one, step)),
            tags=texts(_tags(saved, summary.manifest) | steps.tags(saved.checkpoint) | _undefined(of_place)),
            why_not=why_not(whole),
            files=more.files,
        )


def why_not(result: Result) -> str | None:
    """Return why the numbers of a result must not be believed, None where nothing is known against them."""
    faults = f"{count(result.faults, 'item')} of {result.collected} failed" if result.faults else ""
    return "; ".join(text for text in (result.invalid or "", faults) if text) or None


def _of_result(result: Result, step: int) -> Iterator[MetricPoint]:
    front = "" if result.group is None else f"{tracker_name(result.group)}/"
    for metric in result.metrics.values():
        yield from _of_metric(f"{front}{tracker_name(metric.name)}", metric, step)
    counts = {name: getattr(result, name) for name in ("collected", "scored", "of", *_FAULTS)}
    yield from _points({f"items/{front}{name}": number for name, number in counts.items()}, step)


_FAULTS: Final = ("skipped", "errors", "timeouts", "lost", "truncated", "no_answer", "at_limit")


def _of_metric(name: str, metric: Metric, step: int) -> Iterator[MetricPoint]:
    more = {
        f"interval/{name}/{part}": getattr(metric, part) for part in ("low", "high", "stderr") if metric.n
    }
    yield from _points({name: metric.value, **more, f"n/{name}": metric.n}, step)


def _points(numbers: Mapping[str, float | None], step: int) -> Iterator[MetricPoint]:
    """Yield the numbers that are defined."""
    for name, value in numbers.items():
        if value is not None and math.isfinite(value):
            yield MetricPoint(name, float(value), step)


def _undefined(results: Iterable[Result]) -> dict[str, str]:
    """Return the tag about metrics without a value."""
    lacking = [
        f"{one.name} {metric.name}: {metric.why or 'no value'}"
        for one in results
        for metric in one.metrics.values()
        if metric.value is None
    ]
    return {"undefined": "; ".join(lacking)}


def _params(saved: StoredResult, row: Mapping[str, Any], asked: Mapping[str, float] | None) -> dict[str, Any]:
    conditions = dict(saved.conditions)
    settings = {
        "num_samples": conditions.pop("samples", None),
        **{name: conditions.pop(name, None) for name in ("temperature", "max_new_tokens")},
    }
    if asked and settings["max_new_tokens"] is not None:  # in place of what the benchmark asks for
        asked = {**asked, "max_new_tokens": settings["max_new_tokens"]}
    own = {
        "checkpoint_path": row.get("path"),
        "checkpoint": saved.checkpoint,
        "dataset": saved.benchmark,
        **(settings if asked is None else asked),
        "checkpoint_epoch": row.get("epoch"),
        "checkpoint_step": row.get("step") if row.get("global_step") is None else row["global_step"],
        "checkpoint_val_loss": row.get("val_loss"),
        "seq_len": row.get("seq_len"),
    }
    return known({**conditions, **own})


def _tags(saved: StoredResult, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "result",
        "benchmark": saved.benchmark,
        "checkpoint": saved.checkpoint,
        "series": saved.checkpoint_info.get("series"),
        "fingerprint": saved.fingerprint,
        "primary": saved.primary,
        "mark": saved.mark,
        "reused_from": ", ".join(saved.reused_from),
        **_commit(manifest),
        "touchstone.conditions": json.dumps(saved.conditions, ensure_ascii=False),
        "touchstone.aggregate": json.dumps(saved.aggregate, ensure_ascii=False),
        "touchstone.composites": json.dumps(saved.composites, ensure_ascii=False),
        METRICS: json.dumps(
            {tracker_name(name): [name, one.method] for name, one in saved.metrics.items()},
            ensure_ascii=False,
        ),
    }


def _commit(manifest: Mapping[str, Any]) -> dict[str, str]:
    commit = manifest.get("commit") or {}
    if not commit.get("id"):
        return {}
    return {"commit": commit["id"] + (" with changes" if commit.get("dirty") else "")}


def _composites(summary: Summary, steps: Steps) -> Iterator[TrackedRun]:
    rows = {str(row.get("name")): row for row in summary.checkpoints}
    for one in summary.composites:
        name, checkpoint = tracker_name(one["name"]), one["checkpoint"]
        row = rows.get(checkpoint, {})
        numbers = {name: one["value"]}
        numbers |= {f"interval/{name}/{part}": one.get(part) for part in ("low", "high", "stderr")}
        parts = [f"{part['weight']} {part['benchmark']}:{part['metric']}" for part in one["parts"]]
        tags = {"kind": "composite", "composite": one["name"], "checkpoint": checkpoint}
        tags |= {"fingerprint": row.get("fingerprint"), "series": row.get("series"), "mark": one.get("mark")}
        yield TrackedRun(
            key=f"composite/{checkpoint}/{one['name']}",
            name=f"eval_{one['name']}_{checkpoint}",
            kind="composite",
            params=known(
                {"checkpoint_path": row.get("path"), "checkpoint": checkpoint, "parts": " + ".join(parts)}
            ),
            points=tuple(_points(numbers, steps.of(checkpoint))),
            tags=texts(tags | _commit(summary.manifest) | steps.tags(checkpoint)),
            why_not=_composite_why_not(summary, one),
        )


def _composite_why_not(summary: Summary, composite: Mapping[str, Any]) -> str | None:
    parts = {part["benchmark"] for part in composite["parts"]}
    wrong = [
        f"{one.name}: {why}"
        for one in wholes(summary)
        if one.checkpoint == composite["checkpoint"] and one.benchmark in parts and (why := why_not(one))
    ]
    return "; ".join(wrong) or None


def _series(summary: Summary, steps: Steps) -> Iterator[TrackedRun]:
    members: dict[str, list[str]] = {}
    for name, series in steps.series.items():
        if series is not None and steps.known(name):
            members.setdefault(series, []).append(name)
    for series, names in members.items():
        at = {steps.of(name): name for name in reversed(names)}
        if len(at) < 2:
            continue
        points = [point for step, name in sorted(at.items()) for point in _curve(summary, name, step)]
        wrong = [point.name for point in points if point.name.startswith(NOT_VALID)]
        left_out = [name for name in names if name not in at.values()]
        tags = {"kind": "series", "series": series, "checkpoints": listed(at.values(), len(at))}
        tags |= {"left_out": f"{', '.join(left_out)}: at the step of another" if left_out else ""}
        yield TrackedRun(
            key=f"series/{series}",
            name=f"series_{Path(series).name}",
            kind="series",
            params=known({"series": series, "checkpoints": len(at), "run_id": summary.run_id}),
            points=tuple(points),
            tags=texts(tags | _commit(summary.manifest) | steps.tags(names[0])),
            why_not=f"{count(len(wrong), 'point')} of results that are not valid" if wrong else None,
        )


def _curve(summary: Summary, checkpoint: str, step: int) -> Iterator[MetricPoint]:
    for result in wholes(summary):
        if result.checkpoint == checkpoint:
            front = f"{NOT_VALID}/" if why_not(result) else ""
            values = {
                f"{front}{tracker_name(result.name)}/{tracker_name(one.name)}": one.value
                for one in result.metrics.values()
            }
            yield from _points(values, step)
    for one in summary.composites:
        if one["checkpoint"] == checkpoint:
            front = f"{NOT_VALID}/" if _composite_why_not(summary, one) else ""
            yield from _points({f"{front}{tracker_name(one['name'])}": one["value"]}, step)


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those that are not known."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as text, without those that are not known."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in known(values).items()
    }


Pictures: TypeAlias = Callable[[], Mapping[str, Path]]
"""Draws the curves and bars of the whole run, by name. It is called last, since drawing takes long."""

PLACE: Final = "touchstone"
"""The experiment or project, unless another is named."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome: where it is, the number of the tracker's runs, of those that are new, and of numbers and files that
    were sent now."""

    where: str
    runs: int
    new: int
    numbers: int
    files: int


class Tracker(Protocol):
    """A tracker."""

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
        """Return what must be installed or set first, None where nothing is missing; quick."""

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> Sent:
        """Send what is not there yet; the pictures belong to the first run. Raises ``TrackerError``."""


def place_option(tracker: Tracker) -> str:
    """Return the name of the setting that names the experiment or project."""
    return f"{tracker.name}_{tracker.place}"


def place_name(tracker: Tracker, settings: Mapping[str, Any]) -> str:
    """Return the experiment or project: of the options, of the tracker's own variable, or ours."""
    return str(settings.get(place_option(tracker)) or os.environ.get(tracker.variable) or PLACE)
