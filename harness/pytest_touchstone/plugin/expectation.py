"""``pytest_touchstone.expect_like``: an assertion that an engine answers like the references of a file.

It is an ordinary function for anybody's pytest or unittest. The benchmarks run in a process of its own, which knows
nothing of the project around: no configuration of pytest, conftests, plug-ins or ``[tool.touchstone]``. All that it
writes is in a temporary folder.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pytest_touchstone.compare.answers import shown_answers
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.expectation import POWER, CandidateVerdict, broken_items, judge_candidate
from pytest_touchstone.compare.formats.references import (
    References,
    item_hash,
    read_references,
)
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.prompts import prompt_digests
from pytest_touchstone.compare.save_references import request_limits
from pytest_touchstone.core.errors import DataError, OptionError
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.core.text import count, escape_invisible, one_line
from pytest_touchstone.document.formatting import clip
from pytest_touchstone.plugin.evaluate import GRACE, EvaluationError, evaluate_with
from pytest_touchstone.plugin.finished_run import FinishedRun
from pytest_touchstone.results.run_directory import NO_FILE
from pytest_touchstone.results.summary import NOT_REACHED
from pytest_touchstone.statistics.comparison import POINTS

__tracebackhide__ = True  # pytest then shows a failure where the test calls expect_like

LONGEST: Final = 160
"""The characters of a question or an answer that a message has."""

UNITS: Final = {"": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}


def expect_like(  # noqa: PLR0917 -- a call in a test is to be short
    file: str | Path,
    url_or_path: str | Path,
    limit: int | None = None,
    max_loss: float = 0.01,
    again: bool = True,
    inconclusive: Literal["pass", "fail"] = "pass",
    budget: str | float | None = None,
    data: str | Path | None = None,
) -> None:
    """Assert that a server or checkpoint answers like the references of a file.

    The loss of each benchmark is tested against the mean of the reference runs, on the same items. The assertion fails
    where it is both significant (one-sided p of at most 0.025, Holm over the benchmarks) and above ``max_loss``, and
    then only if a second scoring confirms that. A warning says what loss so many items could have found, where that is
    more than ``max_loss``.

    Args:
        file: A file of ``touchstone baseline save``.
        url_or_path: What ``--checkpoint`` takes: ``http://HOST:PORT/v1``, ``vllm:PATH``, a checkpoint.
        limit: The number of items of each benchmark, the same in each build. Defaults to all of the file.
        max_loss: The largest loss that does not matter, as a share: 0.01 is one point.
        again: Whether a benchmark that is worse is scored a second time, and only the mean of both decides.
        inconclusive: What becomes of a benchmark of which a loss of ``max_loss`` can neither be shown nor excluded.
        budget: The most time for all of it, such as ``"5 min"`` or seconds; what is answered by then decides.
        data: The folder of the rows, as ``--eval-data``. Defaults to the shipped ones, if they are those of the file.

    Raises:
        AssertionError: If the candidate is worse, or has not answered items.
        HarnessError: If the file, the rows or an argument cannot be used.

    """
    whole = type(limit) is int and limit > 0
    _check("limit", limit, "a number of items from 1 up, or None for all", valid=limit is None or whole)
    share = isinstance(max_loss, (int, float)) and not isinstance(max_loss, bool) and 0 <= max_loss < 1
    _check("max_loss", max_loss, "a share from 0, below 1: 0.01 is one point", valid=share)
    _check("inconclusive", inconclusive, "'pass' or 'fail'", valid=inconclusive in ("pass", "fail"))
    references = read_references(Path(file))
    with tempfile.TemporaryDirectory(prefix="touchstone-") as folder:
        settings = {
            "checkpoint": str(url_or_path),
            "limit": limit,
            "data": None if data is None else str(data),
            "output": folder,
            "baseline": Path(file).absolute(),
            "gate": True,
            "no_cache": True,
        }
        score = partial(
            _score,
            references=references,
            settings=settings,
            end=math.inf if budget is None else time.monotonic() + parse_budget(budget),
        )
        verdicts = judge_candidate(score, references, max_loss, again=again)
        in_time = {
            name: _answered_in_time(verdict, asked=len(references[name].items.examples[:limit]))
            for name, verdict in verdicts.items()
        }
        failing = ("worse", "inconclusive") if inconclusive == "fail" else ("worse",)
        lines = [
            line
            for name, verdict in verdicts.items()
            if verdict.kind in failing
            for line in _message(verdict, references[name], in_time[name])
        ]
    for name, verdict in verdicts.items():
        if doubts := "; ".join(_doubts(verdict, references[name], max_loss, limit, in_time[name])):
            warnings.warn(f"expect_like, {name}: {doubts}", UserWarning, stacklevel=2)
    if lines:
        raise AssertionError(escape_invisible("\n".join(lines)))


def parse_budget(budget: str | float) -> float:
    """Return the seconds of ``"5 min"``, ``"90 s"``, ``"1 h"`` or a number. Raises ``OptionError``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)s?\s*", str(budget).lower())
    seconds = float(match[1]) * UNITS.get(match[2], 0) if match else 0.0
    _check("budget", budget, "a time such as '5 min', '90 s' or seconds", valid=0 < seconds < math.inf)
    return seconds


