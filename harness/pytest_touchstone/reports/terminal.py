"""The report that pytest shows at the end of a run, and ``touchstone report`` later, made to fit a screen.

It begins with the results, as ``tables`` has them: by benchmark, or by checkpoint where that does not fit. Below them
are changes, the gate's verdicts, the legend, and one line per kind of fact. It ends with what is not valid, where the
results are, the next command, and the gate's decision. Details have all metrics, groups and notes. ASCII only, apart
from names. Errors, lost items and checkpoints that failed to load are told as fully without details.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.compare.baseline_source import MAIN, replaced_baseline
from pytest_touchstone.compare.formats import korean_mlm
from pytest_touchstone.compare.gate.accepted import FILE as ACCEPTED
from pytest_touchstone.compare.gate.result import PASSING, lines_from_json
from pytest_touchstone.compare.standings import leading
from pytest_touchstone.core.aggregation import SOFT, aggregation_of
from pytest_touchstone.core.eval_config import LEFT_OUT
from pytest_touchstone.core.settings import SET
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document import drawn, formatting
from pytest_touchstone.document.formatting import command_lines, console_of, labelled, written
from pytest_touchstone.reports import notes, tables, validity
from pytest_touchstone.reports.changes import changes_section
from pytest_touchstone.reports.gate import print_decision, print_verdicts
from pytest_touchstone.reports.score_table import SIGNS, SPREAD, TOLD, table_of_run, tables_by_checkpoint
from pytest_touchstone.reports.standings import best_of_run
from pytest_touchstone.reports.validity import helped, options_for_valid, to_look_at
from pytest_touchstone.results import place_in
from pytest_touchstone.results.aggregate import ended
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Summary, reached, totals, wholes

if TYPE_CHECKING:
    from rich.text import Text

NARROWEST: Final = 60
"""Columns that a report needs; in narrower terminals its lines wrap."""

ON_A_SCREEN: Final = 32
"""Lines of tables with a row per benchmark and checkpoint; for more there is a row per checkpoint."""

MOST: Final = 6
"""Of more checkpoints each has a row, whether or not more would fit; with a single benchmark also of fewer."""

MOST_ALIKE: Final = 2
"""The same, of checkpoints that have the same benchmarks."""

LABEL: Final = 10
"""Characters of the labels below the tables."""

ABOUT: Final = 3
"""Spaces between a command and what it does."""

Write = Callable[..., None]


def render(summary: Summary, width: int, color: bool, *, details: bool = False, decision: bool = True) -> str:
    """Return the whole report as text of at most ``width`` columns, with ANSI colours if wanted; a gate's decision is
    one line, however long. Without ``decision`` that line is left to the caller, as is how a stopped run goes on; then
    only results are shown whose items have all ended."""
    width = max(width, NARROWEST)
    console = console_of(width, color=color)
    write: Write = console.print
    if summary.stopped:
        _stopped(reached(summary, partly=decision), write, width, details)
        if decision:
            write(_stopped_line(summary), style="bold", soft_wrap=True)
        return written(console)
    _demonstration(summary, write, width)
    many = _results(summary, write, width, details)
    _changes(summary, write, width, details)
    if summary.gate is not None:
        print_verdicts(summary.gate, write, details=details)
        write()
    _lines(_below(summary, many, details), write)
    _ending(summary, write, width, details)
    if summary.gate is not None and decision:
        print_decision(summary.gate, write)
    return written(console)


def _demonstration(summary: Summary, write: Write, width: int) -> None:
    """Print what a run without ``--checkpoint`` is, and how to ask everything."""
    if told := summary.manifest.get("demonstration"):
        _lines([FactLine("touchstone", told["what"])], write)
        _command("all rows", told["all"], "", write, width)
        write()


# Results


def _stopped(shown: Summary, write: Write, width: int, details: bool) -> None:
    """Print what a stopped run has found, and what went wrong."""
    if shown.results:
        _results(shown, write, width, details)
    _lines([*loud(shown), FactLine("saved", saved(shown))], write)


def _stopped_line(summary: Summary) -> str:
    """Return how far a run came that was stopped, or has not summed up, and the command that goes on."""
    counts, whole = totals(summary), ended(Path(summary.directory))
    return stopped_at(
        counts["scored"], counts["collected"], summary.manifest, "stopped" if whole else "unfinished"
    )


def stopped_at(scored: int, of: int, manifest: Mapping[str, Any], word: str = "stopped") -> str:
    """Return how far a run with so many scored items came, and the command that asks what has no score yet."""
    # Without what would stop it again, or ask everything again.
    command = _command_of(manifest, flags=("-x", "--exitfirst", "--eval-no-cache"), without=("--maxfail",))
    return f"{word}: {scored:,} of {of:,} scored and kept; go on: {command}"


def _results(summary: Summary, write: Write, width: int, details: bool) -> bool:
    """Print the tables; return whether they are by checkpoint."""
    names = formatting.checkpoints(summary)
    most = MOST_ALIKE if tables.alike(summary) else MOST
    many = len(names) > most or (len(names) > 1 and tables.row_count(summary) > ON_A_SCREEN)
    many = many and (details or not tables.has_one_benchmark(summary))
    if many:
        for table in tables_by_checkpoint(summary, table_of_run(summary)):
            for block in drawn(table, width):
                write(block)
            write()
    if details or not many:
        for name, what, rows in tables.tables_by_benchmark(summary, width, details=details, groups=not many):
            write(_heading(name, what))
            write(rows)
            write()
    return many


def _heading(name: str, what: str) -> Text:
    from rich.text import Text

    return Text.assemble((name, "bold"), (f"  {what}" if what else "", "dim"))


# Below the tables


def _changes(summary: Summary, write: Write, width: int, details: bool) -> None:
    """Print what has changed against the best so far."""
    section = changes_section(summary, brief=not details)
    for part in section.parts if section is not None else ():
        for block in drawn(part, width):
            write(block)
    if section is not None:
        write()


def _below(summary: Summary, many: bool, details: bool) -> Iterator[FactLine]:
    if text := legend(summary, many=many):
        yield FactLine("legend", text, "dim")
    yield from _detailed(summary) if details else brief_lines(summary)


def _detailed(summary: Summary) -> Iterator[FactLine]:
    """Yield every fact, a line each."""
    texts = {
        "data": _data(summary),
        "composite": _formulas(summary),
        "best": _best(summary),
        "items": [notes.items(summary)],
        "metrics": notes.directions(summary),
        "reused": notes.reused(summary),
        "outputs": notes.generated(summary),
        "judge": notes.judged(summary),
        "programs": notes.programs(summary),
        "usage": notes.usage(summary),
        "undefined": notes.reasons(summary),
        "note": notes.warnings(summary),
        "limit": notes.short_of_limit(summary),
        "part": _parts(summary),
        "left out": notes.left_out(summary),
    }
    for label, found in texts.items():
        yield from (FactLine(label, text, "magenta" if label == "note" else "") for text in found)
    yield from loud(summary)


def _data(summary: Summary) -> list[str]:
    """Return the dataset of each benchmark, and the marks of its values."""
    found = []
    for name in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = [one for one in wholes(summary) if one.benchmark == name]
        marks = dict.fromkeys(one.mark for one in same if one.mark)
        found.append(f"{name}: {'; '.join([*marks, formatting.dataset_line(same[0].dataset)])}")
    return found


def _formulas(summary: Summary) -> list[str]:
    formulas = {one["name"]: one["formula"] for one in summary.composites if one.get("formula")}
    marks = {
        name: {one.get("mark"): 1 for one in summary.composites if one["name"] == name} for name in formulas
    }
    return [
        "; ".join(filter(None, (f"{name} = {formula}", *marks[name]))) for name, formula in formulas.items()
    ]


def _best(summary: Summary) -> list[str]:
    """The best checkpoint by each of the Korean scores, when there are several to choose from."""
    found = korean_mlm.best(korean_mlm.rows(summary))
    return [
        f"{key}: {top['checkpoint']} of {top['of']}, {formatting.number(top['value'])}, "
        f"standard error {formatting.number(top['stderr'])}"
        for key, top in found.items()
        if top["of"] > 1
    ]


def _ending(summary: Summary, write: Write, width: int, details: bool) -> None:
    """Print where the results lie, and the next commands, in a form that can be pasted."""
    best = best_of_run(summary)
    _lines([FactLine("best", best, "bold")] * bool(best) + [FactLine("saved", saved(summary))], write)
    steps = [("more", again(summary, details=details))]
    steps += [("next", step) for step in next_steps(summary)]
    for label, step in steps:
        _command(label, step.command, step.what, write, width)


def _command(label: str, command: str, what: str, write: Write, width: int) -> None:
    """Print a command and what it does; one that is longer than a line goes on below, as a shell takes it."""
    from rich.text import Text

    style = "bold" if label == "next" else ""
    *before, last = command_lines(command, width - LABEL - 2)
    for number, line in enumerate([*before, last]):
        start = (f"{'' if number else label:{LABEL}}  ", "dim")
        about = f"{'':{ABOUT}}{what}" if what and not before else ""
        alone = len(line) + LABEL + 2 + len(about) > width
        write(Text.assemble(start, (line, style), ("" if alone else about, "dim")), soft_wrap=True)
        if number == len(before) and what and (alone or before):
            write(Text(f"{'':{LABEL + 2 + ABOUT}}{what}", style="dim"))


def _lines(lines: Iterator[FactLine] | list[FactLine], write: Write) -> None:
    """Print lines with their labels; of a label that comes again, only the first."""
    from rich.text import Text

    rows: list[tuple[str, Text]] = []
    before = ""
    for label, text, style in lines:
        rows.append((f"{'' if label == before else label:{LABEL}}", Text(text, style=style)))
        before = label
    write(labelled(rows))


NAMED: Final = 4
"""Names before "and N more"."""

FAULTS_SHOWN: Final = 5

REASONS: Final = 6
"""Lines about benchmarks that were left out."""

SHORT: Final = 100
"""Characters of what helps where a benchmark was left out; what is longer is left to ``-v``."""

DETAILS: Final = "-v says what helps"

_OF_BENCHMARK: Final = re.compile(r"benchmark \S+ |[A-Za-z_.]*(Error|Exception)\b")
"""The beginning of the message of an error that a benchmark's own code makes, each time anew."""

