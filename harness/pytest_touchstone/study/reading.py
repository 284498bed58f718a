"""Reads a study from run folders and ids, files and tables of results, folders of either, and globs.

A checkpoint that several runs have scored is one point; of each benchmark the newest run counts. A series is the
folder of a training, or the ``series`` of a table, at one sequence length. If a training has several lengths, its
series are named ``TRAINING/LENGTH``. Checkpoints without a step or an epoch are each a series of their own.

A benchmark may have been run with several prompt settings: with 0 and with 5 examples, with a chat template or without.
Each setting gives a measure and a series of its own, so that results of different settings are never compared. A result
without a recorded setting is not treated as another setting.

Facts about a training come from ``[tool.touchstone.series]``:

    [tool.touchstone.series.mlm_v2]                  # a training, at every length
    data = "KLUE news and Wikipedia"
    method = "masked LM from scratch"

    [tool.touchstone.series."mlm_v2/1536"]           # one series of it, which takes precedence
    note = "position table extended"

Any key is allowed; tables show ``data`` and ``method``, and list the others. Facts that pyproject.toml lacks are read
from the checkpoints' files: the base of an adapter, the number of epochs, the batch size, and the data set in the
config of a training script. Nothing is guessed from names.
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
from pytest_touchstone.compare.formats.base import BadRow, CompositeContradiction, ResultTable
from pytest_touchstone.compare.formats.korean_mlm import COLUMNS
from pytest_touchstone.compare.load import check_sizes, locate_results, read_file, result_files
from pytest_touchstone.compare.load import select as select_candidates
from pytest_touchstone.compare.metric import by_score, condition_text, conditions_that_differ
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import project_table
from pytest_touchstone.core.text import count, join_names, shortest_endings
from pytest_touchstone.results.run_directory import RUN_FILES, is_run
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

_PROMPT_CONDITIONS: Final = ("shots", "template")


def separate_prompt_settings(candidates: Sequence[CheckpointResults]) -> list[tuple[CheckpointResults, str]]:
    """Rename the benchmarks that were run with several prompt settings: ``arc_easy 5-shot``.

    Returns:
        Each candidate with its settings that differ, such as ``5-shot``; empty if none differ.

    """
    values_by_condition: dict[tuple[str, str], set[Any]] = {}
    for candidate in candidates:
        for benchmark, entry in candidate.entries.items():
            for name in _PROMPT_CONDITIONS:
                values_by_condition.setdefault((benchmark, name), set()).add(entry.saved.conditions.get(name))
    several = {key for key, values in values_by_condition.items() if len(values - {None}) > 1}
    relabelled = []
    for candidate in candidates:
        labels = {
            benchmark: _prompt_label(benchmark, entry, several)
            for benchmark, entry in candidate.entries.items()
        }
        entries = {f"{name} {labels[name]}".rstrip(): entry for name, entry in candidate.entries.items()}
        relabelled.append(
            (
                replace(candidate, entries=entries),
                ", ".join(sorted({label for label in labels.values() if label})),
            )
        )
    return relabelled


def _prompt_label(benchmark: str, entry: BenchmarkScores, several: set[tuple[str, str]]) -> str:
    values = {
        name: entry.saved.conditions.get(name) for name in _PROMPT_CONDITIONS if (benchmark, name) in several
    }
    texts = {name: f"{value}-shot" if name == "shots" else str(value) for name, value in values.items()}
    return " ".join(text for name, text in texts.items() if values[name] is not None)


# Facts about each training


TABLE: Final = "tool.touchstone.series"
SERIES_COLUMNS: Final = ("data", "method")
"""The facts that have a column in the table of series."""


def project_series(pyproject: Path) -> dict[str, dict[str, str]]:
    """Read the facts about series from ``[tool.touchstone.series]``; empty without such a file or table.

    Raises:
        DataError: If a value is not a text or a number; the message names its key.

    """
    series_facts = {}
    for name, facts in project_table(pyproject, "series", DataError).items():
        if not isinstance(facts, Mapping):
            raise DataError(f'{pyproject}: [{TABLE}] {name} is {facts!r}; give a table: data = "..."')
        for key, value in facts.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise DataError(f"{pyproject}: [{TABLE}.{name}] {key} is {value!r}; give a text or a number")
        series_facts[name] = {key: str(value) for key, value in facts.items()}
    return series_facts


def series_info(
    name: str,
    training: str,
    rows: Iterable[Mapping[str, Any]],
    declared: Mapping[str, Mapping[str, str]],
) -> SeriesInfo:
    """Return the facts about a series.

    Args:
        name: The name of the series.
        training: The name of its training, whose facts hold for every length.
        rows: The descriptions of its checkpoints (``CheckpointInfo.plain``).
        declared: The facts in pyproject.toml, by series or training.

    """
    noted: dict[str, list[str]] = {}
    for row in rows:
        for key, value in _facts_from_files(row).items():
            values = noted.setdefault(key, [])
            values += [value] if value not in values else []
    return SeriesInfo(
        declared={**declared.get(training, {}), **declared.get(name, {})},
        noted={key: ", ".join(values) for key, values in noted.items()},
    )


def _facts_from_files(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts about a training in the files of its checkpoint."""
    training = row.get("training") if isinstance(row.get("training"), Mapping) else {}
    config = training.get("config") if isinstance(training, Mapping) else None
    dataset = config.get("dataset") if isinstance(config, Mapping) else None
    if isinstance(dataset, Mapping):
        dataset = next((dataset[name] for name in ("name", "path", "train") if dataset.get(name)), None)
    base = row.get("base")
    facts = {
        "data": dataset,
        "method": f"{'adapter' if row.get('by_peft') else 'LoRA'} on {base['name']}"
        if isinstance(base, Mapping) and base.get("name")
        else None,
        "model": row.get("model_type"),
        "epochs": (training or {}).get("num_train_epochs"),
        "steps": (training or {}).get("max_steps"),
        "batch size": (training or {}).get("train_batch_size"),
    }
    return {name: str(fact) for name, fact in facts.items() if isinstance(fact, (str, int, float)) and fact}