def _check(name: str, argument: object, expected: str, *, valid: bool) -> None:
    """Raise ``OptionError`` for an argument that is not valid."""
    if not valid:
        raise OptionError(f"invalid {name} {argument!r}: expected {expected}")


def _score(
    names: Collection[str],
    *,
    references: Mapping[str, References],
    settings: Mapping[str, object],
    end: float,
) -> dict[str, BenchmarkScores]:
    """Return the scores on these benchmarks, as far as there is time until ``end``, on the monotonic clock.

    Raises ``AssertionError`` for items without an answer, and ``HarnessError``.
    """
    groups: dict[str, dict[str, References]] = {}
    for name in names:
        header = references[name].header
        key = json.dumps([header.file, header.asking], sort_keys=True)
        groups.setdefault(key, {})[name] = references[name]
    scores: dict[str, BenchmarkScores] = {}
    for group in groups.values():
        scores |= _score_alike(group, settings, end)
    return scores


def _score_alike(
    references: Mapping[str, References], settings: Mapping[str, object], end: float
) -> dict[str, BenchmarkScores]:
    """Return the scores on benchmarks that are asked alike, in one run; none where the time is up before."""
    left = end - time.monotonic()
    if left <= 0:
        return {}
    seconds = None if left == math.inf else max(left / 2, left - GRACE)  # to write what was answered
    headers = [entry.header for entry in references.values()]
    file, asking = headers[0].file, headers[0].asking
    if (system := asking.get("system")) is not None:
        # The setting takes a path too, and a text that somebody else wrote must not name a file of this machine.
        asking["system"] = Path(str(settings["output"]), "system.txt")
        write_atomic(asking["system"], str(system).encode("utf-8", "surrogatepass"), lasting=False)
    try:
        run = evaluate_with(
            {
                "tasks": [f"{header.benchmark} {header.shots}-shot" for header in headers],
                **asking,
                **settings,
            },
            None if file is None else _own_benchmark(file),
            arguments=(
                *("--disable-plugin-autoload", "--noconftest"),
                *(f"--rootdir={settings['output']}", "-c", NO_FILE),
            ),
            seconds=seconds,
        )
    except EvaluationError:
        if seconds is None or time.monotonic() < end - left + seconds:
            raise
        return {}
    return _scores_of(run, references, str(settings["checkpoint"]))


def _scores_of(
    run: FinishedRun, references: Mapping[str, References], checkpoint: str
) -> dict[str, BenchmarkScores]:
    """Return the scores of a run, after a look at what was asked."""
    if faults := [fault for fault in run.summary.faults if fault["message"] != NOT_REACHED]:
        raise AssertionError(
            f"{checkpoint} has not answered {count(len(faults), 'item')}: "
            f"{one_line(faults[0]['item'])}: {one_line(faults[0]['message'])}"
        )
    candidates = read_run(run.directory)
    if len(candidates) != 1:
        raise OptionError(f"{checkpoint}: means {len(candidates)} checkpoints; name one")
    entries = {name: entry for name, entry in candidates[0].entries.items() if name in references}
    lacking = [name for name in references if name not in entries]
    if lacking and not run.summary.stopped:
        raise DataError(
            f"{lacking[0]}: {checkpoint} was not asked: {'; '.join(run.left_out) or 'no item is left'}"
        )
    for name, entry in entries.items():
        _check_prompts(references[name], entry)
    return entries


