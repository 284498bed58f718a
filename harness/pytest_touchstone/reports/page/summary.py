"""The sections that only pages have: scores with their intervals, curves, bars, and sources with their hashes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.formats.run import composite_metric
from pytest_touchstone.core.text import count
from pytest_touchstone.document import (
    Commands,
    Curves,
    Headline,
    Part,
    Section,
    Table,
    Verbatim,
    formatting,
)
from pytest_touchstone.document.formatting import number
from pytest_touchstone.reports import best, comparison
from pytest_touchstone.reports.charts import line_charts
from pytest_touchstone.reports.page.items import ItemRow, PageBenchmark, PagePart
from pytest_touchstone.reports.page.payload import JudgedPair, PageRun, counterpart_of
from pytest_touchstone.reports.plots import draw_curves, svg
from pytest_touchstone.reports.score_table import ScoreCell, ScoreTable, table_of_run, table_of_study
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Declaration, Metric, Result
from pytest_touchstone.statistics.intervals import Estimate, mean_estimate
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import LoadedTables, build_study
from pytest_touchstone.study.selection_bias import standings_in

ABOUT_BARS: Final = (
    "The bar spans 0 to 1, or the range of the intervals where values lie outside; the band is the 95 % interval. "
    "The first metric, in bold, is the primary one. Errors count errors, timeouts and lost items; metrics are over "
    "scored items only."
)
ABOUT_DIFFERENCES: Final = (
    "Differences are of B from A, in points (hundredths of a score), over the items that both have. Verdicts are of "
    "all items, corrected for the number of benchmarks (Holm)."
)

OPEN_GROUPS: Final = 60
"""Rows of groups that are unfolded from the start; more stay folded."""


FEWEST: Final = 5
"""Items of a checkpoint below which the share of a field's value says nothing."""

MOST_VALUES: Final = 12
"""Values of a field that scores are broken down by; one with more is for filters."""

MOST_ROWS: Final = 240
"""Rows of a benchmark's breakdown: with very many checkpoints, fields are left out."""

MOST_ACROSS: Final = 6
"""Benchmarks that stand beside each other; of more each has a row, if there are fewer checkpoints."""

THIRDS: Final = 3


class BarRow(NamedTuple):
    """A row of a table with bars: its counts are items, errors and skipped items, none for a composite."""

    label: str
    checkpoint: str
    metric: Metric | Estimate
    mark: str = ""
    counts: tuple[int | str, ...] = ()
    strong: bool = True
    scale: tuple[float, float] = (0.0, 1.0)

    @property
    def bar(self) -> tuple[float, ...]:
        """The places of value and interval on the scale, in per cent; empty without a value."""
        left, right = self.scale
        metric = self.metric
        if metric.value is None:
            return ()
        ends = (metric.value if limit is None else limit for limit in (metric.value, metric.low, metric.high))
        return tuple(min(100.0, max(0.0, 100 * (end - left) / (right - left))) for end in ends)


def overview_sections(run: PageRun) -> Iterator[Section]:
    """Yield the table of checkpoints by benchmarks."""
    yield overview(table_of_run(run.summary), best.verdicts_of(best.standings_of_run(run.summary)))


def curve_sections(run: PageRun) -> Iterator[Section]:
    """Yield the curves of a run over a training."""
    results = ResultTable(tuple(candidate for candidate in run.candidates if candidate.entries))
    yield curves(build_study(LoadedTables(((run.summary.directory, results),))))


def study_sections(study: Study, sections: Iterable[Section]) -> list[Section]:
    """Return the sections of a study as a page has them: first the best checkpoint, the overview and the curves."""
    standings = study.compute_once(standings_in)
    line = best.best_line(standings, best.benchmarks_of(study)) or best.no_best_reason(study)
    return [
        Section(key="lead", parts=(Headline(line),)),
        overview(table_of_study(study), best.verdicts_of(standings)),
        curves(study),
        *(section for section in sections if section.key != "sparklines"),  # the curves are drawn
    ]


