"""Texts of a run that a trace makes doubtful, of whose server nothing was known when they were asked for.

A stop sequence ends a text within its trace where a server applies it there, and a trace that the server's chat
template has opened looks like an answer where the limit of tokens cut it off. Once a text of the checkpoint has shown
it, those texts are asked for again. They are found in the journal, which has the texts of all processes: the scores do
not depend on the one that was asked first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.requests import Generate
from pytest_touchstone.results.journal import each_record
from pytest_touchstone.results.records import Record

AGAIN: Final = "trace"
"""The process in whose name the journal has what was asked again: it is read after all others, so its records count."""


class DoubtfulTexts(NamedTuple):
    """The items of a checkpoint that are to be asked again; ``opened``: its chat template opens traces."""

    opened: bool
    items: list[str]


def doubtful_texts(directory: Path) -> dict[str, DoubtfulTexts]:
    """Return the items to be asked again, by checkpoint. Raises ``JournalError``."""
    traced = {
        record.checkpoint
        for record in each_record(directory, exchanges=False)
        if record.reasoned or record.traces_seen
    }
    opened: set[str] = set()
    doubts: dict[str, tuple[str, bool, bool]] = {}
    for record in each_record(directory) if traced else ():
        if record.checkpoint in traced:
            samples = _samples(record)
            if any(sample.get("unopened") for sample in samples):
                opened.add(record.checkpoint)
            stopped = any(sample.get("stops_sent") for sample in samples)
            doubts[record.item] = record.checkpoint, stopped, any(map(_is_cut_off, samples))
    items: dict[str, list[str]] = {}
    for item, (checkpoint, stopped, cut_off) in doubts.items():
        if stopped or (cut_off and checkpoint in opened):
            items.setdefault(checkpoint, []).append(item)
    return {checkpoint: DoubtfulTexts(checkpoint in opened, names) for checkpoint, names in items.items()}


def _samples(record: Record) -> list[dict[str, Any]]:
    """Return the texts of a record."""
    answers = [one["answer"] for one in record.exchanges if one["kind"] == Generate.__name__]
    return [sample for answer in answers for sample in answer.get("samples", ())]


def _is_cut_off(sample: dict[str, Any]) -> bool:
    """Return whether a text without a trace was cut off at the limit of tokens."""
    return sample["finish_reason"] == "length" and sample.get("reasoning") is None and bool(sample["text"])
