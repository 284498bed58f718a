"""The report that pytest shows at the end of a run, and ``touchstone report`` later, made to fit a screen.

It begins with the results, as ``tables`` has them: by benchmark, or by checkpoint where that does not fit. Below them
are changes, the gate's verdicts, the legend, and one line per kind of fact. It ends with what is not valid, where the
results are, the next command, and the gate's decision. Details have all metrics, groups and notes. ASCII only, apart
from names. Errors, lost items and checkpoints that failed to load are told as fully without details.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.compare.baseline_source import MAIN, replaced_baseline
from pytest_touchstone.compare.gate.accepted import FILE as ACCEPTED
from pytest_touchstone.compare.gate.result import PASSING, lines_from_json
from pytest_touchstone.core.aggregation import SOFT
from pytest_touchstone.core.settings import SET
from pytest_touchstone.document import STYLES, Facts, Part, drawn, formatting
from pytest_touchstone.document.formatting import command_lines, console_of, written
from pytest_touchstone.reports import notes
from pytest_touchstone.reports.changes import changes_section
from pytest_touchstone.reports.gate import verdicts_section
from pytest_touchstone.reports.standings import best_of_run
from pytest_touchstone.reports.tables import is_by_checkpoint, legend, results_section
from pytest_touchstone.reports.validity import helped, options_for_valid, to_look_at
from pytest_touchstone.results import place_in
from pytest_touchstone.results.aggregate import ended
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Summary, reached, totals, wholes

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST: Final = 60
"""Columns that a report needs; in narrower terminals its lines wrap."""

LABEL: Final = 10
"""Characters of the labels below the tables."""

ABOUT: Final = 3
"""Spaces between a command and what it does."""


def render(summary: Summary, width: int, color: bool, *, details: bool = False, decision: bool = True) -> str:
    """Return the whole report as text of at most ``width`` columns, with ANSI colours if wanted.

    A gate's decision is one line, however long. Without ``decision`` that line is left to the caller, as is how a
    stopped run goes on; then only results are shown whose items have all ended.
    """
    from rich.text import Text

    console = console_of(max(width, NARROWEST), color=color)
    shown = reached(summary, partly=decision) if summary.stopped else summary
    many = is_by_checkpoint(shown, details=details)
    demonstration = summary.manifest.get("demonstration")
    if demonstration and not summary.stopped:
        _print(console, Facts((("touchstone", demonstration["what"]),)))
        _print_command(console, "all rows", demonstration["all"], "")
        console.print()
    if shown.results:
        _print(console, *results_section(shown, many=many, details=details).parts, apart=True)
    saved_row = ("saved", saved(summary))
    if summary.stopped:
        _print(console, Facts((*notes.loud(shown), saved_row)))
        if decision:
            counts, whole = totals(summary), ended(Path(summary.directory))
            word = "stopped" if whole else "unfinished"
            line = stopped_at(counts["scored"], counts["collected"], summary.manifest, word)
            console.print(line, style="bold", soft_wrap=True)
        return written(console)
    for section in (
        changes_section(summary, brief=not details),
        verdicts_section(summary.gate, details=details),
    ):
        if section is not None:
            _print(console, *section.parts)
            console.print()
    signs, best = legend(summary, many=many), best_of_run(summary)
    rows = [("legend", signs)] if signs else []
    rows += notes.facts(summary, details=details)
    _print(console, Facts((*rows, *([("best", best)] if best else []), saved_row)))
    _print_command(console, "more", *again(summary, details=details))
    for step in next_steps(summary):
        _print_command(console, "next", *step)
    if summary.gate is not None and decision:
        style = STYLES.get(str(summary.gate.get("decision")), "bold")
        console.print(Text(str(summary.gate.get("text", "")), style=style), soft_wrap=True)
    return written(console)


def _print(console: Console, *parts: Part, apart: bool = False) -> None:
    """Print parts of a section, with an empty line after each where they stand apart."""
    for part in parts:
        for block in drawn(part, console.width, label=LABEL):
            console.print(block)
        if apart:
            console.print()


def _print_command(console: Console, label: str, command: str, about: str) -> None:
    """Print a command and what it does; one that is longer than a line goes on below, as a shell takes it."""
    from rich.text import Text

    style = "bold" if label == "next" else ""
    lines = command_lines(command, console.width - LABEL - 2)
    beside = len(lines) == 1 and len(lines[0]) + LABEL + 2 + ABOUT + len(about) <= console.width
    for number, line in enumerate(lines):
        text = Text.assemble((f"{'' if number else label:{LABEL}}  ", "dim"), (line, style))
        if beside and about:
            text.append(f"{'':{ABOUT}}{about}", "dim")
        console.print(text, soft_wrap=True)
    if about and not beside:
        console.print(Text(f"{'':{LABEL + 2 + ABOUT}}{about}", style="dim"))


def stopped_at(scored: int, of: int, manifest: Mapping[str, Any], word: str = "stopped") -> str:
    """Return how far a run with so many scored items came, and the command that asks what has no score yet."""
    # Without what would stop it again, or ask everything again.
    command = _command_of(manifest, flags=("-x", "--exitfirst", "--eval-no-cache"), without=("--maxfail",))
    return f"{word}: {scored:,} of {of:,} scored and kept; go on: {command}"


# The places of a run's results, and the commands that come next

_OF_BENCHMARK: Final = re.compile(r"benchmark \S+ |[A-Za-z_.]*(Error|Exception)\b")
"""The beginning of the message of an error that a benchmark's own code makes, each time anew."""

