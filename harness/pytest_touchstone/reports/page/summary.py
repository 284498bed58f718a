"""The summaries of pages: the data that ``summary.html.j2`` shows of a run, and ``comparison.html.j2`` of several."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pytest_touchstone.compare.formats import korean_mlm
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.formats.run import composite_metric
from pytest_touchstone.core.text import count
from pytest_touchstone.document import formatting
from pytest_touchstone.reports import best, comparison, notes
from pytest_touchstone.reports.best import changes_section
from pytest_touchstone.reports.charts import line_charts
from pytest_touchstone.reports.gate import gate_section
from pytest_touchstone.reports.page.items import ItemRow, Kind, PagePart
from pytest_touchstone.reports.page.payload import JudgedPair, PageRun, counterpart_of
from pytest_touchstone.reports.plots import draw_curves, svg
from pytest_touchstone.reports.score_table import ScoreCell, ScoreTable, table_of_run, table_of_study
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Declaration, Metric, Result, Summary
from pytest_touchstone.statistics.intervals import Estimate, mean_estimate
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import LoadedTables, build_study
from pytest_touchstone.study.selection_bias import standings_in

FAULTS_SHOWN: Final = 200
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

MOST_BESIDE: Final = 5
"""Columns whose intervals stand beside their values; those of more stand below them."""

THIRDS: Final = 3


PlainRow: TypeAlias = dict[str, Any]
"""A row of a table of results, as the template has it (``_row``)."""


def run_content(run: PageRun) -> dict[str, Any]:
    """Return what the template shows."""
    summary, shares = run.summary, breakdown(run.parts)
    results = ResultTable(tuple(candidate for candidate in run.candidates if candidate.entries))
    checkpoint_rows = {str(info.get("name")): info for info in summary.checkpoints}
    best_scores = [
        f"Best by {key}: {top['checkpoint']}, {formatting.number(top['value'])} "
        f"(standard error {formatting.number(top['stderr'])}); "
        f"the highest of {top['of']} noisy values is more likely too high than too low."
        for key, top in korean_mlm.best(korean_mlm.rows(summary)).items()
        if top["of"] > 1
    ]
    return {
        "summary": summary,
        "when": _when(summary),
        "demonstration": notes.demonstration(summary),
        "best": best.best_of_run(summary),
        "overview": overview(table_of_run(summary), best.verdicts_of(best.standings_of_run(summary))),
        "command": " ".join(command_words(summary.manifest)),
        "failed": notes.failed_to_load(summary),
        "facts": [
            *(f"Reused: {text}" for text in notes.reused_scores(summary)),
            *notes.text_counts(summary),
            *notes.judge_counts(summary),
            *notes.program_counts(summary),
            *notes.usage(summary),
        ],
        "warnings": notes.warnings(summary),
        "judged": None if summary.gate is None else gate_section(summary.gate),
        "benchmarks": [
            {**_benchmark(declaration, summary.results), "parts": shares.get(declaration.name, ())}
            for declaration in summary.declarations
        ],
        "curves": drawn(build_study(LoadedTables(((summary.directory, results),)))),
        "composites": [
            _row(
                composite["name"],
                composite["checkpoint"],
                composite_metric(composite),
                (0.0, 1.0),
                mark=composite.get("mark", ""),
            )
            for composite in summary.composites
        ],
        "composite_notes": [
            *dict.fromkeys(
                f"{composite['name']} = {composite['formula']}" for composite in summary.composites
            ),
            *best_scores,
        ],
        "changes": changes_section(summary),
        "datasets": [
            (info.name, info.rows, info.origin, info.path, info.sha256)
            for info in formatting.datasets(summary)
        ],
        "checkpoints": [
            (name, description, info.get("source") or info.get("path") or "", info.get("fingerprint") or "")
            for name, description in formatting.checkpoints(summary).items()
            for info in [checkpoint_rows.get(name, {})]
        ],
        "faults": summary.faults[:FAULTS_SHOWN],
        "settings": {name: value for name, value in summary.manifest.items() if name != "checkpoints"},
    }


def study_content(study: Study | None) -> dict[str, Any]:
    """Return what the template shows of a study before its sections."""
    if study is None:
        return {"best": "", "overview": {"rows": ()}, "curves": ()}
    line = best.best_line(study.compute_once(standings_in), best.benchmarks_of(study))
    return {
        "best": line or best.no_best_reason(study),
        "overview": overview(table_of_study(study), best.verdicts_of(study.compute_once(standings_in))),
        "curves": drawn(study),
    }


def overview(table: ScoreTable, verdicts: Mapping[str, str]) -> dict[str, Any]:
    """Return the table of checkpoints by benchmarks, turned where there are more benchmarks than fit beside each
    other: titles of rows and columns, each with what stands below it, and rows of cells."""
    across = [(name, verdicts.get(name, "")) for name, _ in table.rows]
    down = [
        (
            column.benchmark,
            ", ".join(filter(None, (column.metric, "lower is better" * column.lower, column.items))),
        )
        for column in table.columns
    ]
    cells = [[_cell(cell) for cell in row] for _, row in table.rows]
    first = "benchmark"
    if len(across) > 1 and (len(down) <= MOST_ACROSS or len(down) <= len(across)):
        first, across, down = "checkpoint", down, across
    else:
        cells = [list(row) for row in zip(*cells, strict=True)]
    legend = "With 95 % intervals." if any(cell.low is not None for cell in table.cells) else ""
    if any(cell.best for cell in table.cells):
        legend += " Marked: the best, where a paired test on the same items tells it from each other one."
    rows = list(zip(down, cells, strict=True))
    return {"first": first, "head": across, "rows": rows, "legend": legend, "few": len(across) <= MOST_BESIDE}


def _cell(cell: ScoreCell | None) -> tuple[str, str, str]:
    """Return a value, what stands below it, and its kind."""
    if cell is None:
        return formatting.NOTHING, "", ""
    if cell.invalid:
        return formatting.number(cell.value), "NOT VALID", "invalid"
    around = formatting.interval(cell.low, cell.high).removeprefix(formatting.NOTHING)
    below = f"{around} over fewer items".lstrip() if "~" in cell.signs else around
    return formatting.number(cell.value), below, "best" * cell.best


def _when(summary: Summary) -> str:
    began = summary.manifest.get("began")
    clock = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) if isinstance(began, (int, float)) else ""
    )
    checkpoints = count(len(formatting.checkpoints(summary)), "checkpoint")
    return ", ".join(text for text in (clock, checkpoints, notes.item_counts(summary)) if text)


def _benchmark(declared: Declaration, results: Sequence[Result]) -> dict[str, Any]:
    """Return the part of one benchmark: metric by metric, with the checkpoints one below the other, and group by
    group."""
    of_benchmark = [result for result in results if result.benchmark == declared.name]
    whole = [result for result in of_benchmark if result.group is None]
    groups = [result for result in of_benchmark if result.group is not None]
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
    primary = groups[0].primary if groups else ""
    scale = _scale(result.metrics[primary] for result in groups)
    names = dict.fromkeys(result.group or "" for result in groups)
    return {
        "name": declared.name,
        "facts": ", ".join(filter(None, facts)),
        "rows": rows,
        "groups": count(len(names), "group") if groups else "",
        "open": len(groups) <= OPEN_GROUPS,
        "primary": primary,
        "group_rows": [
            row
            for name in names
            for row in _rows(name, primary, [r for r in groups if r.group == name], scale)
        ],
        "scored": "\n\n".join(filter(None, (declared.rule, declared.source))),
    }


def _rows(
    label: str, name: str, results: Sequence[Result], scale: tuple[float, float] | None = None
) -> list[PlainRow]:
    """Return a row per checkpoint, the label on the first."""
    scale = scale or _scale(result.metrics[name] for result in results)
    alike = len(results) > 1 and formatting.common_mark(results)  # said above the table
    rows = []
    for index, result in enumerate(results):
        metric, primary = result.metrics[name], name == result.primary
        rows.append(
            _row(
                "" if index else label,
                formatting.checkpoint_label(result, results),
                metric,
                scale,
                mark="NOT VALID" * bool(result.invalid) or ("" if alike else result.mark) * primary,
                counts=(metric.n, *((result.faults, result.skipped) if primary else ("", ""))),
                strong=primary and result.group is None,
            )
        )
    return rows


def drawn(study: Study) -> list[str]:
    """Return the curves of a study as elements of a page."""
    return [svg(draw_curves(chart)) for chart in line_charts(study)]


def _row(
    label: str,
    checkpoint: str,
    metric: Metric | Estimate,
    scale: tuple[float, float] | None,
    *,
    mark: str = "",
    counts: tuple[int | str, ...] = (),
    strong: bool = True,
) -> PlainRow:
    """Return a row with the places of value and interval on the scale, in per cent of its width; ``counts`` are items,
    errors and skipped items, none for a composite."""
    left, right = scale or (0.0, 1.0)
    value = metric.value or 0.0
    ends = (value if number is None else number for number in (value, metric.low, metric.high))
    positions = [min(100.0, max(0.0, 100 * (end - left) / (right - left))) for end in ends]
    return {
        "label": label,
        "checkpoint": checkpoint,
        "metric": metric,
        "bar": None if metric.value is None or scale is None else positions,
        "mark": mark,
        "counts": counts,
        "strong": strong,
    }


def _scale(metrics: Iterable[Metric]) -> tuple[float, float]:
    """Return 0 to 1 if everything lies within; else the lowest and the highest limit."""
    limits = [
        limit for metric in metrics for limit in (metric.low, metric.value, metric.high) if limit is not None
    ]
    if not limits or (min(limits) >= 0 and max(limits) <= 1):
        return 0.0, 1.0
    low, high = min(limits), max(limits)
    margin = (high - low) / 10 or 1.0
    return low - margin, high + margin


# Scores by the fields of rows and by the length of questions. Groups are a benchmark's own and have results; these
# parts are only described: they say where to look among the items.


def breakdown(parts: Sequence[PagePart]) -> dict[str, list[PlainRow]]:
    """Return a row for each share of the items of a benchmark that has any, by the benchmark's name."""
    names = dict.fromkeys(part.kind.name for part in parts)
    return {name: _of_benchmark([part for part in parts if part.kind.name == name]) for name in names}


