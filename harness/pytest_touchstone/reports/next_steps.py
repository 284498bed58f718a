"""Advice after a run: invalid results, what may help, and the next commands.

The end of a run names those results below pytest's last line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.baseline_source import MAIN, replaced_baseline
from pytest_touchstone.compare.formats.references import SUFFIX
from pytest_touchstone.compare.gate.accepted import FILE as ACCEPTED
from pytest_touchstone.compare.gate.result import PASSING, lines_from_json
from pytest_touchstone.core.aggregation import SOFT
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.settings import SET
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document.formatting import checkpoints, place, wrapped
from pytest_touchstone.results.journal import iter_records
from pytest_touchstone.results.run_directory import command_words
from pytest_touchstone.results.summary import Result, Summary, base_name, sum_results, whole_results

FAULTS: Final = {"errors": "ended in error", "timeouts": "timed out", "lost": "never finished"}
UNUSABLE: Final = {"at_limit": "texts hit the limit of tokens", "no_answer": "texts had no answer"}
TOKENS: Final = "--eval-max-new-tokens"
JUDGE_TOKENS: Final = "--eval-set=judge_tokens"
CHAT: Final = "--eval-chat off"
LOOK: Final = "look at some of them"
ENDLESS: Final = (
    "a longer limit ends no text that repeats itself: leave the benchmark out, or look at its texts"
)
"""The remedies: an option with a number, an option, or words."""

MOST_LINES: Final = 8
"""Results that are named at the end of a run; a series of many checkpoints may have very many."""

MOST_STEPS: Final = 2

OUTPUT: Final = "results"
"""The results folder that commands take without ``--output``."""

OF_A_CHECKPOINT: Final = ("--checkpoint", "--eval-set=model_name", "--eval-set=tokenizer")
"""The options that name a checkpoint, or belong to the one that is named."""

_OF_BENCHMARK: Final = re.compile(r"benchmark \S+ |[A-Za-z_.]*(Error|Exception)\b")
"""The beginning of the message of an error that a benchmark's own code makes, each time anew."""


def invalid_results(summary: Summary) -> list[Result]:
    """Return the results that are not valid; groups only if the whole is valid."""
    wrong = {(result.checkpoint, result.benchmark) for result in whole_results(summary) if result.invalid}
    return [
        result
        for result in summary.results
        if result.invalid and (result.group is None or (result.checkpoint, result.benchmark) not in wrong)
    ]


def results_by_remedy(summary: Summary) -> dict[str, list[Result]]:
    """Return the results that are NOT VALID by remedy.

    Results of one benchmark are added up; their names list the checkpoints.
    """
    by_name: dict[str, dict[str, list[Result]]] = {}
    tokens = 0
    for result in invalid_results(summary):
        remedy, unusable = LOOK, _excessive_kinds(summary, result)
        if unusable.get("at_limit"):
            if result.repeating > unusable["at_limit"] * result.outputs:
                remedy = ENDLESS
            elif limit := _token_limit(summary, result):
                remedy, tokens = TOKENS, max(tokens, 2 * limit)
        if remedy == LOOK and "no_answer" in unusable and result.chat == result.outputs:
            remedy = CHAT
        if remedy == LOOK and result.verdicts_at_limit:
            remedy = f"{JUDGE_TOKENS}={2 * summary.manifest['settings']['judge_tokens']}"
        by_name.setdefault(remedy, {}).setdefault(result.name, []).append(result)
    remedies: dict[str, list[Result]] = {}
    for remedy, named in by_name.items():
        for name, results in named.items():
            text = f"{TOKENS} {tokens}" if remedy == TOKENS else remedy
            whole, title = results[0], _short_name(summary, results[0])
            if len(results) > 1:
                whole, title = sum_results(results, ""), f"{name} of {len(results)} checkpoints"
            remedies.setdefault(text, []).append(replace(whole, name=title))
    return remedies


def remedy_lines(summary: Summary) -> list[str]:
    """Return the results that are NOT VALID with reasons and remedies, one line per remedy."""
    lines = []
    for remedy, results in results_by_remedy(summary).items():
        texts = []
        for result in results:
            kinds = _excessive_kinds(summary, result)
            parts = [f"{getattr(result, key)} of {result.outputs} {UNUSABLE[key]}" for key in kinds]
            if "at_limit" in kinds and result.repeating:
                parts[0] += f" ({count(result.repeating, 'repeats itself', 'repeat themselves')})"
            texts.append(f"{result.name}: {', '.join(parts) or result.invalid}")
        lines.append(f"{join_names(texts, 4, between='; ')}; {remedy}")
    return lines