FILES: Final = ("report.html", "summary.json", "results.csv", "checkpoints.csv", "errors.log")
"""Files of a run that are named, where they are there and hold anything."""

OUTPUT: Final = "results"
"""The results folder that commands take without ``--output``."""

MOST_STEPS: Final = 2

OF_A_CHECKPOINT: Final = ("--checkpoint", "--eval-set=model_name", "--eval-set=tokenizer")
"""The options that name a checkpoint, or belong to the one that is named."""


class NextStep(NamedTuple):
    """A command, and what it does."""

    command: str
    what: str


def saved(summary: Summary) -> str:
    """Return the run's folder and the files in it."""
    folder = Path(summary.directory)
    there = [path for name in FILES if (path := place_in(folder, name)).is_file() and path.stat().st_size]
    return "   ".join([f"{formatting.place(summary)}/", *(str(path.relative_to(folder)) for path in there)])


def again(summary: Summary, *, details: bool) -> NextStep:
    """Return the command for this report, or for the long one."""
    command = f"touchstone report {shlex.quote(formatting.place(summary))}"
    return (
        NextStep(command, "this report")
        if details
        else NextStep(f"{command} -v", "all metrics, groups and notes")
    )


def next_steps(summary: Summary) -> list[NextStep]:
    """Return the commands that are likely to be wanted next, the first one most."""
    return list(_steps(summary))[:MOST_STEPS]


def _steps(summary: Summary) -> Iterator[NextStep]:
    command = _command_of(summary.manifest)
    if options := options_for_valid(summary):
        others = _command_of(
            summary.manifest, without=[re.split(" |=[^=]*$", option)[0] for option in options]
        )
        yield NextStep(f"{others} {' '.join(options)}", f"for valid results{helped(summary)}")
    compares = _alike(summary) and summary.gate is None and not summary.manifest.get("demonstration")
    if compares and not summary.faults:
        yield from _of_several_checkpoints(summary)
    if look := to_look_at(summary):
        place = formatting.place(summary)
        yield NextStep(shlex.join(["touchstone", "items", place, *look]), "the texts that are of no use")
    yield from _after_faults(summary, command)
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
        yield from after_gate(summary)
    elif compares:
        return
    elif summary.changes:
        yield NextStep(f"{command} --gate", "a verdict against the best so far")
    else:
        others = _command_of(summary.manifest, without=OF_A_CHECKPOINT)
        yield NextStep(f"{others} --checkpoint NEW --gate", "a verdict on a new checkpoint")


def _of_several_checkpoints(summary: Summary) -> Iterator[NextStep]:
    """Yield what tells several checkpoints apart: two by their differences, more by who is best and by their curves."""
    if len(formatting.checkpoints(summary)) == 2 or not summary.leaders:
        yield NextStep(_touchstone(summary, "compare"), "what can be said of their differences")
    else:
        yield NextStep(_touchstone(summary, "best"), "benchmark by benchmark, and from whom it is told")
    series = [row.get("series") for row in summary.checkpoints if row.get("series")]
    if any(series.count(one) > 2 for one in series):
        yield NextStep(_touchstone(summary, "study"), "curves, peaks, and what to do next")


