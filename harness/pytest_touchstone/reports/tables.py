"""The tables of results by benchmark, for terminals.

Each checkpoint has a table of primary metric, interval, items and marks; where all have the same single benchmark, they
are the rows of one table. Below its row stand a benchmark's groups as far as there is room, and, with details, all of
them and its other metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.compare.standings import leading
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count
from pytest_touchstone.document import formatting
from pytest_touchstone.document.formatting import cell_width, folded, open_table
from pytest_touchstone.metrics.samples import KS
from pytest_touchstone.reports.score_table import ends, in_order
from pytest_touchstone.results.summary import Metric, Result, Summary, wholes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

HEADER: Final = ("  benchmark", "metric", "value", "95 % interval", "n/N", "")
BY_CHECKPOINT: Final = ("  checkpoint", *HEADER[1:])
LABEL, METRIC, MARKS = 0, 1, 5
"""The columns that may fold: numbers stay whole."""

MOST_GROUPS: Final = 8
"""The groups that stand below a benchmark's row without details."""

GROUP_LINES: Final = 24
"""The lines for the groups of all benchmarks; where they would need more, the rows say how many groups there are."""

LOUD: Final = "bold red"
"""The style of words that say that a value must not be believed."""

LEAST: Final = ({MARKS: 10, METRIC: 12, LABEL: 18}, {MARKS: 4, METRIC: 4, LABEL: 8})
"""The widths down to which they fold inside words, in the order given; below the first only where nothing else
helps."""


class TableRow(NamedTuple):
    """A line of a table; ``marks`` are words with their style."""

    cells: tuple[str, ...]
    marks: tuple[tuple[str, str], ...] = ()
    primary: bool = True

    @property
    def texts(self) -> tuple[str, ...]:
        """All cells as plain text."""
        return (*self.cells, ", ".join(word for word, _ in self.marks))


def row_count(summary: Summary) -> int:
    """Return the number of lines that the tables take without details, blank ones and headings included."""
    shown = [row for one in wholes(summary) for row in (one, *_at_other_numbers(one))]
    return len(shown) + len(summary.composites) + 2 * len(formatting.checkpoints(summary))


def tables_by_benchmark(
    summary: Summary, width: int, *, details: bool, groups: bool
) -> Iterator[tuple[str, str, Table]]:
    """Yield each checkpoint's name, what it is, and its table; the columns of all tables are equally wide.

    Without ``groups`` the rows of benchmarks say how many groups there are.

    Of checkpoints with the same single benchmark it is the benchmark's name, what they all are, and their table.
    """
    if not details and has_one_benchmark(summary):
        yield _of_one_benchmark(summary, width)
        return
    shown = [len(_groups(summary, one, details)) for one in wholes(summary)]
    room = sum(min(number, MOST_GROUPS + 1) for number in shown) <= GROUP_LINES
    most = 0 if not groups else len(summary.results) if details else MOST_GROUPS if room else 0
    found = {
        name: list(_benchmark_rows(summary, name, details, most)) for name in formatting.checkpoints(summary)
    }
    widths = _widths(list(chain.from_iterable(found.values())), width)
    for place, (name, what) in enumerate(formatting.checkpoints(summary).items()):
        yield name, what, _benchmark_table(found[name], widths, None if place else HEADER)


def has_one_benchmark(summary: Summary) -> bool:
    """Return whether several checkpoints have the same single benchmark, and nothing else."""
    same = {one.benchmark for one in wholes(summary)}
    return len(same) == 1 and len(formatting.checkpoints(summary)) > 1 and not summary.composites


