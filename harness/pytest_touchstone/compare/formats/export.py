"""A checkpoint of a run for export in any format: its items, and how they were run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.coverage import SHIPPED
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.core.tasks import LM_EVAL_FILTERS
from pytest_touchstone.results.item_view import PROMPTS, ItemView, prompt_hash
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Declaration, Result, Summary

SHOWN: Final = 5
"""Words for a mask that a sample has."""

READ_BY: Final = {"strict-match": "strict", "flexible-extract": "flexible"}
"""The rule that reads an answer out of a text, by the filter that scores it."""

Files = dict[str, Any]
"""Contents by path: a text, or plain data for JSON."""


@dataclass(frozen=True, slots=True)
class ExportedSample:
    """A scored item: its record, its full requests, its row (empty if unknown), and its view."""

    record: Record
    requests: Sequence[Mapping[str, Any]]
    row: Mapping[str, Any]
    view: ItemView

    @property
    def answers(self) -> list[Mapping[str, Any]]:
        """The answers of the checkpoint, without verdicts on programs."""
        return [one["answer"] for one in self.record.exchanges if one["kind"] not in VERDICT_KINDS]

    @property
    def responses(self) -> list[list[Any]]:
        """Each answer as text in nested lists, one for each repeat."""
        return [_texts(answer) for answer in self.answers]

    @property
    def kinds(self) -> list[str]:
        """The kinds of its requests to the checkpoint."""
        return [one["kind"] for one in self.record.exchanges if one["kind"] not in VERDICT_KINDS]

    @property
    def prompt(self) -> str:
        """The first thing that the checkpoint read; empty where it was asked nothing."""
        first = self.requests[0] if self.requests else {}
        return next((str(first[name]) for name in PROMPTS.values() if name in first), "")

    @property
    def target(self) -> str:
        """The expected answer: the index of the right choice, the word of a mask, or a text."""
        for asked in self.view.asked:
            rights = [number for number, one in enumerate(asked.choices) if one.right]
            if asked.kind == "choices" and rights:
                return str(rights[0])
        target = next((one["target"] for one in self.requests if one.get("target")), None)
        if target is None and self.kinds == ["Loglikelihood"]:
            target = self.requests[0]["continuation"]
        return str(self.view.gold or "") if target is None else str(target)


def _texts(answer: Mapping[str, Any]) -> list[Any]:
    if "samples" in answer:
        return [one["text"] for one in answer["samples"]]
    if "is_greedy" in answer:
        return [[str(answer["logprob"]), str(answer["is_greedy"])]]
    if "candidates" in answer:
        return [one["text"] for one in answer["candidates"][:SHOWN]]
    return [str(answer.get("logprob", answer.get("reason", "")))]


class HowAsked(NamedTuple):
    """The prompts of a checkpoint's items: a digest, and one request for generation.

    The digest is a SHA-256 over the ids of the items and the hashes of their prompts, independent of order. The request
    is the first one for a text, empty without one.
    """

    prompts: str
    generation: Mapping[str, Any]


def how_asked(records: Iterable[Record]) -> dict[tuple[str, str | None], HowAsked]:
    """Return how the items of each benchmark, and of each of its groups, were asked."""
    hashes: dict[tuple[str, str | None], list[str]] = {}
    texts: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for record in records:
        first: dict[str, Any] = record.exchanges[0] if record.exchanges else {"kind": "", "request": {}}
        for key in dict.fromkeys(((record.benchmark, None), (record.benchmark, record.group))):
            hashes.setdefault(key, []).append(f"{record.example}\t{prompt_hash(first)}\n")
            if first["kind"] == "Generate":
                texts.setdefault(key, first["request"])
    return {
        key: HowAsked(text_hash("".join(sorted(lines))), texts.get(key, {})) for key, lines in hashes.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCheckpoint:
    """A checkpoint of a run that is exported.

    ``model_id`` is its name on the Hub (``ORG/NAME``), ``source`` the public address of the run; None if it was not
    given.
    """

    summary: Summary
    checkpoint: str
    samples: Sequence[ExportedSample]
    asked: Mapping[tuple[str, str | None], HowAsked]
    model_id: str | None = None
    source: str | None = None

    @property
    def results(self) -> list[Result]:
        """The results of the checkpoint, also those of groups."""
        return [one for one in self.summary.results if one.checkpoint == self.checkpoint]

    def declared(self, result: Result) -> Declaration:
        """Return what its benchmark has declared."""
        return next(one for one in self.summary.declarations if one.name == result.benchmark)

    def on_hub(self, result: Result) -> Mapping[str, str]:
        """Return the dataset of its rows on the Hub; empty if there is none."""
        declared = self.declared(result)
        return {} if declared.own_rows and declared.dataset.origin == SHIPPED else declared.hub


def filtered(metric: str) -> tuple[str, str]:
    """Return the metric and the filter behind one of our names: ``exact_match`` and ``strict-match``."""
    for kind, ending in LM_EVAL_FILTERS.items():
        if ending and metric.endswith(ending) and metric != ending:
            return metric.removesuffix(ending), kind
    return metric, "none"


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def sanitized(name: str) -> str:
    """Return a model's name as a folder has it: lm-evaluation-harness's rule, without what a system refuses."""
    return re.sub(r'["<>:/|\\?*\[\]\x00-\x1f\x7f\ud800-\udfff]+', "__", name)


def row_of(summary: Summary, checkpoint: str) -> Mapping[str, Any]:
    """Return the checkpoint's row of the run; empty where it has none."""
    return next((one for one in summary.checkpoints if one.get("name") == checkpoint), {})


def began(summary: Summary) -> datetime:
    """Return when the run began."""
    return datetime.fromtimestamp(float(summary.manifest.get("began") or 0.0))
