"""How reports put numbers, checkpoints, data packs and reasons into words.

A console of rich that writes text of a width to memory, with ANSI colours or without.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.checkpoints.training_state import step_of_row
from harness.core import marks
from harness.core.data_files import DatasetInfo
from harness.engines.base import SLOW_WAYS
from harness.results.records import GENERATED
from harness.results.summary import Metric, Result, Summary, totals, wholes
from harness.results.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console


NOTHING: Final = "-"
HASH_SHOWN: Final = 8
SINGLY: Final = 3
"""What the answers of so many checkpoints were like is told one by one; of more, of all together."""


def number(value: float | None) -> str:
    """Four decimals for scores, fewer for larger numbers, ``-`` for what is undefined."""
    if value is None:
        return NOTHING
    if abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.2f}" if abs(value) < 10_000 else f"{value:.4g}"


def interval(low: float | None, high: float | None) -> str:
    """``[low, high]``, or ``-`` when a limit is undefined."""
    return NOTHING if low is None or high is None else f"[{number(low)}, {number(high)}]"


def count(items: int, noun: str, plural: str | None = None) -> str:
    """``1 error``, ``2 errors``."""
    return f"{items} {noun if items == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Whole seconds as ``0:07``, ``12:30`` or ``2:05:00``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def asked(result: Result) -> str:
    """``5-shot``, ``5-shot, chat``, empty for neither examples nor a chat template."""
    return marks.asked(result.shots, result.template)


def asked_alike(results: Sequence[Result]) -> str:
    """How all of them were asked, empty where not all were asked alike."""
    found = {asked(result) for result in results}
    return found.pop() if len(found) == 1 else ""


def who(result: Result, among: Sequence[Result]) -> str:
    """The checkpoint, with how it was asked where others were asked otherwise."""
    how = "" if asked_alike(among) else asked(result)
    return f"{result.checkpoint} ({how})" if how else result.checkpoint


def common_mark(results: Sequence[Result]) -> str:
    """The mark that all of them have, empty where they differ."""
    found = {result.mark for result in results}
    return found.pop() if len(found) == 1 else ""


def counted(result: Result, n: int) -> str:
    """``4``; ``2/4`` for a part, ``4/100`` for a shipped sample, ``2/4/100`` for both: where there is no room for the
    mark."""
    parts = [f"{n}"]
    parts += [f"{result.of:,}"] if result.scored < result.of else []
    if result.pack.origin == marks.SHIPPED and result.published not in (None, result.of):
        parts.append(f"{result.published:,}")
    return "/".join(parts)


def pack(info: DatasetInfo) -> str:
    """A data pack in one line: name, rows, the start of its hash, where it came from."""
    return f"{info.name}, {count(info.rows, 'row')}, {info.sha256[:HASH_SHOWN]}, {info.origin}"


def packs(summary: Summary) -> list[DatasetInfo]:
    """Every data pack of the run, once."""
    return list({(one.pack.name, one.pack.sha256): one.pack for one in wholes(summary)}.values())


def checkpoint(info: Mapping[str, Any]) -> str:
    """What a checkpoint is, in one line without its name."""
    parts = [f"{info['kind']} LM" if info.get("kind") else "", info.get("model_type") or ""]
    base = info.get("base")
    parts.append(f"LoRA on {base['name']}" if isinstance(base, Mapping) else "")
    step = step_of_row(info)
    parts.append(f"step {step}" if step is not None else "")
    parts.append(f"epoch {info['epoch']:g}" if info.get("epoch") is not None else "")
    parts.append(f"validation loss {info['val_loss']:.4g}" if info.get("val_loss") is not None else "")
    parts.append(count(info["seq_len"], "token") if info.get("seq_len") else "")
    parts.append("its own code allowed" if info.get("trust_remote_code") else "")
    return ", ".join(part for part in parts if part)


def checkpoints(summary: Summary) -> dict[str, str]:
    """The run's checkpoints by name, with what each is."""
    known = {str(info.get("name")): checkpoint(info) for info in summary.checkpoints}
    names = dict.fromkeys(result.checkpoint for result in summary.results)
    return {name: known.get(name, "") for name in names}


def reasons(summary: Summary) -> list[str]:
    """Why a metric has no value or no interval, one line a reason."""
    found: dict[str, list[str]] = {}
    for result in summary.results:
        for metric in shown_metrics(result):
            if metric.why:
                found.setdefault(metric.why, []).append(f"{result.name} {metric.name}")
    return [f"{why}: {_some(list(dict.fromkeys(names)))}" for why, names in found.items()]


def shown_metrics(result: Result) -> list[Metric]:
    """What tables show of a result: every metric of a whole benchmark, the primary one of a group."""
    metrics = list(result.metrics.values())
    return metrics if result.group is None else [m for m in metrics if m.name == result.primary]


