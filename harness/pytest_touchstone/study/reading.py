"""A study of what a user names: run folders and ids, results files and tables, folders of either, and globs.

A checkpoint that several runs have scored is one point; of each benchmark the newest run counts. A series is the
folder of a training, or the ``series`` of a table, at one sequence length; where a training has several lengths, its
series are named ``TRAINING/LENGTH``. Of several checkpoints without any place in a training each is a series of its
own.

A benchmark may have been asked in several ways: with 0 and with 5 examples, by a chat template or not. Each way is a
measure of its own, and results of one way make a series of their own, so that none is tested against another. A result
that does not say how it was asked is no other way.

What is known of each training comes from ``[tool.touchstone.series]``:

    [tool.touchstone.series.mlm_v2]                  # a training, at every length
    data = "KLUE news and Wikipedia"
    method = "masked LM from scratch"

    [tool.touchstone.series."mlm_v2/1536"]           # one series of it; what it says goes first
    note = "position table extended"

Keys are free; tables show ``data`` and ``method``, and whatever else there is. What pyproject.toml does not say is
taken from the checkpoints' own files (the base of an adapter, the number of epochs, the batch size, the data set that a
training script's config names). Nothing is guessed from names.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.formats import format_of
from pytest_touchstone.compare.formats.base import BadRow, Contradiction, ResultTable
from pytest_touchstone.compare.formats.korean_mlm import COLUMNS
from pytest_touchstone.compare.load import check_sizes, locate_results, read_file, result_files
from pytest_touchstone.compare.load import select as select_candidates
from pytest_touchstone.compare.metric import by_score, condition_text, conditions_that_differ
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import project_table
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.results.run_directory import OF_RUNS, is_run
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import SUMMARY
from pytest_touchstone.study.points import (
    Point,
    Series,
    SeriesInfo,
    StepsPerEpoch,
    Study,
    StudyMetric,
    Value,
    value_of,
)

_WAYS: Final = ("shots", "template")


def by_way(candidates: Sequence[CheckpointResults]) -> list[tuple[CheckpointResults, str]]:
    """The candidates, each with the ways in which it was asked, empty where there is one of each.

    Every benchmark that was asked in several ways is named by its way: ``arc_easy 5-shot``.
    """
    known: dict[tuple[str, str], set[Any]] = {}
    for one in candidates:
        for benchmark, entry in one.entries.items():
            for name in _WAYS:
                known.setdefault((benchmark, name), set()).add(entry.saved.conditions.get(name))
    several = {key for key, values in known.items() if len(values - {None}) > 1}
    found = []
    for one in candidates:
        ways = {benchmark: _way(benchmark, entry, several) for benchmark, entry in one.entries.items()}
        entries = {f"{name} {ways[name]}".rstrip(): entry for name, entry in one.entries.items()}
        found.append(
            (replace(one, entries=entries), ", ".join(sorted({way for way in ways.values() if way})))
        )
    return found


def _way(benchmark: str, entry: BenchmarkScores, several: set[tuple[str, str]]) -> str:
    given = {name: entry.saved.conditions.get(name) for name in _WAYS if (benchmark, name) in several}
    texts = {name: f"{value}-shot" if name == "shots" else str(value) for name, value in given.items()}
    return " ".join(text for name, text in texts.items() if given[name] is not None)


# What is known of each training


TABLE: Final = "tool.touchstone.series"
SHOWN: Final = ("data", "method")
"""The facts that a table of series has columns for."""


def project_series(pyproject: Path) -> dict[str, dict[str, str]]:
    """The facts of ``[tool.touchstone.series]`` by series; none where there is no such file or table.

    Raises ``DataError`` naming the key that is wrong.
    """
    found = {}
    for name, facts in project_table(pyproject, "series", DataError).items():
        if not isinstance(facts, Mapping):
            raise DataError(f'{pyproject}: [{TABLE}] {name} is {facts!r}; give a table: data = "..."')
        for key, value in facts.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise DataError(f"{pyproject}: [{TABLE}.{name}] {key} is {value!r}; give a text or a number")
        found[name] = {key: str(value) for key, value in facts.items()}
    return found


def about_series(
    name: str,
    training: str,
    rows: Iterable[Mapping[str, Any]],
    told: Mapping[str, Mapping[str, str]],
) -> SeriesInfo:
    """The known facts of a series: by the project's table, and by the ``rows`` of its checkpoints."""
    noted: dict[str, list[str]] = {}
    for row in rows:
        for key, value in _noted(row).items():
            known = noted.setdefault(key, [])
            known += [value] if value not in known else []
    return SeriesInfo(
        told={**told.get(training, {}), **told.get(name, {})},
        noted={key: ", ".join(values) for key, values in noted.items()},
    )