def overview(table: ScoreTable, verdicts: Mapping[str, str]) -> Section:
    """Return the table of checkpoints by benchmarks, turned where more benchmarks than fit stand beside each other."""
    across = [(name, verdicts.get(name, "")) for name, _ in table.rows]
    down = [
        (
            column.benchmark,
            ", ".join(filter(None, (column.metric, "lower is better" * column.lower, column.items))),
        )
        for column in table.columns
    ]
    cells = [list(row) for _, row in table.rows]
    first = "benchmark"
    if len(across) > 1 and (len(down) <= MOST_ACROSS or len(down) <= len(across)):
        first, across, down = "checkpoint", down, across
    else:
        cells = [list(row) for row in zip(*cells, strict=True)]
    legend = "With 95 % intervals." if any(cell.low is not None for cell in table.cells) else ""
    if any(cell.best for cell in table.cells):
        legend += " Marked: the best, where a paired test on the same items tells it from each other one."
    below = {(-1, column): about for column, (_, about) in enumerate(across, 1)}
    below |= {(row, 0): about for row, (_, about) in enumerate(down)}
    by_place = {
        (row, column): cell
        for row, row_cells in enumerate(cells)
        for column, cell in enumerate(row_cells, 1)
        if cell is not None
    }
    grid = Table(
        header=(first, *(name for name, _ in across)),
        rows=tuple(
            (name, *(formatting.NOTHING if cell is None else number(cell.value) for cell in row))
            for (name, _), row in zip(down, cells, strict=True)
        ),
        signs={place: cell.signs for place, cell in by_place.items()},
        below=below | {place: _below(cell) for place, cell in by_place.items()},
    )
    parts: tuple[Part, ...] = (grid, legend) if legend else (grid,)
    return Section(key="overview", parts=parts * bool(down), views=("page",))


def _below(cell: ScoreCell) -> str:
    """Return what stands below a value."""
    if cell.invalid:
        return "NOT VALID"
    around = formatting.interval(cell.low, cell.high).removeprefix(formatting.NOTHING)
    return f"{around} over fewer items".lstrip() if "~" in cell.signs else around


def curves(study: Study) -> Section:
    """Return the curves of a study."""
    drawings = tuple(svg(draw_curves(chart)) for chart in line_charts(study))
    return Section(key="curves", title="Curves", parts=(Curves(drawings),) * bool(drawings), views=("page",))


def benchmark_sections(run: PageRun) -> Iterator[Section]:
    """Yield the results benchmark by benchmark and group by group, with bars, and the composites."""
    summary, shares = run.summary, breakdown(run.parts)
    if summary.declarations:
        yield Section(key="benchmarks", title="Results", parts=(ABOUT_BARS,), views=("page",))
    for declared in summary.declarations:
        yield from _benchmark(declared, summary.results, shares.get(declared.name, ()))
    rows = [
        BarRow(row["name"], row["checkpoint"], composite_metric(row), mark=row.get("mark", ""))
        for row in summary.composites
    ]
    if rows:
        table = _bar_table("score", rows)
        yield Section(key="composites", title="Composite scores", parts=(table,), views=("page",))


def _benchmark(
    declared: Declaration, results: Sequence[Result], shares: Sequence[BarRow]
) -> Iterator[Section]:
    """Yield the sections of one benchmark: its metrics, with the checkpoints one below the other, and its groups."""
    results = [result for result in results if result.benchmark == declared.name]
    whole = [result for result in results if result.group is None]
    facts = (
        "NOT VALID" if any(result.invalid for result in whole) else "",
        "UNSANDBOXED" if any(result.unsandboxed for result in whole) else "",
        formatting.asked_alike(whole),
        f"version {declared.version}",
        declared.dataset.name,
        formatting.common_mark(whole),
    )
    metrics = dict.fromkeys(metric.name for result in whole for metric in formatting.shown_metrics(result))
    rows = [
        row
        for name in metrics
        for row in _rows(name, name, [result for result in whole if name in result.metrics])
    ]
    parts = (", ".join(filter(None, facts)), _bar_table("metric", rows))
    yield Section(title=declared.name, parts=parts, level=3, views=("page",), benchmark=declared.name)
    names = dict.fromkeys(result.group for result in results if result.group is not None)
    if names:
        groups = [result for result in results if result.group is not None]
        primary = groups[0].primary
        scale = _scale(result.metrics[primary] for result in groups)
        rows = [
            row
            for name in names
            for row in _rows(name, primary, [group for group in groups if group.group == name], scale)
        ]
        table = _bar_table(f"group, {primary}", rows)
        yield _folded(count(len(names), "group"), table, folded=len(rows) > OPEN_GROUPS)
    if shares:
        yield _folded("by length of the question, and by fields of the data", _bar_table("part", shares))
    if scored := "\n\n".join(filter(None, (declared.rule, declared.source))):
        yield _folded("how it is scored", Verbatim(tuple(scored.splitlines())))