def _own_benchmark(file: str) -> Path:
    """Return the file of a benchmark that is not shipped. Raises ``DataError`` unless it is below this folder."""
    path = Path(file)
    with suppress(OSError, ValueError):  # a name that no file can have
        if not path.is_absolute() and path.resolve().is_relative_to(Path.cwd()) and path.is_file():
            return path
    raise DataError(f"{file[:200]}: no benchmark's file below the current folder, which the references name")


def _check_prompts(references: References, entry: BenchmarkScores) -> None:
    """Raise ``DataError`` where the candidate was asked otherwise than the references."""
    header, hashes, prompts = references.header, references.items.examples, prompt_digests(entry)
    asked = {item_hash(*pair, len(hashes[0])): pair for pair in prompts}
    differing = sum(
        digest in asked and prompts[asked[digest]] != prompt
        for digest, prompt in zip(hashes, header.prompts, strict=False)  # of the first items
    )
    limits = request_limits(entry, asked[hashes[0]][0]) if hashes[0] in asked else {}
    faults = [f"the prompts of {differing} of the first {len(header.prompts)} items"] if differing else []
    if limits and header.request and limits != header.request:
        faults.append("stops or limits")
    if faults:
        raise DataError(
            f"{header.benchmark} of {references.saved.run_id}: {' and '.join(faults)} are others now; "
            "save the references anew by this version"
        )


# What is said


def _answered_in_time(verdict: CandidateVerdict, *, asked: int) -> str:
    """Return how many of the items were answered before the time was up; empty where all were."""
    n = 0 if verdict.line is None else verdict.line.comparison.n
    return f"{n:,} of {asked:,} items were answered in time" if n < asked else ""


def _message(verdict: CandidateVerdict, references: References, in_time: str) -> list[str]:
    """Return the lines about a benchmark on which the assertion fails."""
    saved, line, entry = references.saved, verdict.line, verdict.scores
    if line is None or entry is None:
        return [f"{saved.benchmark}: cannot tell; {in_time}"]
    compared, runs = line.comparison, count(saved.reference_runs, "run")
    what = "is worse than" if verdict.kind == "worse" else "cannot be told from"
    twice = ", scored twice" if verdict.scorings > 1 else ""
    lines = [
        f"{saved.benchmark} {saved.primary}: {entry.saved.checkpoint} {what} {runs} in {saved.run_id}",
        f"  change    {compared.why} ({compared.method})",
        f"  values    {compared.new:.4f} and {compared.baseline:.4f} before, n {compared.n:,}{twice}",
        f"  sees      {_power(verdict)}",
        *(f"  note      {note}" for note in (in_time, entry.saved.invalid) if note),
    ]
    broken = broken_items(verdict, references)
    answers = shown_answers(entry, saved.primary, broken)
    for example, (before, after) in broken.items():
        lines.append(f"  {example}: {before * saved.reference_runs:g} of {runs} right before, {after:g} now")
        if (answer := answers.get(example)) is not None:
            lines += [
                f"    question  {clip(answer.question, LONGEST, end=True)}",
                *([f"    right     {clip(answer.gold, LONGEST)}"] if answer.gold else []),
                f"    now       {clip(answer.answer, LONGEST)}",
            ]
    return lines


def _doubts(
    verdict: CandidateVerdict, references: References, max_loss: float, limit: int | None, in_time: str
) -> Iterator[str]:
    """Yield what a build is warned of, though it may pass."""
    size = len(references.items.examples)
    if limit is not None and limit > size:
        yield f"limit {limit}, and {references.saved.run_id} has {size} items"
    if in_time:
        yield f"{in_time}: {verdict.kind}"
    elif not verdict.settled:
        yield "cannot tell: worse at first, and no time was left to score it again"
    if verdict.finds is None or verdict.finds > max_loss:
        yield _power(verdict)
        if verdict.items is not None:
            yield f"a loss of {POINTS.size(max_loss)} takes about {verdict.items:,} items"


def _power(verdict: CandidateVerdict) -> str:
    """Return the loss that the items could have found, in words."""
    if verdict.finds is None or verdict.line is None:
        return "so few items find no loss"
    return (
        f"{count(verdict.line.comparison.n, 'item')} find a loss of {100 * verdict.finds:.2f} points in "
        f"{100 * POWER:g} % of builds"
    )