def _of_benchmark(parts: Sequence[PagePart]) -> list[PlainRow]:
    rows = [row for part in parts for row in part.rows]
    shares: list[PlainRow] = []
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


def _fields(kind: Kind, rows: Sequence[ItemRow]) -> Iterator[tuple[str, list[Any], Mapping[Any, str]]]:
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


def _shares(
    label: str, items_by_checkpoint: Mapping[str, Sequence[ItemRow]], score: str
) -> Iterator[PlainRow]:
    """Yield a row per checkpoint with the mean score, the label on the first."""
    for checkpoint, items in items_by_checkpoint.items():
        rows = [row for row in items if score in row.scores]
        if rows:
            mean = mean_estimate([row.scores[score] for row in rows], [row.cluster for row in rows])
            scale = (0.0, 1.0) if 0 <= (mean.value or 0) <= 1 else None
            yield _row(label, checkpoint, mean, scale, counts=(len(rows), "", ""), strong=False)
            label = ""


# Several runs side by side


def comparison_content(runs: Sequence[PageRun], pairs: Sequence[JudgedPair]) -> dict[str, Any]:
    """Return what the template shows: the runs, and each checkpoint of a later one against its own in the first."""
    names = {
        index: candidate.name
        for judged in pairs
        for index, candidate in ((judged.a, judged.pair.baseline), (judged.b, judged.pair.new))
    }
    shown = [judged for judged in pairs if judged.a == counterpart_of(judged.b, names)]
    manifests = {run.summary.run_id: run.summary.manifest for run in runs}
    return {
        "runs": [(name, " ".join(command_words(manifest))) for name, manifest in manifests.items()],
        "pairs": [section for pair in shown for section in comparison.sections_of([pair.pair])],
        "settings": _differing(list(manifests.values())),
    }


def _differing(manifests: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the settings that are not the same for all runs, with the value of each."""
    settings = [settings_of_run.get("settings", {}) for settings_of_run in manifests]
    names = dict.fromkeys(name for settings_of_run in settings for name in settings_of_run)
    rows = [(name, [settings_of_run.get(name) for settings_of_run in settings]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]
