"""The first sections of a study: its series, the best checkpoints, what is wrong with the data, and all values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_touchstone.core.text import count, join_names, ordinal_place
from pytest_touchstone.document import BEST, Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING, number
from pytest_touchstone.statistics.comparison import POINTS
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.points import UNKNOWN, Series, Study, fields_of, place_or_nothing
from pytest_touchstone.study.reading import SHOWN

COLUMNS: Final = 5
"""Measures in one table."""


def overview(study: Study) -> Section:
    """Return what a reader must know before believing the study, the best checkpoints, and the series."""
    bests = []
    for measure in study.measures:
        measured = [pair for series in study.series for pair in study.measured(series, measure)]
        if measured:
            bests.append((measure, *max(measured, key=lambda pair: measure.sign * pair[1].value)))
    lower = [measure.label for measure in study.measures if not measure.higher_is_better]
    notes = [*marks_of(study), *([f"lower is better for {join_names(lower)}"] if lower else []), *study.notes]
    measures, series = count(len(study.measures), "measure"), count(len(study.series), "series", "series")
    first: list[Part] = [f"{count(len(study.points), 'checkpoint')} in {series}, {measures}"]
    first += [Facts(tuple(("note", note) for note in notes))] if notes else []
    best = Table(
        header=("best by", "checkpoint", "value", "95 % interval", "at"),
        rows=tuple(
            (
                measure.label,
                point.name,
                measure.text(value.value),
                measure.range(value),
                study.series_of(point).where(point),
            )
            for measure, point, value in bests
        ),
        left=2,
    )
    return Section(
        key="best",
        title="The study",
        parts=(*first, best, *_series_parts(study)),
        brief=len(first) + (not study.once(curves_of)),
        data=[
            {"measure": measure.key, "point": point.name, **fields_of(value, "value", "low", "high")}
            for measure, point, value in bests
        ],
    )


def _series_parts(study: Study) -> Iterator[Part]:
    """Yield the table of the series, what is not known of them, and what else is."""
    unknown = {
        name: [series.name for series in study.series if series.about.get(name) == UNKNOWN] for name in SHOWN
    }
    columns = [name for name in SHOWN if len(unknown[name]) < len(study.series)]
    rows, facts = [], []
    for series in study.series:
        places = [place for point in series.points if (place := series.place(point)) is not None]
        span, size = NOTHING, series.steps_per_epoch
        if places:
            span = f"{series.axis} {' - '.join(dict.fromkeys(map(ordinal_place, (places[0], places[-1]))))}"
        rows.append(
            (
                series.name,
                *(series.about.get(name) for name in columns),
                str(series.seq_len or NOTHING),
                str(len(series.points)),
                span,
                size.text if size else NOTHING,
            )
        )
        about = {**series.about.noted, **series.about.told}
        texts = [f"{name}: {text}" for name, text in about.items() if name not in SHOWN]
        texts += [f"steps per epoch: {size.how}"] if size else []
        facts += [(series.name, "; ".join(texts))] if texts else []
    header = ("series", *columns, "length", "checkpoints", "from - to", "steps\nper epoch")
    yield Table(header=header, rows=tuple(rows), left=1 + len(columns))
    lacking = [
        f"{name} of {'all series' if len(names) == len(study.series) else join_names(names)}"
        for name, names in unknown.items()
        if names
    ]
    if lacking:
        how = "[tool.touchstone.series.NAME] in pyproject.toml tells it"
        yield f"Not known: {', '.join(lacking)} ({how})."
    if facts:
        yield Facts(tuple(facts))


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
    return [
        text if len(names) == whole else f"{text} ({join_names(names, 3)})" for text, names in found.items()
    ]


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
        title=join_names(f"{name} = {formulas[name]}" for name in names),
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
    """Yield the values of a series, so many measures to a table; nothing is marked where all are equal."""
    measured = [one for one in study.measures if any(study.value(point, one) for point in series.points)]
    losses = any(point.val_loss is not None for point in series.points)
    front = ("checkpoint", "step", "epoch", *(["loss"] if losses else []))
    for start in range(0, len(measured), COLUMNS):
        measures = measured[start : start + COLUMNS]
        signs: dict[tuple[int, int], str] = {}
        columns = []
        for index, measure in enumerate(measures, len(front)):
            values = [study.value(point, measure) for point in series.points]
            levels = [
                None if value is None or value.invalid else measure.sign * value.value for value in values
            ]
            known = {level for level in levels if level is not None}
            if len(known) > 1:
                signs |= {(row, index): BEST for row, level in enumerate(levels) if level == max(known)}
            columns.append(
                [
                    NOTHING
                    if value is None
                    else f"{measure.amount(value.value)}{'!' if value.invalid else ''}"
                    for value in values
                ]
            )
        rows = []
        for row, point in enumerate(series.points):
            cells = [point.short, NOTHING if point.step is None else str(point.step)]
            cells.append(place_or_nothing(point.epoch))
            cells += [NOTHING if point.val_loss is None else f"{point.val_loss:.4g}"] if losses else []
            rows.append((*cells, *(column[row] for column in columns)))
        yield Table(
            header=(*front, *(measure.label.replace(" ", "\n", 1) for measure in measures)),
            rows=tuple(rows),
            signs=signs,
            title=series.name if not start else f"{series.name}, continued",
        )
