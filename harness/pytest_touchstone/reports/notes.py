"""Sentences about a run that stand below its tables.

They say what became of items, outputs and programs, what answering took, and what must be known before the numbers
are believed. Each function returns one line per fact, and those at the top make sections of them; with many
checkpoints, facts are added up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.fingerprint import WEAK
from pytest_touchstone.compare.formats import korean_mlm
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.coverage import PICKS
from pytest_touchstone.core.dataset import HUB
from pytest_touchstone.core.eval_config import LEFT_OUT
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Facts, Section
from pytest_touchstone.document.formatting import (
    checkpoints,
    dataset_line,
    duration,
    not_counted,
    number,
    shown_metrics,
)
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.reports.next_steps import invalid_results, remedy_lines
from pytest_touchstone.results.summary import Result, Summary, count_items, sum_results, whole_results
from pytest_touchstone.results.usage import Usage

NAMED: Final = 4
"""Names before "and N more"."""

SINGLY: Final = 3
"""Up to this many checkpoints have a line each; more are added up."""

ALL: Final = 1000
"""More texts than a label has."""

FAULTS_SHOWN: Final = 5

REASONS: Final = 6
"""Lines about benchmarks that were left out."""

SHORT: Final = 100
"""Characters of what helps where a benchmark was left out; what is longer is left to ``-v``."""

_BRACKETS: Final = re.compile(r" \(([^\s()]+)\)")
_ASIDE: Final = re.compile(r" \([^)]*\)")


def facts_section(
    key: str,
    facts: Iterable[tuple[str, Sequence[str], int]],
    *,
    details: bool,
    title: str = "",
    **options: Any,
) -> Section:
    """Return a section of labelled lines.

    Args:
        key: The name of the section.
        facts: Labels with their texts, and the number of texts that a brief report joins to a line.
        details: Whether each text has a line of its own.
        title: The title where a form shows titles.
        **options: Other fields of the section.

    """
    rows = tuple(
        (label, text)
        for label, lines, most in facts
        for text in (lines if details else [join_names(lines, most, between="; ")] if lines and most else ())
    )
    return Section(key=key, title=title, parts=(Facts(rows),) * bool(rows), **{"rank": 2, **options})


def items_section(summary: Summary, *, details: bool) -> Section:
    """Return the counts of items by outcome, and with details when the run began."""
    text, began = item_counts(summary), summary.manifest.get("began")
    if details and isinstance(began, int | float):
        text += time.strftime(", begun on %Y-%m-%d at %H:%M:%S", time.localtime(began))
    return facts_section("items", [("items", [text], 1)], details=details)


def failed_section(summary: Summary) -> Section:
    """Return the checkpoints that failed to load."""
    rows = [("failed", failed_to_load(summary), ALL)]
    return facts_section("failed", rows, details=True, rank=3, urgent=True)


def warnings_section(summary: Summary, *, details: bool) -> Section:
    """Return what a reader should know before the numbers."""
    number = count_items(summary)["truncated"]
    were = "request was" if number == 1 else "requests were"
    cut = f"{number:,} {were} longer than the checkpoint takes: context was cut"
    names = dict.fromkeys(result.benchmark for result in whole_results(summary) if result.unsandboxed)
    unsafe = [f"{join_names(names, NAMED)}: programs ran without isolation"] * bool(names)
    rows = [
        ("cut", [cut] * bool(number), 1),
        ("joins", joined_requests(summary), 1),
        ("no answer", unanswered_texts(summary), ALL),
        ("reasoning", scored_reasoning(summary), ALL),
        ("weak tests", weak_tests(summary), 2),
        ("modules", missing_modules(summary), ALL),
        ("slow", slow_ways(summary), 2),
        ("prompts", other_prompts(summary), ALL),
        ("samples", missing_samples(summary), ALL),
        ("chat", plain_likelihoods(summary), ALL),
        ("note", engine_notes(summary), 1),
        ("no sandbox", unsafe, ALL),
        *((("not valid", invalid_lines(summary), ALL),) if details else ()),
        *(("not valid", [line], ALL) for line in remedy_lines(summary)),
    ]
    lines = sum(len(texts) for _, texts, _ in rows)
    title = f"Before you trust these numbers ({lines})"
    return facts_section("warnings", rows, details=details, title=title, rank=3, urgent=True, folded=True)


def data_section(summary: Summary, *, details: bool) -> Section:
    """Return the datasets, the formulas of composites, and which part of the data was asked."""
    rows = [
        ("answers", answer_files(summary), ALL),
        ("data", _data(summary), 0),
        ("composite", _formulas(summary), 0),
        ("best", _best_by_korean_scores(summary), 0),
        ("metrics", lower_is_better(summary), 0),
        ("limit", short_of_limit(summary), ALL),
        ("part", _parts(summary), ALL),
    ]
    return facts_section("data", rows, details=details, title="Data", folded=True)


def costs_section(summary: Summary, *, details: bool) -> Section:
    """Return the numbers of reused scores, texts, verdicts and programs, and the usage of engines."""
    rows = [
        ("reused", reused_scores(summary)[: None if details else 1], 1),
        ("outputs", text_counts(summary), 0),
        ("judge", judge_counts(summary), ALL),
        ("programs", program_counts(summary), 0),
        ("usage", usage(summary), 0),
    ]
    return facts_section("costs", rows, details=details, title="Outputs and costs", folded=True)


def left_out_section(summary: Summary, *, details: bool) -> Section:
    """Return the benchmarks and metrics without a value."""
    undefined = [("undefined", undefined_metrics(summary), ALL)] if details else []
    lines = left_out(summary) if details else _left_out_in_brief(summary)
    rows = [*undefined, *(("left out", [line], ALL) for line in lines)]
    return facts_section("left_out", rows, details=details, title="Left out")


def faults_section(summary: Summary) -> Section:
    """Return the messages of items without a score; reports never shorten them further."""
    messages = faults(summary)
    rows = [(status, [text], ALL) for status, text in messages[:FAULTS_SHOWN]]
    if (rest := len(messages) - FAULTS_SHOWN) > 0:
        rows.append(("", [f"and {count(rest, 'other message')}, in errors.log"], ALL))
    return facts_section("faults", rows, details=True, title="Faults", rank=3)


def joined_requests(summary: Summary) -> list[str]:
    """Return a line for each task of lm-evaluation-harness that it scores otherwise, by its tokens."""
    return [
        f"{_name(summary, result)}: lm-evaluation-harness scores {count(result.joins, 'request')} otherwise: it leaves "
        "out a token that begins in the context, and scores the BOS that a tokenizer puts before a whole text"
        for result in whole_results(summary)
        if result.joins and result.benchmark.startswith(LM_EVAL_PREFIX)
    ]


# What was asked


def _data(summary: Summary) -> list[str]:
    """Return the dataset of each benchmark, and the marks of its values."""
    lines = []
    for name, results in _by_benchmark(whole_results(summary)).items():
        marks = dict.fromkeys(result.mark for result in results if result.mark)
        lines.append(f"{name}: {'; '.join([*marks, dataset_line(results[0].dataset)])}")
    return lines


def answer_files(summary: Summary) -> list[str]:
    """Return which harness's answers were scored, and which rows of the file, if a file gave them."""
    lines = []
    for row in summary.checkpoints:
        if answers := row.get("answers"):
            asked = ", ".join(f"{name} {value}" for name, value in answers["asked"].items())
            how = f"; asked with {asked}" if asked else ""
            file = f"{Path(answers['file']).name} (sha256 {answers['sha256'][:12]})"
            lines.append(
                f"{row['name']}: {answers['kind']}, {file}{how}; how else they were asked is not known"
            )
            lines += answers.get("matched", {}).values()
    return lines


