"""The prompts of items, which identify items of other harnesses and reveal changed benchmarks.

Another harness hashes its rows in its own way. Its items are identified by their position in the file and their prompt,
so that results can be compared in pairs. Two runs may have run the same items with other prompts, though the benchmark
has kept its version: its file was edited.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.formats.lm_eval import samples_of
from pytest_touchstone.compare.formats.run import answers_of
from pytest_touchstone.core.text import count
from pytest_touchstone.results.item_view import prompt_hash
from pytest_touchstone.results.journal import iter_records, journal_size, latest_records
from pytest_touchstone.results.store_entry import StoredResult

_TEXTS: Final = ("context", "continuation", "prompt", "turns", "text")
"""The fields of a request that a checkpoint reads, each in full or as its hash."""


OTHER: Final = "other prompts than the baseline's"

OTHERS: Final = "not compared, since they had other prompts"

EDITED: Final = (
    "its file has changed and kept its version: raise it if that changes prompts or scores; the baseline's run is "
    "gone, so that they cannot be compared"
)
"""A note that does not refuse the baseline."""

PROMPTS: Final = "prompts"
"""The condition that items are asked by the same prompts."""


class OtherPrompts(NamedTuple):
    """The number of items in both results (``asked``) and of those whose prompts ``differ``.

    There is a hash of each side's prompts.
    """

    differ: int
    asked: int
    hashes: tuple[str, str]


def other_prompts(baseline: BenchmarkScores, new: BenchmarkScores) -> OtherPrompts | None:
    """Return how many items of two runs have different prompts; None if there are none, or it is unknown.

    Runs by the same code ask the same, so their journals are not read.
    """
    if baseline.saved.code is not None and baseline.saved.code == new.saved.code:
        return None
    before, after = prompt_digests(baseline), prompt_digests(new)
    both = sorted(before.keys() & after.keys())
    differ = sum(before[item] != after[item] for item in both)
    if not differ:
        return None
    hashes = (hashlib.sha256("".join(side[item] for item in both).encode()) for side in (before, after))
    first, second = (digest.hexdigest() for digest in hashes)
    return OtherPrompts(differ, len(both), (first, second))


def changed_text(baseline: BenchmarkScores, new: BenchmarkScores) -> str:
    """Return the note on a benchmark whose prompts have changed, though it has kept its version; else nothing."""
    differences = other_prompts(baseline, new)
    if differences is None:
        return ""
    asked = count(differences.asked, "item")
    return f"{OTHER} in {differences.differ:,} of {asked}: the benchmark has changed and kept its version"


def edited_text(baseline: BenchmarkScores, new: BenchmarkScores) -> str:
    """Return the note on a benchmark whose file was edited without a new version; else empty.

    It is for a baseline whose run is gone, as in a job that has only its saved results.
    """
    sides = [result.saved for result in (baseline, new)]
    before, after = ((saved.code or "").partition(":")[2] for saved in sides)
    folders = [answers_of(saved) for saved in sides]
    readable = all(folder is not None and folder.is_dir() for folder in folders)
    return EDITED if before and after and before != after and not readable else ""


def prompt_digests(entry: BenchmarkScores) -> Mapping[tuple[str, str], str]:
    """Return the hash of the first prompt of each item, by id and hash of the row; empty where its run is gone."""
    saved = entry.saved
    folder = entry.answers or answers_of(saved)
    if folder is None or not folder.is_dir():
        return {}
    return _requests_of(folder.resolve(), journal_size(folder), saved.benchmark, saved.checkpoint)


@functools.lru_cache(maxsize=16)
def _requests_of(folder: Path, _size: int, benchmark: str, checkpoint: str) -> Mapping[tuple[str, str], str]:
    """Return the hash of each item's first request, by its id and the hash of its row.

    ``_size`` is that of the journal, which may grow.
    """
    having = {"benchmark": [benchmark], "checkpoint": [checkpoint]}
    digests: dict[tuple[str, str], str] = {}
    for record in iter_records(folder, having=having):
        if record.exchanges:
            request = record.exchanges[0]["request"]
            texts = [request.get(name) for field in _TEXTS for name in (field, f"{field}_sha256")]
            digest = hashlib.sha256(repr(texts).encode("utf-8", "backslashreplace")).hexdigest()
            digests[record.example, record.row] = digest[:16]
    return digests


def known_by_prompts(
    baseline: CheckpointResults, new: CheckpointResults
) -> tuple[CheckpointResults, CheckpointResults]:
    """Return the candidates, with rows matched to those of a run that used the same prompts."""
    before, after = dict(baseline.entries), dict(new.entries)
    for name in before.keys() & after.keys():
        a, b = before[name], after[name]
        before[name], after[name] = _known_by(a, b), _known_by(b, a)
    return replace(baseline, entries=before), replace(new, entries=after)


def _known_by(samples: BenchmarkScores, run: BenchmarkScores) -> BenchmarkScores:
    """Return ``samples`` with the rows of the run, if they are a file of samples and a run's folder."""
    if (
        samples.answers is None
        or not samples.answers.is_file()
        or run.answers is None
        or not run.answers.is_dir()
    ):
        return samples
    theirs = dict(samples_of(samples.answers, samples.saved.benchmark))
    rows = dict(zip(run.items.examples, run.items.rows, strict=True))
    same = {
        example: rows[example]
        for example, prompt in _prompts_of_run(run.saved, run.answers)
        if example in rows and prompt == theirs.get(example, {}).get("prompt_hash")
    }
    items = samples.items
    prompts = [same.get(example, row) for example, row in zip(items.examples, items.rows, strict=True)]
    return replace(samples, items=replace(items, rows=prompts))


def _prompts_of_run(saved: StoredResult, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the ids of a run's items, each with the hash of its first prompt."""
    mine = (
        record
        for record in iter_records(folder)
        if record.benchmark == saved.benchmark and record.checkpoint == saved.checkpoint and not record.chat
    )
    for record in latest_records(mine).values():
        if record.exchanges:
            yield record.example, prompt_hash(record.exchanges[0])