def steps_per_epoch(
    points: Iterable[Point], training: Mapping[str, Any] | None = None
) -> StepsPerEpoch | None:
    """Return the number of steps in an epoch; None if no point has both a step and an epoch above 0.

    ``max_steps`` and ``num_train_epochs`` of ``training`` determine it. Without them it is estimated from the points.
    An epoch is rounded to the most decimals in the series, so each point allows a range of numbers. The estimate is
    the whole numbers that lie in all ranges, or the ratio that all points agree on.
    """
    steps, epochs = (training or {}).get("max_steps"), (training or {}).get("num_train_epochs")
    if steps and epochs:
        return StepsPerEpoch(steps / epochs, steps / epochs, f"{steps} steps in {epochs:g} epochs")
    measured = [(point.step, point.epoch) for point in points if point.step and point.epoch]
    if not measured:
        return None
    ratios = [step / epoch for step, epoch in measured if step and epoch]
    if max(ratios) - min(ratios) <= 1e-3 * min(ratios):
        middle = ratios[-1]
        return StepsPerEpoch(middle, middle, "every checkpoint's step and epoch give it")
    rounding = 0.5 * 10.0 ** -max(_decimals(epoch) for _, epoch in measured if epoch)
    lows = [step / (epoch + rounding) for step, epoch in measured if step and epoch]
    highs = [
        step / (epoch - rounding) if epoch > rounding else math.inf
        for step, epoch in measured
        if step and epoch
    ]
    low, high = math.ceil(max(lows) - 1e-9), math.floor(min([*highs, 2.0**53]) + 1e-9)
    if low <= high < 2**53:
        return StepsPerEpoch(low, high, "epochs are rounded; these whole numbers are what all of them allow")
    return StepsPerEpoch(min(ratios), max(ratios), "the checkpoints' steps and epochs contradict each other")


def _decimals(value: float) -> int:
    text = repr(float(value))
    return 0 if "e" in text else len(text.partition(".")[2].rstrip("0"))


# Reading a study


_LABELS: Final = {(column.benchmark, column.metric): column.label for column in COLUMNS}


