"""The noise of benchmarks from checkpoint to checkpoint, and which of them can carry a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from pytest_touchstone.compare.study.pool import MeasureNoise
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.reports.formatting import NOTHING, number
from pytest_touchstone.reports.study.section import MOST_IN_LINE, Facts, Section, Table
from pytest_touchstone.reports.study.versus import contrast_facts
from pytest_touchstone.statistics.curves import LAST

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
        parts=(Table(header=header, rows=rows, words=True), Facts(tuple(facts)))
        if known
        else (f"No evidence: {next(iter(whys))}.",),
        line=_line(found) if known else f"no evidence: {next(iter(whys))}",
        data=[_facts(one) for one in found],
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
    return f"{100 * value:.2f}" if share else number(value)


def _facts(one: MeasureNoise) -> dict[str, Any]:
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
