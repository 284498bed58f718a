"""The places of a run's results, and the commands that come next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.compare.gate.result import lines_from_json
from pytest_touchstone.reports import formatting
from pytest_touchstone.reports.validity import helped, options_for_valid, to_look_at
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Summary, wholes

FILES: Final = ("report.html", "summary.json", "results.csv", "checkpoints.csv", "errors.log")
"""Files of a run that are named, where they are there and hold anything."""

OUTPUT: Final = "results"
"""The results folder that commands take without ``--output``."""

MOST: Final = 2

OF_A_CHECKPOINT: Final = ("--checkpoint", "--eval-model-name", "--eval-tokenizer")
"""The options that name a checkpoint, or belong to the one that is named."""


class NextStep(NamedTuple):
    """A command, and what it does."""

    command: str
    what: str


def saved(summary: Summary) -> str:
    """Return the run's folder and the files in it."""
    folder = Path(summary.directory)
    there = [name for name in FILES if (folder / name).is_file() and (folder / name).stat().st_size]
    return "   ".join([f"{formatting.place(summary)}/", *there])


def again(summary: Summary, *, details: bool) -> NextStep:
    """Return the command for this report, or for the long one."""
    command = f"touchstone report {shlex.quote(formatting.place(summary))}"
    return (
        NextStep(command, "this report")
        if details
        else NextStep(f"{command} -v", "all metrics, groups and notes")
    )


def steps(summary: Summary) -> list[NextStep]:
    """Return the commands that are likely to be wanted next, the first one most."""
    return list(_steps(summary))[:MOST]


def _steps(summary: Summary) -> Iterator[NextStep]:
    command = _command(summary)
    for one in summary.failed_to_load:
        yield NextStep(f"touchstone show {shlex.quote(str(one['path']))}", "what can be read of it")
    if options := options_for_valid(summary):
        others = _command(summary, without=[option.split()[0] for option in options])
        yield NextStep(f"{others} {' '.join(options)}", f"for valid results{helped(summary)}")
    compares = _alike(summary) and summary.gate is None and not summary.manifest.get("demonstration")
    if compares and not summary.faults:
        yield NextStep(_compare(summary, summary.run_id), "what can be said of their differences")
    if look := to_look_at(summary):
        place = formatting.place(summary)
        yield NextStep(shlex.join(["touchstone", "items", place, *look]), "the texts that are of no use")
    if summary.faults:
        yield NextStep(command, "asks only what has no score yet")
    if summary.manifest.get("settings", {}).get("shard"):
        folder = Path(formatting.place(summary)).parent
        yield NextStep(
            f"touchstone merge {shlex.quote(str(folder))}", "joins all shards, when they have ended"
        )
        return
    if told := summary.manifest.get("demonstration"):
        yield NextStep(told["own"], "your own checkpoint, all rows")
    elif summary.faults or not summary.results:
        return
    elif summary.gate is not None:
        yield from _after_gate(summary)
    elif compares:
        return
    elif summary.changes:
        yield NextStep(f"{command} --gate", "a verdict against the best so far")
    else:
        others = _command(summary, without=OF_A_CHECKPOINT)
        yield NextStep(f"{others} --checkpoint NEW --gate", "a verdict on a new checkpoint")


def _command(summary: Summary, without: Collection[str] = ()) -> str:
    """Return the command of the run, without its id and some options that have values."""
    given = iter(command_words(summary.manifest))
    words = []
    for word in given:
        name, sign, _ = word.partition("=")
        if name == "--eval-run-id" or name in without:
            if not sign:
                next(given, None)
        else:
            words.append(word)
    return shlex.join(words)


def _alike(summary: Summary) -> bool:
    """Return whether several checkpoints have the same benchmarks."""
    found: dict[str, set[str]] = {}
    for one in wholes(summary):
        found.setdefault(one.checkpoint, set()).add(one.benchmark)
    first, *others = found.values() or [set[str]()]
    return bool(others) and all(one & first for one in others)


def _after_gate(summary: Summary) -> Iterator[NextStep]:
    gate = summary.gate or {}
    lines = lines_from_json(gate)
    bad = next((line for line in lines if line.fails and line.against), None)
    if bad is not None and bad.against is not None:
        sides = [f"{bad.against.run_id}#{bad.against.checkpoint}", f"{summary.run_id}#{bad.checkpoint}"]
        yield NextStep(_compare(summary, *sides, "--show-flips", "3"), "items gained and lost")
    elif gate.get("decision") in ("passed", "shown"):
        yield NextStep(_baseline(summary), "makes this run the baseline main")


def _baseline(summary: Summary) -> str:
    names = list(formatting.checkpoints(summary))
    which = f" --checkpoint {shlex.quote(names[-1])}" if len(names) > 1 else ""
    return f"touchstone baseline set {summary.run_id}{which}{_output(summary)}"


def _compare(summary: Summary, *words: str) -> str:
    return shlex.join(["touchstone", "compare", *words]) + _output(summary)


def _output(summary: Summary) -> str:
    """Return the option for a results folder of another name."""
    folder = Path(formatting.place(summary)).parent
    return "" if str(folder) == OUTPUT else f" --output {shlex.quote(str(folder))}"
