"""Which checkpoint is best, in a sentence; and the table of checkpoints by benchmarks, for a page and for a paper.

    checkpoint-300 leads on 3 of 4 benchmarks; over all items it cannot be told from checkpoint-250 (p 0.31)

The table has the primary metric of each benchmark and the composites, a row per checkpoint. A value is marked as the
best only where a test tells it from each other one of its column (``compare.standings``), and one that is not valid is
marked as such and never best. Its forms are Markdown, LaTeX (booktabs), CSV, and text for a terminal.

Names come from outside: each form escapes what it would take for markup, and no field of CSV is a formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.standings import (
    ALL,
    BestCheckpoint,
    Standing,
    best_checkpoint,
    leading,
)
from pytest_touchstone.compare.study.choice import ChoiceCost, costs_of, standings_in, without_cost
from pytest_touchstone.compare.study.points import Measure, Point, Study, Value
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, csv_text, listed, one_line
from pytest_touchstone.reports import formatting, tables
from pytest_touchstone.reports.document import Part, Section, Table
from pytest_touchstone.reports.formatting import (
    NOTHING,
    in_percent,
    markdown_code,
    markdown_text,
    number,
    p_short,
)
from pytest_touchstone.reports.study.overview import marks_of
from pytest_touchstone.reports.study.section import amount, value_range, value_text
from pytest_touchstone.results.summary import Summary, wholes

# In a sentence


def in_summary(summary: Summary) -> list[Standing]:
    """Return the standings of a run's checkpoints; results of former versions have those that are told."""
    former: dict[str, Any] = {"benchmark": "", "metric": "", "checkpoint": "", "of": 2, "told": True}
    former |= {"rival": "", "p": None, "tied": False}
    return [Standing(**{name: row.get(name, former[name]) for name in former}) for row in summary.leaders]


def best_of_run(summary: Summary) -> str:
    """Return who is best in a run of several checkpoints, in a sentence."""
    names = [one.benchmark for one in wholes(summary)]
    several = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    return best_line(in_summary(summary), several)


def best_line(standings: Sequence[Standing], benchmarks: Iterable[str] = ()) -> str:
    """Return who is best in a sentence; empty without standings. ``benchmarks`` are all that there are: those without a
    standing are named."""
    best = best_checkpoint(standings)
    if best is None:
        return ""
    known = {one.benchmark for one in standings}
    others = [name for name in benchmarks if name not in known]
    besides = f"; not compared: {listed(others, 3)}" if others else ""
    return (_on_one(best.overall) if best.of == 1 and best.overall else _on_several(best)) + besides


def _on_one(one: Standing) -> str:
    if one.tied:
        return f"{one.checkpoint} and {one.rival} are equally good on {one.benchmark}"
    if one.told:
        return f"{one.checkpoint} is the best on {one.benchmark}, told from each other one{_p(one)}"
    return f"{one.checkpoint} leads on {one.benchmark}; it cannot be told from {one.rival}{_p(one)}"


def _on_several(best: BestCheckpoint) -> str:
    leads = f"{best.checkpoint} leads on {best.leads} of {best.of} benchmarks"
    if not best.leads:
        leads = f"no checkpoint leads alone on any of {best.of} benchmarks"
    elif best.shared:
        leads = f"no checkpoint leads on more than {best.leads} of {best.of} benchmarks"
    if best.overall is None:
        return leads
    same = best.overall.checkpoint == best.checkpoint and best.leads and not best.shared
    return f"{leads}; over all items {_over_all(best.overall, 'it' if same else best.overall.checkpoint)}"


def _over_all(one: Standing, who: str) -> str:
    if one.tied:
        return f"{one.rival} is as good" if who == "it" else f"{who} and {one.rival} are equally good"
    if one.told:
        return f"{who} is the best, told from each other one{_p(one)}"
    first = "" if who == "it" else " is first, but"
    return f"{who}{first} cannot be told from {one.rival}{_p(one)}"


def _p(one: Standing) -> str:
    if one.p is None:
        return "" if one.told else " (no test: the scores of items are not known)"
    return f" (p {p_short(one.p)})"