def _of_one_benchmark(summary: Summary, width: int) -> tuple[str, str, Table]:
    own, best = formatting.own_rows(summary), {name for _, name in leading(summary.leaders)}
    known = {one.checkpoint: one for one in wholes(summary)}
    same = [known[name] for name in in_order(summary)]
    found = [
        [
            _primary(one, one.checkpoint in best, one.benchmark in own, formatting.who(one, same)),
            *_at_other_numbers(one),
        ]
        for one in same
    ]
    rows = list(chain.from_iterable(found))
    what = dict.fromkeys(formatting.checkpoints(summary).values())
    about = (formatting.asked_alike(same), next(iter(what)) if len(what) == 1 else "")
    widths = _widths(rows, width, BY_CHECKPOINT)
    last = ends(summary, [one.checkpoint for one in same])
    gaps = [
        end and row is own_rows[-1] for own_rows, end in zip(found, last, strict=True) for row in own_rows
    ]
    return (
        same[0].benchmark,
        ", ".join(filter(None, about)),
        _benchmark_table(rows, widths, BY_CHECKPOINT, gaps),
    )


# Rows


def _benchmark_rows(summary: Summary, checkpoint: str, details: bool, most: int) -> Iterator[TableRow]:
    """Yield the rows of a checkpoint, ``most`` groups below each benchmark."""
    best = {benchmark for benchmark, name in leading(summary.leaders) if name == checkpoint}
    own = formatting.own_rows(summary)
    mine = [one for one in summary.results if one.checkpoint == checkpoint]
    for whole in (one for one in mine if one.group is None):
        groups = _groups(summary, whole, details)
        row = _primary(whole, whole.benchmark in best, whole.benchmark in own)
        untold = count(len(groups), "group") if groups and not most else ""
        yield row._replace(marks=(*row.marks, (untold, "dim"))) if untold else row
        if not details:
            yield from _at_other_numbers(whole)
        else:
            yield from (_metric_row(one) for one in whole.metrics.values() if one.name != whole.primary)
        yield from (_group(one, whole.benchmark in own) for one in groups[:most])
        if most and (more := len(groups) - most) > 0:
            yield TableRow((f"    and {more} more", "", "", "", ""), primary=False)
    for one in (one for one in summary.composites if one["checkpoint"] == checkpoint):
        yield _composite_row(one, one["name"] in best)


def _groups(summary: Summary, whole: Result, details: bool) -> list[Result]:
    """Return the results of a benchmark's groups; without details none where each group is a single item."""
    name = (whole.checkpoint, whole.benchmark)
    found = [one for one in summary.results if (one.checkpoint, one.benchmark) == name and one is not whole]
    return found if details or any(one.collected > 1 for one in found) else []


def _at_other_numbers(result: Result) -> list[TableRow]:
    """Return the rows of maj@N, of pass@5 and so on beside pass@1, and of pass@N, where there are samples enough."""
    there = [name for name, one in result.metrics.items() if one.value is not None and name != result.primary]
    at = [name for name in there if name.startswith("pass@")]
    if any(name.startswith("avg@") for name in there):  # which is pass@1 too
        at = [name for name in at if name in (*(f"pass@{k}" for k in KS[1:]), at[-1])]
    votes = [name for name in there if name.startswith("maj@")]
    return [_metric_row(result.metrics[name]) for name in (*votes, *at)]


def _primary(result: Result, best: bool, own: bool, name: str = "") -> TableRow:
    """Return the row, under the benchmark's name or another one."""
    metric = result.metrics[result.primary]
    label = f"{result.benchmark} {formatting.asked(result)}".rstrip()
    return TableRow(
        (f"  {name or label}", *_numbers(metric), formatting.of_all(result, own=own)),
        tuple(_marks(result, best, own)),
    )


def _marks(result: Result, best: bool, own: bool) -> Iterator[tuple[str, str]]:
    """Yield the words beside a result, the loud ones first."""
    if result.invalid:
        yield "NOT VALID", LOUD
    for word, number in (("error", result.errors), ("timeout", result.timeouts), ("lost item", result.lost)):
        if number:
            yield count(number, word), LOUD
    if result.unsandboxed:
        yield "UNSANDBOXED", LOUD
    if best:
        yield "best", "bold"
    for text in formatting.not_counted(result.skipped, result.xfailed):
        yield text, ""
    if own:
        yield formatting.OWN, "dim"
    elif formatting.is_sample(result.mark):
        yield formatting.SAMPLE, "dim"


