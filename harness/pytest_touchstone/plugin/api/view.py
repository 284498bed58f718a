"""Items as people read them: records of the journal, and what the benchmark itself tells of them.

The journal has requests, answers and scores, and what the benchmark told when it scored: the right choice, the gold
answer, and what was read out of a text. Where a benchmark tells nothing it is started again, with the dataset's row and
answers in which each choice in turn is the likeliest. The right one is the one for which it gives its primary score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.grade import told_by
from pytest_touchstone.plugin.api.items import Item
from pytest_touchstone.results.item_view import CANDIDATES, ItemView, Question, asked_of, is_cut, rest_of_row
from pytest_touchstone.results.records import Record

UNLIKELY: Final = -1e6
"""The log-probability of the choices that a probe does not prefer."""


def view_of(item: Item, *, full: bool = False) -> ItemView:
    """Return the item as a person reads it; ``full`` has the whole of long questions, and all words for a mask."""
    notes: list[str] = []
    record, words = (_whole(item, notes), None) if full else (item.record, CANDIDATES)
    asked = asked_of(record, item.primary, item.right, partial(_rights, item), notes, words=words)
    extracted, gold, row = _told(item, asked, notes)
    return ItemView(
        example=item.example,
        benchmark=item.benchmark,
        checkpoint=item.checkpoint,
        group=item.group,
        status=item.status,
        scores=item.scores,
        right=item.right,
        message=item.message,
        asked=asked,
        extracted=extracted,
        gold=gold,
        row=row,
        notes=tuple(dict.fromkeys(notes)),
    )


def _whole(item: Item, notes: list[str]) -> Record:
    """Return the record with its requests in full, which the benchmark asks again; as it is where that cannot be."""
    try:
        if is_cut(item.record.exchanges):
            return replace(item.record, exchanges=item.again().exchanges)
    except HarnessError as error:
        notes.append(f"the whole question is not known: {error}")
    return item.record


def _rights(item: Item, count: int, notes: list[str]) -> list[int] | None:
    """Return the choices for which the benchmark gives its primary score; None where that cannot be found out."""
    if item.record.told and "right" in item.record.told:
        return list(item.record.told["right"])
    found = []
    try:
        for preferred_one in range(count):
            exchanges = [
                {**one, "answer": {**one["answer"], "logprob": -1.0 if place == preferred_one else UNLIKELY}}
                for place, one in enumerate(item.record.exchanges)
            ]
            record = item.again(exchanges).record
            if record.status != "scored":
                raise HarnessError(record.message or record.status)
            if record.scores.get(item.primary or "") == 1:
                found.append(preferred_one)
    except HarnessError as error:
        notes.append(f"which choice is right is not known: {error}")
        return None
    return found


# What the benchmark tells


def _told(
    item: Item, asked: Sequence[Question], notes: list[str]
) -> tuple[dict[str, str | None], str | None, dict[str, Any]]:
    """Return what was read out of the texts, the gold answer, and the fields of the row that were not asked."""
    shown = {one.kind for one in asked}
    if not asked or shown <= {"choices", "FillMask", "RollingLoglikelihood", "PseudoLoglikelihood"}:
        return {}, None, {}
    try:
        row = dict(item.row)
    except HarnessError as error:
        notes.append(f"the row is not known: {error}")
        return {}, None, {}
    others = rest_of_row(asked, row)
    if item.failed or "Generate" not in shown:
        return {}, None, others
    try:
        told = item.record.told or told_by(item.again().returned)
    except HarnessError as error:
        notes.append(f"what was read out of the text is not known: {error}")
        return {}, None, others
    return dict(told.get("extracted", {})), told.get("gold"), others