def _formulas(summary: Summary) -> list[str]:
    """Return the formula of each composite, and the marks of its values."""
    marks: dict[str, dict[str, None]] = {}
    for row in summary.composites:
        if row.get("formula"):
            marks.setdefault(f"{row['name']} = {row['formula']}", {})[row.get("mark") or ""] = None
    return ["; ".join(filter(None, (formula, *texts))) for formula, texts in marks.items()]


def _best_by_korean_scores(summary: Summary) -> list[str]:
    """Return the best of several checkpoints by each Korean score."""
    return [
        f"{key}: {top['checkpoint']} of {top['of']}, {number(top['value'])}, standard error {number(top['stderr'])}"
        for key, top in korean_mlm.best(korean_mlm.rows(summary)).items()
        if top["of"] > 1
    ]


def lower_is_better(summary: Summary) -> list[str]:
    """Return the metrics for which lower is better, with their benchmarks."""
    aggregates = {declared.name: declared.aggregate for declared in summary.declarations}
    benchmarks: dict[str, list[str]] = {}
    for result in whole_results(summary):
        aggregate = aggregates.get(result.benchmark, {})
        lower = [name for name in result.metrics if not aggregation_of(aggregate, name).higher_is_better]
        if lower:
            benchmarks.setdefault(", ".join(lower), []).append(result.benchmark)
    return [f"{_distinct(names)}: lower is better for {lower}" for lower, names in benchmarks.items()]


