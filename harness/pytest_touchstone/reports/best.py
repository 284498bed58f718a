"""The best checkpoint in a sentence and by benchmark, and the changes against the best so far.

checkpoint-300 leads on 3 of 4 benchmarks; over all items it cannot be told apart from checkpoint-250 (p 0.31)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_touchstone.compare.standings import (
    ALL,
    Standing,
    best_checkpoint,
    leads_of,
)
from pytest_touchstone.core.aggregation import is_soft
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Part, Section, Table
from pytest_touchstone.document.formatting import number, p_short
from pytest_touchstone.results.summary import Summary, whole_results
from pytest_touchstone.statistics.comparison import POINTS, unit_of
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.selection_bias import (
    selection_estimates,
    standings_in,
    standings_without_estimate,
)

# In a sentence


def standings_of_run(summary: Summary) -> list[Standing]:
    """Return the leaders of a run as standings. Results of former versions have only the significant ones."""
    former: dict[str, Any] = {"benchmark": "", "metric": "", "checkpoint": "", "of": 2, "told": True}
    former |= {"rival": "", "p": None, "tied": False, "rivals": (), "worse": ()}
    rows = [{name: row.get(name, default) for name, default in former.items()} for row in summary.leaders]
    return [Standing(**{**row, "rivals": tuple(row["rivals"]), "worse": tuple(row["worse"])}) for row in rows]


def best_of_run(summary: Summary) -> str:
    """Name the best checkpoint of a run in a sentence."""
    names = [result.benchmark for result in whole_results(summary)]
    several = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    return best_line(standings_of_run(summary), several)


def best_line(standings: Sequence[Standing], benchmarks: Iterable[str] = ()) -> str:
    """Name the best checkpoint in a sentence, empty without standings.

    Of ``benchmarks``, those without a standing are listed.
    """
    compared = {row.benchmark for row in standings if row.benchmark != ALL and row.metric != COMPOSITE}
    if not compared:
        return ""
    best, leads = best_checkpoint(standings), leads_of(standings)
    parts = [] if best is None else [_sentence(best)]
    if len(compared) > 1:
        most = max(leads.values(), default=0)
        leaders = [name for name, count in leads.items() if count == most]
        if best is not None and best.checkpoint in leaders:
            leaders = [best.checkpoint]
        if not leaders:
            parts.append(f"no checkpoint leads alone on any of {len(compared)} benchmarks")
        elif len(leaders) == 1:
            parts.append(f"{leaders[0]} leads on {most} of {len(compared)} benchmarks")
    others = [name for name in benchmarks if name not in compared]
    parts += [f"not compared: {join_names(others, 3)}"] if others else []
    return "; ".join(parts)


def verdicts_of(standings: Sequence[Standing]) -> dict[str, str]:
    """Return each checkpoint that was compared with the best one, with its verdict."""
    best = best_checkpoint(standings)
    if best is None:
        return {}
    verdicts = {best.checkpoint: "the best" if best.told else "measured best"}
    verdicts |= dict.fromkeys(best.rivals, "cannot be told apart from the best")
    return verdicts | dict.fromkeys(best.worse, "worse than the best")


def _sentence(best: Standing) -> str:
    """Name the best checkpoint and the rivals that do not differ significantly."""
    rivals = f"cannot be told apart from {join_names(best.rivals or (best.rival,), 3)}{_p(best)}"
    if best.benchmark == ALL:
        if best.tied:
            return f"over all items {best.checkpoint} and {best.rival} are equally good"
        rank = (
            f"the best, significantly better than all others{_p(best)}"
            if best.told
            else f"first, but {rivals}"
        )
        return f"over all items {best.checkpoint} is {rank}"
    if best.tied:
        return f"{best.checkpoint} and {best.rival} are equally good on {best.benchmark}"
    if best.told:
        return f"{best.checkpoint} is the best on {best.benchmark}, significantly better than all others{_p(best)}"
    return f"{best.checkpoint} leads on {best.benchmark}; it {rivals}"


def _p(standing: Standing) -> str:
    if standing.p is None:
        return "" if standing.told else " (no test: item scores are missing)"
    return f" (p {p_short(standing.p)})"


def benchmarks_of(study: Study) -> list[str]:
    """Return the benchmarks that several checkpoints have results on."""
    names = [name for point in study.points for name in point.candidate.entries]
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def best_sections(study: Study) -> list[Section]:
    """Return the summary, a row per benchmark and composite, and the selection bias."""
    standings, costs = study.compute_once(standings_in), study.compute_once(selection_estimates)
    rows = [_best_row(study, row) for row in standings if row.benchmark != ALL]
    parts: list[Part] = [best_line(standings, benchmarks_of(study)) or no_best_reason(study)]
    if rows:
        header = ("benchmark", "metric", "best", "value", "told apart from")
        parts.append(Table(header=header, rows=tuple(rows), text_columns=3, words=True))
    if len(costs) > 1:
        cost_rows = tuple(
            (
                cost.standing.benchmark or cost.measure.label,
                cost.measure.amount(cost.measured),
                cost.measure.difference_unit.moved(-cost.luck),
                cost.measure.amount(cost.expected),
                cost.measure.range(cost),
            )
            for cost in costs
        )
        header = ("benchmark", "measured", "luck", "expected", "95 % interval")
        parts.append(Table(header=header, rows=cost_rows))
    parts += [f"{sentence}." for sentence in cost_sentences(study)]
    return [Section(parts=tuple(parts))]


def _best_row(study: Study, standing: Standing) -> tuple[str, ...]:
    """Return a table row: benchmark, metric, best checkpoint, value, and its significance."""
    candidate = next(point.candidate for point in study.points if point.name == standing.checkpoint)
    metric, value = standing.metric, candidate.composites.get(standing.benchmark)
    if (entry := candidate.entries.get(standing.benchmark)) is not None:
        metric, value = entry.saved.aggregation(metric).compared(metric), entry.saved.metrics.get(metric)
    others = standing.of - 1
    significance = f"not {standing.rival}{', its equal' if standing.tied else _p(standing)}"
    if standing.told:
        significance = f"{'all ' * (others > 1)}{count(others, 'other')}{_p(standing)}"
    return (
        standing.benchmark,
        metric,
        standing.checkpoint,
        number(value.value if value else None),
        significance,
    )


# What the choice costs


def cost_sentences(study: Study) -> list[str]:
    """Return the selection bias of the best checkpoint, over all items if there are several benchmarks."""
    best = best_checkpoint(study.compute_once(standings_in))
    lines = []
    for cost in study.compute_once(selection_estimates):
        if cost.standing == best:
            luck = cost.measure.difference_unit.told(abs(cost.luck)).removeprefix("+")
            expected = f"{cost.measure.text(cost.expected)} {cost.measure.range(cost)}"
            where = "over all items" if best.benchmark == ALL else f"on {best.benchmark}"
            lines.append(
                f"{best.checkpoint} measures {cost.measure.text(cost.measured)} {where}; "
                f"choosing the best of {best.of} flatters it by {luck}: expect {expected} on further items"
            )
    if names := [
        f"{standing.benchmark} {standing.metric}"
        for standing in study.compute_once(standings_without_estimate)
    ]:
        lines.append(
            f"not told of {join_names(names, 3)}: how much of the best value is luck, since it is not a mean "
            "of item scores"
        )
    return lines


def cost_facts(study: Study) -> list[dict[str, Any]]:
    """Return the selection estimates as plain data, unrounded."""
    return [
        {
            "benchmark": estimate.standing.benchmark,
            "metric": estimate.standing.metric,
            "checkpoint": estimate.standing.checkpoint,
            "of": estimate.standing.of,
            **{name: getattr(estimate, name) for name in ("measured", "luck", "expected", "low", "high")},
            "level": study.level,
            "unit": estimate.measure.unit or None,
        }
        for estimate in study.compute_once(selection_estimates)
    ]


def no_best_reason(study: Study) -> str:
    """Return why there is no best checkpoint."""
    if len(study.points) < 2:
        return "one checkpoint: name another run to say which is best"
    return "the best is undecided: no two checkpoints have whole, valid results of the same items"


# Against the best so far

MOST_CHANGES: Final = 3
"""With more checkpoints than this, only the largest change of each metric is shown: the files have all of them."""

BRIEF_CHANGES: Final = 5
"""Changes in a report that fits a screen."""


def changes_section(summary: Summary, *, brief: bool = False) -> Section | None:
    """Return the changes that a report has room for, None where there are none.

    Of one checkpoint they are those of all metrics but soft scores, of several those of primary metrics and composites.
    A brief report has the largest of primary metrics.
    """
    if not summary.changes:
        return None
    several = len({row["checkpoint"] for row in summary.changes})
    rows = _shown(summary, several)
    notes = [f"of each the largest of {several} checkpoints; all are in summary.json"] * (
        several > MOST_CHANGES
    )
    if brief:
        rows, note = _largest(summary, rows, several)
        notes = [note, *notes] if note else notes
    parts: list[Part] = [_table_of_changes(rows, several=several > 1), *best_runs(rows), *notes]
    if not rows:
        parts = ["no primary metric has changed against the best so far"]
    return Section(key="changes", title="Change against the best so far", parts=tuple(parts))


def _shown(summary: Summary, checkpoints: int) -> list[dict[str, Any]]:
    if checkpoints <= 1:
        return [row for row in summary.changes if not is_soft(row["metric"])]
    rows = _of_primary_metrics(summary)
    if checkpoints <= MOST_CHANGES:
        return rows
    largest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["change"])):
        largest[row["benchmark"], row["metric"]] = row
    return [row for row in rows if row is largest[row["benchmark"], row["metric"]]]


def _largest(
    summary: Summary, rows: Sequence[dict[str, Any]], checkpoints: int
) -> tuple[list[dict[str, Any]], str]:
    """Return the largest changes and a note on the others.

    For a single checkpoint they include primary metrics at other k (``real@5``).
    """
    decisive = _of_primary_metrics(summary, family=checkpoints == 1)
    rows = [row for row in rows if row in decisive]
    moved = [row for row in rows if round(row["change"], 2)]
    largest = sorted(moved, key=lambda row: -abs(float(row["change"])))[:BRIEF_CHANGES]
    parts = [f"{len(moved) - len(largest)} with smaller changes"] if len(largest) < len(moved) else []
    parts += [f"{len(rows) - len(moved)} as the best so far"] if len(moved) < len(rows) else []
    return [row for row in moved if row in largest], f"besides: {', '.join(parts)} (-v)" if parts else ""


def _of_primary_metrics(summary: Summary, *, family: bool = False) -> list[dict[str, Any]]:
    """Return the changes of primary metrics and composites, with ``family`` of ``real@5`` beside ``real@1`` too."""
    primary = {result.benchmark: result.primary for result in summary.results}
    rows = []
    for row in summary.changes:
        name, (stem, at, number) = primary.get(row["benchmark"], ""), row["metric"].partition("@")
        alike = family and number.isdecimal() and name.startswith(f"{stem}{at}")
        rows += [row] if alike or row["metric"] in (COMPOSITE, name) else []
    return rows


def _table_of_changes(rows: Sequence[Mapping[str, Any]], *, several: bool) -> Table:
    in_points = all(row["unit"] == POINTS.name for row in rows)
    best_of = {row["of"] for row in rows}
    same = best_of.pop() if len(best_of) == 1 else 1
    cells = []
    before = ""
    for row in rows:
        name = row["checkpoint"] if several else row["benchmark"]
        metric = "" if row["metric"] == COMPOSITE else str(row.get("label") or row["metric"])
        if several:
            metric = f"{row['benchmark']} {metric}".rstrip()
        change = change_text(row).removesuffix(" points") if in_points else change_text(row)
        best, value, percent = row["best"], row["value"], ""
        if best and best > 0:
            percent = f"{round(100 * (value - best) / best, 1) or 0.0:+.1f}"  # no -0.0
        shown = "" if name == before else name
        against = best_so_far(row, of=same == 1)
        cells.append((shown, metric, number(best), number(value), change, percent, against))
        before = name
    header = (
        *("checkpoint" if several else "benchmark", "metric", "best\nso far", "now"),
        *("points" if in_points else "change", "%"),
        f"against the\nbest of {same}" if same > 1 else "against",
    )
    return Table(header=header, rows=tuple(cells), text_columns=2, words=True)


def change_text(row: Mapping[str, Any]) -> str:
    """Return a change with its unit: ``-1.20 points``."""
    unit = unit_of(row["unit"], share=row["unit"] == POINTS.name)
    return unit.told(row["change"] / unit.factor)


def best_so_far(row: Mapping[str, Any], *, of: bool = True) -> str:
    """Return the checkpoint with the best earlier value, with its run if names collide.

    With ``of``, the number of candidates follows.
    """
    again = f" of run {row['run_id']}" if row["against"] == row["checkpoint"] else ""
    return f"{row['against']}{again}" + (f" (best of {row['of']})" if of and row["of"] > 1 else "")


def best_runs(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return notes on the runs that hold the best values, and on other models."""
    runs: dict[str, None] = {}
    models: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row["against"] != row["checkpoint"]:
            runs[f"{row['against']} of run {row['run_id']}"] = None
        if what := row.get("other_model"):  # rows of former versions do not say
            models.setdefault((row["against"], what), {})[row["checkpoint"]] = None
    found = [f"best so far: {join_names(runs, 3)}"] if runs else []
    return found + [
        f"{against} is another model ({what}) than {join_names(names, 3)}"
        for (against, what), names in models.items()
    ]