def _metric_row(metric: Metric) -> TableRow:
    return TableRow(("", *_numbers(metric), str(metric.n)), primary=False)


def _group(result: Result, own: bool) -> TableRow:
    label = f"    {(result.group or '').replace('_', ' ')}"
    marks = (word for word in _marks(result, best=False, own=False) if word[1] != "dim")
    metric = result.metrics[result.primary]
    return TableRow(
        (label, *_numbers(metric), formatting.of_all(result, own=own)), tuple(marks), primary=False
    )


def _composite_row(one: Mapping[str, Any], best: bool) -> TableRow:
    limits = formatting.interval(one["low"], one["high"])
    cells = (f"  {one['name']}", COMPOSITE, formatting.number(one["value"]), limits, formatting.of_parts(one))
    marks = [("best", "bold")] * best + [(formatting.SAMPLE, "dim")] * formatting.is_sample(
        one.get("mark", "")
    )
    return TableRow(cells, tuple(marks))


def _numbers(metric: Metric) -> tuple[str, str, str]:
    return metric.name, formatting.number(metric.value), formatting.interval(metric.low, metric.high)


# Columns


def _widths(rows: Sequence[TableRow], width: int, header: Sequence[str] = HEADER) -> list[int]:
    """Return the width of each column: what its cells need, or less for those that may fold; between words first."""
    columns = list(zip(header, *(row.texts for row in rows), strict=True))
    found = [max(map(cell_width, column)) for column in columns]
    label, marks = (max(map(_longest_word, columns[column])) for column in (LABEL, MARKS))
    for least in ({MARKS: max(marks, LEAST[0][MARKS]), LABEL: label}, {MARKS: marks}, *LEAST):
        for column, enough in least.items():
            over = sum(found) + len(found) - 1 - width
            found[column] -= max(0, min(over, found[column] - enough))
    return found


def _longest_word(text: str) -> int:
    """Return the columns that a text needs if it folds at spaces alone; what it begins with stands before each line."""
    words = text.split()
    return cell_width(text) - cell_width(text.lstrip()) + max(map(cell_width, words), default=0)


def _benchmark_table(
    rows: Sequence[TableRow], widths: Sequence[int], header: Sequence[str] | None, gaps: Sequence[bool] = ()
) -> Table:
    """Return the rows as a table; an empty one follows where there is a gap."""
    from rich.text import Text

    table = open_table()
    table.show_header = header is not None
    for place, (title, width) in enumerate(zip(header or HEADER, widths, strict=True)):
        right = place not in (LABEL, METRIC, MARKS)
        table.add_column(
            title, width=width, justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    for number, row in enumerate(rows):
        label, metric, *numbers = row.cells
        indent = label[: len(label) - len(label.lstrip())]
        lines = folded(label.strip(), widths[LABEL] - len(indent))
        names = ("\n".join(indent + line for line in lines), "\n".join(folded(metric, widths[METRIC])))
        loud = any(style == LOUD for _, style in row.marks)
        styles = ["", "", "" if loud or not row.primary else "bold", "", ""]
        texts = [Text(cell, style=style) for cell, style in zip((*names, *numbers), styles, strict=True)]
        table.add_row(*texts, _marked(row.marks))
        if gaps and gaps[number]:
            table.add_row()
    return table


def _marked(marks: Iterable[tuple[str, str]]) -> Text:
    from rich.text import Text

    return Text(", ").join(Text(word, style=style) for word, style in marks)


def alike(summary: Summary) -> bool:
    """Return whether all checkpoints have the same benchmarks."""
    found: dict[str, set[str]] = {name: set() for name in formatting.checkpoints(summary)}
    for one in wholes(summary):
        found.setdefault(one.checkpoint, set()).add(one.benchmark)
    return len({frozenset(one) for one in found.values()}) == 1