def _folded(title: str, part: Part, *, folded: bool = True) -> Section:
    """Return a part of a benchmark's section that is shown when it is asked for."""
    return Section(title=title, parts=(part,), folded=folded, level=4, views=("page",))


def _rows(
    label: str, name: str, results: Sequence[Result], scale: tuple[float, float] | None = None
) -> Iterator[BarRow]:
    """Yield a row per checkpoint, the label on the first."""
    scale = scale or _scale(result.metrics[name] for result in results)
    alike = len(results) > 1 and formatting.common_mark(results)  # said above the table
    for index, result in enumerate(results):
        primary = name == result.primary
        yield BarRow(
            "" if index else label,
            formatting.checkpoint_label(result, results),
            result.metrics[name],
            mark="NOT VALID" * bool(result.invalid) or ("" if alike else result.mark) * primary,
            counts=(result.metrics[name].n, *((result.faults, result.skipped) if primary else ("", ""))),
            strong=primary and result.group is None,
            scale=scale,
        )


def _bar_table(first: str, rows: Sequence[BarRow]) -> Table:
    counts = ("n", "errors", "skipped") * any(row.counts for row in rows)
    return Table(
        header=(first, "checkpoint", "value", "95 % interval", "", *counts),
        rows=tuple(
            (
                row.label,
                row.checkpoint,
                number(row.metric.value),
                formatting.interval(row.metric.low, row.metric.high),
                "",
                *(map(str, row.counts or ("",) * len(counts))),
            )
            for row in rows
        ),
        text_columns=2,
        signs={(index, 2): "!" for index, row in enumerate(rows) if row.mark == "NOT VALID"},
        below={(index, 2): row.mark for index, row in enumerate(rows)},
        bars={(index, 4): row.bar for index, row in enumerate(rows)},
        strong=frozenset(index for index, row in enumerate(rows) if row.strong),
    )


def _scale(metrics: Iterable[Metric | Estimate]) -> tuple[float, float]:
    """Return 0 to 1 if everything lies within; else the lowest and the highest limit."""
    limits = [
        limit for metric in metrics for limit in (metric.low, metric.value, metric.high) if limit is not None
    ]
    if not limits or (min(limits) >= 0 and max(limits) <= 1):
        return 0.0, 1.0
    low, high = min(limits), max(limits)
    margin = (high - low) / 10 or 1.0
    return low - margin, high + margin


def source_sections(run: PageRun) -> Iterator[Section]:
    """Yield the datasets and checkpoints with their hashes, the command and the settings."""
    summary = run.summary
    datasets = tuple(
        (info.name, str(info.rows), info.origin, str(info.path), info.sha256)
        for info in formatting.datasets(summary)
    )
    by_name = {str(info.get("name")): info for info in summary.checkpoints}
    checkpoints = tuple(
        (name, about, str(info.get("source") or info.get("path") or ""), info.get("fingerprint") or "")
        for name, about in formatting.checkpoints(summary).items()
        for info in [by_name.get(name, {})]
    )
    settings = {name: value for name, value in summary.manifest.items() if name != "checkpoints"}
    for title, header, rows in (
        ("Datasets", ("dataset", "rows", "from", "path", "SHA-256"), datasets),
        ("Checkpoints", ("name", "what", "source", "fingerprint"), checkpoints),
        ("Settings", ("setting", "value"), tuple((name, setting(value)) for name, value in settings.items())),
    ):
        table = Table(header=header, rows=rows, text_columns=len(header))
        yield Section(title=title, parts=(table,), folded=True, views=("page",))
    command = Commands((("command", " ".join(command_words(summary.manifest)), ""),))
    yield Section(title="Command", parts=(command,), folded=True, views=("page",))


def setting(value: Any) -> str:
    """Return a setting as text: as it is, as names with values, or as JSON."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting(inner)}" for name, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# Scores by the fields of rows and by the length of questions. Groups are a benchmark's own and have results; these
# parts are only described: they say where to look among the items.


def breakdown(parts: Sequence[PagePart]) -> dict[str, list[BarRow]]:
    """Return a row for each share of the items of a benchmark that has any, by the benchmark's name."""
    names = dict.fromkeys(part.kind.name for part in parts)
    return {name: _of_benchmark([part for part in parts if part.kind.name == name]) for name in names}


