"""The first sections of a study: its series, the best checkpoints, what is wrong with the data, and all values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.document import BEST, Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING, number
from pytest_touchstone.statistics.comparison import POINTS
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.points import UNKNOWN, Measure, Point, Series, Study, Value, fields_of
from pytest_touchstone.study.reading import SHOWN
from pytest_touchstone.study.texts import amount, place_or_nothing, value_range, value_text

COLUMNS: Final = 5
"""Measures in one table."""


def overview(study: Study) -> Section:
    """Return what a reader must know before believing the study, the best checkpoints, and the series."""
    unknown = {name: [one.name for one in study.series if one.about.get(name) == UNKNOWN] for name in SHOWN}
    notes = [("note", note) for note in [*marks_of(study), *_lower(study), *study.notes]]
    facts = [(one.name, text) for one in study.series if (text := _known(one))]
    bests = list(_bests(study))
    first: list[Part] = [_counts(study), *([Facts(tuple(notes))] if notes else [])]
    return Section(
        key="best",
        title="The study",
        parts=(
            *first,
            _best(study, bests),
            _series(study, unknown),
            *filter(None, [_unknown(study, unknown)]),
            *([Facts(tuple(facts))] if facts else []),
        ),
        brief=len(first) + (not study.once(curves_of)),
        data=[
            {"measure": measure.key, "point": point.name, **fields_of(value, "value", "low", "high")}
            for measure, point, value in bests
        ],
    )


def _counts(study: Study) -> str:
    measures, series = count(len(study.measures), "measure"), count(len(study.series), "series", "series")
    return f"{count(len(study.points), 'checkpoint')} in {series}, {measures}"


def _series(study: Study, unknown: dict[str, list[str]]) -> Table:
    shown = [name for name in SHOWN if len(unknown[name]) < len(study.series)]
    rows = tuple(
        (
            one.name,
            *(one.about.get(name) for name in shown),
            str(one.seq_len or NOTHING),
            str(len(one.points)),
            _span(one),
            one.steps_per_epoch.text if one.steps_per_epoch else NOTHING,
        )
        for one in study.series
    )
    header = ("series", *shown, "length", "checkpoints", "from - to", "steps\nper epoch")
    return Table(header=header, rows=rows, left=1 + len(shown))


def _span(one: Series) -> str:
    if one.axis == "order":
        return NOTHING
    places = [place for point in one.points if (place := one.place(point)) is not None]
    return f"{one.axis} {' - '.join(dict.fromkeys(map(place_text, (places[0], places[-1]))))}"


def _unknown(study: Study, unknown: dict[str, list[str]]) -> str:
    parts = [
        f"{name} of {'all series' if len(names) == len(study.series) else listed(names)}"
        for name, names in unknown.items()
        if names
    ]
    told = "[tool.touchstone.series.NAME] in pyproject.toml tells it"
    return f"Not known: {', '.join(parts)} ({told})." if parts else ""


def _known(one: Series) -> str:
    facts = {**one.about.noted, **one.about.told}
    parts = [f"{name}: {text}" for name, text in facts.items() if name not in SHOWN]
    parts += [f"steps per epoch: {one.steps_per_epoch.how}"] if one.steps_per_epoch else []
    return "; ".join(parts)


def _bests(study: Study) -> Iterator[tuple[Measure, Point, Value]]:
    for measure in study.measures:
        known = [(p, v) for series in study.series for p, v in study.measured(series, measure)]
        if known:
            yield measure, *max(known, key=lambda one: measure.sign * one[1].value)


def _best(study: Study, bests: Sequence[tuple[Measure, Point, Value]]) -> Table:
    return Table(
        header=("best by", "checkpoint", "value", "95 % interval", "at"),
        rows=tuple(
            (
                measure.label,
                point.name,
                value_text(value.value, measure),
                value_range(value, measure),
                study.series_of(point).where(point),
            )
            for measure, point, value in bests
        ),
        left=2,
    )


def marks_of(study: Study) -> list[str]:
    """Return what must be said of values: over how many items, not valid, without an interval."""
    found: dict[str, list[str]] = {}
    for point in study.points:
        for measure in study.measures:
            value = study.value(point, measure)
            if value is None:
                continue
            if value.mark and measure.primary and not measure.composite:
                found.setdefault(f"{measure.benchmark}: {value.mark}", []).append(point.short)
            if value.invalid:
                found.setdefault(f"{measure.label} is NOT VALID: {value.invalid}", []).append(point.short)
            if value.low is None:
                found.setdefault(f"{measure.label} has no interval: {value.why}", []).append(point.short)
    whole = len(study.points)
    return [text if len(names) == whole else f"{text} ({listed(names, 3)})" for text, names in found.items()]


def _lower(study: Study) -> list[str]:
    lower = [one.label for one in study.measures if not one.higher_is_better]
    return [f"lower is better for {listed(lower)}"] if lower else []


def contradictions(study: Study) -> Section | None:
    """Return the composites in the data that do not follow from their own parts, and rows that could not be read."""
    wrong = sorted(study.contradictions, key=lambda one: -abs(one.reported - one.computed))
    if not wrong and not study.bad:
        return None
    formulas = {one.composite.name: one.composite.formula for one in study.measures if one.composite}
    names = dict.fromkeys(one.composite for one in wrong if one.composite in formulas)
    text = (
        f"{len(wrong)} of {len(study.points)} checkpoints have a composite in the data that does not follow from the "
        "values beside it by more than rounding. This report computes it."
    )
    table = Table(
        header=("checkpoint", "composite", "in the data", "computed", "points"),
        rows=tuple(
            (
                one.name,
                one.composite,
                number(one.reported),
                number(one.computed),
                POINTS.moved(one.reported - one.computed),
            )
            for one in wrong
        ),
        left=2,
        title=listed(f"{name} = {formulas[name]}" for name in names),
    )
    bad = [Facts(tuple(("not read", f"{path}, {row}") for path, row in study.bad))] if study.bad else []
    return Section(
        key="faults_of_data",
        title="What the data contradict",
        parts=(*([text] if wrong else []), *bad, *([table] if wrong else [])),
        brief=bool(wrong) + len(bad),
        data={
            "contradictions": [one._asdict() for one in wrong],
            "not_read": [{"file": path, "row": str(row)} for path, row in study.bad],
        },
    )


def checkpoints(study: Study) -> Section:
    """Return every value: a table for each series, the best of each column marked."""
    tables = [table for series in study.series for table in _tables(study, series)]
    unit = "Shares in per cent; the best of each column of a series is marked."
    return Section(key="checkpoints", title="Checkpoints and epochs", parts=(unit, *tables))


def _tables(study: Study, series: Series) -> Iterator[Table]:
    measured = [one for one in study.measures if any(study.value(point, one) for point in series.points)]
    losses = any(point.val_loss is not None for point in series.points)
    for place in range(0, len(measured), COLUMNS):
        measures = measured[place : place + COLUMNS]
        header = ["checkpoint", "step", "epoch", *(["loss"] if losses else [])]
        first = len(header)
        rows = tuple(
            (
                point.short,
                NOTHING if point.step is None else str(point.step),
                place_or_nothing(point.epoch),
                *([NOTHING if point.val_loss is None else f"{point.val_loss:.4g}"] if losses else []),
                *(_cell(study, point, one) for one in measures),
            )
            for point in series.points
        )
        best = {
            (row, first + column) for column, one in enumerate(measures) for row in _peaks(study, series, one)
        }
        yield Table(
            header=(*header, *(head(one) for one in measures)),
            rows=rows,
            signs=dict.fromkeys(best, BEST),
            title=series.name if not place else f"{series.name}, continued",
        )


def head(measure: Measure) -> str:
    """Return the label as the title of a narrow column."""
    return measure.label.replace(" ", "\n", 1)


def _cell(study: Study, point: Point, measure: Measure) -> str:
    value = study.value(point, measure)
    if value is None:
        return NOTHING
    return f"{amount(value.value, measure)}{'!' if value.invalid else ''}"


def _peaks(study: Study, series: Series, measure: Measure) -> Sequence[int]:
    """Return the rows with the best value, none where all are equal."""
    values = [study.valid(point, measure) for point in series.points]
    levels = [None if value is None else measure.sign * value.value for value in values]
    known = {level for level in levels if level is not None}
    return [row for row, level in enumerate(levels) if level == max(known)] if len(known) > 1 else []
