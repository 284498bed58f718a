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
from dataclasses import dataclass
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
from pytest_touchstone.core.text import count, escape_invisible, one_line
from pytest_touchstone.plugin.evaluate import GRACE, EvaluationError, evaluate_with
from pytest_touchstone.plugin.finished_run import FinishedRun
from pytest_touchstone.results.run_directory import NO_FILE
from pytest_touchstone.results.summary import NOT_REACHED

LONGEST: Final = 160
"""The characters of a question or an answer that a message has."""

UNITS: Final = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}

MISTAKES: Final = "invalid {} {!r}: expected {}"


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
    __tracebackhide__ = True
    _check(limit=limit, max_loss=max_loss, inconclusive=inconclusive)
    references = read_references(Path(file))
    with tempfile.TemporaryDirectory(prefix="touchstone-") as folder:
        scoring = _Scoring(
            file=Path(file).absolute(),
            references=references,
            target=str(url_or_path),
            settings={"limit": limit, "data": None if data is None else str(data)},
            folder=Path(folder),
            end=math.inf if budget is None else time.monotonic() + parse_budget(budget),
        )
        verdicts = judge_candidate(scoring.score, references, max_loss, again=again)
        in_time = {name: scoring.answered_in_time(name, verdict) for name, verdict in verdicts.items()}
        failing = ("worse", "inconclusive") if inconclusive == "fail" else ("worse",)
        failed = {name: verdict for name, verdict in verdicts.items() if verdict.kind in failing}
        lines = [
            line
            for name, verdict in failed.items()
            for line in _message(verdict, references[name], in_time[name])
        ]
    for name, verdict in verdicts.items():
        if doubts := "; ".join(_doubts(verdict, references[name], max_loss, limit, in_time[name])):
            warnings.warn(f"expect_like, {name}: {doubts}", UserWarning, stacklevel=2)
    if failed:
        raise AssertionError(escape_invisible("\n".join(lines)))


def parse_budget(budget: str | float) -> float:
    """Return the seconds of ``"5 min"``, ``"90 s"``, ``"1 h"`` or a number. Raises ``OptionError``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)s?\s*", str(budget).lower())
    unit = UNITS.get((match[2] or "s"), 0) if match else 0
    seconds = float(match[1]) * unit if match else 0.0
    if isinstance(budget, bool) or not 0 < seconds < math.inf:
        raise OptionError(MISTAKES.format("budget", budget, "a time such as '5 min', '90 s' or seconds"))
    return seconds


def _check(*, limit: object, max_loss: object, inconclusive: object) -> None:
    """Raise ``OptionError`` for an argument that is not of its kind."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise OptionError(MISTAKES.format("limit", limit, "a number of items from 1 up, or None for all"))
    if isinstance(max_loss, bool) or not isinstance(max_loss, (int, float)) or not 0 <= max_loss < 1:
        raise OptionError(MISTAKES.format("max_loss", max_loss, "a share from 0, below 1: 0.01 is one point"))
    if inconclusive not in ("pass", "fail"):
        raise OptionError(MISTAKES.format("inconclusive", inconclusive, "'pass' or 'fail'"))


@dataclass(slots=True)
class _Scoring:
    """The runs of a candidate; ``end`` is when its time is up, on the monotonic clock."""

    file: Path
    references: Mapping[str, References]
    target: str
    settings: Mapping[str, object]
    folder: Path
    end: float

    def score(self, names: Collection[str]) -> dict[str, BenchmarkScores]:
        """Return the scores on these benchmarks, as far as there is time.

        Raises ``AssertionError`` for items without an answer, and ``HarnessError``.
        """
        __tracebackhide__ = True
        groups: dict[str, list[str]] = {}
        for name in names:
            header = self.references[name].header
            assert header is not None
            groups.setdefault(json.dumps([header.file, header.asking], sort_keys=True), []).append(name)
        scores: dict[str, BenchmarkScores] = {}
        for key, benchmarks in groups.items():
            file, asking = json.loads(key)
            if (run := self._run(benchmarks, file, asking)) is not None:
                scores |= self._checked(run, benchmarks)
        return scores

    def _run(
        self, benchmarks: Collection[str], file: str | None, asking: Mapping[str, object]
    ) -> FinishedRun | None:
        """Return the run; None where the time is up before it has a result."""
        __tracebackhide__ = True
        left = self.end - time.monotonic()
        if left <= 0:
            return None
        seconds = None if left == math.inf else max(left / 2, left - GRACE)  # to write what was answered
        shots = {name: self.references[name].saved.conditions["shots"] for name in benchmarks}
        terms = [f"{name} {number}-shot" for name, number in shots.items()]
        settings = {"output": self.folder / "results", "baseline": self.file, "gate": True, "no_cache": True}
        apart = ("--disable-plugin-autoload", "--noconftest", f"--rootdir={self.folder}", "-c", NO_FILE)
        try:
            return evaluate_with(
                {"checkpoint": self.target, "tasks": terms, **self.settings, **asking, **settings},
                None if file is None else _own_benchmark(file),
                arguments=apart,
                seconds=seconds,
            )
        except EvaluationError:
            if seconds is not None and time.monotonic() >= self.end - left + seconds:
                return None
            raise

    def _checked(self, run: FinishedRun, benchmarks: Collection[str]) -> dict[str, BenchmarkScores]:
        """Return the scores of a run, after a look at what was asked."""
        __tracebackhide__ = True
        if faults := [fault for fault in run.summary.faults if fault["message"] != NOT_REACHED]:
            first = faults[0]
            raise AssertionError(
                escape_invisible(
                    f"{self.target} has not answered {count(len(faults), 'item')}: {first['item']}: "
                    f"{one_line(first['message'])}"
                )
            )
        candidates = read_run(run.directory)
        if len(candidates) != 1:
            raise OptionError(f"{self.target}: means {len(candidates)} checkpoints; name one")
        entries = candidates[0].entries
        if lacking := [name for name in benchmarks if name not in entries and not run.summary.stopped]:
            why = "; ".join(run.left_out) or "no item is left"
            raise DataError(f"{lacking[0]}: {self.target} was not asked: {why}")
        for name in benchmarks:
            if name in entries:
                _check_prompts(self.references[name], entries[name])
        return {name: entries[name] for name in benchmarks if name in entries}

    def answered_in_time(self, name: str, verdict: CandidateVerdict) -> str:
        """Return how many of the items were answered before the time was up; empty where all were."""
        asked, n = self.asked(name), 0 if verdict.line is None else verdict.line.comparison.n
        return f"{n:,} of {asked:,} items were answered in time" if n < asked else ""

    def asked(self, name: str) -> int:
        """Return the number of items to ask."""
        limit, size = self.settings["limit"], len(self.references[name].items.examples)
        return min(limit, size) if isinstance(limit, int) else size