def invalid_paragraphs(summary: Summary, width: int) -> list[str]:
    """Return paragraphs of at most ``width`` columns on results that are invalid or incomplete.

    They are empty if all is well.
    """
    texts = [
        f"{join_names((result.name for result in results), MOST_LINES)}; {remedy}"
        for remedy, results in results_by_remedy(summary).items()
    ]
    faulty = [result for result in whole_results(summary) if result.faults]
    for result in faulty[:MOST_LINES]:
        numbers = {text: getattr(result, name) for name, text in FAULTS.items()}
        parts = [f"{number} of {result.collected} items {text}" for text, number in numbers.items() if number]
        texts.append(f"{_short_name(summary, result)}: {', '.join(parts)}; errors.log says why")
    if len(faulty) > MOST_LINES:
        texts.append(f"{len(faulty) - MOST_LINES} more; see {place(summary)}")
    return [line for text in texts for line in wrapped(f"not valid: {text}", width)]


def _excessive_kinds(summary: Summary, result: Result) -> dict[str, float]:
    """Return the kinds of unusable outputs that exceed the allowed share, with that share."""
    allowed = {declared.name: declared.most_unusable for declared in summary.declarations}
    share = allowed.get(result.benchmark, 0.0)
    return {key: share for key in UNUSABLE if getattr(result, key) > share * result.outputs}


def _short_name(summary: Summary, result: Result) -> str:
    """Return the result's name; with the checkpoint's where others have the benchmark too."""
    others = {other.checkpoint for other in summary.results if other.benchmark == result.benchmark}
    return f"{result.checkpoint} {result.name}" if len(others) > 1 else result.name


def _token_limit(summary: Summary, result: Result) -> int | None:
    """Return the token limit of a result's texts, from the settings or the first text."""
    settings = {declared.name: declared.settings for declared in summary.declarations}.get(
        result.benchmark, {}
    )
    if limit := {**summary.manifest.get("settings", {}), **settings}.get("max_new_tokens"):
        return int(limit)
    having = {"checkpoint": [result.checkpoint], "benchmark": [result.benchmark]}
    with suppress(HarnessError):  # the journal cannot be read
        records = iter_records(Path(summary.directory), kind="Generate", having=having)
        texts = (
            exchange for record in records for exchange in record.exchanges if exchange["kind"] == "Generate"
        )
        return next(map(token_limit, texts), None)
    return None


def token_limit(exchange: Mapping[str, Any]) -> int | None:
    """Return the token limit of a generated text, from its request in the journal.

    In a chat it is the request's limit for chats, if there is one.
    """
    request = exchange["request"]
    chat = exchange["answer"].get("chat") and request.get("turns_max_new_tokens")
    limit = chat or request.get("max_new_tokens")
    return int(limit) if limit else None


# The commands that come next


class NextStep(NamedTuple):
    """A command with its purpose."""

    command: str
    what: str


def next_steps(summary: Summary) -> list[NextStep]:
    """Return the commands that are likely to be wanted next, the first one most."""
    return list(_steps(summary))[:MOST_STEPS]


def _steps(summary: Summary) -> Iterator[NextStep]:
    command = command_of(summary.manifest)
    remedies = results_by_remedy(summary)
    if options := [remedy for remedy in remedies if remedy.startswith("--")]:
        others = command_of(
            summary.manifest, without=[re.split(" |=[^=]*$", option)[0] for option in options]
        )
        valid = [result.name for option in options for result in remedies[option]]
        some = f" of {join_names(valid, 3)}" if len(options) < len(remedies) else ""
        yield NextStep(f"{others} {' '.join(options)}", f"for valid results{some}")
    demonstration = summary.manifest.get("demonstration")
    benchmarks: dict[str, set[str]] = {}
    for result in whole_results(summary):
        benchmarks.setdefault(result.checkpoint, set()).add(result.benchmark)
    several = len(benchmarks) > 1 and all(
        same & benchmarks[result.checkpoint] for same in benchmarks.values()
    )
    compares = several and summary.gate is None and not demonstration
    if compares and not summary.faults:
        yield from _steps_for_several(summary)
    useless = [result for remedy in (LOOK, ENDLESS) for result in remedies.get(remedy, ())]
    if names := list(
        {base_name(result.benchmark) for result in useless if _excessive_kinds(summary, result)}
    ):
        which = ["--benchmark", *names] if len(names) == 1 else []
        step = shlex.join(["touchstone", "items", place(summary), *which, "--invalid"])
        yield NextStep(step, "the texts that are of no use")
    from_benchmark = [_OF_BENCHMARK.match(fault["message"]) is not None for fault in summary.faults]
    if any(from_benchmark):  # the same command would fail again
        step = shlex.join(["touchstone", "items", place(summary), "--error"])
        yield NextStep(step, "what to mend; the same command then asks these alone")
    if not all(from_benchmark):
        yield NextStep(command, "asks only what has no score yet")
    if summary.manifest.get("settings", {}).get("shard"):
        folder = shlex.quote(str(Path(place(summary)).parent))
        yield NextStep(f"touchstone merge {folder}", "joins all shards, when they have ended")
    elif demonstration:
        yield NextStep(demonstration["own"], "your own checkpoint, all rows")
    elif summary.gate is not None and not summary.faults and summary.results:
        yield from steps_after_gate(summary)
    elif summary.faults or not summary.results or compares:
        return
    elif summary.changes:
        yield NextStep(f"{command} --gate", "a verdict against the best so far")
    else:
        others = command_of(summary.manifest, without=OF_A_CHECKPOINT)
        yield NextStep(f"{others} --checkpoint NEW --gate", "a verdict on a new checkpoint")


