"""Sentences about a run that are printed below its tables.

They say what became of items, outputs and programs, what answering took, and what must be known before the numbers
are believed. Each function returns one line per fact; with many checkpoints, facts are added up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from pytest_touchstone.checkpoints.fingerprint import WEAK
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.dataset import HUB
from pytest_touchstone.core.eval_config import as_line
from pytest_touchstone.core.marks import PICKS
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document.formatting import checkpoints, duration, not_counted, shown_metrics
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.reports.validity import invalid_results
from pytest_touchstone.results.summary import Result, Summary, added_up, totals, wholes
from pytest_touchstone.results.usage import Usage

_BRACKETS: Final = re.compile(r" \(([^\s()]+)\)")

ALL_ROWS: Final = "all rows: --eval-data hub, or a folder that has them"

SINGLY: Final = 3
"""Up to this many checkpoints have a line each; more are added up."""


def demonstration(summary: Summary) -> list[str]:
    """Return the line of a demonstration, with the commands for all rows and for a checkpoint of one's own."""
    told = summary.manifest.get("demonstration")
    return [as_line(told)] if told else []


def invalid(summary: Summary) -> list[str]:
    """Return the results that must not be believed, with the reason; groups only if the whole is valid."""
    return [f"{_name(summary, one)} is NOT VALID: {one.invalid}" for one in invalid_results(summary)]


def unsandboxed(summary: Summary) -> list[str]:
    """Return the results of programs that ran without isolation."""
    return [
        f"{_name(summary, one)} is UNSANDBOXED: its programs ran without isolation"
        for one in wholes(summary)
        if one.unsandboxed
    ]


def missing_modules(summary: Summary) -> list[str]:
    """Return the results with programs that import what the sandbox does not have, with the modules."""
    return [
        f"{_name(summary, one)}: {missing_modules_text(one.missing_modules)}"
        for one in _together(wholes(summary))
        if one.missing_modules
    ]


def missing_modules_text(programs: Mapping[str, int]) -> str:
    """Return the number of programs that import a module which the sandbox lacks, and the names of the modules."""
    number = sum(programs.values())
    text = "program imports" if number == 1 else "programs import"
    return f"{number:,} {text} what the sandbox lacks: {listed(programs, 4)}"


def weak_tests(summary: Summary) -> list[str]:
    """Return the tasks of each benchmark whose tests accept programs that are wrong; the same for all checkpoints."""
    lines = []
    for benchmark in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = [one for one in wholes(summary) if one.benchmark == benchmark]
        tasks = {task: accepted for one in same for task, accepted in one.weak_tests.items()}
        if not tasks:
            continue
        kinds = dict.fromkeys(name for accepted in tasks.values() for name in accepted)
        names = listed((task.removeprefix(f"{benchmark}/") for task in tasks), 4)
        most = max(one.scored for one in same)
        of = f"{len(tasks)} of {count(most, 'task')}"
        lines.append(f"{benchmark}: the tests of {of} accept {' or '.join(kinds)}: {names}")
    return lines


def unanswered(summary: Summary) -> list[str]:
    """Return the results with texts that ended before an answer, with the score over both numbers of items."""
    lines = []
    for one in wholes(summary):
        if not one.unanswered or one.answered is None:
            continue
        whole, answered = one.metrics[one.primary], one.answered
        values = [
            f"{'none' if metric.value is None else f'{metric.value:.4g}'} over {text}"
            for metric, text in (
                (whole, f"all {count(whole.n, 'item')}"),
                (answered, f"the {answered.n} with an answer"),
            )
        ]
        outputs, over = count(one.outputs, "output"), f"{one.primary} {', '.join(values)}"
        if not one.trace_only:
            why = (
                f"no answer (limit) in {one.unanswered} of {outputs}, which are empty at the limit of tokens"
            )
        else:
            why = (
                f"no answer in {one.unanswered} of {outputs}, {one.unanswered - one.trace_only} empty at the limit of "
                f"tokens and {one.trace_only} with a reasoning alone"
            )
        lines.append(f"{_name(summary, one)}: {why}: {over}")
    return lines


