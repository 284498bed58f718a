"""The first sections of a study: its series, the best checkpoints, what is wrong with the data, and all values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pytest_touchstone.compare.study.curves import judged_curves
from pytest_touchstone.compare.study.points import UNKNOWN, Measure, Point, Series, Study, Value
from pytest_touchstone.compare.study.reading import SHOWN
from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.reports.formatting import NOTHING, in_percent, number
from pytest_touchstone.reports.study.section import Facts, Part, Section, StudyTable, range_text, share_text
from pytest_touchstone.statistics.units import POINTS

MOST_POINTS: Final = 40
"""The checkpoints whose values are shown without ``-v``."""

MOST_WRONG: Final = 5
"""Contradictions, rows that could not be read, and notes that are shown without ``-v``."""

COLUMNS: Final = 5
"""Measures in one table."""


def overview(study: Study) -> Section:
    """Return the series, the best checkpoint by each measure, and what a reader must know before believing them."""
    unknown = {name: [one.name for one in study.series if one.about.get(name) == UNKNOWN] for name in SHOWN}
    notes = [("note", note) for note in [*marks_of(study), *_lower(study), *study.notes]]
    few = notes[:MOST_WRONG]
    few += [("note", f"and {len(notes) - len(few)} notes more")] if len(notes) > len(few) else []
    brief: list[Part] = [_counts(study), *([Facts(tuple(few))] if few else [])]
    brief += [] if study.once(judged_curves) else [_best(study)]
    parts: list[Part] = [_counts(study), _series(study, unknown)]
    parts += [text for text in [_unknown(study, unknown)] if text]
    parts.append(_best(study))
    parts += [Facts(tuple(notes))] if notes else []
    facts = [(one.name, text) for one in study.series if (text := _known(one))]
    data = [
        {
            "measure": measure.key,
            "point": point.name,
            "value": value.value,
            "low": value.low,
            "high": value.high,
        }
        for measure, point, value in _bests(study)
    ]
    return Section(
        key="best",
        title="The study",
        parts=tuple(parts),
        details=(Facts(tuple(facts)),) if facts else (),
        brief=tuple(brief),
        data=data,
    )


def _counts(study: Study) -> str:
    series, measures = len(study.series), len(study.measures)
    words = f"{count(series, 'series', 'series')}, {count(measures, 'measure')}"
    return f"{count(len(study.points), 'checkpoint')} in {words}"


def _series(study: Study, unknown: dict[str, list[str]]) -> StudyTable:
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
    return StudyTable(header=header, rows=rows, left=1 + len(shown))


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
    if not parts:
        return ""
    told = "[tool.touchstone.series.NAME] in pyproject.toml tells it"
    return f"Not known: {', '.join(parts)} ({told})."


def _known(one: Series) -> str:
    facts = {**one.about.noted, **one.about.told}
    parts = [f"{name}: {text}" for name, text in facts.items() if name not in SHOWN]
    parts += [f"steps per epoch: {one.steps_per_epoch.how}"] if one.steps_per_epoch else []
    return "; ".join(parts)


def _bests(study: Study) -> Iterator[tuple[Measure, Point, Value]]:
    for measure in study.measures:
        known = [(p, v) for series in study.series for p, v in study.measured(series, measure)]
        pick = max if measure.higher_is_better else min
        if known:
            yield measure, *pick(known, key=lambda one: one[1].value)


def _best(study: Study) -> StudyTable:
    rows = []
    for measure, point, value in _bests(study):
        where = study.series_of(point).where(point)
        place = "" if where == point.short else where
        text = share_text(value.value, share=measure.share)
        rows.append((measure.label, text, range_text(value, share=measure.share), place, point.name))
    header = ("best by", "value", "95 % interval", "at", "checkpoint")
    return StudyTable(header=header, rows=tuple(rows), words=True)


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
    if not study.contradictions and not study.bad:
        return None
    parts: list[Part] = []
    brief: list[Part] = []
    details: list[Part] = []
    if study.contradictions:
        formulas = {one.composite.name: one.composite for one in study.measures if one.composite}
        names = listed(
            f"{name} = {formulas[name].formula}"
            for name in dict.fromkeys(one.composite for one in study.contradictions)
            if name in formulas
        )
        wrong = len(study.contradictions)
        parts.append(
            f"{wrong} of {len(study.points)} checkpoints have a composite in the data that does not follow from "
            f"the values beside it by more than rounding ({names}). This report computes it."
        )
        brief.append(
            f"{wrong} of {len(study.points)} checkpoints have a composite in the data that does not follow from the "
            "values beside it by more than rounding. This report computes it."
        )
        rows = [
            (
                one.name,
                one.composite,
                number(one.reported),
                number(one.computed),
                POINTS.moved(one.reported - one.computed),
            )
            for one in study.contradictions
        ]
        header = ("checkpoint", "composite", "in the data", "computed", "points")
        largest = sorted(rows, key=lambda row: -abs(float(row[4])))[:MOST_WRONG]
        few = len(rows) <= MOST_WRONG
        title = "" if few else f"The {MOST_WRONG} largest"
        parts.append(StudyTable(header=header, rows=tuple(rows if few else largest), left=2, title=title))
        details += [] if few else [StudyTable(header=header, rows=tuple(rows), left=2, title=f"All {wrong}")]
    if study.bad:
        told = [("not read", f"{path}, {row}") for path, row in study.bad]
        shown: list[Part] = [Facts(tuple(told[:MOST_WRONG]))]
        shown += [f"and {len(told) - MOST_WRONG} rows more (-v)"] if len(told) > MOST_WRONG else []
        parts += shown
        brief += shown
        details += [Facts(tuple(told))] if len(told) > MOST_WRONG else []
    data: dict[str, Any] = {
        "contradictions": [one._asdict() for one in study.contradictions],
        "not_read": [{"file": path, "row": str(row)} for path, row in study.bad],
    }
    title = "What the data contradict"
    return Section(
        key="faults_of_data",
        title=title,
        parts=tuple(parts),
        details=tuple(details),
        brief=tuple(brief),
        data=data,
    )


def checkpoints(study: Study) -> Section:
    """Return every value: a table for each series, the best of each column marked."""
    tables = [table for series in study.series for table in _tables(study, series)]
    unit = "Shares in per cent; * is the best of its column in this series."
    title = "Checkpoints and epochs"
    if len(study.points) <= MOST_POINTS:
        return Section(key="checkpoints", title=title, parts=(unit, *tables))
    some = count(len(study.points), "checkpoint")
    hidden = f"{some}: their values are shown with -v, and are in study.md and study.json."
    return Section(key="checkpoints", title=title, parts=(hidden,), details=(unit, *tables))


def _tables(study: Study, series: Series) -> Iterator[StudyTable]:
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
                NOTHING if point.epoch is None else place_text(point.epoch),
                *([NOTHING if point.val_loss is None else f"{point.val_loss:.4g}"] if losses else []),
                *(_cell(study, point, one) for one in measures),
            )
            for point in series.points
        )
        best = {
            (row, first + column) for column, one in enumerate(measures) for row in _peaks(study, series, one)
        }
        yield StudyTable(
            header=(*header, *(head(one) for one in measures)),
            rows=rows,
            best=frozenset(best),
            title=series.name if not place else f"{series.name}, continued",
        )


def head(measure: Measure) -> str:
    """Return the label as the title of a narrow column."""
    return measure.label.replace(" ", "\n", 1)


def _cell(study: Study, point: Point, measure: Measure) -> str:
    value = study.value(point, measure)
    if value is None:
        return NOTHING
    text = in_percent(value.value) if measure.share else number(value.value)
    return f"{text}!" if value.invalid else text


def _peaks(study: Study, series: Series, measure: Measure) -> Sequence[int]:
    """Return the rows with the best value, none where all are equal."""
    found = [study.valid(point, measure) for point in series.points]
    known = [value.value for value in found if value is not None]
    if len(set(known)) < 2:
        return []
    best = max(known) if measure.higher_is_better else min(known)
    return [row for row, value in enumerate(found) if value is not None and value.value == best]
