"""The first sections of a study: series, best checkpoints, faults of the data, and all values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_touchstone.core.text import count, format_step, join_names
from pytest_touchstone.document import BEST, Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING, number
from pytest_touchstone.statistics.comparison import POINTS
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.points import UNKNOWN, Series, Study, fields_of, format_position
from pytest_touchstone.study.reading import SERIES_COLUMNS

COLUMNS: Final = 5
"""The most measures in one table."""


def overview_section(study: Study) -> Section:
    """Return the section with caveats, the best checkpoints, and the series."""
    bests = []
    for measure in study.measures:
        measured = [pair for series in study.series for pair in study.valid_values(series, measure)]
        if measured:
            bests.append((measure, *max(measured, key=lambda pair: measure.sign * pair[1].value)))
    lower = [measure.label for measure in study.measures if not measure.higher_is_better]
    notes = [
        *value_notes(study),
        *([f"lower is better for {join_names(lower)}"] if lower else []),
        *study.notes,
    ]
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
        text_columns=2,
    )
    return Section(
        key="best",
        title="The study",
        parts=(*first, best, *_series_parts(study)),
        brief_parts=len(first) + (not study.compute_once(curves_of)),
        data=[
            {"measure": measure.key, "point": point.name, **fields_of(value, "value", "low", "high")}
            for measure, point, value in bests
        ],
    )


def _series_parts(study: Study) -> Iterator[Part]:
    """Yield the table of series, the facts that are missing, and further facts."""
    unknown = {
        name: [series.name for series in study.series if series.about.get(name) == UNKNOWN]
        for name in SERIES_COLUMNS
    }
    columns = [name for name in SERIES_COLUMNS if len(unknown[name]) < len(study.series)]
    rows, facts = [], []
    for series in study.series:
        positions = [position for point in series.points if (position := series.position(point)) is not None]
        span, size = NOTHING, series.steps_per_epoch
        if positions:
            span = (
                f"{series.axis} {' - '.join(dict.fromkeys(map(format_step, (positions[0], positions[-1]))))}"
            )
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
        about = {**series.about.noted, **series.about.declared}
        texts = [f"{name}: {text}" for name, text in about.items() if name not in SERIES_COLUMNS]
        texts += [f"steps per epoch: {size.how}"] if size else []
        facts += [(series.name, "; ".join(texts))] if texts else []
    yield Table(
        header=("series", *columns, "length", "checkpoints", "from - to", "steps\nper epoch"),
        rows=tuple(rows),
        text_columns=1 + len(columns),
    )
    lacking = [
        f"{name} of {'all series' if len(names) == len(study.series) else join_names(names)}"
        for name, names in unknown.items()
        if names
    ]
    if lacking:
        yield f"Not known: {', '.join(lacking)} ([tool.touchstone.series.NAME] in pyproject.toml tells it)."
    if facts:
        yield Facts(tuple(facts))


def value_notes(study: Study) -> list[str]:
    """Return caveats on values: partial coverage, not valid, no interval."""
    notes: dict[str, list[str]] = {}
    for point in study.points:
        for measure in study.measures:
            value = study.value(point, measure)
            if value is None:
                continue
            if value.mark and measure.primary and not measure.composite:
                notes.setdefault(f"{measure.benchmark}: {value.mark}", []).append(point.short)
            if value.invalid:
                notes.setdefault(f"{measure.label} is NOT VALID: {value.invalid}", []).append(point.short)
            if value.low is None:
                notes.setdefault(f"{measure.label} has no interval: {value.why}", []).append(point.short)
    return [
        text if len(names) == len(study.points) else f"{text} ({join_names(names, 3)})"
        for text, names in notes.items()
    ]


def contradictions_section(study: Study) -> Section | None:
    """Return the section on contradictory composites and unreadable rows; None without any."""
    wrong = sorted(
        study.contradictions, key=lambda contradiction: -abs(contradiction.reported - contradiction.computed)
    )
    if not wrong and not study.bad:
        return None
    formulas = {
        measure.composite.name: measure.composite.formula for measure in study.measures if measure.composite
    }
    names = dict.fromkeys(
        contradiction.composite for contradiction in wrong if contradiction.composite in formulas
    )
    text = (
        f"{len(wrong)} of {len(study.points)} checkpoints have a composite in the data that does not follow from the "
        "values beside it by more than rounding. This report computes it."
    )
    table = Table(
        header=("checkpoint", "composite", "in the data", "computed", "points"),
        rows=tuple(
            (
                contradiction.name,
                contradiction.composite,
                number(contradiction.reported),
                number(contradiction.computed),
                POINTS.moved(contradiction.reported - contradiction.computed),
            )
            for contradiction in wrong
        ),
        text_columns=2,
        title=join_names(f"{name} = {formulas[name]}" for name in names),
    )
    bad = [Facts(tuple(("not read", f"{path}, {row}") for path, row in study.bad))] if study.bad else []
    return Section(
        key="faults_of_data",
        title="What the data contradict",
        parts=(*([text] if wrong else []), *bad, *([table] if wrong else [])),
        brief_parts=bool(wrong) + len(bad),
        data={
            "contradictions": [contradiction._asdict() for contradiction in wrong],
            "not_read": [{"file": path, "row": str(row)} for path, row in study.bad],
        },
    )


def checkpoints_section(study: Study) -> Section:
    """Return the section with all values: a table per series, the best of each column marked."""
    return Section(
        key="checkpoints",
        title="Checkpoints and epochs",
        parts=(
            "Shares in per cent; the best of each column of a series is marked.",
            *(table for series in study.series for table in _value_tables(study, series)),
        ),
    )


def _value_tables(study: Study, series: Series) -> Iterator[Table]:
    """Yield tables of the values of a series; columns of equal values have no mark."""
    measured = [
        measure for measure in study.measures if any(study.value(point, measure) for point in series.points)
    ]
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
            distinct = {level for level in levels if level is not None}
            if len(distinct) > 1:
                signs |= {(row, index): BEST for row, level in enumerate(levels) if level == max(distinct)}
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
            cells.append(format_position(point.epoch))
            cells += [NOTHING if point.val_loss is None else f"{point.val_loss:.4g}"] if losses else []
            rows.append((*cells, *(column[row] for column in columns)))
        yield Table(
            header=(*front, *(measure.label.replace(" ", "\n", 1) for measure in measures)),
            rows=tuple(rows),
            signs=signs,
            title=series.name if not start else f"{series.name}, continued",
        )
