"""The items of published samples that a run has asked too: the same place in the file, and the same prompt.

Another harness hashes its rows in its own way. By their prompts items are known all the same, so that they can be
compared in pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from harness.compare.candidate import Candidate, Entry
from harness.compare.formats.lm_eval import samples_of
from harness.results.journal import each_record, latest

_PROMPTS: Final = {"Loglikelihood": "context", "Generate": "prompt", "RollingLoglikelihood": "text"}
"""The field of a request that is its prompt, by kind."""


def known_by_prompts(baseline: Candidate, new: Candidate) -> tuple[Candidate, Candidate]:
    """Return the candidates, with the rows of a run on the published items that it asked by the same prompt."""
    before, after = dict(baseline.entries), dict(new.entries)
    for name in before.keys() & after.keys():
        a, b = before[name], after[name]
        before[name], after[name] = _known_by(a, b), _known_by(b, a)
    return replace(baseline, entries=before), replace(new, entries=after)


def _known_by(samples: Entry, run: Entry) -> Entry:
    """Return ``samples`` with the rows of the run, where they are a file of samples and a run's folder."""
    if (
        samples.answers is None
        or not samples.answers.is_file()
        or run.answers is None
        or not run.answers.is_dir()
    ):
        return samples
    theirs = {f"{samples.saved.benchmark}/{number}": data for number, data in samples_of(samples.answers)}
    rows = dict(zip(run.items.examples, run.items.rows, strict=True))
    same = {
        example: rows[example]
        for example, prompt in _prompts_of_run(run)
        if example in rows and prompt == theirs.get(example, {}).get("prompt_hash")
    }
    items = samples.items
    known = [same.get(example, row) for example, row in zip(items.examples, items.rows, strict=True)]
    return replace(samples, items=replace(items, rows=known))


def _prompts_of_run(run: Entry) -> Iterator[tuple[str, str]]:
    """Yield the ids of a run's items, each with the hash of its first prompt."""
    assert run.answers is not None
    saved = run.saved
    mine = (
        record
        for record in each_record(run.answers)
        if record.benchmark == saved.benchmark and record.checkpoint == saved.checkpoint and not record.chat
    )
    for record in latest(mine).values():
        if record.exchanges:
            yield record.example, _prompt(record.exchanges[0])


def _prompt(exchange: Mapping[str, Any]) -> str:
    """Return the hash of a request's prompt, empty where it has none."""
    name, request = _PROMPTS.get(exchange["kind"], ""), exchange["request"]
    if (known := request.get(f"{name}_sha256")) is not None:
        return str(known)
    return hashlib.sha256(str(request[name]).encode()).hexdigest() if name in request else ""
