"""The table of checkpoints by benchmarks: for a terminal, a page, and a paper.

It has the primary metric of each benchmark and the composites, a row per checkpoint. A value is marked as the best only
where a test tells it from each other one of its column (``compare.standings``), and one that is not valid is marked as
such and never best. A paper's forms are Markdown and LaTeX (booktabs).

Names come from outside: each form escapes what it would take for markup.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from pytest_touchstone.compare.standings import clear_leaders
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import join_names, one_line
from pytest_touchstone.document import Table, formatting
from pytest_touchstone.document.formatting import (
    NOTHING,
    folded,
    in_percent,
    markdown_code,
    markdown_text,
    number,
)
from pytest_touchstone.results.summary import Metric, Result, Summary, whole_results
from pytest_touchstone.study.overview import value_notes
from pytest_touchstone.study.points import Point, Study, StudyMetric, Value
from pytest_touchstone.study.selection_bias import standings_in

TOLD: Final = (
    "significantly better than all others by a paired test on the same items, at 5 % corrected for the choice"
)

SIGNS: Final = {
    "*": f"best of its column, {TOLD} (no * where none is)",
    "!": "not valid, or items are missing",
    "c": "through a chat template, unlike others of its column",
    "~": "over fewer items than others of its column",
}
SPREAD: Final = "+-"
"""The label of the row below a table, with half the widest interval of each column."""

ITEMS: Final = "n/N"
"""The title of numbers of items."""

FOLDED: Final = 12
"""Names in headings fold from so many columns."""


class ScoreCell(NamedTuple):
    """A value with its interval and standard error, and its ``signs`` of ``SIGNS``."""

    value: float | None
    low: float | None
    high: float | None
    stderr: float | None
    signs: str = ""

    @property
    def best(self) -> bool:
        """Return whether the score is significantly better than all others of its column."""
        return "*" in self.signs

    @property
    def invalid(self) -> bool:
        """Return whether the score is NOT VALID or lacks items."""
        return "!" in self.signs


class BenchmarkColumn(NamedTuple):
    """The metric of a benchmark.

    With ``share`` values are in per cent; ``items`` such as ``4/1,188`` is the largest count of any row.
    """

    benchmark: str
    metric: str
    share: bool = True
    lower: bool = False
    items: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Scores of checkpoints (rows) on benchmarks (columns), None where there is no result."""

    columns: tuple[BenchmarkColumn, ...]
    rows: tuple[tuple[str, tuple[ScoreCell | None, ...]], ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[ScoreCell]:
        """Return all cells with a result."""
        return [cell for _, row in self.rows for cell in row if cell is not None]


def ordered_checkpoints(summary: Summary) -> list[str]:
    """Return the checkpoints with results by series and step, as on the command line."""
    scored = formatting.checkpoints(summary)
    names = [str(info.get("name")) for info in summary.checkpoints]
    return [*(name for name in names if name in scored), *(name for name in scored if name not in names)]


def series_ends(summary: Summary, names: Sequence[str]) -> list[bool]:
    """Return for each checkpoint whether the next one belongs to another series."""
    series = {str(info.get("name")): info.get("series") for info in summary.checkpoints}
    return [*(series.get(name) != series.get(after) for name, after in pairwise(names)), False]


def table_of_run(summary: Summary) -> ScoreTable:
    """Return the table of a run."""
    names = ordered_checkpoints(summary)
    columns = [*_benchmark_columns(summary), *_composite_columns(summary)]
    return ScoreTable(
        columns=tuple(column for column, _ in columns),
        rows=tuple((name, tuple(cells.get(name) for _, cells in columns)) for name in names),
    )


def _benchmark_columns(summary: Summary) -> Iterator[tuple[BenchmarkColumn, dict[str, ScoreCell]]]:
    """Yield each benchmark's column, with its cells by checkpoint."""
    best, own_rows = clear_leaders(summary.leaders), formatting.own_rows(summary)
    aggregates = {declared.name: declared.aggregate for declared in summary.declarations}
    for benchmark in dict.fromkeys(result.benchmark for result in whole_results(summary)):
        results = [result for result in whole_results(summary) if result.benchmark == benchmark]
        most = max(results, key=lambda result: result.scored)
        cells = {
            result.checkpoint: _cell(
                result.metrics[result.primary],
                "*" * ((benchmark, result.checkpoint) in best) + _signs(result, results),
            )
            for result in results
        }
        yield (
            BenchmarkColumn(
                f"{benchmark} {formatting.asked_alike(results)}".rstrip(),
                most.primary,
                _are_shares(cell.value for cell in cells.values()),
                not aggregation_of(aggregates.get(benchmark, {}), most.primary).higher_is_better,
                formatting.coverage_text(most, own=benchmark in own_rows),
            ),
            cells,
        )


def _composite_columns(summary: Summary) -> Iterator[tuple[BenchmarkColumn, dict[str, ScoreCell]]]:
    best = clear_leaders(summary.leaders)
    invalid = {
        (result.checkpoint, result.benchmark)
        for result in whole_results(summary)
        if result.invalid or result.faults
    }
    for name in dict.fromkeys(row["name"] for row in summary.composites):
        rows = [row for row in summary.composites if row["name"] == name]
        cells = {}
        for row in rows:
            signs = "*" * ((name, row["checkpoint"]) in best)
            signs += "!" * any(
                (row["checkpoint"], component["benchmark"]) in invalid for component in row["parts"]
            )
            limits = (row["low"], row["high"], row.get("stderr"))
            cells[row["checkpoint"]] = ScoreCell(row["value"], *limits, signs)
        shares = _are_shares(cell.value for cell in cells.values())
        yield BenchmarkColumn(name, COMPOSITE, shares, items=formatting.of_parts(rows[0])), cells


def _cell(metric: Metric, signs: str) -> ScoreCell:
    return ScoreCell(metric.value, metric.low, metric.high, metric.stderr, signs)


def _signs(result: Result, others: Sequence[Result]) -> str:
    """Return the signs of a result, compared with the others of its column."""
    alike = bool(formatting.asked_alike(others)) or not any(map(formatting.asked, others))
    signs = "!" * bool(result.invalid or result.faults)
    signs += "c" * (not alike and result.template in ("chat", "mixed"))
    return signs + "~" * (not result.faults and result.scored < max(other.scored for other in others))


def _are_shares(values: Iterable[float | None]) -> bool:
    return all(value is None or 0 <= value <= 1 for value in values)


def tables_by_checkpoint(summary: Summary, table: ScoreTable) -> Iterator[Table]:
    """Yield a table for each kind of checkpoint.

    An empty row separates series; the last row has half the widest interval of each column.
    """
    kinds = {str(info.get("name")): info.get("kind") for info in summary.checkpoints}
    for kind in dict.fromkeys(kinds.get(name) for name, _ in table.rows):
        rows = [row for row in table.rows if kinds.get(row[0]) == kind]
        columns = [
            (column, [cells[index] for _, cells in rows])
            for index, column in enumerate(table.columns)
            if any(cells[index] for _, cells in rows)
        ]
        texts: list[tuple[str, ...]] = []
        signs: dict[tuple[int, int], str] = {}
        for row_index, ((name, _), is_last) in enumerate(
            zip(rows, series_ends(summary, [name for name, _ in rows]), strict=True)
        ):
            cells = [column_cells[row_index] for _, column_cells in columns]
            signs |= {
                (len(texts), number): cell.signs for number, cell in enumerate(cells, 1) if cell is not None
            }
            texts.append((name, *("" if cell is None else number(cell.value) for cell in cells)))
            texts += [("",) * len(texts[0])] * is_last
        spreads = [_spread(cells) for _, cells in columns]
        longest = max(len(f"checkpoint {ITEMS}"), *(formatting.cell_width(name) for name, _ in rows))
        yield Table(
            header=(
                f"checkpoint{ITEMS:>{longest - len('checkpoint')}}",
                *_headings([column for column, _ in columns]),
            ),
            rows=(*texts, (SPREAD, *spreads)) if any(spreads) else tuple(texts),
            signs=signs,
        )


def _spread(cells: Sequence[ScoreCell | None]) -> str:
    """Return half of the widest interval."""
    limits = [(cell.low, cell.high) for cell in cells if cell is not None]
    widths = [high - low for low, high in limits if low is not None and high is not None]
    return number(max(widths) / 2) if widths else NOTHING


def _headings(columns: Sequence[BenchmarkColumn]) -> list[str]:
    """Return column headings of benchmark, metric and items, aligned at their last lines."""
    parts = [
        (folded(column.benchmark, FOLDED), folded(column.metric, FOLDED), [column.items])
        for column in columns
    ]
    heights = [max(map(len, same)) for same in zip(*parts, strict=True)]
    return [
        "\n".join(
            line
            for lines, height in zip(column_parts, heights, strict=True)
            for line in (*[""] * (height - len(lines)), *lines)
        )
        for column_parts in parts
    ]


def table_of_study(study: Study) -> ScoreTable:
    """Return the table of all checkpoints of a study."""
    leaders = clear_leaders(standing._asdict() for standing in study.compute_once(standings_in))
    measures = [measure for measure in study.measures if measure.primary]

    def cell_of(point: Point, measure: StudyMetric) -> ScoreCell | None:
        value: Value | None = study.value(point, measure)
        if value is None:
            return None
        signs = "*" * ((measure.benchmark, point.name) in leaders) + "!" * bool(value.invalid)
        return ScoreCell(value.value, value.low, value.high, value.stderr, signs)

    return ScoreTable(
        columns=tuple(
            BenchmarkColumn(measure.benchmark, measure.metric, measure.share, not measure.higher_is_better)
            for measure in measures
        ),
        rows=tuple(
            (point.name, tuple(cell_of(point, measure) for measure in measures)) for point in study.points
        ),
        notes=tuple(value_notes(study)),
    )


BOLD: Final = (
    "bold: significantly better than all others by a paired test on the same items, corrected for the choice"
)
NOT_VALID: Final = "not valid"


def legend(table: ScoreTable, *, stderr: bool) -> str:
    """Explain the numbers and marks of a table."""
    shares = {column.share for column in table.columns}
    values = "Values" if shares == {False} else "Per cent" if shares == {True} else "Shares in per cent"
    around = "standard errors" if stderr else "95 % intervals"
    parts = [f"{values} with {around}"]
    if any(cell.best for cell in table.cells):
        parts += [BOLD]
    elif len(table.rows) > 1:
        parts += ["no best is marked: none is significantly better than all others"]
    lower = [column.metric for column in table.columns if column.lower]
    parts += [f"lower is better for {join_names(dict.fromkeys(lower))}"] if lower else []
    return "; ".join([*parts, *table.notes])


def cell_texts(column: BenchmarkColumn, cell: ScoreCell, *, stderr: bool) -> tuple[str, str]:
    """Return a value and its interval or standard error as text, empty if undefined."""

    def text(value: float | None) -> str:
        return in_percent(value) if column.share and value is not None else number(value)

    if stderr:
        return text(cell.value), "" if cell.stderr is None else text(cell.stderr)
    around = formatting.interval(cell.low, cell.high, text)
    return text(cell.value), "" if around == NOTHING else around


def markdown_table(table: ScoreTable, *, stderr: bool = False) -> str:
    """Return the table as GitHub-flavoured Markdown."""

    def shown(column: BenchmarkColumn, cell: ScoreCell | None) -> str:
        if cell is None:
            return NOTHING
        value, around = cell_texts(column, cell, stderr=stderr)
        value = f"**{value}**" if cell.best else f"~~{value}~~" if cell.invalid else value
        around = f"± {around}" if stderr and around else around
        return f"{value} {around}".rstrip() + f" {NOT_VALID}" * cell.invalid

    head = [
        "checkpoint",
        *(f"{markdown_code(column.benchmark)}<br>{markdown_code(column.metric)}" for column in table.columns),
    ]
    rows = [
        [markdown_code(name), *(shown(column, cell) for column, cell in zip(table.columns, row, strict=True))]
        for name, row in table.rows
    ]
    lines = [head, ["---", *["---:"] * len(table.columns)], *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{markdown_text(legend(table, stderr=stderr))}.\n"


_LATEX: Final = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "\\char34{}",
    "`": "\\textasciigrave{}",
    "±": "$\\pm$",
    "--": "-{}-",  # else one dash
    # After the end of a row they would be an option of it.
    "[": "{[}",
    "*": "{*}",
}
_LATEX_SIGNS: Final = re.compile("|".join(map(re.escape, sorted(_LATEX, key=len, reverse=True))))


def latex_text(text: str) -> str:
    """Escape a text for LaTeX, so that no character acts as markup."""
    return _LATEX_SIGNS.sub(lambda match: _LATEX[match[0]], one_line(text))


def latex_table(table: ScoreTable, *, stderr: bool = False) -> str:
    """Return the table as LaTeX, for ``\\usepackage{booktabs}``."""

    def shown(column: BenchmarkColumn, cell: ScoreCell | None) -> str:
        if cell is None:
            return "--"
        value, around = cell_texts(column, cell, stderr=stderr)
        value = f"\\textbf{{{value}}}" if cell.best else value
        around = f"$\\pm$ {around}" if stderr and around else around
        # In braces: a bracket after the end of a row would be its space.
        return f"{value} {{{around}}}".removesuffix(" {}") + "$^\\dagger$" * cell.invalid

    columns = table.columns
    heads = ([latex_text(getattr(column, field)) for column in columns] for field in ("benchmark", "metric"))
    rows = [
        [latex_text(name), *(shown(column, cell) for column, cell in zip(columns, row, strict=True))]
        for name, row in table.rows
    ]
    caption = latex_text(legend(table, stderr=stderr))
    caption += f"; $\\dagger$: {NOT_VALID}" * any(cell.invalid for cell in table.cells)
    first, second = (
        " & ".join([title, *head]) for title, head in zip(("", "checkpoint"), heads, strict=True)
    )
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        *textwrap.wrap(f"\\caption{{{caption}.}}", 78, break_long_words=False, break_on_hyphens=False),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        f"{first} \\\\",
        f"{second} \\\\",
        "\\midrule",
        *(f"{' & '.join(row)} \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"
