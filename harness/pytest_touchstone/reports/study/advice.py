"""The next steps: the checkpoint to go on from, comparisons that need more items, and a plan with commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_touchstone.compare.study.advice import Advice, Chosen, MoreItems
from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.reports.formatting import NOTHING
from pytest_touchstone.reports.study.section import COMMAND, Facts, Part, Section, Table, share_text
from pytest_touchstone.reports.study.versus import contrast_facts, duel_facts, moved
from pytest_touchstone.statistics.verdicts import POWER

STEPS: Final = 2
"""The steps that are shown unless the section is asked for."""


def advice_section(found: Advice) -> Section:
    """Return the section, which says "no evidence" where there is none."""
    parts: list[Part] = [Facts(tuple(_chosen(found.chosen))) if found.chosen else f"{_capital(found.why)}."]
    parts += _more(found.more)
    parts += [
        Facts(
            (
                ("to do", one.aim),
                *(((COMMAND, one.command),) if one.command else ()),
                ("expect", one.expected),
            )
        )
        for one in found.plan
    ]
    title = "What to do next"
    return Section(
        key="advice", title=title, parts=tuple(parts), brief=tuple(_brief(found)), data=_facts(found)
    )


def _brief(found: Advice) -> Iterable[Part]:
    """The checkpoint to go on from, and the first step of each kind with its command."""
    one = found.chosen
    if one is None:
        yield f"{_capital(found.why)}."
    else:
        yield Facts((*_chosen(one, names=0), *_needed(found.more)))
    for step in found.plan[:STEPS]:
        yield Facts((("to do", step.aim), *(((COMMAND, step.command),) if step.command else ())))
    if len(found.plan) > STEPS:
        yield f"{count(len(found.plan) - STEPS, 'step')} more, and what to expect: --section advice"


def _needed(found: Sequence[MoreItems]) -> Iterable[tuple[str, str]]:
    """The items that the nearest comparison takes that the data cannot decide."""
    for one in found[:1]:
        first, second = one.duel.first.series.name, one.duel.second.series.name
        takes = (
            f"takes {one.needed:,} items, x {place_text(one.times, 2)}"
            if one.needed and one.times
            else one.why
        )
        yield "undecided", f"{first} against {second} by {one.measure.label}: {takes}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _chosen(one: Chosen, names: int = 3) -> Iterable[tuple[str, str]]:
    """The checkpoint and why it is; so many ``names`` of those that cannot be told from it."""
    value = share_text(one.value, share=one.measure.share)
    extreme = "highest" if one.measure.higher_is_better else "lowest"
    told = (
        f"the {extreme} measured"
        if one.highest
        else f"the {extreme} of those that no other one beats elsewhere"
    )
    yield "go on from", f"{one.point.name}: {one.measure.label} {value}, {told}"
    if one.rivals:
        who = f": {listed((point.name for point in one.rivals), names)}" if names else ""
        yield (
            "reason",
            f"nothing better is known; {len(one.rivals)} of {one.of - 1} others cannot be told from it{who}",
        )
    else:
        yield "reason", f"it is told from all {one.of - 1} others"
    if one.vetoed:
        told = "; ".join(f"{point.name} on {measure.label}" for point, measure in one.vetoed[:3])
        yield "left out", f"as good by {one.measure.label}, but worse than another: {told}"
    if one.earliest is not None:
        yield "earlier", f"{one.earliest.name} had less training and cannot be told from it"
    if one.expected is not None:
        yield "expect", f"on further items of this kind {_range(one)}: the best of {one.of} is partly luck"


def _range(one: Chosen) -> str:
    expected, share = one.expected, one.measure.share
    if expected is None:
        return NOTHING
    low, high = (share_text(value, share=share) for value in (expected.low, expected.high))
    return f"{low.removesuffix(' %')} to {high}"


def _more(found: Sequence[MoreItems]) -> Iterable[Part]:
    if not found:
        return
    measure = found[0].measure
    rows = tuple(
        (
            one.duel.second.series.name,
            moved(one.duel.as_measured.difference, share=measure.share),
            moved(one.duel.comparison.difference, share=measure.share),
            f"{one.items:,}" if one.items else NOTHING,
            f"{one.needed:,}" if one.needed else NOTHING,
            f"x {place_text(one.times, 2)}" if one.times else one.why,
        )
        for one in found
    )
    yield Table(
        title=f"{measure.label}: not told from {found[0].duel.first.series.name} with the items there are",
        header=("series", "gap", "corrected", "items", "needed", "times"),
        rows=rows,
        words=True,
    )
    what = (
        "of all benchmarks of the composite together, in the same proportions; " if measure.composite else ""
    )
    yield (
        f"needed: {what}they find a true difference as large as the corrected gap with a chance of "
        f"{100 * POWER:.0f} %, corrected for all pairs. Finding a smaller one takes more."
    )


def _facts(found: Advice) -> dict[str, Any]:
    one = found.chosen
    return {
        "checkpoint": None
        if one is None
        else {
            "point": one.point.name,
            "measure": one.measure.key,
            "value": one.value,
            "of": one.of,
            "not_told_apart": [point.name for point in one.rivals],
            "left_out": [{"point": point.name, "worse_on": measure.key} for point, measure in one.vetoed],
            "earliest": one.earliest.name if one.earliest else None,
            "expected": contrast_facts(one.expected),
        },
        "why": found.why or None,
        "more_items": [
            {
                "measure": more.measure.key,
                **duel_facts(more.duel),
                "items": more.items,
                "needed": more.needed,
                "why": more.why or None,
            }
            for more in found.more
        ],
        "plan": [
            {"aim": own.aim, "command": own.command or None, "expected": own.expected} for own in found.plan
        ],
    }