def _noted(row: Mapping[str, Any]) -> dict[str, str]:
    """The facts that a checkpoint's own files give of its training."""
    training = row.get("training") if isinstance(row.get("training"), Mapping) else {}
    config = training.get("config") if isinstance(training, Mapping) else None
    dataset = config.get("dataset") if isinstance(config, Mapping) else None
    if isinstance(dataset, Mapping):
        dataset = next((dataset[key] for key in ("name", "path", "train") if dataset.get(key)), None)
    base = row.get("base")
    known = {
        "data": dataset,
        "method": f"{'adapter' if row.get('by_peft') else 'LoRA'} on {base['name']}"
        if isinstance(base, Mapping) and base.get("name")
        else None,
        "model": row.get("model_type"),
        "epochs": (training or {}).get("num_train_epochs"),
        "steps": (training or {}).get("max_steps"),
        "batch size": (training or {}).get("train_batch_size"),
    }
    return {key: str(value) for key, value in known.items() if isinstance(value, (str, int, float)) and value}


def steps_per_epoch(
    points: Iterable[Point], training: Mapping[str, Any] | None = None
) -> StepsPerEpoch | None:
    """The steps of an epoch; None where no point has both a step and an epoch above 0.

    ``training`` may have ``max_steps`` and ``num_train_epochs``, which say it. Else it follows from the points. An
    epoch lies within half a unit of the last decimal that any point of the series has, so every point allows a range;
    the whole numbers in all of the ranges are left. Where all points give one number it is that.
    """
    steps, epochs = (training or {}).get("max_steps"), (training or {}).get("num_train_epochs")
    if steps and epochs:
        return StepsPerEpoch(steps / epochs, steps / epochs, f"{steps} steps in {epochs:g} epochs")
    known = [(point.step, point.epoch) for point in points if point.step and point.epoch]
    if not known:
        return None
    ratios = [step / epoch for step, epoch in known if step and epoch]
    if max(ratios) - min(ratios) <= 1e-3 * min(ratios):
        middle = ratios[-1]
        return StepsPerEpoch(middle, middle, "every checkpoint's step and epoch give it")
    half = 0.5 * 10.0 ** -max(_decimals(epoch) for _, epoch in known if epoch)
    lows = [step / (epoch + half) for step, epoch in known if step and epoch]
    highs = [step / (epoch - half) if epoch > half else math.inf for step, epoch in known if step and epoch]
    low, high = math.ceil(max(lows) - 1e-9), math.floor(min([*highs, 2.0**53]) + 1e-9)
    if low <= high < 2**53:
        return StepsPerEpoch(low, high, "epochs are rounded; these whole numbers are what all of them allow")
    return StepsPerEpoch(min(ratios), max(ratios), "the checkpoints' steps and epochs contradict each other")


def _decimals(value: float) -> int:
    text = repr(float(value))
    return 0 if "e" in text else len(text.partition(".")[2].rstrip("0"))


# Reading a study


_LABELS: Final = {(one.benchmark, one.metric): one.label for one in COLUMNS}