def _steps_for_several(summary: Summary) -> Iterator[NextStep]:
    """Yield the steps that compare checkpoints: two by their differences, more by ranking and curves."""
    if len(checkpoints(summary)) == 2 or not summary.leaders:
        yield NextStep(_touchstone(summary, "compare"), "what can be said of their differences")
    else:
        yield NextStep(_touchstone(summary, "best"), "benchmark by benchmark, and what it is told apart from")
    series = [row.get("series") for row in summary.checkpoints if row.get("series")]
    if any(series.count(name) > 2 for name in series):
        yield NextStep(_touchstone(summary, "study"), "curves, peaks, and what to do next")


def steps_after_gate(summary: Summary) -> Iterator[NextStep]:
    """Yield the steps after a failed gate: inspect the drop, or accept it."""
    gate = summary.gate or {}
    lines = lines_from_json(gate)
    for line in lines:
        if line.fails and line.against is not None:
            run = line.against.run_id
            # References are known by the name of their file, and found by its path.
            before = gate["baseline"] if run.endswith(SUFFIX) else f"{run}#{line.against.checkpoint}"
            sides = [before, f"{summary.run_id}#{line.checkpoint}"]
            yield NextStep(
                _touchstone(summary, "compare", *sides, "--show-flips", "3"), "items gained and lost"
            )
            break
    if red := list(dict.fromkeys(line.benchmark for line in lines if line.fails and not line.invalid)):
        named = [word for name in red for word in ("--benchmark", name)]
        accept = _touchstone(summary, "accept", summary.run_id, *named)
        yield NextStep(f'{accept} --because "..."', f"accepts the drop; commit {ACCEPTED}")
    elif gate.get("decision") in PASSING:
        unsure = {(line.checkpoint, line.benchmark) for line in lines if line.kind == "inconclusive"}
        soft = any(
            SOFT in result.metrics
            for result in summary.results
            if (result.checkpoint, result.benchmark) in unsure
        )
        if soft and SOFT not in (line.metric for line in lines):
            command = command_of(summary.manifest)
            yield NextStep(f"{command} --eval-set gate_metric=soft", "may tell by the same items")
        *others, name = checkpoints(summary)
        which = ["--checkpoint", name] if others else []
        scored = {result.benchmark: result.scored for result in summary.results if result.checkpoint == name}
        as_good = bool(lines) and all(line.kind in ("not worse", "better") for line in lines)
        # Unless the baseline has items that this run lacks.
        if as_good and not replaced_baseline(Path(summary.directory).parent, MAIN, scored)[1]:
            command = _touchstone(summary, "baseline", "set", summary.run_id, *which)
            yield NextStep(command, "makes this run the baseline main")


def resume_text(scored: int, of: int, manifest: Mapping[str, Any], word: str = "stopped") -> str:
    """Return how far a stopped run came, and the command that resumes the run."""
    # Without what would stop it again, or ask everything again.
    command = command_of(manifest, flags=("-x", "--exitfirst", "--eval-no-cache"), without=("--maxfail",))
    return f"{word}: {scored:,} of {of:,} scored and kept; go on: {command}"


def command_of(
    manifest: Mapping[str, Any], without: Collection[str] = (), flags: Collection[str] = ()
) -> str:
    """Return the command line of a run, without its id and without the given options."""
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


def _touchstone(summary: Summary, command: str, *words: str) -> str:
    """Return a touchstone command on a run, with ``--output`` for another results folder."""
    folder = Path(place(summary)).parent
    output = [] if str(folder) == OUTPUT else ["--output", str(folder)]
    return shlex.join(["touchstone", command, *(words or (summary.run_id,)), *output])