def traces(summary: Summary) -> list[str]:
    """Return the results whose texts seem to have a reasoning that is scored as if it were part of the answer."""
    return [
        f"{_name(summary, one)}: a reasoning seems to stand in {one.traces_seen} of {count(one.outputs, 'text')}, and "
        "is scored with them; --eval-set think_end=TOKEN names the token after which the answer comes"
        for one in wholes(summary)
        if one.traces_seen
    ]


def unsampled(summary: Summary) -> list[str]:
    """Return that samples were asked for, and no benchmark has any texts."""
    samples = summary.manifest.get("settings", {}).get("samples") or 1
    if samples == 1 or any(one.outputs or not one.scored for one in wholes(summary)):
        return []
    return [f"--eval-samples {samples} has no effect: no benchmark of this run asks for texts"]


def other_prompts(summary: Summary) -> list[str]:
    """Return the benchmarks whose few-shot examples were drawn as another harness does, but not from all its rows."""
    found: dict[str, list[str]] = {}
    for one in wholes(summary):
        part = one.dataset.rows != one.published or "part" in one.few_shot
        if one.pick is not None and one.pick not in PICKS and part:
            found.setdefault(one.pick, []).append(one.benchmark)
    return [
        f"{listed(dict.fromkeys(names), 4)}: few-shot examples drawn as {pick} draws them, but from part of its rows: "
        "its published runs have other prompts (--eval-data hub has all rows)"
        for pick, names in found.items()
    ]


def warnings(summary: Summary) -> list[str]:
    """Return the facts that a reader must know before believing the numbers."""
    found = [*invalid(summary), *unanswered(summary), *traces(summary), *unsandboxed(summary)]
    found += [*weak_tests(summary), *missing_modules(summary), *other_prompts(summary), *unsampled(summary)]
    found += [text] if (text := cut(summary)) else []
    return [*found, *journal(summary), *engines(summary), *slow_ways(summary)]


def short_of_limit(summary: Summary) -> list[str]:
    """Return where a limit asks for more rows than are here, though more were published: a line per limit."""
    if summary.manifest.get("demonstration"):
        return []
    run = summary.manifest.get("settings", {}).get("limit")
    limits = {
        declaration.name: declaration.settings.get("limit", run) for declaration in summary.declarations
    }
    short = [result for result in summary.results if _lacks_rows(result, limits.get(result.benchmark, run))]
    sizes = {result.benchmark: result.of for result in wholes(summary)}
    names: dict[int, dict[int, list[str]]] = {}
    for name in dict.fromkeys(result.benchmark for result in short):
        names.setdefault(limits.get(name, run), {}).setdefault(sizes[name], []).append(name)
    lines = []
    for limit, by_size in names.items():
        here = listed([f"{size:,} of {listed(same, 4)}" for size, same in by_size.items()], 4, between="; ")
        lines.append(f"{limit:,} rows, but here are {here}; {ALL_ROWS}")
    return lines


def _lacks_rows(result: Result, limit: object) -> bool:
    """Return whether a limit asks for more published rows than are here."""
    if not isinstance(limit, int) or not result.published or result.dataset.origin == HUB:
        return False
    return result.of < min(limit, result.published)


def cut(summary: Summary) -> str:
    """Return the number of requests whose context was cut; empty for none."""
    number = totals(summary)["truncated"]
    were = "request was" if number == 1 else "requests were"
    return f"{number:,} {were} longer than the checkpoint takes: context was cut" if number else ""


def journal(summary: Summary) -> list[str]:
    """Return a note on records of items that the run did not select."""
    noun = count(summary.uncollected, "record")
    text = f"{noun} in the journal of items that this run did not select: left out"
    return [text] if summary.uncollected else []


