"""The share of forecasts of a curve whose interval holds what was measured then, by each rule that was tried.

python -m simulations.forecast [TABLE...] [--runs 500] [--seed 1]

Each row has the share of 95 % intervals that hold the value, their median width in points, and the root mean square
error. *walk* is the product's rule (``statistics.curves.forecast``); *drift* adds the mean change so far; *line*, *log*
and *inverse* are least-squares lines in x, log x and 1 / x with their t intervals.

Of tables of results, every curve of five checkpoints or more is forecast from each beginning of four or more, for each
later checkpoint (*all*), and from its first two thirds for its last one (*end*). Without tables, curves of 6, 12 and 20
checkpoints are simulated and forecast in the second way; each value has an error of 0.7 points. *level*: nothing
changes. *rises*: by 10 points, evenly. *saturates*: as exp(-4 t). *turns*: up until 60 % and down again by as much.
*logistic*: by 30 points around the middle. *walks*: each differs from the one before by 0.5 points, at random. *jumps*:
by 30 points after 80 %, which no beginning shows.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pytest_touchstone.statistics.comparison import LEVEL
from pytest_touchstone.statistics.curves import FORECAST_LEAST, Forecast, forecast
from pytest_touchstone.statistics.intervals import t_quantile
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.reading import load_study

ERROR: Final = 0.007
Rule: TypeAlias = Callable[[Sequence[float], Sequence[float], float], Forecast | None]


class Wanted(NamedTuple):
    """The beginning of a curve, and the place and value to forecast."""

    places: Sequence[float]
    values: Sequence[float]
    at: float
    known: float


class Rates(NamedTuple):
    """Forecasts, the share that hold, their median width and root mean square error in points."""

    forecasts: int
    holds: float
    width: float
    error: float


def drift(places: Sequence[float], values: Sequence[float], at: float) -> Forecast | None:
    """Return the random walk with the mean change so far, whose variance is that around it."""
    along, moved = np.diff(places), np.diff(values)
    slope = moved.sum() / along.sum()
    ahead, freedom = at - places[-1], len(moved) - 1
    square = float(((moved - slope * along) ** 2).sum()) / freedom / float(along.mean())
    half = t_quantile(freedom, LEVEL) * math.sqrt(square * ahead * (1 + ahead / along.sum()))
    value = values[-1] + slope * ahead
    return Forecast(value, value - half, value + half)


def line(form: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Return the rule of a line in a function of the place."""

    def rule(places: Sequence[float], values: Sequence[float], at: float) -> Forecast | None:
        known = np.column_stack([np.ones(len(places)), form(np.asarray(places, dtype=float))])
        wanted = np.array([1.0, float(form(np.asarray(at, dtype=float)))])
        found = np.linalg.lstsq(known, np.asarray(values), rcond=None)[0]
        freedom = len(values) - 2
        square = float(((values - known @ found) ** 2).sum()) / freedom
        spread = 1 + float(wanted @ np.linalg.pinv(known.T @ known) @ wanted)
        half = t_quantile(freedom, LEVEL) * math.sqrt(square * spread)
        value = float(wanted @ found)
        return Forecast(value, value - half, value + half)

    return rule


RULES: Final[Mapping[str, Rule]] = {
    "walk": forecast,
    "drift": drift,
    "line": line(lambda x: x),
    "log": line(np.log),
    "inverse": line(lambda x: 1 / x),
}


def rates(rule: Rule, wanted: Iterable[Wanted]) -> Rates:
    """Return the rates of a rule's forecasts."""
    found = [
        (made.low <= one.known <= made.high, 100 * (made.high - made.low), 100 * (made.value - one.known))
        for one in wanted
        if (made := rule(one.places, one.values, one.at)) is not None
    ]
    holds, widths, errors = np.asarray(found, dtype=float).T
    return Rates(
        len(found), float(holds.mean()), float(np.median(widths)), float(np.sqrt((errors**2).mean()))
    )


def end_of(places: Sequence[float], values: Sequence[float]) -> Wanted:
    """Return the last value, from the first two thirds."""
    count = max(FORECAST_LEAST, math.ceil(2 * len(values) / 3))
    return Wanted(places[:count], values[:count], places[-1], values[-1])


def all_of(places: Sequence[float], values: Sequence[float]) -> list[Wanted]:
    """Each later value, from each beginning."""
    return [
        Wanted(places[:count], values[:count], places[later], values[later])
        for count in range(FORECAST_LEAST, len(values))
        for later in range(count, len(values))
    ]


def of_tables(tables: Sequence[str]) -> dict[str, list[Wanted]]:
    """Return the ends of the curves of these tables or runs."""
    study = load_study(tables, output=Path())
    curves = [
        (
            [float(one.series.position(point) or 0) for point in one.points],
            [value.value for value in one.values],
        )
        for one in curves_of(study)
        if len(one.points) > FORECAST_LEAST
    ]
    return {
        "all": [wanted for curve in curves for wanted in all_of(*curve)],
        "end": [end_of(*curve) for curve in curves],
    }


def simulated(runs: int, seed: int) -> dict[str, list[Wanted]]:
    """Return the ends of simulated curves."""
    generator = np.random.default_rng(seed)
    shapes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "level": lambda t: 0.6 + 0 * t,
        "rises": lambda t: 0.5 + 0.1 * t,
        "saturates": lambda t: 0.6 - 0.2 * np.exp(-4 * t),
        "turns": lambda t: 0.6 - 0.15 * ((t - 0.6) / 0.6) ** 2,
        "logistic": lambda t: 0.3 + 0.3 / (1 + np.exp(-10 * (t - 0.5))),
        "walks": lambda t: 0.6 + 0.005 * generator.standard_normal(len(t)).cumsum(),
        "jumps": lambda t: 0.3 + 0.3 * (t > 0.8),
    }
    found = {}
    for count in (6, 12, 20):
        along = np.arange(1, count + 1) / count
        for name, shape in shapes.items():
            drawn = [shape(along) + ERROR * generator.standard_normal(count) for _ in range(runs)]
            found[f"{name}, {count}"] = [end_of((1000 * along).tolist(), one.tolist()) for one in drawn]
    return found


def main() -> None:
    """Print a row for each kind of curve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wanted = of_tables(options.tables) if options.tables else simulated(options.runs, options.seed)
    print(f"{'':15}{'':6}" + "".join(f"{name:>21}" for name in RULES))
    for name, own in wanted.items():
        found = [rates(rule, own) for rule in RULES.values()]
        cells = "".join(f"{one.holds:9.1%}{one.width:6.1f}{one.error:6.2f}" for one in found)
        print(f"{name:15}{found[0].forecasts:6}{cells}", flush=True)


if __name__ == "__main__":
    main()