def missing_samples(summary: Summary) -> list[str]:
    """Return a warning if samples were requested but no benchmark generates texts."""
    samples = summary.manifest.get("settings", {}).get("samples") or 1
    if samples == 1 or any(result.outputs or not result.scored for result in whole_results(summary)):
        return []
    return [f"--eval-samples {samples} has no effect: no benchmark of this run asks for texts"]


def plain_likelihoods(summary: Summary) -> list[str]:
    """Return a warning if a chat was asked for, but likelihoods were, which are of plain text."""
    settings = summary.manifest.get("settings", {})
    given = {
        "--eval-chat on": settings.get("chat") == "on",
        "--eval-set system": bool(settings.get("system")),
    }
    options = ", ".join(option for option, is_given in given.items() if is_given)
    results = (result for result in whole_results(summary) if result.scored and not result.outputs)
    names = _distinct(result.benchmark for result in results) if options else ""
    return [f"{names}: asked in plain text; likelihoods have no chat ({options})"] * bool(names)


def other_prompts(summary: Summary) -> list[str]:
    """Return the benchmarks with few-shot examples drawn as another harness does, but from fewer rows."""
    benchmarks: dict[str, list[str]] = {}
    for result in whole_results(summary):
        partly = result.dataset.rows != result.published or "part" in result.few_shot
        if result.pick is not None and result.pick not in PICKS and partly:
            benchmarks.setdefault(result.pick, []).append(result.benchmark)
    return [
        f"{_distinct(names)}: few-shot examples drawn as {pick} draws them, but from part of its rows: "
        "its published runs have other prompts (--eval-data hub has all rows)"
        for pick, names in benchmarks.items()
    ]


def short_of_limit(summary: Summary) -> list[str]:
    """Return a line for each limit above the number of local rows, if more were published."""
    if summary.manifest.get("demonstration"):
        return []
    of_run = summary.manifest.get("settings", {}).get("limit")
    limits = {declared.name: declared.settings.get("limit", of_run) for declared in summary.declarations}
    sizes = {result.benchmark: result.of for result in whole_results(summary)}
    names: dict[int, dict[int, dict[str, None]]] = {}
    for result in summary.results:
        limit = limits.get(result.benchmark, of_run)
        if not isinstance(limit, int) or not result.published or result.dataset.origin == HUB:
            continue
        if result.of < min(limit, result.published):
            names.setdefault(limit, {}).setdefault(sizes[result.benchmark], {})[result.benchmark] = None
    lines = []
    for limit, by_size in names.items():
        here = join_names(
            [f"{size:,} of {join_names(same, NAMED)}" for size, same in by_size.items()], between="; "
        )
        lines.append(
            f"{limit:,} rows, but here are {here}; all rows: --eval-data hub, or a folder that has them"
        )
    return lines