def study_of(
    arguments: Sequence[str],
    *,
    output: Path,
    sizes: Mapping[str, int] | None = None,
    composites: Iterable[Composite] = (),
    told: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    every: bool = False,
    more: Mapping[str, ResultTable] = MappingProxyType({}),
) -> Study:
    """The study of everything that is named; ``every``: with all metrics, not only those that decide.

    ``composites`` and ``told`` (facts of series) are those of the project; ``more`` are tables of other places.

    Without arguments and ``more``: all runs of ``output``. Raises ``DataError`` naming what cannot be read.
    """
    read = read_tables(arguments, output, sizes or {}, more)
    return make_study(read, composites=composites, told=told, every=every)


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The tables that were read, with the files that they are of, and notes on what was left out."""

    tables: tuple[tuple[str, ResultTable], ...]
    notes: tuple[str, ...] = ()


def read_tables(
    arguments: Sequence[str],
    output: Path,
    sizes: Mapping[str, int],
    more: Mapping[str, ResultTable] = MappingProxyType({}),
) -> TablesRead:
    """Every file and run that is named, each once, then ``more``. Raises ``DataError``."""
    places: dict[Path, tuple[Path, str]] = {}
    left_out: list[str] = []
    for argument in arguments or ([] if more else [str(output)]):
        for path, name in _places(argument, output, left_out):
            places.setdefault(Path(os.path.realpath(path)) / name, (path, name))
    tables = [(str(path), _named(read_file(path, sizes), name, path)) for path, name in places.values()]
    tables += more.items()
    if not any(one.entries for _, table in tables for one in table.candidates):
        bad = next((f"{path}, {row}" for path, table in tables for row in table.bad), "")
        nothing = f"no results in {join_names(arguments) if arguments else f'{output}/'}"
        why = next(
            (f"{nothing}; {n}" for _, table in tables for one in table.candidates for n in one.notes), ""
        )
        raise DataError(bad or why or nothing)
    check_sizes(sizes, dict.fromkeys(n for _, t in tables for one in t.candidates for n in one.entries))
    return TablesRead(tuple(tables), tuple(left_out))


BESIDE: Final = "_eval_results.json"
"""The end of the name of a file beside a checkpoint, with its results."""


def _places(argument: str, output: Path, left_out: list[str]) -> Iterator[tuple[Path, str]]:
    """The runs and files that an argument names, each with the checkpoint that is meant (empty: all)."""
    place = locate_results(argument, output)
    beside = Path(f"{argument.rstrip('/')}{BESIDE}")
    if (place is None or format_of(place.path) is None) and beside.is_file():
        yield beside, ""
        return
    if place is None:
        # pathlib refuses absolute patterns and odd ones ("a/**b"), the module glob does not; an absolute pattern
        # stays itself below the results folder.
        here, inside = (
            sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
            for pattern in (argument, str(output / argument))
        )
        ids = [] if os.sep in argument else [one for one in inside if is_run(Path(one))]
        found = ids or here or inside
        if not found:
            raise DataError(f"{argument}: no such run, file, folder or pattern of them, nor in {output}/")
        for one in found:
            if not Path(one).exists():
                left_out.append(f"{one} is left out: a link to nothing")
                continue
            if Path(one).is_file() and format_of(Path(one)) is None:
                left_out.append(f"{one} is left out: it has no results in a form that is known")
                continue
            yield from _places(one, output, left_out)
        return
    path = place.path
    if path.is_file() or format_of(path) is not None:
        yield path, place.name
        return
    runs = sorted(summary.parent for summary in path.glob(f"*/{SUMMARY}") if summary.parent.name != "saved")
    below = [*result_files(path), *runs] or result_files(path, deeper=True)
    if not below and any((path / name).is_file() for name in OF_RUNS):
        raise DataError(f"{path}: no {SUMMARY}: this run has not ended, or was killed before it could sum up")
    if not below:
        raise DataError(f"{path}: no run and no results file in this folder")
    left_out += [
        f"{one} is left out: it has no {SUMMARY}, so this run has not ended"
        for one in sorted(path.iterdir())
        if one.is_dir() and not (one / SUMMARY).is_file() and any((one / n).is_file() for n in OF_RUNS)
    ]
    yield from ((one, place.name) for one in below)


def _named(table: ResultTable, name: str, path: Path) -> ResultTable:
    """The table, or the one checkpoint of it that is meant."""
    if not name:
        return table
    found = select_candidates(table.candidates, name)
    if not found:
        raise DataError(
            f"{path}: no checkpoint {name!r}; there are: {join_names(one.name for one in table.candidates)}"
        )
    names = {one.name for one in found}
    return replace(
        table,
        candidates=tuple(found),
        contradictions=tuple(one for one in table.contradictions if one.name in names),
    )


def make_study(
    read: TablesRead,
    *,
    composites: Iterable[Composite] = (),
    told: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    every: bool = False,
) -> Study:
    """The study of tables that have been read."""
    candidates = [one for _, table in read.tables for one in table.candidates]
    drafts, twice = _merged(candidates)
    series = _series(drafts, told)
    points = [point for one in series for point in one.points]
    measures = _measures(points, composites, every)
    values = {
        (point.name, measure.key): value
        for point in points
        for measure in measures
        if (value := value_of(point.candidate, measure)) is not None
    }
    measures = [_shared(one, values) for one in measures if any(key == one.key for _, key in values)]
    contradictions: list[Contradiction] = [one for _, table in read.tables for one in table.contradictions]
    bad: list[tuple[str, BadRow]] = [(path, row) for path, table in read.tables for row in table.bad]
    notes = [*read.notes, *twice, *dict.fromkeys(n for one in candidates for n in one.notes), *_apart(points)]
    return Study(
        series=tuple(series),
        measures=tuple(measures),
        values=values,
        contradictions=tuple(contradictions),
        bad=tuple(bad),
        notes=tuple(notes),
        sources=tuple(path for path, _ in read.tables),
    )


# Points


@dataclass(slots=True)
class _Draft:
    """A point before it has a series and a name."""

    candidate: CheckpointResults
    way: str = ""
    began: dict[str, float] = field(default_factory=dict)

    @property
    def info(self) -> dict[str, Any]:
        """The checkpoint's row."""
        for entry in self.candidate.entries.values():
            return entry.saved.checkpoint_info
        return {}

    @property
    def fingerprint(self) -> str:
        """The checkpoint's fingerprint, empty where nobody has seen its weights."""
        found = (e.saved.fingerprint for e in self.candidate.entries.values() if not e.saved.published)
        return next(found, "")

    @property
    def key(self) -> str | int:
        """The checkpoint's key in any run; of a row of somebody's table, which may be any checkpoint's, its own."""
        found = (e.saved.checkpoint_key for e in self.candidate.entries.values() if not e.saved.published)
        return next(found, id(self.candidate))

    @property
    def training(self) -> str:
        """The folder or name of its series; empty where not known."""
        return str(self.candidate.about.get("series") or "")

    @property
    def seq_len(self) -> int | None:
        """The length that it was asked with."""
        given = [e.saved.conditions.get("seq_len") for e in self.candidate.entries.values()]
        found = next((one for one in given if one is not None), self.candidate.about.get("seq_len"))
        return int(found) if found is not None else None

    @property
    def placed(self) -> bool:
        """Return whether its place in the training is known."""
        return any(self.candidate.about.get(name) is not None for name in ("step", "epoch"))