def items(summary: Summary) -> str:
    """What became of the run's items, in one line."""
    found = totals(summary)
    parts = [
        f"{found['collected']} collected",
        f"{found['scored']} scored",
        f"{found['skipped']} skipped",
        count(found["errors"], "error"),
    ]
    parts += [count(found["timeouts"], "timeout")] if found["timeouts"] else []
    parts += [f"{found['lost']} lost"] if found["lost"] else []
    took = f" in {duration(summary.seconds)}" if summary.seconds else ""
    return ", ".join(parts) + took


def effort(summary: Summary) -> list[str]:
    """What the answers of each checkpoint cost, over all processes: tokens, padding, start-up, memory."""
    found: dict[str, list[Usage]] = {}
    for row in summary.effort:
        if row.engine:
            found.setdefault(row.checkpoint, []).append(row)
    if len(found) > SINGLY:
        return [f"{len(found)} checkpoints: {_effort([row for rows in found.values() for row in rows])}"]
    prefix = len(found) > 1
    return [(f"{name}: " if prefix else "") + _effort(rows) for name, rows in found.items()]


def _effort(rows: Sequence[Usage]) -> str:
    processes = len({row.who for row in rows})
    tokens = sum(row.engine.get("tokens", 0) for row in rows)
    padding = sum(row.engine.get("padding", 0) for row in rows)
    parts = [f"{tokens:,} tokens computed, {100 * padding / max(1, tokens):.1f} % padding"]
    if starts := [row.first_answer for row in rows if row.first_answer is not None]:
        parts.append(f"first answers after {min(starts):.1f} s")
    if peaks := [row.peak_bytes for row in rows if row.peak_bytes is not None]:
        parts.append(f"{_gigabytes(max(peaks))} at most" + (" a process" if processes > 1 else ""))
    shares = {row.who: row.proportional_bytes for row in rows if row.proportional_bytes is not None}
    if processes > 1 and shares:
        parts.append(
            f"{processes} processes with {_gigabytes(sum(shares.values()))} in all, shared pages counted once"
        )
    return "; ".join([*parts, *_speculation(rows)])


def _speculation(rows: Sequence[Usage]) -> list[str]:
    """What extra heads guessed ahead: tokens of a pass in the mean, how often each head was right, and the share of the
    tokens that came of such passes."""
    found = [row.engine["speculative"] for row in rows if "speculative" in row.engine]
    lengths, asked, right = (_summed([one[name] for one in found]) for name in ("lengths", "asked", "right"))
    if not sum(lengths):
        return []
    came = sum(length * number for length, number in enumerate(lengths, 1))
    mean = came / sum(lengths)
    decoded = sum(row.engine.get("decoded", 0) for row in rows)
    shares = [f"{100 * good / max(1, all_):.0f}" for good, all_ in zip(right, asked, strict=True)]
    heads = f"; heads 1 to {len(shares)} right in {', '.join(shares)} %" if shares else ""
    part = f" for {100 * came / decoded:.0f} % of the tokens" if decoded else ""
    return [f"guessed ahead{part}, {mean:.2f} a pass{heads}"]


def _summed(tables: Sequence[Sequence[int]]) -> list[int]:
    """The sums of numbers at the same place, however long the tables are."""
    longest = max(map(len, tables), default=0)
    return [sum(table[at] for table in tables if at < len(table)) for at in range(longest)]


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def left_out(summary: Summary) -> list[str]:
    """Why benchmarks were left out, one line a reason: ``NAME, NAME: reason``."""
    found: dict[str, list[str]] = {}
    for line in summary.deselected:
        name, _, reason = line.partition(": ")
        found.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {why}" if why else ", ".join(names) for why, names in found.items()]