_ASIDE: Final = re.compile(r" \([^)]*\)")


class FactLine(NamedTuple):
    """A line with its label; ``style`` is that of the text."""

    label: str
    text: str
    style: str = ""


def brief_lines(summary: Summary) -> list[FactLine]:
    """Return all facts, those that matter most at the end."""
    texts = {
        "judge": "; ".join(notes.judged(summary)),
        "reused": _reused(summary),
        "cut": notes.cut(summary),
        "no answer": "; ".join(notes.unanswered(summary)),
        "reasoning": "; ".join(notes.traces(summary)),
        "weak tests": listed(notes.weak_tests(summary), 2, between="; "),
        "modules": "; ".join(notes.missing_modules(summary)),
        "slow": listed(notes.slow_ways(summary), 2, between="; "),
        "prompts": "; ".join(notes.other_prompts(summary)),
        "samples": "; ".join(notes.unsampled(summary)),
        "note": listed([*notes.journal(summary), *notes.engines(summary)], 1, between="; "),
        "limit": "; ".join(notes.short_of_limit(summary)),
        "part": "; ".join(_parts(summary)),
    }
    found = [FactLine(label, text) for label, text in texts.items() if text not in ("", "none")]
    found += [FactLine("left out", text) for text in _left_out(summary)]
    items = FactLine("items", notes.items(summary), "bold red" if summary.faults else "")
    return [items, *found, *loud(summary)]