def load_study(
    arguments: Sequence[str],
    *,
    output: Path,
    sizes: Mapping[str, int] | None = None,
    composites: Iterable[Composite] = (),
    declared: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    all_metrics: bool = False,
    extra_tables: Mapping[str, ResultTable] = MappingProxyType({}),
) -> Study:
    """Read runs and files of results, and return their study.

    Args:
        arguments: Run folders and ids, files, folders of either, and globs. Empty means all runs in ``output``,
            unless there are ``extra_tables``.
        output: The results folder.
        sizes: The number of items of benchmarks whose files lack it.
        composites: The composites of the project.
        declared: Facts about series in pyproject.toml, by series or training.
        all_metrics: Whether to include metrics that neither are primary nor belong to a composite.
        extra_tables: Tables from other sources, by name.

    Raises:
        DataError: If an argument cannot be read, or nothing has results.

    """
    read = read_tables(arguments, output, sizes or {}, extra_tables)
    return build_study(read, composites=composites, declared=declared, all_metrics=all_metrics)


@dataclass(frozen=True, slots=True)
class LoadedTables:
    """Tables of results with the names of their files, and notes on what was left out."""

    tables: tuple[tuple[str, ResultTable], ...]
    notes: tuple[str, ...] = ()


def read_tables(
    arguments: Sequence[str],
    output: Path,
    sizes: Mapping[str, int],
    extra_tables: Mapping[str, ResultTable] = MappingProxyType({}),
) -> LoadedTables:
    """Read every named file and run once, then add the extra tables.

    Raises:
        DataError: If an argument cannot be read, or nothing has results.

    """
    paths: dict[Path, tuple[Path, str]] = {}
    left_out: list[str] = []
    for argument in arguments or ([] if extra_tables else [str(output)]):
        for path, name in _resolve_argument(argument, output, left_out):
            paths.setdefault(Path(os.path.realpath(path)) / name, (path, name))
    tables = [
        (str(path), _select_checkpoint(read_file(path, sizes), name, path)) for path, name in paths.values()
    ]
    tables += extra_tables.items()
    if not any(candidate.entries for _, table in tables for candidate in table.candidates):
        bad_row = next((f"{path}, {row}" for path, table in tables for row in table.bad), "")
        problem = f"no results in {join_names(arguments) if arguments else f'{output}/'}"
        reason = next(
            (
                f"{problem}; {note}"
                for _, table in tables
                for candidate in table.candidates
                for note in candidate.notes
            ),
            "",
        )
        raise DataError(bad_row or reason or problem)
    check_sizes(
        sizes,
        dict.fromkeys(
            name for _, table in tables for candidate in table.candidates for name in candidate.entries
        ),
    )
    return LoadedTables(tuple(tables), tuple(left_out))


RESULTS_SUFFIX: Final = "_eval_results.json"
"""The suffix of a file of results beside its checkpoint."""