def _after_faults(summary: Summary, command: str) -> Iterator[NextStep]:
    again = [_OF_BENCHMARK.match(one["message"]) is None for one in summary.faults]
    if not all(again):  # the same command would fail again
        look = shlex.join(["touchstone", "items", formatting.place(summary), "--error"])
        yield NextStep(look, "what to mend; the same command then asks these alone")
    if any(again):
        yield NextStep(command, "asks only what has no score yet")


def _command_of(
    manifest: Mapping[str, Any], without: Collection[str] = (), flags: Collection[str] = ()
) -> str:
    """Return the command of a run, without its id, some options that have values, and some that have none."""
    given = iter(command_words(manifest))
    words = []
    for word in given:
        option = f"{SET}={next(given, '')}" if word == SET else word
        name = "=".join(option.split("=")[: 1 + option.startswith(SET)])
        if name == "--eval-run-id" or name in without:
            if "=" not in option:
                next(given, None)
        elif option not in flags:
            words.append(option)
    return shlex.join(words)


def _alike(summary: Summary) -> bool:
    """Return whether several checkpoints have the same benchmarks."""
    found: dict[str, set[str]] = {}
    for one in wholes(summary):
        found.setdefault(one.checkpoint, set()).add(one.benchmark)
    first, *others = found.values() or [set[str]()]
    return bool(others) and all(one & first for one in others)


def after_gate(summary: Summary) -> Iterator[NextStep]:
    """Yield what may be done after a gate: of a red one to look at it, and to accept it."""
    gate = summary.gate or {}
    lines = lines_from_json(gate)
    bad = next((line for line in lines if line.fails and line.against), None)
    if bad is not None and bad.against is not None:
        sides = [f"{bad.against.run_id}#{bad.against.checkpoint}", f"{summary.run_id}#{bad.checkpoint}"]
        yield NextStep(_touchstone(summary, "compare", *sides, "--show-flips", "3"), "items gained and lost")
    if red := list(dict.fromkeys(line.benchmark for line in lines if line.fails and not line.invalid)):
        named = [word for name in red for word in ("--benchmark", name)]
        accept = shlex.join(["touchstone", "accept", summary.run_id, *named]) + _output(summary)
        yield NextStep(f'{accept} --because "..."', f"accepts the drop; commit {ACCEPTED}")
    elif gate.get("decision") in PASSING:
        unsure = {(line.checkpoint, line.benchmark) for line in lines if line.kind == "inconclusive"}
        soft = any(
            SOFT in one.metrics for one in summary.results if (one.checkpoint, one.benchmark) in unsure
        )
        if soft and SOFT not in (line.metric for line in lines):
            command = _command_of(summary.manifest)
            yield NextStep(f"{command} --eval-set gate_metric=soft", "may tell by the same items")
        if lines and all(line.kind in ("not worse", "better") for line in lines):
            yield from _baseline(summary)


def _baseline(summary: Summary) -> Iterator[NextStep]:
    """Yield the command that names the run's last checkpoint, unless the baseline has items that it lacks."""
    checkpoints = formatting.checkpoints(summary)
    name = list(checkpoints)[-1]
    which = f" --checkpoint {shlex.quote(name)}" if len(checkpoints) > 1 else ""
    scored = {result.benchmark: result.scored for result in summary.results if result.checkpoint == name}
    if not replaced_baseline(Path(summary.directory).parent, MAIN, scored)[1]:
        command = f"touchstone baseline set {summary.run_id}{which}{_output(summary)}"
        yield NextStep(command, "makes this run the baseline main")


def _touchstone(summary: Summary, command: str, *words: str) -> str:
    """Return a command on the run, or on what is named."""
    return shlex.join(["touchstone", command, *(words or (summary.run_id,))]) + _output(summary)


def _output(summary: Summary) -> str:
    """Return the option for a results folder of another name."""
    folder = Path(formatting.place(summary)).parent
    return "" if str(folder) == OUTPUT else f" --output {shlex.quote(str(folder))}"