def _parts(summary: Summary) -> list[str]:
    """Return the benchmarks that --eval-tasks restricts to some groups, with the groups."""
    terms = ",".join(map(str, summary.manifest.get("settings", {}).get("tasks") or ())).split(",")
    lines = []
    for name, results in _by_benchmark(summary.results).items():
        groups = [str(result.group) for result in results if result.group]
        if groups and any(term.strip().startswith(f"{name}/") for term in terms):
            lines.append(f"{name}: {_distinct(groups)} alone")
    return lines


def left_out(summary: Summary) -> list[str]:
    """Return the reasons for which benchmarks were left out, one line each: ``NAME, NAME: reason``."""
    names: dict[str, list[str]] = {}
    for line in summary.deselected:
        name, _, reason = line.partition(": ")
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(same)}: {reason}".removesuffix(": ") for reason, same in names.items()]


def _left_out_in_brief(summary: Summary) -> list[str]:
    """Return the benchmarks without a result, grouped by reason, with a short remedy.

    Benchmarks that were left out for a checkpoint without any result are among them.
    """
    asked = {result.benchmark for result in whole_results(summary)}
    # Of several reasons the last: that a kind of checkpoint cannot be asked comes before data that is not there.
    reasons = {
        name: reason
        for name, _, reason in (line.partition(": ") for line in summary.deselected)
        if name not in asked or not any(checkpoint in reason for checkpoint in checkpoints(summary))
    }
    names: dict[str, list[str]] = {}
    remedies: dict[str, set[str]] = {}
    for name, reason in reasons.items():
        why, _, remedy = reason.partition("; ")
        why = (
            why.removeprefix(LEFT_OUT)
            if "nearest: " in remedy
            else _ASIDE.sub("", why.removeprefix(LEFT_OUT))
        )
        names.setdefault(why, []).append(name)
        remedies.setdefault(why, set()).add(remedy)
    lines = []
    for why, same in names.items():
        remedy = min(remedies[why]) if len(remedies[why]) == 1 else ""
        if len(remedy) > SHORT or len(remedies[why]) > 1:
            remedy = "-v says what helps"
        lines.append(
            "; ".join(filter(None, (f"{join_names(same, NAMED)}: {why}".removesuffix(": "), remedy)))
        )
    return lines if len(lines) <= REASONS + 1 else [*lines[:REASONS], "and others; -v names them"]


# What became of it


def item_counts(summary: Summary) -> str:
    """Return the counts of the run's items by outcome, in one line."""
    numbers = count_items(summary)
    parts = [f"{numbers['scored']:,} scored", *not_counted(numbers["skipped"], numbers["xfailed"])]
    parts += [count(numbers[f"{word}s"], word) for word in ("error", "timeout") if numbers[f"{word}s"]]
    parts += [f"{numbers['lost']} lost"] if numbers["lost"] else []
    return ", ".join(parts) + (f" in {duration(summary.seconds)}" if summary.seconds else "")


def reused_scores(summary: Summary) -> list[str]:
    """Return the numbers of scores reused from earlier runs, in total and by benchmark."""
    lines = []
    for name, results in {"": whole_results(summary), **_by_benchmark(whole_results(summary))}.items():
        if number := sum(result.reused for result in results):
            runs = sorted({run for result in results for run in result.reused_from})
            scored = sum(result.scored for result in results)
            lines.append(
                f"{name}: {number:,} of {scored:,} scores, from {join_names(runs, 1)}".removeprefix(": ")
            )
    return lines


def failed_to_load(summary: Summary) -> list[str]:
    """Return the checkpoints that failed to load, with the reason, one line each."""
    return [f"{row['name']} failed to load: {row['message']}" for row in summary.failed_to_load]