def _resolve_argument(argument: str, output: Path, left_out: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the runs and files that an argument names, each with a checkpoint's name (empty: all)."""
    location = locate_results(argument, output)
    beside = Path(f"{argument.rstrip('/')}{RESULTS_SUFFIX}")
    if (location is None or format_of(location.path) is None) and beside.is_file():
        yield beside, ""
        return
    if location is None:
        # pathlib refuses absolute patterns and odd ones ("a/**b"), the module glob does not; an absolute pattern
        # stays itself below the results folder.
        matches, matches_in_output = (
            sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
            for pattern in (argument, str(output / argument))
        )
        ids = [] if os.sep in argument else [match for match in matches_in_output if is_run(Path(match))]
        matching = ids or matches or matches_in_output
        if not matching:
            raise DataError(f"{argument}: no such run, file, folder or pattern of them, nor in {output}/")
        for match in matching:
            if not Path(match).exists():
                left_out.append(f"{match} is left out: a link to nothing")
                continue
            if Path(match).is_file() and format_of(Path(match)) is None:
                left_out.append(f"{match} is left out: it has no results in a form that is known")
                continue
            yield from _resolve_argument(match, output, left_out)
        return
    path = location.path
    if path.is_file() or format_of(path) is not None:
        yield path, location.name
        return
    runs = sorted(summary.parent for summary in path.glob(f"*/{SUMMARY}") if summary.parent.name != "saved")
    below = [*result_files(path), *runs] or result_files(path, deeper=True)
    if not below and any((path / name).is_file() for name in RUN_FILES):
        raise DataError(f"{path}: no {SUMMARY}: this run has not ended, or was killed before it could sum up")
    if not below:
        raise DataError(f"{path}: no run and no results file in this folder")
    left_out += [
        f"{match} is left out: it has no {SUMMARY}, so this run has not ended"
        for match in sorted(path.iterdir())
        if match.is_dir()
        and not (match / SUMMARY).is_file()
        and any((match / name).is_file() for name in RUN_FILES)
    ]
    yield from ((match, location.name) for match in below)


def _select_checkpoint(table: ResultTable, name: str, path: Path) -> ResultTable:
    """Return the table with only the named checkpoint; with all for an empty name."""
    if not name:
        return table
    selected = select_candidates(table.candidates, name)
    if not selected:
        raise DataError(
            f"{path}: no checkpoint {name!r}; there are: {join_names(candidate.name for candidate in table.candidates)}"
        )
    names = {candidate.name for candidate in selected}
    return replace(
        table,
        candidates=tuple(selected),
        contradictions=tuple(
            contradiction for contradiction in table.contradictions if contradiction.name in names
        ),
    )


def build_study(
    read: LoadedTables,
    *,
    composites: Iterable[Composite] = (),
    declared: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    all_metrics: bool = False,
) -> Study:
    """Build the study of tables; ``load_study`` explains the arguments."""
    candidates = [candidate for _, table in read.tables for candidate in table.candidates]
    drafts, older_notes = _merge_candidates(candidates)
    series = _group_series(drafts, declared)
    points = [point for group in series for point in group.points]
    measures = _collect_measures(points, composites, all_metrics)
    values = {
        (point.name, measure.key): value
        for point in points
        for measure in measures
        if (value := value_of(point.candidate, measure)) is not None
    }
    measures = [
        _with_share(measure, values) for measure in measures if any(key == measure.key for _, key in values)
    ]
    contradictions: list[CompositeContradiction] = [
        contradiction for _, table in read.tables for contradiction in table.contradictions
    ]
    bad: list[tuple[str, BadRow]] = [(path, row) for path, table in read.tables for row in table.bad]
    notes = [
        *read.notes,
        *older_notes,
        *dict.fromkeys(note for candidate in candidates for note in candidate.notes),
        *_condition_notes(points),
    ]
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
class _PointDraft:
    """A point without a series and a name; ``prompt`` are the prompt settings that differ."""

    candidate: CheckpointResults
    prompt: str = ""
    began: dict[str, float] = field(default_factory=dict)

    @property
    def info(self) -> dict[str, Any]:
        """The checkpoint's description (``CheckpointInfo.plain``)."""
        for entry in self.candidate.entries.values():
            return entry.saved.checkpoint_info
        return {}

    @property
    def fingerprint(self) -> str:
        """The checkpoint's fingerprint; empty for published results."""
        fingerprints = (
            entry.saved.fingerprint for entry in self.candidate.entries.values() if not entry.saved.published
        )
        return next(fingerprints, "")

    @property
    def key(self) -> str | int:
        """The checkpoint's key, equal in all runs; a published row has a key of its own."""
        keys = (
            entry.saved.checkpoint_key
            for entry in self.candidate.entries.values()
            if not entry.saved.published
        )
        return next(keys, id(self.candidate))

    @property
    def training(self) -> str:
        """The folder or name of its series; empty if unknown."""
        return str(self.candidate.about.get("series") or "")

    @property
    def seq_len(self) -> int | None:
        """The sequence length, in tokens, at which the checkpoint was evaluated."""
        given = [entry.saved.conditions.get("seq_len") for entry in self.candidate.entries.values()]
        seq_len = next(
            (length for length in given if length is not None), self.candidate.about.get("seq_len")
        )
        return int(seq_len) if seq_len is not None else None

    @property
    def has_position(self) -> bool:
        """Return whether the checkpoint's step or epoch is known."""
        return any(self.candidate.about.get(name) is not None for name in ("step", "epoch"))


def _merge_candidates(candidates: Iterable[CheckpointResults]) -> tuple[list[_PointDraft], list[str]]:
    """Merge the results of each checkpoint.

    Runs may name a checkpoint differently. A checkpoint with two names in one run stays two, such as the start of two
    trainings.

    Returns:
        A draft for each checkpoint with the newest result of each benchmark, and notes on older results.

    """
    drafts: dict[Any, _PointDraft] = {}
    older: Counter[str] = Counter()
    scored = separate_prompt_settings(list(candidates))
    names: dict[Any, set[str]] = {}
    for candidate, _ in scored:
        for entry in candidate.entries.values():
            names.setdefault((entry.saved.run_id, _PointDraft(candidate).key), set()).add(candidate.name)
    twice_named = {key for (_, key), names_in_run in names.items() if len(names_in_run) > 1}
    for candidate, prompt in scored:
        draft = _PointDraft(replace(candidate, entries={}, composites={}), prompt)
        full_draft = _PointDraft(candidate)
        key = (
            full_draft.key,
            full_draft.seq_len,
            prompt,
            candidate.name if full_draft.key in twice_named else "",
        )
        merged = drafts.setdefault(key, draft)
        for name, entry in candidate.entries.items():
            if name in merged.began:
                older[name] += 1
                if merged.began[name] > entry.saved.began:
                    continue
            merged.began[name] = entry.saved.began
            merged.candidate.entries[name] = entry
        if merged is draft:
            merged.candidate.composites.update(candidate.composites)
        else:  # a composite of two runs' results is neither run's
            merged.candidate.composites.clear()
    notes = [
        f"{name}: {count(times, 'older result')} of a checkpoint that a newer run has scored again"
        for name, times in older.items()
    ]
    return list(drafts.values()), notes


class _SeriesKey(NamedTuple):
    """The properties that the checkpoints of a series share."""

    training: str
    seq_len: int | None
    prompt: str


def _group_series(drafts: Sequence[_PointDraft], declared: Mapping[str, Mapping[str, str]]) -> list[Series]:
    """Return the series in the order of the arguments, their points in the order of training."""
    groups: dict[_SeriesKey, list[_PointDraft]] = {}
    for draft in drafts:
        groups.setdefault(_SeriesKey(draft.training, draft.seq_len, draft.prompt), []).append(draft)
    series_drafts: dict[_SeriesKey, list[_PointDraft]] = {}
    for key, members in groups.items():
        if key.training and (len(members) == 1 or any(draft.has_position for draft in members)):
            series_drafts[key] = members
        elif ordered := [draft for draft in members if draft.has_position]:
            series_drafts[key] = ordered
        for draft in members:
            # Without a position a checkpoint has no order among others, even of one name.
            if draft not in series_drafts.get(key, ()):
                alone = key._replace(training=f"\0{draft.candidate.name}")
                counter = itertools.count(2)
                while alone in series_drafts:
                    alone = key._replace(training=f"\0{draft.candidate.name} [{next(counter)}]")
                series_drafts[alone] = [draft]
    endings = shortest_endings(key.training.lstrip("\0") for key in series_drafts)
    names = {
        key.training: key.training.lstrip("\0") if key.training.startswith("\0") else endings[key.training]
        for key in series_drafts
    }
    lengths = {name: {key.seq_len for key in series_drafts if key.training == name} for name in names}
    prompts = {name: {key.prompt for key in series_drafts if key.training == name} for name in names}
    name_counts: Counter[str] = Counter(draft.candidate.name for draft in drafts)
    series = []
    used: Counter[str] = Counter()
    for (training, length, prompt), members in series_drafts.items():
        has_lengths = len(lengths[training]) > 1 and length is not None
        name = f"{names[training]}/{length}" if has_lengths else names[training]
        name += f" {prompt}" if prompt and len(prompts[training]) > 1 else ""
        points = [
            _make_point(draft, name, name_counts, used) for draft in sorted(members, key=_training_order)
        ]
        notes = [draft.info for draft in members]
        series.append(
            Series(
                name=name,
                training=names[training],
                seq_len=length,
                points=tuple(points),
                about=series_info(name, names[training], notes, declared),
                steps_per_epoch=steps_per_epoch(points, notes[-1].get("training")),
            )
        )
    return series


def _training_order(draft: _PointDraft) -> tuple[float, float]:
    """Return a sort key: epoch then step; a point without either comes last."""
    step, epoch = draft.candidate.about.get("step"), draft.candidate.about.get("epoch")
    last = math.inf
    return (epoch if epoch is not None else last if step is None else 0.0, step if step is not None else last)


def _make_point(draft: _PointDraft, series: str, name_counts: Counter[str], used: Counter[str]) -> Point:
    candidate, info = draft.candidate, draft.info
    short = candidate.name.rpartition("/")[2] or candidate.name
    name = candidate.name if name_counts[candidate.name] == 1 else f"{series}/{short}"
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
        seq_len=draft.seq_len,
        val_loss=float(loss) if isinstance(loss, (int, float)) else None,
        fingerprint=draft.fingerprint,
        candidate=replace(candidate, name=name),
    )