def _of_benchmark(parts: Sequence[PagePart]) -> list[BarRow]:
    rows = [row for part in parts for row in part.rows]
    shares: list[BarRow] = []
    for field, values, names in (("length", *_thirds(rows)), *_fields(parts[0].kind, rows)):
        rows_by_value: dict[Any, dict[str, list[ItemRow]]] = {}
        checkpoints = (part.checkpoint for part in parts for _ in part.rows)
        for checkpoint, value, row in zip(checkpoints, values, rows, strict=True):
            if value is not None:
                rows_by_value.setdefault(value, {}).setdefault(checkpoint, []).append(row)
        values_shown = [
            value
            for value in rows_by_value
            if sum(map(len, rows_by_value[value].values())) >= FEWEST * len(parts)
        ]
        if 1 < len(values_shown) <= MOST_VALUES and len(shares) + len(values_shown) * len(parts) <= MOST_ROWS:
            for value in sorted(values_shown, key=lambda value: (isinstance(value, str), value)):
                shares += _shares(
                    f"{field}: {names.get(value, value)}", rows_by_value[value], parts[0].kind.score
                )
    return shares


def _fields(
    kind: PageBenchmark, rows: Sequence[ItemRow]
) -> Iterator[tuple[str, list[Any], Mapping[Any, str]]]:
    groups = {row.group for row in rows if row.group is not None}
    for name in kind.fields:
        values = [row.fields.get(name) for row in rows]
        pairs = set(zip(values, (row.group for row in rows), strict=True))
        if not groups or len(pairs) > len(groups):  # else it is what the groups say already
            yield name, values, {}


def _thirds(rows: Sequence[ItemRow]) -> tuple[list[int], Mapping[int, str]]:
    """Return the number of the third of the lengths that each item is in, and what each is; all one where lengths
    hardly differ."""
    lengths = sorted(row.length for row in rows)
    limits = (
        [lengths[len(lengths) * third // THIRDS - 1] for third in (1, 2)] if len(lengths) >= THIRDS else []
    )
    if not limits or not lengths[0] < limits[0] < limits[1] < lengths[-1]:
        return [0] * len(rows), {}
    low, high = limits
    names = (f"to {count(low, 'character')}", f"{low + 1:,} to {high:,}", f"above {high:,}")
    return [(row.length > low) + (row.length > high) for row in rows], dict(enumerate(names))


def _shares(label: str, items_by_checkpoint: Mapping[str, Sequence[ItemRow]], score: str) -> Iterator[BarRow]:
    """Yield a row per checkpoint with the mean score, the label on the first."""
    for checkpoint, items in items_by_checkpoint.items():
        rows = [row for row in items if score in row.scores]
        if rows:
            mean = mean_estimate([row.scores[score] for row in rows], [row.cluster for row in rows])
            yield BarRow(
                label, checkpoint, mean, counts=(len(rows), "", ""), strong=False, scale=_scale([mean])
            )
            label = ""


# Several runs side by side


def comparison_sections(runs: Sequence[PageRun], pairs: Sequence[JudgedPair]) -> Iterator[Section]:
    """Yield the runs, each checkpoint of a later one against its own in the first, and the settings that differ."""
    manifests = {run.summary.run_id: run.summary.manifest for run in runs}
    commands = ((name, " ".join(command_words(manifest)), "") for name, manifest in manifests.items())
    yield Section(key="runs", parts=(Commands(tuple(commands)), ABOUT_DIFFERENCES))
    names = {
        index: candidate.name
        for judged in pairs
        for index, candidate in ((judged.a, judged.pair.baseline), (judged.b, judged.pair.new))
    }
    shown = [judged for judged in pairs if judged.a == counterpart_of(judged.b, names)]
    yield from comparison.sections_of([judged.pair for judged in shown])
    if not shown:
        text = "The runs have no benchmark in common: nothing can be compared."
        yield Section(key="nothing", parts=(text,), urgent=True)
    if rows := _differing(list(manifests.values())):
        header = ("setting", *manifests)
        table = Table(
            header=header,
            rows=tuple((name, *map(setting, values)) for name, values in rows),
            text_columns=len(header),
        )
        yield Section(key="settings", title="Settings that differ", parts=(table,))


def _differing(manifests: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the settings that are not the same for all runs, with the value of each."""
    settings = [settings_of_run.get("settings", {}) for settings_of_run in manifests]
    names = dict.fromkeys(name for settings_of_run in settings for name in settings_of_run)
    rows = [(name, [settings_of_run.get(name) for settings_of_run in settings]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]