def loud(summary: Summary) -> list[FactLine]:
    """Return the facts that are never shortened away: what failed, ran without isolation, or is not valid."""
    found = [FactLine("failed", text, "bold red") for text in notes.failed_to_load(summary)]
    faults = notes.faults(summary)
    found += [FactLine(status, text, "red") for status, text in faults[:FAULTS_SHOWN]]
    if (rest := len(faults) - FAULTS_SHOWN) > 0:
        found.append(FactLine("", f"and {count(rest, 'other message')}, in errors.log", "red"))
    if names := [one.benchmark for one in wholes(summary) if one.unsandboxed]:
        found.append(FactLine("no sandbox", f"{_names(names)}: programs ran without isolation", "bold red"))
    return found + [FactLine("not valid", text, "bold red") for text in validity.not_valid(summary)]


def legend(summary: Summary, *, many: bool) -> str:
    """Return the meaning of each sign that occurs in the tables; ``many``: they are by checkpoint."""
    found = []
    if many:
        signs = {sign for cell in table_of_run(summary).cells for sign in cell.signs}
        found += [f"{sign} {meaning}" for sign, meaning in SIGNS.items() if sign in signs]
        if "*" not in signs:
            found.append("no best of a column is marked: none is told from all others")
        found.append(f"{SPREAD} half the widest 95 % interval of the column")
    elif leading(summary.leaders):
        found.append(f"best: {TOLD}")
    if any(one.of or one.published for one in wholes(summary)):
        found.append("n/N items scored of those published (or, of other data, of all)")
    own = formatting.own_rows(summary)
    if not many and any(
        formatting.is_sample(one.mark) for one in wholes(summary) if one.benchmark not in own
    ):
        found.append(f"{formatting.SAMPLE}: shipped rows, a few of those published")
    if not many and own:
        found.append(f"{formatting.OWN}: none was published")
    if why := _undefined(summary):
        found.append(f"{formatting.NOTHING} undefined ({why})")
    if lower := _lower(summary):
        found.append(f"lower is better for {listed(lower, NAMED)}")
    return "; ".join(found)


