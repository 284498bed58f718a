"""The beginnings of series, compared at the epoch where the later of two begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.study.between import StartComparison, starts_of
from pytest_touchstone.compare.study.curves import NO_CHANGE
from pytest_touchstone.compare.study.differences import MORE, verdict_on
from pytest_touchstone.compare.study.points import Measure, Series, Study
from pytest_touchstone.core.text import count, place_text
from pytest_touchstone.reports.formatting import NOTHING
from pytest_touchstone.reports.study.curves import MOST, amount, limits, moved
from pytest_touchstone.reports.study.section import Part, Section, Table, comparison_facts, found_among
from pytest_touchstone.statistics.verdicts import holm

MOST_STARTS: Final = 400
"""Pairs of series, times measures, that are compared; of more, only those of leading measures."""

MOST_REASONS: Final = 3
"""Reasons why pairs were not compared, in words."""


class Judged(NamedTuple):
    """A pair of beginnings and its verdict."""

    start: StartComparison
    adjusted: float | None
    verdict: str


def starts(study: Study) -> Section | None:
    """Return how the beginnings of series differ, as far as they can be compared."""
    pairs = len(study.series) * (len(study.series) - 1) // 2
    measures = study.measures if pairs * len(study.measures) <= MOST_STARTS else leading_measures(study)
    every = [one for measure in measures for one in starts_of(study, measure)]
    if not every:
        return None
    adjusted = holm([one.comparison.p for one in every])
    found = [Judged(one, p, verdict_on(p, study.level)) for one, p in zip(every, adjusted, strict=True)]
    how = (
        "Series that begin at different epochs are compared at the epoch where the later one begins. A value between "
        "two checkpoints (~) is interpolated on a straight line, with the error of both and of the line itself: how "
        "far its series misses such lines elsewhere. No curve is continued beyond its checkpoints."
    )
    told = [one for one in found if one.verdict == MORE]
    tested = sum(one.adjusted is not None for one in found)
    shown = [one for one in found if one.start.comparison.difference is not None]
    parts: list[Part] = [how]
    if tested:
        some = f"{len(told)} of {tested}" if told else f"None of {tested}"
        verb = "differs" if len(told) < 2 else "differ"
        parts.append(
            f"{some} pairs of beginnings {verb} by more than noise, after Holm's correction for so many."
        )
    parts += [_table(told[:MOST], verdicts=False)] if told else []
    parts += [*_reasons(found), *_unequal_epochs(study)]
    return Section(
        key="starts",
        title="Beginnings",
        parts=tuple(parts),
        details=(_table(shown),) if shown else (),
        line=found_among([_named(one) for one in told], tested, "pairs of beginnings") if tested else "",
        data=[_facts(one) for one in found],
    )


def _named(one: Judged) -> str:
    return f"{one.start.measure.label} of {one.start.first.name} and {one.start.second.name}"


def leading_measures(study: Study) -> list[Measure]:
    """Return the measures that a short report is about: the composites, else the first primary ones."""
    made = [one for one in study.measures if one.composite]
    return made or [one for one in study.measures if one.primary][:3]


def _reasons(found: Sequence[Judged]) -> list[str]:
    whys = [one.start.comparison.why for one in found if one.start.comparison.difference is None]
    known = list(dict.fromkeys(why for why in whys if why))
    if not known:
        return []
    more = f"; and {len(known) - MOST_REASONS} reasons more" if len(known) > MOST_REASONS else ""
    pairs = count(len(whys), "pair")
    return [f"{pairs} could not be compared: {'; '.join(known[:MOST_REASONS])}{more}."]


def _table(found: Sequence[Judged], *, verdicts: bool = True) -> Table:
    header = ("measure", "A", "B", "epoch", "A", "B", "B - A\n95 % interval")
    return Table(header=header, rows=tuple(_row(one, verdicts) for one in found), left=3)


def _row(one: Judged, verdicts: bool) -> tuple[str, ...]:
    start, comparison = one.start, one.start.comparison
    measure = start.measure
    test = NO_CHANGE._replace(value=comparison.difference, low=comparison.low, high=comparison.high)
    known = None if start.between is None else start.between[0].series

    def value(given: float | None, series: Series) -> str:
        return f"~{amount(given, measure)}" if known == series.name else amount(given, measure)

    lines = [
        moved(comparison.difference, measure),
        limits(test, measure),
        *([one.verdict] if verdicts else []),
    ]
    return (
        measure.label,
        start.first.name,
        start.second.name,
        NOTHING if start.epoch is None else place_text(start.epoch),
        value(comparison.baseline, start.first),
        value(comparison.new, start.second),
        "\n".join(line for line in lines if line != NOTHING),
    )


def _unequal_epochs(study: Study) -> list[str]:
    """Return a warning where an epoch is not the same number of steps in all series."""
    known = [(one.name, one.steps_per_epoch) for one in study.series if one.steps_per_epoch is not None]
    if len(known) < 2:
        return []
    low, high = min(known, key=lambda one: one[1].low), max(known, key=lambda one: one[1].high)
    if high[1].high < 1.1 * low[1].low:
        return []
    return [
        f"An epoch is not the same amount of training everywhere: {low[1].text} steps in {low[0]}, {high[1].text} in "
        f"{high[0]}."
    ]


def _facts(one: Judged) -> dict[str, Any]:
    start = one.start
    return {
        "measure": start.measure.key,
        "first": start.first.name,
        "second": start.second.name,
        "epoch": start.epoch,
        "interpolated_between": [point.name for point in start.between] if start.between else None,
        **(comparison_facts(start.comparison) or {}),
        "p_adjusted": one.adjusted,
        "verdict": one.verdict,
    }
