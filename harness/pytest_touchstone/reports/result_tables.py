"""The tables of a run's results, for a terminal and Markdown: by benchmark, or by checkpoint where that does not fit.

Each checkpoint has a table of primary metric, interval, items and marks; where all have the same single benchmark, they
are the rows of one table. Below its row stand a benchmark's groups as far as there is room, and, with details, all of
them and its other metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pytest_touchstone.compare.formats.run import composite_metric
from pytest_touchstone.compare.standings import clear_leaders
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Facts, Section, Table, formatting
from pytest_touchstone.metrics.samples import KS
from pytest_touchstone.reports.score_table import (
    SIGNS,
    SPREAD,
    TOLD,
    ordered_checkpoints,
    series_ends,
    table_of_run,
    tables_by_checkpoint,
)
from pytest_touchstone.results.summary import Metric, Result, Summary, whole_results

HEADER: Final = ("  benchmark", "metric", "value", "95 % interval", "n/N", "")
GAP: Final = ("",) * len(HEADER)

MOST_GROUPS: Final = 8
"""The groups that stand below a benchmark's row without details."""

GROUP_LINES: Final = 24
"""The lines for the groups of all benchmarks; where they would need more, the rows say how many groups there are."""

ON_A_SCREEN: Final = 32
"""Lines of tables with a row per benchmark and checkpoint; for more there is a row per checkpoint."""

MOST: Final = 6
"""Of more checkpoints each has a row, whether or not more would fit; with a single benchmark also of fewer."""

MOST_ALIKE: Final = 2
"""The same, of checkpoints that have the same benchmarks."""


def is_by_checkpoint(summary: Summary, *, details: bool) -> bool:
    """Return whether the table has a row per checkpoint.

    It has, if a row per benchmark and checkpoint would not fit.
    """
    benchmarks: dict[str, set[str]] = {name: set() for name in formatting.checkpoints(summary)}
    for result in whole_results(summary):
        benchmarks[result.checkpoint].add(result.benchmark)
    alike = len({frozenset(names) for names in benchmarks.values()}) == 1
    rows = sum(1 + len(_other_numbers(result)) for result in whole_results(summary)) + len(summary.composites)
    fits = len(benchmarks) == 1 or rows + 2 * len(benchmarks) <= ON_A_SCREEN
    many = len(benchmarks) > (MOST_ALIKE if alike else MOST) or not fits
    return many and (details or not _has_one_benchmark(summary))


def _has_one_benchmark(summary: Summary) -> bool:
    """Return whether several checkpoints have the same single benchmark, and nothing else."""
    names = {result.benchmark for result in whole_results(summary)}
    return len(names) == 1 and len(formatting.checkpoints(summary)) > 1 and not summary.composites


MOST_RESULTS: Final = 100
"""In Markdown, more results have a row per checkpoint; a comment on GitHub holds 65,536 characters."""


def results_sections(summary: Summary, *, details: bool) -> Iterator[Section]:
    """Yield the tables of all results and their legend, for a terminal and for Markdown.

    With details, a terminal has all metrics and groups.
    """
    on_screen = is_by_checkpoint(summary, details=details)
    in_comment = len(whole_results(summary)) > MOST_RESULTS
    for view, many, whole in (("terminal", on_screen, details), ("markdown", in_comment, False)):
        tables = list(tables_by_checkpoint(summary, table_of_run(summary))) if many else []
        if whole or not many:
            tables += _tables_by_benchmark(summary, details=whole, groups=not many)
        signs = legend(summary, many=many)
        yield Section(key="results", parts=tuple(tables) * bool(summary.results), views=(view,))
        yield Section(key="legend", parts=(Facts((("legend", signs),)),) * bool(signs), views=(view,), rank=1)


def legend(summary: Summary, *, many: bool) -> str:
    """Return the meaning of each sign in the tables, which are by checkpoint with ``many``."""
    results, own_rows, parts = whole_results(summary), formatting.own_rows(summary), []
    if many:
        signs = {sign for cell in table_of_run(summary).cells for sign in cell.signs}
        parts += [f"{sign} {meaning}" for sign, meaning in SIGNS.items() if sign in signs]
        if "*" not in signs:
            parts.append("no best is marked: in no column is one significantly better than all others")
        parts.append(f"{SPREAD} half the widest 95 % interval of the column")
    elif clear_leaders(summary.leaders):
        parts.append(f"best: {TOLD}")
    if any(result.of or result.published for result in results):
        parts.append("n/N items scored of those published (or, of other data, of all)")
    if not many and any(_sample(result.mark) for result in results if result.benchmark not in own_rows):
        parts.append(f"{formatting.SAMPLE}: shipped rows, a few of those published")
    if not many and own_rows:
        parts.append(f"{formatting.OWN}: none was published")
    metrics = [result.metrics[result.primary] for result in results]
    metrics += map(composite_metric, summary.composites)
    if whys := [metric.why for metric in metrics if metric.why and metric.low is None]:
        parts.append(f"{formatting.NOTHING} undefined ({join_names(dict.fromkeys(whys), 1)})")
    if lower := [column.metric for column in table_of_run(summary).columns if column.lower]:
        parts.append(f"lower is better for {join_names(dict.fromkeys(lower), 4)}")
    return "; ".join(parts)


