"""The parts that all pictures of curves and bars share: colours, marks, dashes, names, and the numbers of a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pytest_touchstone.reports.charts import BarChart, Line, LineChart

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#b2a100")
MARKS: Final = ("o", "s", "^", "D", "v", "X", "P", "h")
DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2)), (0, (4, 4)), (0, (1, 3)), (0, (6, 2, 1, 2, 1, 2)))

TOGETHER: Final = 4
"""The series whose bands one panel can show; more get a panel each."""

DENSE: Final = 25
"""The checkpoints of a series from which on it gets a panel of its own, and no marks."""

Spell: TypeAlias = Callable[[str], str]


def in_panels(chart: LineChart) -> bool:
    """Return whether each line of a chart gets a panel of its own."""
    dense = any(len(line.dots) > DENSE for line in chart.lines)
    return len(chart.lines) > 1 and (dense or len(chart.lines) > TOGETHER)


def shortened(text: str, most: int = 40) -> str:
    """Return a name with its beginning left out where it is long: its end tells checkpoints apart."""
    text = f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends
    return text if len(text) <= most else f"..{text[2 - most :]}"


def heading(chart: LineChart | BarChart) -> str:
    """Return the chart's title with its unit."""
    return f"{chart.title}, %" if chart.percent else chart.title


def points_of(line: Line, factor: float) -> tuple[list[float], list[float]]:
    """Return the places of a line's dots, and their values."""
    return [dot.place for dot in line.dots], [factor * dot.value for dot in line.dots]


def limits_of(line: Line, factor: float) -> tuple[list[float], list[float]]:
    """Return the lower and the upper limits of a line's dots, NaN where they are not known."""
    lows = [math.nan if dot.low is None else factor * dot.low for dot in line.dots]
    return lows, [math.nan if dot.high is None else factor * dot.high for dot in line.dots]


def runs_of(lows: Sequence[float], highs: Sequence[float]) -> list[range]:
    """Return the places in a row of which limits are known; a run of one has no band."""
    found: list[range] = []
    for place, both in enumerate(zip(lows, highs, strict=True)):
        if math.isnan(sum(both)):
            continue
        if found and found[-1].stop == place:
            found[-1] = range(found[-1].start, place + 1)
        else:
            found.append(range(place, place + 1))
    return found