def engines(summary: Summary) -> list[str]:
    """Return the notes of engines, and checkpoints of which they gave no fingerprint."""
    failed = {one["name"] for one in summary.failed_to_load}
    unknown = [row["name"] for row in summary.checkpoints if row.get("fingerprint", "") is None]
    names = [name for name in unknown if name not in failed]
    text = f"{listed(names, 4)}: no fingerprint from its engine, so no answer is taken from the cache"
    weak = [row["name"] for row in summary.checkpoints if str(row.get("fingerprint")).startswith(WEAK)]
    served = (
        f"{listed(weak, 4)}: known by what the server says of it alone (a weak fingerprint), so no answer of a "
        "complete run is taken from the cache; --eval-set reuse_served takes them"
    )
    found = (note for row in summary.effort for note in row.engine.get("notes", ()))
    return [*([text] if names else []), *([served] if weak else []), *dict.fromkeys(found)]


def slow_ways(summary: Summary) -> list[str]:
    """Return the slow ways that checkpoints had to take, with reasons and costs over all processes.

    There is one line per checkpoint and way; with many checkpoints one per way.
    """
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in summary.effort:
        for one in row.engine.get("slow", ()):
            found.setdefault(one["way"], []).append((row.checkpoint, one))
    lines = []
    for way, costs in found.items():
        names = list(dict.fromkeys(name for name, _ in costs))
        if len(names) > SINGLY:
            lines.append(_slow_way(count(len(names), "checkpoint"), way, [one for _, one in costs]))
            continue
        lines += [_slow_way(name, way, [one for who, one in costs if who == name]) for name in names]
    return lines


def _slow_way(name: str, way: str, costs: Sequence[Mapping[str, Any]]) -> str:
    what, unit = SLOW_WAYS[way]
    computed, enough = (sum(one[part] for one in costs) for part in ("computed", "enough"))
    return (
        f"{name}: {what}, which is slow ({listed(dict.fromkeys(one['reason'] for one in costs), 1)}): "
        f"{computed:,} {unit} computed where about {enough:,} would do, {computed / max(1, enough):.1f} times as many"
    )


def failed_to_load(summary: Summary) -> list[str]:
    """Return the checkpoints that failed to load, with the reason, one line each."""
    return [f"{one['name']} failed to load: {one['message']}" for one in summary.failed_to_load]


def reasons(summary: Summary) -> list[str]:
    """Return the reasons for which metrics have no value or no interval, one line each."""
    found: dict[str, list[str]] = {}
    for result in summary.results:
        for metric in shown_metrics(result):
            if metric.why:
                found.setdefault(metric.why, []).append(f"{result.name} {metric.name}")
    return [f"{why}: {listed(dict.fromkeys(names), 4)}" for why, names in found.items()]


def directions(summary: Summary) -> list[str]:
    """Return the benchmarks with metrics of which lower is better, a line for those with the same ones; none if higher
    is better for all."""
    aggregates = {one.name: one.aggregate for one in summary.declarations}
    found: dict[str, list[str]] = {}
    for result in wholes(summary):
        aggregate = aggregates.get(result.benchmark, {})
        lower = [name for name in result.metrics if not aggregation_of(aggregate, name).higher_is_better]
        if lower:
            found.setdefault(", ".join(lower), []).append(result.benchmark)
    return [
        f"{listed(dict.fromkeys(names), 4)}: lower is better for {lower}" for lower, names in found.items()
    ]


def items(summary: Summary) -> str:
    """Return the counts of the run's items by outcome, in one line."""
    found = totals(summary)
    parts = [f"{found['scored']:,} scored", *not_counted(found["skipped"], found["xfailed"])]
    words = {"errors": "error", "timeouts": "timeout", "lost": "lost"}
    for name, word in words.items():
        if number := found[name]:
            parts.append(f"{number} {word}" if name == "lost" else count(number, word))
    return ", ".join(parts) + (f" in {duration(summary.seconds)}" if summary.seconds else "")


