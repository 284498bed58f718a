"""What to do next, with commands; and which benchmarks can carry a decision at all, by signal and noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from pytest_touchstone.compare.study.advice import Advice, Chosen, MoreItems
from pytest_touchstone.compare.study.pool import MeasureNoise
from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.reports.formatting import NOTHING, in_percent, number
from pytest_touchstone.reports.study.section import (
    COMMAND,
    MOST_IN_LINE,
    Facts,
    Part,
    Section,
    StudyTable,
    share_text,
)
from pytest_touchstone.reports.study.versus import contrast_facts, duel_facts
from pytest_touchstone.statistics.curves import LAST
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
        yield "expect", f"on further items {_range(one)}: the best of {one.of} is partly luck"


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
            measure.told_in.moved(one.duel.as_measured.difference),
            measure.told_in.moved(one.duel.comparison.difference),
            f"{one.items:,}" if one.items else NOTHING,
            f"{one.needed:,}" if one.needed else NOTHING,
            f"x {place_text(one.times, 2)}" if one.times else one.why,
        )
        for one in found
    )
    yield StudyTable(
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


# MeasureNoise


LEGEND: Final = (
    ("signal", f"the largest difference of two series, each at the mean of its last {LAST} checkpoints"),
    ("noise", "the standard deviation of those checkpoints within a series, on average"),
    ("SNR", "signal / noise (Heineman et al. 2025); equal series exceed the limit in 5 of 100 cases"),
    ("floor", "two single checkpoints that differ by less differ by noise"),
    ("items", "the standard error of one checkpoint that its number of items leaves"),
)

WORDS: Final = {
    "can decide": "the signal is more than the noise of checkpoints and of items",
    "too noisy": "equal series would differ as much from checkpoint to checkpoint",
    "too few items": "the series differ by more than checkpoints do, but not by more than the error of their items",
}


def noise_section(found: Sequence[MeasureNoise]) -> Section | None:
    """Return the section; None without measures."""
    if not found:
        return None
    header = ("measure", "signal", "noise", "SNR", "limit", "floor", "items", "verdict")
    rows = tuple(_row(one) for one in found)
    verdicts = dict.fromkeys(one.verdict for one in found if one.verdict in WORDS)
    whys = {one.why: None for one in found if one.why}
    facts = [*LEGEND, *((name, WORDS[name]) for name in verdicts), *(("no evidence", why) for why in whys)]
    known = any(one.found is not None for one in found)
    return Section(
        key="noise",
        title="Which benchmarks can carry a decision",
        parts=(StudyTable(header=header, rows=rows, words=True), Facts(tuple(facts)))
        if known
        else (f"No evidence: {next(iter(whys))}.",),
        line=_line(found) if known else f"no evidence: {next(iter(whys))}",
        data=[_noise_facts(one) for one in found],
    )


def _line(found: Sequence[MeasureNoise]) -> str:
    """Return the measures by what they can do: ``none can decide; too few items: Real@1``."""
    by: dict[str, list[str]] = {"can decide": []}
    for one in found:
        by.setdefault(one.verdict, []).append(one.measure.label)
    decide = by.pop("can decide")
    words = [f"can decide: {listed(decide, MOST_IN_LINE)}" if decide else "no measure can decide"]
    return "; ".join(
        [*words, *(f"{verdict}: {listed(names, MOST_IN_LINE)}" for verdict, names in by.items())]
    )


def _row(one: MeasureNoise) -> tuple[str, ...]:
    share, own = one.measure.share, one.found
    if own is None:
        return (one.measure.label, *[NOTHING] * 5, _size(one.items, share=share), one.verdict)
    return (
        one.measure.label,
        _size(own.spread, share=share),
        _size(own.deviation, share=share),
        NOTHING if own.ratio is None else f"{own.ratio:.1f}",
        NOTHING if own.limit is None else f"{own.limit:.1f}",
        _size(own.floor, share=share),
        _size(one.items, share=share),
        one.verdict,
    )


def _size(value: float | None, *, share: bool) -> str:
    """Return a size in points, or four decimals."""
    if value is None:
        return NOTHING
    return in_percent(value) if share else number(value)


def _noise_facts(one: MeasureNoise) -> dict[str, Any]:
    return {
        "measure": one.measure.key,
        "series": [series.name for series in one.series],
        "definition": f"Heineman et al. 2025, last {count(LAST, 'checkpoint')} of each series",
        **(asdict(one.found) if one.found else {}),
        "items": one.items,
        "largest": contrast_facts(one.largest),
        "p_corrected": one.p,
        "verdict": one.verdict,
        "why": one.why or None,
    }