# Measures


def _collect_measures(
    points: Sequence[Point], extra: Iterable[Composite], all_metrics: bool
) -> list[StudyMetric]:
    """Return the primary metrics and the parts of composites by benchmark, then the composites."""
    entries = [entry for point in points for entry in point.candidate.entries.items()]
    composites = composites_of((entry.saved for _, entry in entries), extra)
    parts = {(part.benchmark, part.metric) for composite in composites for part in composite.parts}
    by_benchmark: dict[str, dict[str, StudyMetric]] = {}
    for benchmark, entry in entries:
        saved = entry.saved
        metrics = by_benchmark.setdefault(benchmark, {})
        primary = by_score(entry, saved.primary)
        for metric in dict.fromkeys((primary, *saved.metrics)):
            wanted = metric == primary or all_metrics or (benchmark, metric) in parts
            if not wanted or metric in metrics or metric not in saved.metrics:
                continue
            metrics[metric] = StudyMetric(
                benchmark=benchmark,
                metric=metric,
                label=_LABELS.get((benchmark, metric), f"{benchmark} {_displayed_metric(saved, metric)}"),
                higher_is_better=saved.aggregation(metric).higher_is_better,
                unit=saved.aggregation(metric).unit,
                primary=metric == primary,
            )
    composite_measures = [
        StudyMetric(benchmark=composite.name, metric=COMPOSITE, label=composite.name, composite=composite)
        for composite in composites
    ]
    return [
        *(measure for metrics in by_benchmark.values() for measure in metrics.values()),
        *composite_measures,
    ]