def _merged(candidates: Iterable[CheckpointResults]) -> tuple[list[_Draft], list[str]]:
    """A draft for each checkpoint, with the newest result of each benchmark; and notes on older ones.

    Runs may have different names for a checkpoint. One that a single run has under two names is meant as two, such as
    the beginning of two trainings.
    """
    found: dict[Any, _Draft] = {}
    older: Counter[str] = Counter()
    scored = by_way(list(candidates))
    names: dict[Any, set[str]] = {}
    for one, _ in scored:
        for entry in one.entries.values():
            names.setdefault((entry.saved.run_id, _Draft(one).key), set()).add(one.name)
    twofold = {key for (_, key), same in names.items() if len(same) > 1}
    for one, way in scored:
        draft = _Draft(replace(one, entries={}, composites={}), way)
        fresh = _Draft(one)
        key = (fresh.key, fresh.seq_len, way, one.name if fresh.key in twofold else "")
        kept = found.setdefault(key, draft)
        for name, entry in one.entries.items():
            if name in kept.began:
                older[name] += 1
                if kept.began[name] > entry.saved.began:
                    continue
            kept.began[name] = entry.saved.began
            kept.candidate.entries[name] = entry
        if kept is draft:
            kept.candidate.composites.update(one.composites)
        else:  # a composite of two runs' results is neither run's
            kept.candidate.composites.clear()
    notes = [
        f"{name}: {count(n, 'older result')} of a checkpoint that a newer run has scored again"
        for name, n in older.items()
    ]
    return list(found.values()), notes


class _Key(NamedTuple):
    """The key of a series: what its checkpoints have in common. ``way`` is how they were asked."""

    training: str
    seq_len: int | None
    way: str


def _series(drafts: Sequence[_Draft], told: Mapping[str, Mapping[str, str]]) -> list[Series]:
    """The series in the order in which they were named, their points in the order of the training."""
    groups: dict[_Key, list[_Draft]] = {}
    for one in drafts:
        groups.setdefault(_Key(one.training, one.seq_len, one.way), []).append(one)
    kept: dict[_Key, list[_Draft]] = {}
    for key, members in groups.items():
        if key.training and (len(members) == 1 or any(one.placed for one in members)):
            kept[key] = members
        elif placed := [one for one in members if one.placed]:
            kept[key] = placed
        for one in members:
            if one not in kept.get(key, ()):  # without a place it has no order among others, even of one name
                alone = key._replace(training=f"\0{one.candidate.name}")
                again = itertools.count(2)
                while alone in kept:
                    alone = key._replace(training=f"\0{one.candidate.name} [{next(again)}]")
                kept[alone] = [one]
    names = _training_names(dict.fromkeys(key.training for key in kept))
    lengths = {one: {key.seq_len for key in kept if key.training == one} for one in names}
    ways = {one: {key.way for key in kept if key.training == one} for one in names}
    taken: Counter[str] = Counter(one.candidate.name for one in drafts)
    found = []
    used: Counter[str] = Counter()
    for (training, length, way), members in kept.items():
        several = len(lengths[training]) > 1 and length is not None
        name = f"{names[training]}/{length}" if several else names[training]
        name += f" {way}" if way and len(ways[training]) > 1 else ""
        points = [_point(one, name, taken, used) for one in sorted(members, key=_order)]
        notes = [one.info for one in members]
        found.append(
            Series(
                name=name,
                training=names[training],
                seq_len=length,
                points=tuple(points),
                about=about_series(name, names[training], notes, told),
                steps_per_epoch=steps_per_epoch(points, notes[-1].get("training")),
            )
        )
    return found