def benchmarks_of(study: Study) -> list[str]:
    """Return the benchmarks that more than one checkpoint has."""
    names = [name for point in study.points for name in point.candidate.entries]
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def best_sections(study: Study) -> list[Section]:
    """Return the sentence, a line per benchmark and composite, and what the choice costs."""
    standings, costs = study.once(standings_in), study.once(costs_of)
    rows = [_best_row(study, row) for row in standings if row.benchmark != ALL]
    parts: list[Part] = [best_line(standings, benchmarks_of(study)) or nothing_told(study)]
    if rows:
        header = ("benchmark", "metric", "best", "value", "told from")
        parts.append(Table(header=header, rows=tuple(rows), left=3, words=True))
    parts += [_cost_table(costs)] if len(costs) > 1 else []
    parts += [f"{sentence}." for sentence in cost_sentences(study)]
    return [Section(parts=tuple(parts))]


def _best_row(study: Study, standing: Standing) -> tuple[str, ...]:
    """Return the benchmark, its metric, the best checkpoint, its value, and from whom it is told."""
    candidate = next(point.candidate for point in study.points if point.name == standing.checkpoint)
    metric, value = standing.metric, candidate.composites.get(standing.benchmark)
    if (entry := candidate.entries.get(standing.benchmark)) is not None:
        metric, value = entry.saved.aggregation(metric).compared(metric), entry.saved.metrics.get(metric)
    shown = number(value.value if value else None)
    return standing.benchmark, metric, standing.checkpoint, shown, _told(standing)


def _told(one: Standing) -> str:
    others = one.of - 1
    if one.told:
        return f"{'all ' * (others > 1)}{count(others, 'other')}{_p(one)}"
    return f"not {one.rival}{', its equal' if one.tied else _p(one)}"


# What the choice costs


def cost_sentences(study: Study) -> list[str]:
    """Return how much of the best is luck, over all items or on the only benchmark."""
    found = study.once(costs_of)
    best = best_checkpoint(study.once(standings_in))
    told = [one for one in found if best is not None and one.standing == best.overall]
    lines = []
    for one in told:
        luck = one.measure.told_in.told(abs(one.luck)).removeprefix("+")
        expected = f"{value_text(one.expected, one.measure)} {value_range(one, one.measure)}"
        lines.append(
            f"{one.standing.checkpoint} measures {value_text(one.measured, one.measure)} {_where(one)}; "
            f"as the best of {one.standing.of}, {luck} of that are luck: expect {expected} on further items"
        )
    if names := [f"{standing.benchmark} {standing.metric}" for standing in study.once(without_cost)]:
        lines.append(
            f"not told of {listed(names, 3)}: how much of the best value is luck, since it is no mean of item scores"
        )
    return lines


def _where(one: ChoiceCost) -> str:
    return "over all items" if one.standing.benchmark == ALL else f"on {one.standing.benchmark}"


def _cost_table(costs: Sequence[ChoiceCost]) -> Table:
    return Table(
        header=("benchmark", "measured", "luck", "expected", "95 % interval"),
        rows=tuple(
            (
                cost.standing.benchmark or cost.measure.label,
                amount(cost.measured, cost.measure),
                cost.measure.told_in.moved(-cost.luck),
                amount(cost.expected, cost.measure),
                value_range(cost, cost.measure),
            )
            for cost in costs
        ),
    )


def cost_facts(study: Study) -> list[dict[str, Any]]:
    """Return the costs as plain data, values unrounded."""
    return [
        {
            "benchmark": one.standing.benchmark,
            "metric": one.standing.metric,
            "checkpoint": one.standing.checkpoint,
            "of": one.standing.of,
            **{name: getattr(one, name) for name in ("measured", "luck", "expected", "low", "high")},
            "level": study.level,
            "unit": one.measure.unit or None,
        }
        for one in study.once(costs_of)
    ]


def nothing_told(study: Study) -> str:
    """Return why nothing can be said of the best."""
    if len(study.points) < 2:
        return "one checkpoint: name another run to say which is best"
    return "which is best cannot be told: no two checkpoints have whole, valid results of the same items"


# As a table


