"""``touchstone track RUN``: sends a run that ended to a tracker, or what the tracker does not have yet."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_touchstone.cli.command import Output, add_run, run_folder
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count
from pytest_touchstone.reports.trackers.base import PLACE, Tracker, place_option
from pytest_touchstone.reports.trackers.registry import Outcome, track, trackers
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import SUMMARY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the tracker."""
    add_run(parser)
    for one in trackers():
        text = f"to {one.title} (default: what the run itself was started with); {one.where}"
        parser.add_argument(f"--{one.name}", action="store_true", help=text)
        text = (
            f"--{one.name}, and the {one.place} there (default: the run's, else {one.variable}, else {PLACE})"
        )
        parser.add_argument(f"--{one.name}-{one.place}", metavar="NAME", help=text)


def run(options: argparse.Namespace) -> Output:
    """Send what is lacking; raises ``HarnessError`` where the tracker does not take it."""
    folder = run_folder(options, SUMMARY)
    settings = dict(RunDirectory(folder).read_manifest().get("settings", {}))
    for name in map(place_option, trackers()):
        settings |= {name: given} if (given := getattr(options, name)) else {}
    rows = [_sent(folder, one, settings) for one in _wanted(options, settings)]
    return Output(rows[0] if len(rows) == 1 else rows, "\n".join(row["text"] for row in rows))


def _wanted(options: argparse.Namespace, settings: dict[str, Any]) -> list[Tracker]:
    """Return the trackers that are named, else those that the run was started with. Raises ``HarnessError``."""
    known = {one.name: one for one in trackers()}
    given = vars(options)
    named, told = (
        [one for name, one in known.items() if those.get(name) or those.get(place_option(one))]
        for those in (given, settings)
    )
    found = named or told
    if not found:
        raise HarnessError(
            f"{options.target}: say to which tracker: {', '.join(f'--{name}' for name in known)}"
        )
    return found


def _sent(folder: Path, tracker: Tracker, settings: dict[str, Any]) -> dict[str, Any]:
    outcome = track(folder, tracker, settings)
    return {"tracker": tracker.name, **asdict(outcome.sent), "left_out": outcome.left_out} | {
        "text": _text(tracker, outcome)
    }


def _text(tracker: Tracker, outcome: Outcome) -> str:
    sent = outcome.sent
    if sent.new or sent.numbers or sent.files:
        old = f" ({sent.runs - sent.new} were there)" if 0 < sent.new < sent.runs else ""
        what = f"{count(sent.new, 'run')}{old}, {count(sent.numbers, 'number')}, {count(sent.files, 'file')} sent to"
    else:
        what = f"nothing to send: all {count(sent.runs, 'run')} of it are in"
    left = f"; left out: {', '.join(outcome.left_out)}" if outcome.left_out else ""
    return f"{tracker.title}: {what} {sent.where}{left}"