def _tables_by_benchmark(summary: Summary, *, details: bool, groups: bool) -> Iterator[Table]:
    """Yield the table of each checkpoint.

    Without ``groups``, benchmarks show only the number of their groups. Checkpoints with the same single benchmark
    share a table.
    """
    if not details and _has_one_benchmark(summary):
        yield _table_of_one_benchmark(summary)
        return
    numbers = [len(_groups(summary, whole, details)) for whole in whole_results(summary)]
    fits = sum(min(number, MOST_GROUPS + 1) for number in numbers) <= GROUP_LINES
    most = 0 if not groups else len(summary.results) if details else MOST_GROUPS if fits else 0
    for name, about in formatting.checkpoints(summary).items():
        rows = tuple(_benchmark_rows(summary, name, details, most))
        yield Table(
            header=HEADER,
            rows=rows,
            text_columns=2,
            words=True,
            close=True,
            title=f"{name}  {about}".rstrip(),
        )


def _table_of_one_benchmark(summary: Summary) -> Table:
    by_checkpoint = {result.checkpoint: result for result in whole_results(summary)}
    results = [by_checkpoint[name] for name in ordered_checkpoints(summary)]
    rows: list[tuple[str, ...]] = []
    for result, last in zip(results, series_ends(summary, list(by_checkpoint)), strict=True):
        rows.append(_result_row(summary, result, f"  {formatting.checkpoint_label(result, results)}"))
        rows += [_row("", metric, str(metric.n)) for metric in _other_numbers(result)]
        rows += [GAP] * last
    kinds = set(formatting.checkpoints(summary).values())
    about = (formatting.asked_alike(results), kinds.pop() if len(kinds) == 1 else "")
    return Table(
        header=("  checkpoint", *HEADER[1:]),
        rows=tuple(rows),
        text_columns=2,
        words=True,
        close=True,
        title=f"{results[0].benchmark}  {', '.join(filter(None, about))}".rstrip(),
    )


def _benchmark_rows(summary: Summary, checkpoint: str, details: bool, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a checkpoint, ``most`` groups below each benchmark."""
    for whole in (result for result in whole_results(summary) if result.checkpoint == checkpoint):
        groups = _groups(summary, whole, details)
        label = f"  {whole.benchmark} {formatting.asked(whole)}".rstrip()
        yield _result_row(summary, whole, label, count(len(groups), "group") if groups and not most else "")
        others = list(whole.metrics.values())[1:] if details else _other_numbers(whole)
        yield from (_row("", metric, str(metric.n)) for metric in others)
        for result in groups[:most]:
            yield _result_row(summary, result, f"    {(result.group or '').replace('_', ' ')}")
        if most and len(groups) > most:
            yield (f"    and {len(groups) - most} more", *GAP[1:])
    best = clear_leaders(summary.leaders)
    for composite in (row for row in summary.composites if row["checkpoint"] == checkpoint):
        marks = ("best" * ((composite["name"], checkpoint) in best), _sample(composite.get("mark", "")))
        metric = replace(composite_metric(composite), name=COMPOSITE)
        yield _row(f"  {composite['name']}", metric, formatting.of_parts(composite), *marks)


def _groups(summary: Summary, whole: Result, details: bool) -> list[Result]:
    """Return the results of a benchmark's groups. Without details there are none if every group is a single item."""
    name = (whole.checkpoint, whole.benchmark)
    results = [
        result for result in summary.results if result.group and (result.checkpoint, result.benchmark) == name
    ]
    return results if details or any(result.collected > 1 for result in results) else []


def _other_numbers(result: Result) -> list[Metric]:
    """Return maj@N, pass@5 and so on beside pass@1, and pass@N, where there are samples enough."""
    metrics = result.metrics
    names = [name for name in metrics if metrics[name].value is not None and name != result.primary]
    passed = [name for name in names if name.startswith("pass@")]
    if any(name.startswith("avg@") for name in names):  # which is pass@1 too
        passed = [name for name in passed if name in (*(f"pass@{k}" for k in KS[1:]), passed[-1])]
    return [metrics[name] for name in [*(name for name in names if name.startswith("maj@")), *passed]]


def _result_row(summary: Summary, result: Result, label: str, groups: str = "") -> tuple[str, ...]:
    """Return the table row of a result's primary metric, with remarks, most urgent first."""
    own_rows, whole = result.benchmark in formatting.own_rows(summary), result.group is None
    best = whole and (result.benchmark, result.checkpoint) in clear_leaders(summary.leaders)
    faults = {"error": result.errors, "timeout": result.timeouts, "lost item": result.lost}
    origin = formatting.OWN if own_rows else _sample(result.mark)
    marks = [
        "NOT VALID" * bool(result.invalid),
        *(count(number, word) for word, number in faults.items() if number),
        "UNSANDBOXED" * bool(result.unsandboxed),
        "best" * best,
        *formatting.not_counted(result.skipped, result.xfailed),
        origin * whole,
        groups,
    ]
    return _row(label, result.metrics[result.primary], formatting.coverage_text(result, own=own_rows), *marks)


def _sample(mark: str) -> str:
    return formatting.SAMPLE * formatting.is_sample(mark)


def _row(label: str, metric: Metric, items: str, *marks: str) -> tuple[str, ...]:
    value, interval = formatting.number(metric.value), formatting.interval(metric.low, metric.high)
    return label, metric.name, value, interval, items, ", ".join(filter(None, marks))
