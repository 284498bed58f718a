"""Items as people read them: records of the journal, and what the benchmark itself tells of them.

The journal has requests, answers and scores, but not which answer would have been right. That comes from the dataset's
row, found by its id and hash, and from the benchmark. It is started again with answers in which each choice in turn is
the likeliest; the right one is the one for which it gives its primary score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harness.core.errors import HarnessError
from harness.plugin.api.items import Item
from harness.results.asked import asked_of
from harness.results.item_view import Asked, ItemView

UNLIKELY: Final = -1e6
"""The log-probability of the choices that a probe does not prefer."""


def view_of(item: Item) -> ItemView:
    """Return the item as a person reads it."""
    notes: list[str] = []
    asked = asked_of(item.record, item.primary, item.right, partial(_rights, item), notes)
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


def _rights(item: Item, count: int, notes: list[str]) -> list[int] | None:
    """Return the choices for which the benchmark gives its primary score; None where that cannot be found out."""
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
    item: Item, asked: Sequence[Asked], notes: list[str]
) -> tuple[dict[str, str | None], str | None, dict[str, Any]]:
    """Return what was read out of the texts, the gold answer, and the fields of the row that were not asked."""
    shown = {one.kind for one in asked}
    if not asked or shown <= {"choices", "FillMask", "RollingLoglikelihood"}:
        return {}, None, {}
    try:
        row = dict(item.row)
    except HarnessError as error:
        notes.append(f"the row is not known: {error}")
        return {}, None, {}
    texts = "".join(one.text for one in asked)
    texts += "".join(
        f"{one.text}{said.text}\n" for one in asked for said in one.answers if one.kind == "Loglikelihood"
    )
    others = {
        name: value
        for name, value in row.items()
        if value not in ("", None, [], {}) and _flat(value).strip() not in texts
    }
    if item.failed or "Generate" not in shown:
        return {}, None, others
    try:
        returned = item.again().returned
    except HarnessError as error:
        notes.append(f"what was read out of the text is not known: {error}")
        return {}, None, others
    extracted, gold = getattr(returned, "extracted", None), getattr(returned, "gold", None)
    known = dict(extracted) if isinstance(extracted, Mapping) else {}
    return known, None if gold is None else _flat(gold), others


def _flat(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)