def _displayed_metric(saved: StoredResult, metric: str) -> str:
    """Return the name of a metric in tables; log-probabilities are named after their perplexity."""
    aggregation = saved.aggregation(saved.primary)
    stands_for_perplexity = metric == aggregation.score != saved.primary and not aggregation.is_mean
    return aggregation.compared(saved.primary) if stands_for_perplexity else metric


def _with_share(measure: StudyMetric, values: Mapping[tuple[str, str], Value]) -> StudyMetric:
    values_of_measure = [value.value for (_, key), value in values.items() if key == measure.key]
    return replace(measure, share=not measure.unit and all(0 <= value <= 1 for value in values_of_measure))


def _condition_notes(points: Sequence[Point]) -> list[str]:
    """Return notes on benchmarks whose conditions differ; lengths may, between series."""
    references: dict[str, Any] = {}
    differing: dict[tuple[str, str], list[str]] = {}
    for point in points:
        for name, entry in point.candidate.entries.items():
            reference = references.setdefault(name, entry)
            if reference.saved.conditions == entry.saved.conditions:
                continue
            for condition, values in conditions_that_differ(reference, entry).items():
                if condition != "seq_len":
                    differing.setdefault((name, condition_text(condition, values)), []).append(point.name)
    return [
        f"not asked alike, {text}: {name} of {join_names(names, 3)}"
        for (name, text), names in differing.items()
    ]