def faults(summary: Summary) -> list[tuple[str, str]]:
    """Status and text of what went wrong, one line a message: the item, or how many and the first of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for fault in summary.faults:
        first = (fault["message"].strip().splitlines() or [""])[0]
        found.setdefault((fault["status"], first), []).append(fault["item"])
    return [
        (status, f"{names[0] if len(names) == 1 else f'{len(names)} items, first {names[0]}'}: {message}")
        for (status, message), names in found.items()
    ]


def invalid(summary: Summary) -> list[str]:
    """Which results must not be believed, and why; groups only where the whole is valid."""
    wrong = {(one.checkpoint, one.benchmark) for one in wholes(summary) if one.invalid}
    several = len(checkpoints(summary)) > 1
    return [
        f"{one.checkpoint + ', ' if several else ''}{one.name} is NOT VALID: {one.invalid}"
        for one in summary.results
        if one.invalid and (one.group is None or (one.checkpoint, one.benchmark) not in wrong)
    ]


def generated(summary: Summary) -> list[str]:
    """What the generated texts of each benchmark were like, and how they were asked for."""
    found = []
    several = len(checkpoints(summary)) > 1
    for one in _together(wholes(summary)):
        if not one.outputs:
            continue
        chat = {0: "as plain text", one.outputs: "through the chat template"}
        parts = [f"{count(one.outputs, 'output')} {chat.get(one.chat, 'partly through the chat template')}"]
        parts += [
            f"{one.at_limit} ended at the limit",
            f"{one.no_answer} without an answer",
            f"{one.empty} empty",
        ]
        found.append(f"{one.checkpoint + ', ' if several else ''}{one.name}: {', '.join(parts)}")
    return found


def programs(summary: Summary) -> list[str]:
    """What became of the programs of each benchmark."""
    several = len(checkpoints(summary)) > 1
    return [
        f"{one.checkpoint + ', ' if several else ''}{one.name}: {count(sum(one.programs.values()), 'program')}, "
        + ", ".join(f"{number} {outcome}" for outcome, number in one.programs.items())
        for one in _together(wholes(summary))
        if one.programs
    ]


def _together(results: Sequence[Result]) -> list[Result]:
    """The results as they are; those of many checkpoints added up for each benchmark."""
    names = list(dict.fromkeys(one.checkpoint for one in results))
    if len(names) <= SINGLY:
        return list(results)
    found = []
    for benchmark in dict.fromkeys(one.benchmark for one in results):
        same = [one for one in results if one.benchmark == benchmark]
        sums = {name: sum(getattr(one, name) for one in same) for name in GENERATED}
        outcomes: Counter[str] = Counter()
        for one in same:
            outcomes.update(one.programs)
        who = count(len(same), "checkpoint")
        found.append(replace(same[0], checkpoint=who, programs=dict(outcomes.most_common()), **sums))
    return found


def unsandboxed(summary: Summary) -> list[str]:
    """Which results came of programs that nothing kept from the machine."""
    several = len(checkpoints(summary)) > 1
    return [
        f"{one.checkpoint + ', ' if several else ''}{one.name} is UNSANDBOXED: its programs ran without isolation"
        for one in wholes(summary)
        if one.unsandboxed
    ]


def weak_tests(summary: Summary) -> list[str]:
    """The tasks of each benchmark whose tests accept programs that are wrong; the same for all checkpoints."""
    lines = []
    for benchmark in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = [one for one in wholes(summary) if one.benchmark == benchmark]
        tasks = {task: accepted for one in same for task, accepted in one.weak_tests.items()}
        if not tasks:
            continue
        kinds = dict.fromkeys(name for accepted in tasks.values() for name in accepted)
        names = _some(task.removeprefix(f"{benchmark}/") for task in tasks)
        most = max(one.scored for one in same)
        of = f"{len(tasks)} of {count(most, 'task')}"
        lines.append(f"{benchmark}: the tests of {of} accept {' or '.join(kinds)}: {names}")
    return lines


def warnings(summary: Summary) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = [*invalid(summary), *unsandboxed(summary), *weak_tests(summary)]
    if cut := totals(summary)["truncated"]:
        were = "request was" if cut == 1 else "requests were"
        found.append(f"{cut} {were} longer than the checkpoint takes: context was cut")
    if summary.uncollected:
        noun = count(summary.uncollected, "record")
        found.append(f"{noun} in the journal of items that this run did not select: left out")
    notes = (note for row in summary.effort for note in row.engine.get("notes", ()))
    return [*found, *dict.fromkeys(notes), *slow_ways(summary)]


def slow_ways(summary: Summary) -> list[str]:
    """Which slow ways checkpoints had to go, why, and what that cost over all processes: a line for each, of many
    checkpoints one for each way."""
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
        f"{name}: {what}, which is slow ({_some(dict.fromkeys(one['reason'] for one in costs), most=1)}): "
        f"{computed:,} {unit} computed where about {enough:,} would do, {computed / max(1, enough):.1f} times as many"
    )


def reused(summary: Summary) -> list[str]:
    """What earlier runs had scored already, a line a benchmark."""
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
        lines.append(f"{_some(parts)}, from {_some(runs)}")
    return lines


def broken(summary: Summary) -> list[str]:
    """The checkpoints that could not be used, and why, a line each."""
    return [f"{one['name']} cannot be used: {one['message']}" for one in summary.broken]


def place(summary: Summary) -> str:
    """The run's folder, relative to the current one where it lies below it."""
    folder = Path(summary.directory)
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


def _some(names: Iterable[str], most: int = 4) -> str:
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def console_of(width: int, *, color: bool) -> Console:
    """The same on every system: nothing is found out about the terminal."""
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def written(console: Console) -> str:
    """What was written, without spaces at the ends of lines."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())
