"""What to do next, with commands; and which benchmarks can carry a decision at all, by signal and noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.document import COMMAND, Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING
from pytest_touchstone.statistics.curves import LAST
from pytest_touchstone.statistics.verdicts import POWER
from pytest_touchstone.study.advice import Chosen, MoreItems, NextCommand, find
from pytest_touchstone.study.points import Study, facts_of
from pytest_touchstone.study.pool import MeasureNoise
from pytest_touchstone.study.texts import MOST_IN_LINE, amount, value_text

OF_ALL: Final = "of all benchmarks of the composite together, in the same proportions; "
NEEDED: Final = (
    f"they find a true difference as large as the corrected gap with a chance of {100 * POWER:.0f} %, corrected for "
    "all pairs. Finding a smaller one takes more."
)


def advice_section(study: Study) -> Section:
    """Return the section, which says "no evidence" where there is none."""
    found = study.once(find).advice
    chosen = found.checkpoint
    undecided = [("undecided", _undecided(one)) for one in found.more_items[:1]]
    first = Facts((*_chosen(chosen), *undecided)) if chosen else f"{found.why[:1].upper()}{found.why[1:]}."
    plan = [_step(one) for one in found.plan]
    more: list[Part] = []
    if found.more_items:
        what = OF_ALL if found.more_items[0].measure.composite else ""
        more = [_more(found.more_items), f"needed: {what}{NEEDED}"]
    return Section(
        key="advice",
        title="What to do next",
        parts=(first, *plan, *more),
        brief=min(2, 1 + len(plan)),
        data=facts_of(found),
    )


def _step(one: NextCommand) -> Facts:
    command = [(COMMAND, one.command)] if one.command else []
    return Facts((("to do", one.aim), *command, ("expect", one.expected)))


def _undecided(one: MoreItems) -> str:
    """Return the items that the nearest comparison takes that the data cannot decide."""
    first, second = one.duel.series
    takes = (
        f"takes {one.needed:,} items, x {place_text(one.times, 2)}" if one.needed and one.times else one.why
    )
    return f"{first.name} against {second.name} by {one.measure.label}: {takes}"


def _chosen(one: Chosen) -> Iterable[tuple[str, str]]:
    """Yield the checkpoint and why it is the one."""
    measure = one.measure
    extreme = "highest" if measure.higher_is_better else "lowest"
    value = value_text(one.value, measure)
    yield "go on from", f"{one.point.name}: {measure.label} {value}, the {extreme} measured"
    others = one.of - 1
    told_apart = f"it is told from all {others} others"
    rivals = f"nothing better is known; {len(one.rivals)} of {others} others cannot be told from it"
    names = f": {listed((point.name for point in one.rivals), 2)}"
    yield "reason", f"{rivals}{names}" if one.rivals else told_apart
    if one.earliest is not None:
        yield "earlier", f"{one.earliest.name} had less training and cannot be told from it"
    if one.expected is not None:
        low, high = amount(one.expected.low, measure), value_text(one.expected.high, measure)
        yield "expect", f"on further items {low} to {high}: the best of {one.of} is partly luck"


def _more(found: Sequence[MoreItems]) -> Table:
    return Table(
        title=f"{found[0].measure.label}: not told from {found[0].duel.first.series.name} with the items there are",
        header=("series", "gap", "corrected", "items", "needed", "times"),
        rows=tuple(
            (
                one.duel.second.series.name,
                one.measure.told_in.moved(one.duel.as_measured.difference),
                one.measure.told_in.moved(one.duel.comparison.difference),
                f"{one.items:,}" if one.items else NOTHING,
                f"{one.needed:,}" if one.needed else NOTHING,
                f"x {place_text(one.times, 2)}" if one.times else one.why,
            )
            for one in found
        ),
        words=True,
    )


# The noise of measures


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


def noise_section(study: Study) -> Section | None:
    """Return which benchmarks can carry a decision; None without measures."""
    found = study.once(find).noise
    if not found:
        return None
    whys = dict.fromkeys(one.why for one in found if one.why)
    words = dict.fromkeys((one.verdict, WORDS[one.verdict]) for one in found if one.verdict in WORDS)
    known = any(one.found is not None for one in found)
    nothing = f"no evidence: {next(iter(whys), '')}"
    table = Table(
        header=("measure", "signal", "noise", "SNR", "limit", "floor", "items", "verdict"),
        rows=tuple(_row(one) for one in found),
        words=True,
    )
    facts = Facts((*LEGEND, *words, *(("no evidence", why) for why in whys)))
    return Section(
        key="noise",
        title="Which benchmarks can carry a decision",
        parts=(table, facts) if known else (f"No{nothing[2:]}.",),
        line=_line(found) if known else nothing,
        data=[
            {
                **facts_of(one),
                "definition": f"Heineman et al. 2025, last {count(LAST, 'checkpoint')} of each series",
                **(asdict(one.found) if one.found else {}),
            }
            for one in found
        ],
    )


def _line(found: Sequence[MeasureNoise]) -> str:
    """Return the measures by what they can do: ``no measure can decide; too few items: Real@1``."""
    by: dict[str, list[str]] = {}
    for one in found:
        by.setdefault(one.verdict, []).append(one.measure.label)
    words = [f"{verdict}: {listed(names, MOST_IN_LINE)}" for verdict, names in by.items()]
    return "; ".join(words if "can decide" in by else ["no measure can decide", *words])


def _row(one: MeasureNoise) -> tuple[str, ...]:
    found = one.found
    sizes = (None, None, None) if found is None else (found.spread, found.deviation, found.floor)
    ratios = [
        NOTHING if value is None else f"{value:.1f}"
        for value in ((None, None) if found is None else (found.ratio, found.limit))
    ]
    spread, deviation, floor, items = (amount(size, one.measure) for size in (*sizes, one.items))
    return (one.measure.label, spread, deviation, *ratios, floor, items, one.verdict)