def faults(summary: Summary) -> list[tuple[str, str]]:
    """Return status and text of each fault, one line per message: the item, or how many and the first of them.

    The item's own id is left out of its message.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for fault in summary.faults:
        first = (fault["message"].strip().splitlines() or [""])[0]
        named = _BRACKETS.search(first)
        own = named is not None and fault["item"].removesuffix("]").endswith(named[1])
        plain = _BRACKETS.sub("", first, count=1) if own else first
        found.setdefault((fault["status"], plain), []).append(fault["item"])
    return [
        (status, f"{names[0] if len(names) == 1 else f'{len(names)} items, first {names[0]}'}: {message}")
        for (status, message), names in found.items()
    ]


def left_out(summary: Summary) -> list[str]:
    """Return the reasons for which benchmarks were left out, one line each: ``NAME, NAME: reason``."""
    found: dict[str, list[str]] = {}
    for line in summary.deselected:
        name, _, reason = line.partition(": ")
        found.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {why}" if why else ", ".join(names) for why, names in found.items()]


def reused(summary: Summary) -> list[str]:
    """Return the items that earlier runs had scored already, one line per benchmark."""
    lines = []
    for name in dict.fromkeys(one.benchmark for one in wholes(summary)):
        found = [one for one in wholes(summary) if one.benchmark == name and one.reused]
        if not found:
            continue
        whole = [one for one in found if one.reused == one.collected]
        parts = [f"{name} of {count(len(whole), 'checkpoint')}"] if whole else []
        parts += [
            f"{one.reused} of {count(one.collected, 'item')} of {name} of {one.checkpoint}"
            for one in found
            if one.reused != one.collected
        ]
        runs = sorted({run for one in found for run in one.reused_from})
        lines.append(f"{listed(parts, 4)}, from {listed(runs, 4)}")
    return lines


def generated(summary: Summary) -> list[str]:
    """Return the counts of each benchmark's generated texts: by chat template or not, cut off, empty, without an
    answer."""
    found = []
    for one in _together(wholes(summary)):
        if not one.outputs:
            continue
        chat = {0: "as plain text", one.outputs: "through the chat template"}
        parts = [
            f"{count(one.outputs, 'output')} {chat.get(one.chat, 'partly through the chat template')}",
            f"{one.at_limit} ended at the limit",
            f"{one.no_answer} without an answer",
            f"{one.empty} empty",
        ]
        if one.reasoned:
            parts.append(
                f"{one.reasoned} after a reasoning, of {count(one.reasoning_tokens, 'token')} in all"
            )
        found.append(f"{_name(summary, one)}: {', '.join(parts)}")
    return found


def judged(summary: Summary) -> list[str]:
    """Return who has judged, how often, and how often there was no verdict."""
    whole = wholes(summary)
    number, without, cut = (
        sum(getattr(result, name) for result in whole)
        for name in ("judged", "no_verdict", "verdicts_at_limit")
    )
    judge = summary.manifest.get("judge") or {}
    if not number or not judge:
        return []
    own = [row["name"] for row in summary.checkpoints if row.get("fingerprint") == judge["fingerprint"]]
    remedy = "raise --eval-set judge_tokens, or the judge's context"
    return [
        f"{judge['name']} ({judge['fingerprint'][:12]}): {count(number, 'verdict')} asked, {without} not given",
        *([f"{count(cut, 'verdict')} cut at the limit of tokens: {remedy}"] if cut else []),
        *(f"{name} judges its own answers" for name in own),
    ]


def programs(summary: Summary) -> list[str]:
    """Return the counts of each benchmark's programs by outcome."""
    return [
        f"{_name(summary, one)}: {count(sum(one.programs.values()), 'program')}, "
        + ", ".join(f"{number} {outcome}" for outcome, number in one.programs.items())
        for one in _together(wholes(summary))
        if one.programs
    ]