class ScoreCell(NamedTuple):
    """A value with its interval and standard error; ``best``: told from each other one of its column."""

    value: float
    low: float | None
    high: float | None
    stderr: float | None
    best: bool = False
    invalid: bool = False


class BenchmarkColumn(NamedTuple):
    """A benchmark's metric: ``share`` where values are shown in per cent; ``items`` as ``4/1,188`` where all rows have
    so many."""

    benchmark: str
    metric: str
    share: bool = True
    lower: bool = False
    items: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Checkpoints by benchmarks; None where there is no value."""

    columns: tuple[BenchmarkColumn, ...]
    rows: tuple[tuple[str, tuple[ScoreCell | None, ...]], ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[ScoreCell]:
        """All that there are."""
        return [one for _, row in self.rows for one in row if one is not None]


def table_of_run(summary: Summary) -> ScoreTable:
    """Return the table of a run."""
    names, told = tables.in_order(summary), leading(summary.leaders)
    columns, found = [], {}
    for benchmark in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = {one.checkpoint: one for one in wholes(summary) if one.benchmark == benchmark}
        some = next(iter(same.values()))
        metrics = {name: one.metrics[one.primary] for name, one in same.items()}
        declared = next((one for one in summary.declarations if one.name == benchmark), None)
        how = aggregation_of(declared.aggregate if declared else {}, some.primary)
        items = {
            formatting.of_all(one, own=benchmark in formatting.own_rows(summary)) for one in same.values()
        }
        columns.append(
            BenchmarkColumn(
                f"{benchmark} {formatting.asked_alike(list(same.values()))}".rstrip(),
                some.primary,
                _are_shares(one.value for one in metrics.values()),
                not how.higher_is_better,
                items.pop() if len(items) == 1 else "",
            )
        )
        for name, one in metrics.items():
            if one.value is not None:
                limits = (one.value, one.low, one.high, one.stderr)
                wrong = bool(same[name].invalid or same[name].faults)
                found[name, len(columns) - 1] = ScoreCell(*limits, (benchmark, name) in told, wrong)
    for composite in dict.fromkeys(one["name"] for one in summary.composites):
        same_ = [one for one in summary.composites if one["name"] == composite]
        shares = _are_shares(one["value"] for one in same_)
        columns.append(BenchmarkColumn(composite, COMPOSITE, shares))
        wrong_parts = {
            (one.checkpoint, one.benchmark) for one in wholes(summary) if one.invalid or one.faults
        }
        for row in same_:
            if row["value"] is not None:
                wrong = any((row["checkpoint"], part["benchmark"]) in wrong_parts for part in row["parts"])
                around = (row["low"], row["high"], row.get("stderr"))
                best = (composite, row["checkpoint"]) in told
                found[row["checkpoint"], len(columns) - 1] = ScoreCell(row["value"], *around, best, wrong)
    rows = ((name, tuple(found.get((name, place)) for place in range(len(columns)))) for name in names)
    return ScoreTable(columns=tuple(columns), rows=tuple(rows))


def _are_shares(values: Iterable[float | None]) -> bool:
    return all(value is None or 0 <= value <= 1 for value in values)


def table_of_study(study: Study) -> ScoreTable:
    """Return the table of all checkpoints of a study."""
    told = leading(one._asdict() for one in study.once(standings_in))
    measures = [one for one in study.measures if one.primary]

    def cell_of(point: Point, measure: Measure) -> ScoreCell | None:
        value: Value | None = study.value(point, measure)
        if value is None:
            return None
        best = (measure.benchmark, point.name) in told
        return ScoreCell(value.value, value.low, value.high, value.stderr, best, bool(value.invalid))

    return ScoreTable(
        columns=tuple(
            BenchmarkColumn(one.benchmark, one.metric, one.share, not one.higher_is_better)
            for one in measures
        ),
        rows=tuple((point.name, tuple(cell_of(point, one) for one in measures)) for point in study.points),
        notes=tuple(marks_of(study)),
    )


TOLD: Final = "bold: told from each other one by a paired test on the same items, corrected for the choice"
NOT_VALID: Final = "not valid"


def legend(table: ScoreTable, *, stderr: bool) -> str:
    """Return what the numbers of a table are."""
    shares = {one.share for one in table.columns}
    values = "Values" if shares == {False} else "Per cent" if shares == {True} else "Shares in per cent"
    around = "standard errors" if stderr else "95 % intervals"
    parts = [f"{values} with {around}"]
    if any(one.best for one in table.cells):
        parts += [TOLD]
    elif len(table.rows) > 1:
        parts += ["no best is marked: none is told from all others"]
    lower = [one.metric for one in table.columns if one.lower]
    parts += [f"lower is better for {listed(dict.fromkeys(lower))}"] if lower else []
    return "; ".join([*parts, *table.notes])


def cell_texts(column: BenchmarkColumn, one: ScoreCell, *, stderr: bool) -> tuple[str, str]:
    """Return a value, and its interval or standard error; empty where that is not known."""

    def text(value: float) -> str:
        return in_percent(value) if column.share else number(value)

    if stderr:
        return text(one.value), "" if one.stderr is None else text(one.stderr)
    around = formatting.interval(one.low, one.high, text)
    return text(one.value), "" if around == NOTHING else around


def markdown_table(table: ScoreTable, *, stderr: bool = False) -> str:
    """Return the table as GitHub-flavoured Markdown."""

    def shown(column: BenchmarkColumn, one: ScoreCell | None) -> str:
        if one is None:
            return NOTHING
        value, around = cell_texts(column, one, stderr=stderr)
        value = f"**{value}**" if one.best else f"~~{value}~~" if one.invalid else value
        around = f"± {around}" if stderr and around else around
        return f"{value} {around}".rstrip() + f" {NOT_VALID}" * one.invalid

    head = [
        "checkpoint",
        *(f"{markdown_code(one.benchmark)}<br>{markdown_code(one.metric)}" for one in table.columns),
    ]
    rows = [
        [markdown_code(name), *(shown(column, one) for column, one in zip(table.columns, row, strict=True))]
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
    """Return a text as LaTeX sets it: nothing in it is a command, ends a cell, or begins a comment."""
    return _LATEX_SIGNS.sub(lambda found: _LATEX[found[0]], one_line(text))


def latex_table(table: ScoreTable, *, stderr: bool = False) -> str:
    """Return the table as LaTeX, for ``\\usepackage{booktabs}``."""

    def shown(column: BenchmarkColumn, one: ScoreCell | None) -> str:
        if one is None:
            return "--"
        value, around = cell_texts(column, one, stderr=stderr)
        value = f"\\textbf{{{value}}}" if one.best else value
        around = f"$\\pm$ {around}" if stderr and around else around
        # In braces: a bracket after the end of a row would be its space.
        return f"{value} {{{around}}}".removesuffix(" {}") + "$^\\dagger$" * one.invalid

    columns = table.columns
    heads = ([latex_text(getattr(one, part)) for one in columns] for part in ("benchmark", "metric"))
    rows = [
        [latex_text(name), *(shown(column, one) for column, one in zip(columns, row, strict=True))]
        for name, row in table.rows
    ]
    caption = latex_text(legend(table, stderr=stderr))
    caption += f"; $\\dagger$: {NOT_VALID}" * any(one.invalid for one in table.cells)
    first, second = (
        " & ".join([title, *head]) for title, head in zip(("", "checkpoint"), heads, strict=True)
    )
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{caption}.}}",
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


def csv_table(table: ScoreTable, *, stderr: bool = False) -> str:
    """Return the table as CSV (RFC 4180): of each benchmark the value, unrounded, its limits or standard error, and
    ``best`` or ``not valid``."""
    around = ("stderr",) if stderr else ("low", "high")
    parts = ("", *(f" {name}" for name in around), " note")
    head = [f"{one.benchmark} {one.metric}{part}" for one in table.columns for part in parts]

    def fields(one: ScoreCell | None) -> list[Any]:
        if one is None:
            return [None] * len(parts)
        note = NOT_VALID if one.invalid else "best" if one.best else None
        return [one.value, *(getattr(one, name) for name in around), note]

    rows = ([name, *(part for one in row for part in fields(one))] for name, row in table.rows)
    return csv_text([["checkpoint", *head], *rows], "\r\n")