def faults(summary: Summary) -> list[tuple[str, str]]:
    """Return status and text of each fault, one line per message.

    A text names the item, or the number of items and the first of them. Item ids are removed from messages.
    """
    by_message: dict[tuple[str, str], list[str]] = {}
    for fault in summary.faults:
        message = (fault["message"].strip().splitlines() or [""])[0]
        named = _BRACKETS.search(message)
        if named is not None and fault["item"].removesuffix("]").endswith(named[1]):
            message = _BRACKETS.sub("", message, count=1)
        by_message.setdefault((fault["status"], message), []).append(fault["item"])
    return [
        (status, f"{names[0] if len(names) == 1 else f'{len(names)} items, first {names[0]}'}: {message}")
        for (status, message), names in by_message.items()
    ]


def invalid_lines(summary: Summary) -> list[str]:
    """Return the results that are NOT VALID, with the reason.

    Groups are listed only where the whole benchmark is valid.
    """
    results = invalid_results(summary)
    return [f"{_name(summary, result)} is NOT VALID: {result.invalid}" for result in results]


def undefined_metrics(summary: Summary) -> list[str]:
    """Return why metrics have no value or no interval, one line each."""
    names: dict[str, list[str]] = {}
    for result in summary.results:
        for metric in shown_metrics(result):
            if metric.why:
                names.setdefault(metric.why, []).append(f"{result.name} {metric.name}")
    return [f"{why}: {_distinct(same)}" for why, same in names.items()]


# Texts, verdicts and programs


def text_counts(summary: Summary) -> list[str]:
    """Return counts of each benchmark's generated texts: chat template, cut off, empty, unanswered."""
    lines = []
    for result in _merge_checkpoints(whole_results(summary)):
        chat = {0: "as plain text", result.outputs: "through the chat template"}
        parts = [
            f"{count(result.outputs, 'output')} {chat.get(result.chat, 'partly through the chat template')}",
            f"{result.at_limit} ended at the limit",
            f"{result.no_answer} without an answer",
            f"{result.empty} empty",
        ]
        if result.reasoned:
            tokens = count(result.reasoning_tokens, "token")
            parts.append(f"{result.reasoned} after a reasoning, of {tokens} in all")
        lines += [f"{_name(summary, result)}: {', '.join(parts)}"] if result.outputs else []
    return lines


def unanswered_texts(summary: Summary) -> list[str]:
    """Return the results with unfinished texts, with the score over both item counts."""
    lines = []
    for result in whole_results(summary):
        if not result.unanswered or result.answered is None:
            continue
        whole, answered = result.metrics[result.primary], result.answered
        values = [
            f"{'none' if metric.value is None else number(metric.value)} over {over}"
            for metric, over in (
                (whole, f"all {count(whole.n, 'item')}"),
                (answered, f"the {answered.n} with an answer"),
            )
        ]
        of = f"{result.unanswered} of {count(result.outputs, 'output')}"
        why = f"no answer (limit) in {of}, which are empty at the limit of tokens"
        if result.trace_only:
            empty = result.unanswered - result.trace_only
            why = f"no answer in {of}, {empty} empty at the limit of tokens"
            why += f" and {result.trace_only} with a reasoning alone"
        lines.append(f"{_name(summary, result)}: {why}: {result.primary} {', '.join(values)}")
    return lines


def scored_reasoning(summary: Summary) -> list[str]:
    """Return the results in which reasoning seems to be scored as part of the answer."""
    return [
        f"{_name(summary, result)}: a reasoning seems to stand in {result.traces_seen} of "
        f"{count(result.outputs, 'text')}, and is scored with them; --eval-set think_end=TOKEN names the token after "
        "which the answer comes"
        for result in whole_results(summary)
        if result.traces_seen
    ]


def judge_counts(summary: Summary) -> list[str]:
    """Return the judges, their number of verdicts, and of requests without a verdict."""
    number, without, cut = (
        sum(getattr(result, name) for result in whole_results(summary))
        for name in ("judged", "no_verdict", "verdicts_at_limit")
    )
    judge = summary.manifest.get("judge") or {}
    if not number or not judge:
        return []
    remedy = "raise --eval-set judge_tokens, or the judge's context"
    lines = [
        f"{judge['name']} ({judge['fingerprint'][:12]}): {count(number, 'verdict')} asked, {without} not given"
    ]
    lines += [f"{count(cut, 'verdict')} cut at the limit of tokens: {remedy}"] if cut else []
    return lines + [
        f"{row['name']} judges its own answers"
        for row in summary.checkpoints
        if row.get("fingerprint") == judge["fingerprint"]
    ]