def _name(summary: Summary, result: Result) -> str:
    """Return the result's name; with several checkpoints, with the checkpoint's."""
    several = len(checkpoints(summary)) > 1
    return f"{result.checkpoint}, {result.name}" if several else result.name


def _together(results: Sequence[Result]) -> list[Result]:
    """Return the results as they are; those of many checkpoints added up for each benchmark."""
    if len({result.checkpoint for result in results}) <= SINGLY:
        return list(results)
    by_benchmark: dict[str, list[Result]] = {}
    for result in results:
        by_benchmark.setdefault(result.benchmark, []).append(result)
    return [added_up(same, count(len(same), "checkpoint")) for same in by_benchmark.values()]


def usage(summary: Summary) -> list[str]:
    """Return the usage of each checkpoint's engine over all processes: tokens, padding, start-up, memory."""
    found: dict[str, list[Usage]] = {}
    for row in summary.effort:
        if row.engine:
            found.setdefault(row.checkpoint, []).append(row)
    if len(found) > SINGLY:
        return [f"{len(found)} checkpoints: {_usage([row for rows in found.values() for row in rows])}"]
    prefix = len(found) > 1
    return [(f"{name}: " if prefix else "") + _usage(rows) for name, rows in found.items()]


def _usage(rows: Sequence[Usage]) -> str:
    asked = [row.engine for row in rows if "requests" in row.engine]
    if len(asked) == len(rows):
        return _asked(asked)
    tokens = sum(row.engine.get("tokens", 0) for row in rows)
    padding = sum(row.engine.get("padding", 0) for row in rows)
    parts = [f"{tokens:,} tokens computed, {100 * padding / max(1, tokens):.1f} % padding"]
    if starts := [row.first_answer for row in rows if row.first_answer is not None]:
        parts.append(f"first answers after {min(starts):.1f} s")
    if peaks := [row.peak_bytes for row in rows if row.peak_bytes is not None]:
        each = " per process" if len({row.who for row in rows}) > 1 else ""
        parts.append(f"{max(peaks) / 2**30:.2f} GiB at most{each}")
    return "; ".join([*parts, *_speculation(rows)])


def _asked(engines: Sequence[Mapping[str, Any]]) -> str:
    """Return what asking a server has cost."""
    requests, retries, prompt, new = (
        sum(one[name] for one in engines)
        for name in ("requests", "retries", "prompt_tokens", "completion_tokens")
    )
    again = f" ({retries:,} of them again)" if retries else ""
    parts = [f"{requests:,} requests{again}", f"{prompt:,} prompt and {new:,} new tokens at the server"]
    if costs := [one["cost"] for one in engines if "cost" in one]:
        parts.append(f"cost {sum(costs):,.4f} (--eval-set price)")
    return "; ".join(parts)


def _speculation(rows: Sequence[Usage]) -> list[str]:
    """Return the share of tokens from speculative decoding, their mean number per pass, and each head's accuracy."""
    found = [row.engine["speculative"] for row in rows if "speculative" in row.engine]
    lengths, asked, right = (  # however long the tables are
        [sum(column) for column in zip_longest(*(one[name] for one in found), fillvalue=0)]
        for name in ("lengths", "asked", "right")
    )
    if not sum(lengths):
        return []
    came = sum(length * number for length, number in enumerate(lengths, 1))
    mean = came / sum(lengths)
    decoded = sum(row.engine.get("decoded", 0) for row in rows)
    shares = [f"{100 * good / max(1, all_):.0f}" for good, all_ in zip(right, asked, strict=True)]
    heads = f"; heads 1 to {len(shares)} right in {', '.join(shares)} %" if shares else ""
    part = f" for {100 * came / decoded:.0f} % of the tokens" if decoded else ""
    return [f"speculative decoding{part}, {mean:.2f} tokens per pass{heads}"]
