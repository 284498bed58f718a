"""The stability of curves: the mean absolute change between neighbours against what noise alone gives."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_touchstone.compare.study.curves import JudgedCurve, judged_curves
from pytest_touchstone.compare.study.differences import MORE
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.text import count
from pytest_touchstone.reports.study.curves import MOST, amount
from pytest_touchstone.reports.study.section import Part, Section, Table, found_among


def stability(study: Study) -> Section | None:
    """Return which curves change more between neighbours than noise alone makes them."""
    found = [one for one in study.once(judged_curves) if one.curve.steadiness is not None]
    if not found:
        return None
    told = [one for one in found if one.steadiness.verdict == MORE]
    how = (
        "The mean absolute change between neighbouring checkpoints, in points. Noise alone gives sqrt(2/pi) times the "
        "mean standard error of such a change, and with a chance of 95 % a value in the range beside it."
    )
    what = f"{len(told)} of {count(len(found), 'curve')}" if told else f"None of {count(len(found), 'curve')}"
    verb = "changes" if len(told) < 2 else "change"
    parts: list[Part] = [how, f"{what} {verb} by more than noise between neighbours."]
    parts += [_table(told[:MOST])] if told else []
    below = sum(_below(one) for one in found)
    if below:
        parts.append(
            f"{below} of {len(found)} change less than checkpoints on different items would, as those on the same "
            "items do. The noise between them is then smaller, and only the scores of the items would tell it."
        )
    title = "Stability"
    named = [f"{one.curve.measure.label} of {one.curve.series.name}" for one in told]
    line = found_among(named, len(found), "curves, between neighbouring checkpoints")
    return Section(key="stability", title=title, parts=tuple(parts), details=(_table(found),), line=line)


def _below(one: JudgedCurve) -> bool:
    test = one.steadiness
    return not one.curve.items and test.value is not None and test.low is not None and test.value < test.low


def _table(found: Sequence[JudgedCurve]) -> Table:
    rows = []
    for one in found:
        curve, test = one.curve, one.steadiness
        noise = curve.steadiness.noise if curve.steadiness else None
        between = f"{amount(test.low, curve.measure)} - {amount(test.high, curve.measure)}"
        numbers = (amount(test.value, curve.measure), amount(noise, curve.measure), between)
        rows.append((curve.measure.label, curve.series.name, *numbers, test.verdict))
    header = ("measure", "series", "mean\nchange", "noise\nalone", "its range", "verdict")
    return Table(header=header, rows=tuple(rows), left=2, words=True)