def program_counts(summary: Summary) -> list[str]:
    """Return the counts of each benchmark's programs by outcome."""
    return [
        f"{_name(summary, result)}: {count(sum(result.programs.values()), 'program')}, "
        + ", ".join(f"{number} {outcome}" for outcome, number in result.programs.items())
        for result in _merge_checkpoints(whole_results(summary))
        if result.programs
    ]


def missing_modules(summary: Summary) -> list[str]:
    """Return the results with programs that import modules missing from the sandbox."""
    return [
        f"{_name(summary, result)}: {missing_modules_text(result.missing_modules)}"
        for result in _merge_checkpoints(whole_results(summary))
        if result.missing_modules
    ]


def missing_modules_text(modules: Mapping[str, int]) -> str:
    """Return the number of programs that import missing modules, and the modules."""
    programs = count(sum(modules.values()), "program imports", "programs import")
    return f"{programs} what the sandbox lacks: {join_names(modules, NAMED)}"


def weak_tests(summary: Summary) -> list[str]:
    """Return the tasks of each benchmark with tests that accept wrong programs."""
    lines = []
    for benchmark, results in _by_benchmark(whole_results(summary)).items():
        tasks = {task: accepted for result in results for task, accepted in result.weak_tests.items()}
        if tasks:
            kinds = dict.fromkeys(name for accepted in tasks.values() for name in accepted)
            names = join_names((task.removeprefix(f"{benchmark}/") for task in tasks), NAMED)
            of = f"{len(tasks)} of {count(max(result.scored for result in results), 'task')}"
            lines.append(f"{benchmark}: the tests of {of} accept {' or '.join(kinds)}: {names}")
    return lines


# Engines


def engine_notes(summary: Summary) -> list[str]:
    """Return orphaned records, weak or missing fingerprints, and notes of the engines."""
    failed = {row["name"] for row in summary.failed_to_load}
    prints = {row["name"]: row.get("fingerprint", "") for row in summary.checkpoints}
    unknown = [name for name, digest in prints.items() if digest is None and name not in failed]
    weak = [name for name, digest in prints.items() if str(digest).startswith(WEAK)]
    lines = []
    if summary.uncollected:
        records = count(summary.uncollected, "record")
        lines.append(f"{records} in the journal of items that this run did not select: left out")
    if unknown:
        names = join_names(unknown, NAMED)
        lines.append(f"{names}: no fingerprint from its engine, so no answer is taken from the cache")
    if weak:
        lines.append(
            f"{join_names(weak, NAMED)}: known by what the server says of it alone (a weak fingerprint), so no "
            "answer of a complete run is taken from the cache; --eval-set reuse_served takes them"
        )
    return [*lines, *dict.fromkeys(note for row in summary.effort for note in row.engine.get("notes", ()))]


def slow_ways(summary: Summary) -> list[str]:
    """Return the slow code paths that checkpoints took, with reasons and costs over all processes.

    There is one line per checkpoint and code path; with many checkpoints, one per code path.
    """
    costs: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in summary.effort:
        for cost in row.engine.get("slow", ()):
            costs.setdefault(cost["way"], {}).setdefault(row.checkpoint, []).append(cost)
    lines = []
    for way, by_checkpoint in costs.items():
        what, unit = SLOW_WAYS[way]
        shown = by_checkpoint
        if len(by_checkpoint) > SINGLY:
            together = [cost for same in by_checkpoint.values() for cost in same]
            shown = {count(len(by_checkpoint), "checkpoint"): together}
        for name, same in shown.items():
            computed, enough = (sum(cost[key] for cost in same) for key in ("computed", "enough"))
            why = join_names(dict.fromkeys(cost["reason"] for cost in same), 1)
            lines.append(
                f"{name}: {what}, which is slow ({why}): {computed:,} {unit} computed where about {enough:,} would do, "
                f"{computed / max(1, enough):.1f} times as many"
            )
    return lines