def _order(one: _Draft) -> tuple[float, float]:
    step, epoch = one.candidate.about.get("step"), one.candidate.about.get("epoch")
    far = math.inf
    return (epoch if epoch is not None else far if step is None else 0.0, step if step is not None else far)


def _training_names(trainings: Iterable[str]) -> dict[str, str]:
    """The last parts of the folders, as many as tell them apart."""
    known = list(trainings)
    found = {}
    for one in known:
        parts = [part for part in one.split("/") if part] or ["checkpoints"]
        names = ["/".join(parts[-depth:]) for depth in range(1, len(parts) + 1)]
        alone = (name for name in names if sum(_ends(other, name) for other in known) == 1)
        found[one] = one.lstrip("\0") if one.startswith("\0") else next(alone, names[-1])
    return found


def _ends(training: str, name: str) -> bool:
    return f"/{training.lstrip(chr(0))}".rstrip("/").endswith(f"/{name}")


def _point(one: _Draft, series: str, taken: Counter[str], used: Counter[str]) -> Point:
    candidate, info = one.candidate, one.info
    short = candidate.name.rpartition("/")[2] or candidate.name
    name = candidate.name if taken[candidate.name] == 1 else f"{series}/{short}"
    used[name] += 1
    if used[name] > 1:
        name = f"{name} [{used[name]}]"
    loss = info.get("val_loss")
    return Point(
        name=name,
        short=short,
        series=series,
        step=candidate.about.get("step"),
        epoch=candidate.about.get("epoch"),
        seq_len=one.seq_len,
        val_loss=float(loss) if isinstance(loss, (int, float)) else None,
        fingerprint=one.fingerprint,
        candidate=replace(candidate, name=name),
    )


# Measures


def _measures(points: Sequence[Point], more: Iterable[Composite], every: bool) -> list[StudyMetric]:
    """The primary metrics with the parts of composites, by benchmark, then the composites."""
    entries = [entry for point in points for entry in point.candidate.entries.items()]
    composites = composites_of((entry.saved for _, entry in entries), more)
    parts = {(part.benchmark, part.metric) for one in composites for part in one.parts}
    found: dict[str, dict[str, StudyMetric]] = {}
    for benchmark, entry in entries:
        saved = entry.saved
        own = found.setdefault(benchmark, {})
        first = by_score(entry, saved.primary)
        for metric in dict.fromkeys((first, *saved.metrics)):
            wanted = metric == first or every or (benchmark, metric) in parts
            if not wanted or metric in own or metric not in saved.metrics:
                continue
            own[metric] = StudyMetric(
                benchmark=benchmark,
                metric=metric,
                label=_LABELS.get((benchmark, metric), f"{benchmark} {_shown(saved, metric)}"),
                higher_is_better=saved.aggregation(metric).higher_is_better,
                unit=saved.aggregation(metric).unit,
                primary=metric == first,
            )
    made = [
        StudyMetric(benchmark=one.name, metric=COMPOSITE, label=one.name, composite=one) for one in composites
    ]
    return [*(one for own in found.values() for one in own.values()), *made]


def _shown(saved: StoredResult, metric: str) -> str:
    """The metric's name; of the log-probabilities that stand for a perplexity, the perplexity's with these."""
    how = saved.aggregation(saved.primary)
    stands = metric == how.of != saved.primary and not how.is_mean
    return how.compared(saved.primary) if stands else metric


def _shared(one: StudyMetric, values: Mapping[tuple[str, str], Value]) -> StudyMetric:
    own = [value.value for (_, key), value in values.items() if key == one.key]
    return replace(one, share=not one.unit and all(0 <= value <= 1 for value in own))


def _apart(points: Sequence[Point]) -> list[str]:
    """Notes on benchmarks that were not asked alike everywhere; the length is what series differ by."""
    first: dict[str, Any] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for point in points:
        for name, entry in point.candidate.entries.items():
            other = first.setdefault(name, entry)
            if other.saved.conditions == entry.saved.conditions:
                continue
            for condition, pair in conditions_that_differ(other, entry).items():
                if condition != "seq_len":
                    found.setdefault((name, condition_text(condition, pair)), []).append(point.name)
    return [f"not asked alike, {text}: {name} of {join_names(who, 3)}" for (name, text), who in found.items()]