def _own_benchmark(file: str) -> Path:
    """Return the file of a benchmark that is not shipped. Raises ``DataError`` unless it is below this folder."""
    path = Path(file)
    if path.is_absolute() or not path.resolve().is_relative_to(Path.cwd()) or not path.is_file():
        raise DataError(
            f"{file[:200]}: no benchmark's file below the current folder, which the references name"
        )
    return path


def _check_prompts(references: References, entry: BenchmarkScores) -> None:
    """Raise ``DataError`` where the candidate was asked otherwise than the references."""
    saved, header = entry.saved, references.header
    assert header is not None
    where = f"{saved.benchmark} of {references.saved.run_id}"
    if saved.conditions["template"] != header.template:
        raise DataError(
            f"{where}: was asked by the template {header.template}, and {saved.checkpoint} by "
            f"{saved.conditions['template']}; give a server with a chat template, or save the references anew"
        )
    hashes = references.items.examples
    known = dict(zip(hashes, header.prompts, strict=False))
    digests = {item_hash(*pair, len(hashes[0])): digest for pair, digest in prompt_digests(entry).items()}
    differing = sum(digest in digests and digests[digest] != prompt for digest, prompt in known.items())
    limits = request_limits(entry)
    if differing or (limits and header.request and limits != header.request):
        what = (
            f"the prompts of {differing} of the first {len(known)} items" if differing else "stops or limits"
        )
        raise DataError(f"{where}: {what} are others now; save the references anew by this version")


# What is said


def _message(verdict: CandidateVerdict, references: References, in_time: str) -> Iterator[str]:
    """Yield the lines about a benchmark on which the assertion fails."""
    saved, line, entry = references.saved, verdict.line, verdict.scores
    if line is None or entry is None:
        yield f"{saved.benchmark}: cannot tell; {in_time or 'no item was answered'}"
        return
    compared, runs = line.comparison, count(saved.reference_runs, "run")
    what = "is worse than" if verdict.kind == "worse" else "cannot be told from"
    twice = ", scored twice" if verdict.scorings > 1 else ""
    notes = (in_time, entry.saved.invalid)
    yield f"{saved.benchmark} {saved.primary}: {entry.saved.checkpoint} {what} {runs} in {saved.run_id}"
    yield f"  change    {compared.why} ({compared.method})"
    yield f"  values    {compared.new:.4f} and {compared.baseline:.4f} before, n {compared.n:,}{twice}"
    yield f"  sees      {_power(verdict)}"
    yield from (f"  note      {text}" for text in notes if text)
    broken = broken_items(verdict, references)
    answers = shown_answers(entry, saved.primary, broken)
    for example, (before, after) in broken.items():
        yield f"  {example}: {before * saved.reference_runs:g} of {runs} right before, {after:g} now"
        if (answer := answers.get(example)) is not None:
            yield f"    question  {_cut(answer.question, end=True)}"
            yield from [f"    right     {_cut(answer.gold)}"] if answer.gold else []
            yield f"    now       {_cut(answer.answer)}"


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
            yield f"a loss of {100 * max_loss:g} points takes about {verdict.items:,} items"


def _power(verdict: CandidateVerdict) -> str:
    """Return the loss that the items could have found, in words."""
    if verdict.finds is None or verdict.line is None:
        return "so few items find no loss"
    items = count(verdict.line.comparison.n, "item")
    return f"{items} find a loss of {100 * verdict.finds:.2f} points in {100 * POWER:g} % of builds"


def _cut(text: str, *, end: bool = False) -> str:
    """Return the beginning of a text as one line, or its ``end``."""
    line = one_line(text)
    if len(line) <= LONGEST:
        return line
    return f"...{line[3 - LONGEST :]}" if end else f"{line[: LONGEST - 3]}..."