def usage(summary: Summary) -> list[str]:
    """Return the usage of each checkpoint's engine over all processes: tokens, padding, start-up, memory."""
    rows: dict[str, list[Usage]] = {}
    for row in summary.effort:
        if row.engine:
            rows.setdefault(row.checkpoint, []).append(row)
    if len(rows) > SINGLY:
        return [f"{len(rows)} checkpoints: {_usage([row for same in rows.values() for row in same])}"]
    return [f"{name}: {_usage(same)}" if len(rows) > 1 else _usage(same) for name, same in rows.items()]


def _usage(rows: Sequence[Usage]) -> str:
    def total(name: str) -> int:
        return sum(row.engine.get(name, 0) for row in rows)

    if all("requests" in row.engine for row in rows):  # of a server
        again = f" ({total('retries'):,} of them again)" if total("retries") else ""
        tokens = (
            f"{total('prompt_tokens'):,} prompt and {total('completion_tokens'):,} new tokens at the server"
        )
        parts = [f"{total('requests'):,} requests{again}", tokens]
        if any("cost" in row.engine for row in rows):
            parts.append(f"cost {total('cost'):,.4f} (--eval-set price)")
        return "; ".join(parts)
    padding = 100 * total("padding") / max(1, total("tokens"))
    parts = [f"{total('tokens'):,} tokens computed, {padding:.1f} % padding"]
    if starts := [row.first_answer for row in rows if row.first_answer is not None]:
        parts.append(f"first answers after {min(starts):.1f} s")
    if peaks := [row.peak_bytes for row in rows if row.peak_bytes is not None]:
        each = " per process" if len({row.who for row in rows}) > 1 else ""
        parts.append(f"{max(peaks) / 2**30:.2f} GiB at most{each}")
    return "; ".join([*parts, *_speculation(rows, total("decoded"))])


def _speculation(rows: Sequence[Usage], decoded: int) -> list[str]:
    """Return the share of speculative tokens, their number per pass, and each head's accuracy."""
    counts = [row.engine["speculative"] for row in rows if "speculative" in row.engine]
    lengths, asked, right = (  # however long the tables are
        [sum(column) for column in zip_longest(*(table[name] for table in counts), fillvalue=0)]
        for name in ("lengths", "asked", "right")
    )
    if not sum(lengths):
        return []
    tokens = sum(length * passes for length, passes in enumerate(lengths, 1))
    shares = [f"{100 * hits / max(1, tries):.0f}" for hits, tries in zip(right, asked, strict=True)]
    heads = f"; heads 1 to {len(shares)} right in {', '.join(shares)} %" if shares else ""
    share = f" for {100 * tokens / decoded:.0f} % of the tokens" if decoded else ""
    return [f"speculative decoding{share}, {tokens / sum(lengths):.2f} tokens per pass{heads}"]


# Names


def _name(summary: Summary, result: Result) -> str:
    """Return the result's name; with several checkpoints, with the checkpoint's."""
    return f"{result.checkpoint}, {result.name}" if len(checkpoints(summary)) > 1 else result.name


def _distinct(names: Iterable[str]) -> str:
    return join_names(dict.fromkeys(names), NAMED)


def _by_benchmark(results: Iterable[Result]) -> dict[str, list[Result]]:
    by_benchmark: dict[str, list[Result]] = {}
    for result in results:
        by_benchmark.setdefault(result.benchmark, []).append(result)
    return by_benchmark


def _merge_checkpoints(results: Sequence[Result]) -> list[Result]:
    """Return the results, added up by benchmark if there are many checkpoints."""
    if len({result.checkpoint for result in results}) <= SINGLY:
        return list(results)
    return [sum_results(same, count(len(same), "checkpoint")) for same in _by_benchmark(results).values()]
