"""Which checkpoint is best, in a sentence, benchmark by benchmark, and what the choice costs.

checkpoint-300 leads on 3 of 4 benchmarks; over all items it cannot be told from checkpoint-250 (p 0.31)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pytest_touchstone.compare.standings import (
    ALL,
    Standing,
    best_checkpoint,
    leads_of,
)
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document import Part, Section, Table
from pytest_touchstone.document.formatting import (
    number,
    p_short,
)
from pytest_touchstone.results.summary import Summary, wholes
from pytest_touchstone.study.choice import ChoiceCost, costs_of, standings_in, without_cost
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.texts import amount, value_range, value_text

# In a sentence


def in_summary(summary: Summary) -> list[Standing]:
    """Return the standings of a run's checkpoints; results of former versions have those that are told."""
    former: dict[str, Any] = {"benchmark": "", "metric": "", "checkpoint": "", "of": 2, "told": True}
    former |= {"rival": "", "p": None, "tied": False, "rivals": (), "worse": ()}
    rows = [{name: row.get(name, default) for name, default in former.items()} for row in summary.leaders]
    return [Standing(**{**row, "rivals": tuple(row["rivals"]), "worse": tuple(row["worse"])}) for row in rows]


def best_of_run(summary: Summary) -> str:
    """Return who is best in a run of several checkpoints, in a sentence."""
    names = [one.benchmark for one in wholes(summary)]
    several = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    return best_line(in_summary(summary), several)


def best_line(standings: Sequence[Standing], benchmarks: Iterable[str] = ()) -> str:
    """Return who is best in a sentence; empty without standings. ``benchmarks`` are all that there are: those without a
    standing are named."""
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
    parts += [f"not compared: {listed(others, 3)}"] if others else []
    return "; ".join(parts)


def verdicts_of(standings: Sequence[Standing]) -> dict[str, str]:
    """Return each checkpoint that was compared with the best one, and what was found."""
    best = best_checkpoint(standings)
    if best is None:
        return {}
    verdicts = {best.checkpoint: "the best" if best.told else "measured best"}
    verdicts |= dict.fromkeys(best.rivals, "cannot be told from the best")
    return verdicts | dict.fromkeys(best.worse, "worse than the best")


def _sentence(best: Standing) -> str:
    """Return who is best, and from whom that is not told."""
    rivals = f"cannot be told from {listed(best.rivals or (best.rival,), 3)}{_p(best)}"
    if best.benchmark == ALL:
        if best.tied:
            return f"over all items {best.checkpoint} and {best.rival} are equally good"
        told = f"the best, told from each other one{_p(best)}" if best.told else f"first, but {rivals}"
        return f"over all items {best.checkpoint} is {told}"
    if best.tied:
        return f"{best.checkpoint} and {best.rival} are equally good on {best.benchmark}"
    if best.told:
        return f"{best.checkpoint} is the best on {best.benchmark}, told from each other one{_p(best)}"
    return f"{best.checkpoint} leads on {best.benchmark}; it {rivals}"


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
    best = best_checkpoint(study.once(standings_in))
    told = [cost for cost in study.once(costs_of) if cost.standing == best]
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
