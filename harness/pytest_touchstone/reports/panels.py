"""Curves in a panel each, the others in grey behind it, for pictures of many series.

All panels are drawn on one set of matplotlib's axes, in inches: a set of axes for each, with ticks, labels and spines
of its own, takes four times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.text import place_text
from pytest_touchstone.reports.charts import LIMITS, Line, LineChart, extent, ticks
from pytest_touchstone.reports.plot_parts import (
    COLOURS,
    DASHES,
    DENSE,
    MARKS,
    Spell,
    heading,
    limits_of,
    points_of,
    runs_of,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT, TOP, BOTTOM, APART, BELOW = 0.65, 0.15, 0.6, 0.5, 0.15, 0.4
"""Inches around the panels and between them."""

WIDTH, HEIGHT = 3.25, 2.3
"""The inches of a panel."""

TICK: Final = 0.05
PAD: Final = 0.04
"""The share of an axis that is left free at its ends."""

Segment = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel: its lower left corner in inches, and the least and greatest numbers on its axes."""

    left: float
    bottom: float
    places: tuple[float, float]
    values: tuple[float, float]

    def x(self, place: float) -> float:
        low, high = self.places
        return self.left + WIDTH * (place - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.values
        return self.bottom + HEIGHT * (value - low) / (high - low)

    def points(self, places: Sequence[float], values: Sequence[float]) -> Segment:
        """Return dots in inches."""
        return [(self.x(place), self.y(value)) for place, value in zip(places, values, strict=True)]


def draw_panels(chart: LineChart, spell: Spell) -> Figure:
    """Return a figure with a panel for each line, in which the others are grey."""
    from matplotlib.figure import Figure

    columns = min(3, math.ceil(math.sqrt(len(chart.lines))))
    rows = math.ceil(len(chart.lines) / columns)
    width = LEFT + RIGHT + columns * WIDTH + (columns - 1) * APART
    height = TOP + BOTTOM + rows * HEIGHT + (rows - 1) * BELOW
    layout: Any = "none"
    figure = Figure(figsize=(width, height), layout=layout)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    factor = 100.0 if chart.percent else 1.0
    panels = list(_panels(chart, columns, height, factor))
    _frames(axes, panels, columns)
    _others(axes, chart.lines, panels, factor)
    _bands(axes, chart.lines, panels, factor)
    _curves(axes, chart.lines, panels, factor)
    for panel, line in zip(panels, chart.lines, strict=True):
        name = spell(shortened(line.name))
        axes.text(panel.left, panel.bottom + HEIGHT + 0.06, name, fontsize=9, va="bottom")
    title = spell(f"{heading(chart)} by {chart.axis}")
    axes.text(0.02 * width, height - 0.12, title, fontsize=11, fontweight="bold", va="top")
    about = f"{f'bands: {LIMITS}; ' if chart.limits else ''}rings: the best of each series"
    axes.text(0.99 * width, 0.08, about, fontsize=7.5, color="#555555", ha="right", va="bottom")
    return figure


def _panels(chart: LineChart, columns: int, height: float, factor: float) -> Iterator[_Panel]:
    places = [dot.place for line in chart.lines for dot in line.dots]
    low, high = min(places), max(places)
    pad = PAD * (high - low) or 0.5
    least, most = extent(chart)
    marks = ticks(factor * least, factor * most)
    for number in range(len(chart.lines)):
        row, column = divmod(number, columns)
        bottom = height - TOP - (row + 1) * HEIGHT - row * BELOW
        yield _Panel(LEFT + column * (WIDTH + APART), bottom, (low - pad, high + pad), (marks[0], marks[-1]))


def _frames(axes: Axes, panels: Sequence[_Panel], columns: int) -> None:
    """Draw the axes of all panels, with numbers at the left and at the bottom of the whole."""
    from matplotlib.collections import LineCollection

    grid: list[Segment] = []
    frame: list[Segment] = []
    for number, panel in enumerate(panels):
        left, bottom = panel.left, panel.bottom
        frame.append([(left, bottom + HEIGHT), (left, bottom), (left + WIDTH, bottom)])
        for mark in ticks(*panel.values):
            y = panel.y(mark)
            grid.append([(left, y), (left + WIDTH, y)])
            frame.append([(left - TICK, y), (left, y)])
            if number % columns == 0:
                axes.text(left - 0.09, y, place_text(mark), ha="right", va="center")
        low, high = panel.places
        for mark in (one for one in ticks(low, high, 5) if low <= one <= high):
            x = panel.x(mark)
            frame.append([(x, bottom - TICK), (x, bottom)])
            if number + columns >= len(panels):
                axes.text(x, bottom - 0.09, place_text(mark), ha="center", va="top")
    axes.add_collection(LineCollection(grid, colors="#dddddd", linewidths=0.8, zorder=0.5), autolim=False)
    axes.add_collection(LineCollection(frame, colors="#000000", linewidths=0.8, zorder=2.5), autolim=False)


def _others(axes: Axes, lines: Sequence[Line], panels: Sequence[_Panel], factor: float) -> None:
    """Draw in each panel the lines of the others."""
    from matplotlib.collections import LineCollection

    each = [points_of(line, factor) for line in lines]
    found = [
        panel.points(*points)
        for place, panel in enumerate(panels)
        for other, points in enumerate(each)
        if other != place
    ]
    grey = LineCollection(found, colors="#c8c8c8", linewidths=0.9, zorder=1)
    axes.add_collection(grey, autolim=False)


def _bands(axes: Axes, lines: Sequence[Line], panels: Sequence[_Panel], factor: float) -> None:
    """Draw the intervals: bands, and a stroke where no neighbour has any."""
    from matplotlib.collections import LineCollection, PolyCollection

    bands: list[Segment] = []
    strokes: list[Segment] = []
    colours: dict[bool, list[str]] = {True: [], False: []}
    for number, (line, panel) in enumerate(zip(lines, panels, strict=True)):
        places, _ = points_of(line, factor)
        lows, highs = limits_of(line, factor)
        for run in runs_of(lows, highs):
            own = slice(run.start, run.stop)
            low, high = panel.points(places[own], lows[own]), panel.points(places[own], highs[own])
            (bands if len(run) > 1 else strokes).append([*low, *reversed(high)])
            colours[len(run) > 1].append(COLOURS[number % len(COLOURS)])
    faces = PolyCollection(bands, facecolors=colours[True], alpha=0.15, linewidths=0, zorder=1.5)
    axes.add_collection(faces, autolim=False)
    lone = LineCollection(strokes, colors=colours[False], linewidths=1.2, alpha=0.6, zorder=1.5)
    axes.add_collection(lone, autolim=False)


def _curves(axes: Axes, lines: Sequence[Line], panels: Sequence[_Panel], factor: float) -> None:
    """Draw each line in its panel, and a ring around its best."""
    rings: list[tuple[float, float, str]] = []
    for number, (line, panel) in enumerate(zip(lines, panels, strict=True)):
        at = number % len(COLOURS)
        points = panel.points(*points_of(line, factor))
        axes.plot(
            *zip(*points, strict=True),
            color=COLOURS[at],
            linestyle=DASHES[at],
            marker=MARKS[at] if len(points) <= DENSE else None,
            markersize=4.5,
            linewidth=1.5,
            zorder=3,
            scalex=False,
            scaley=False,
        )
        if line.best is not None and len(points) > 1:
            rings.append((*points[line.best], COLOURS[at]))
    if rings:
        places, values, colours = zip(*rings, strict=True)
        axes.scatter(places, values, s=100, facecolors="none", edgecolors=colours, linewidths=1, zorder=4)
