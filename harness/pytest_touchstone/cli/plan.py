"""``touchstone baseline plan``: what a gate could decide, before anything is asked.

touchstone baseline plan                              the benchmarks of the saved results, against the best of them
touchstone baseline plan --baseline main --drop 3     against a named baseline; about drops of three points
touchstone baseline plan --items gsm8k=1319           a benchmark without saved results, of this size
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from pytest_touchstone.cli.command import Output, add_items, add_output, add_settings, add_value, terminal
from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.gate.config import GateConfig, check_names, number_of, read_gate_config
from pytest_touchstone.compare.load import parse_sizes
from pytest_touchstone.compare.plan import make_plan, targets_of
from pytest_touchstone.statistics.verdicts import POWER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("benchmarks", nargs="*", metavar="BENCHMARK", help="only these (default: all with saved results)")
    add_output(parser)
    add_settings(parser, "baseline")
    text = "the loss to plan for, in points, or margins of a metric with a unit (default: 2)"
    add_value(parser, "--drop", _points, text, metavar="POINTS", default="2")
    text = "the chance to find it (default: 0.8, or 80%%)"
    add_value(parser, "--power", _share, text, metavar="P", default=str(POWER))
    text = "a loss that does not matter (default: the gate's, else one point)"
    add_value(parser, "--margin", _margin, text, metavar="D")
    text = "chance of a false verdict (default: the gate's, else 0.05)"
    add_value(parser, "--alpha", _share, text, metavar="P")
    add_items(parser, "plan for so many items of a benchmark")
    text = "take this share of items to flip in place of what is saved: 15%%"
    add_value(parser, "--flips", _share, text, metavar="SHARE")


def run(options: argparse.Namespace) -> Output:
    """Plan the gate. Raises ``HarnessError`` for a mistake."""
    config = _config(options)
    known = open_source("best", options.output, folder=Path())
    source = (
        known if config.baseline == "best" else open_source(config.baseline, options.output, folder=Path())
    )
    targets = targets_of(source, known, parse_sizes(options.items), config)
    names = [one.benchmark for one in targets]
    if targets:
        check_names(options.benchmarks, names, "touchstone baseline plan", "benchmark")
    wanted = [one for one in targets if not options.benchmarks or one.benchmark in options.benchmarks]
    plan = make_plan(
        wanted, source, known, config, drop=options.drop, power=options.power, flips=options.flips
    )

    def text() -> str:
        from pytest_touchstone.reports.plan import render

        width, color = terminal()
        return render(plan, width=width, color=color)

    from pytest_touchstone.reports.plan import plan_facts

    return Output(plan_facts(plan), text)


def _config(options: argparse.Namespace) -> GateConfig:
    """The gate of the project in this folder, with what the options change."""
    config = read_gate_config(Path("pyproject.toml"), required=False)
    given = {name: getattr(options, name) for name in ("baseline", "margin", "alpha")}
    return replace(config, **{name: value for name, value in given.items() if value is not None})


def _share(text: str) -> float:
    value = number_of(text)
    if value is None or not 0 < value < 1:
        raise ValueError("a number above 0 and below 1, or per cent: 0.8 or 80%")
    return value


def _margin(text: str) -> float:
    value = number_of(text)
    if value is None or not 0 <= value < 1:
        raise ValueError("a number from 0, and below 1: 0.01, or 1%, is one point")
    return value


def _points(text: str) -> float:
    value = number_of(text.removesuffix("%"))
    if value is None or not 0 < value < 100:
        raise ValueError("points above 0 and below 100: 2 is a loss of 0.02")
    return value / 100