def _parts(summary: Summary) -> list[str]:
    """Return the benchmarks of which --eval-tasks names some groups, with these."""
    terms = ",".join(map(str, summary.manifest.get("settings", {}).get("tasks") or ())).split(",")
    found = []
    for name in dict.fromkeys(one.benchmark for one in wholes(summary)):
        groups = dict.fromkeys(
            str(one.group) for one in summary.results if one.benchmark == name and one.group
        )
        if groups and any(term.strip().startswith(f"{name}/") for term in terms):
            found.append(f"{name}: {listed(groups, NAMED)} alone")
    return found


def _names(names: Iterable[str]) -> str:
    return listed(dict.fromkeys(names), NAMED)


def _reused(summary: Summary) -> str:
    found = [one for one in wholes(summary) if one.reused]
    runs = {run for one in found for run in one.reused_from}
    number = sum(one.reused for one in found)
    return (
        f"{number:,} of {totals(summary)['scored']:,} scores, from {listed(sorted(runs), 1)}" if found else ""
    )


def _left_out(summary: Summary) -> list[str]:
    """Return the benchmarks without a result, by the beginning of the reason, in a few lines.

    Those that a checkpoint without any result could not be asked are among them.
    """
    asked = {one.benchmark for one in wholes(summary)}
    known = formatting.checkpoints(summary)
    # Of several reasons the last: that a kind of checkpoint cannot be asked comes before data that is not there.
    reasons = {
        name: reason
        for name, _, reason in (line.partition(": ") for line in summary.deselected)
        if name not in asked or not any(checkpoint in reason for checkpoint in known)
    }
    classes: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        classes.setdefault(_ASIDE.sub("", reason.removeprefix(LEFT_OUT)).partition(";")[0], []).append(name)
    found = [_class(kind, {name: reasons[name] for name in names}) for kind, names in classes.items()]
    brief_lines: list[str] = []
    for remedy, same in groupby(found, key=itemgetter(1)):  # it is told once, after those that it helps
        several = [text for text, _ in same]
        own = [remedy] if remedy else []
        brief_lines += [*several, *own] if len(several) > 1 else ["; ".join([*several, *own])]
    rest = len(brief_lines) - REASONS
    return [*brief_lines[:REASONS], "and others; -v names them"] if rest > 1 else brief_lines


def _class(kind: str, reasons: Mapping[str, str]) -> tuple[str, str]:
    """Return benchmarks that were left out for reasons that begin alike, and what helps if it is the same and short.

    Of a single benchmark the whole reason is told where it names what is nearest.
    """
    (first, *others), names = reasons.values(), _names(reasons)
    if not others and "; nearest: " in first:
        return f"{names}: {first}", ""
    remedies = {reason.partition("; ")[2] for reason in reasons.values()}
    remedy = remedies.pop() if len(remedies) == 1 else DETAILS
    if len(remedy) > SHORT:  # the last sentence alone: a benchmark ends with what needs least
        last = re.split(r"[.;] ", remedy.rstrip("."))[-1]
        remedy = f"{last}; -v says more" if len(last) <= SHORT else DETAILS
    return f"{names}: {kind}" if kind else names, remedy


def _undefined(summary: Summary) -> str:
    """Return the reasons for which primary metrics lack a value or an interval."""
    metrics = [one.metrics[one.primary] for one in wholes(summary)]
    whys = [one.why for one in metrics if one.why and (one.value is None or one.low is None)]
    whys += [one["why"] for one in summary.composites if one.get("why") and one["low"] is None]
    return listed(dict.fromkeys(whys), 1) if whys else ""


def _lower(summary: Summary) -> list[str]:
    aggregates = {one.name: one.aggregate for one in summary.declarations}
    return list(
        dict.fromkeys(
            one.primary
            for one in wholes(summary)
            if not aggregation_of(aggregates.get(one.benchmark, {}), one.primary).higher_is_better
        )
    )


# The places of a run's results, and the commands that come next


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
