"""Items as people read them: records of the journal, and what the benchmark itself tells of them.

The journal has requests, answers and scores, but not which answer would have been right. That comes from the dataset's
row, found by its id and hash, and from the benchmark. It is started again with answers in which each choice in turn is
the likeliest; the right one is the one for which it gives its primary score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final

from harness.core.errors import HarnessError
from harness.core.requests import (
    FillMaskAnswer,
    GenerateAnswer,
    LoglikelihoodAnswer,
    Refusal,
    RollingAnswer,
    RunProgramAnswer,
)
from harness.metrics.multiple_choice import preferred
from harness.plugin.api.items import Item
from harness.results.item_view import Asked, Choice, ItemView, Said

CANDIDATES: Final = 5
"""Words that are shown for a mask."""

UNLIKELY: Final = -1e6
"""The log-probability of the choices that a probe does not prefer."""

ENDED: Final = {
    "stop": "ended at a stop sequence",
    "eos": "ended by itself",
    "length": "cut off at the limit",
}

Exchange = Mapping[str, Any]


def view_of(item: Item) -> ItemView:
    """Return the item as a person reads it."""
    notes: list[str] = []
    asked = tuple(_asked(item, notes))
    extracted, gold, row = _told(item, asked, notes)
    if any(
        f"{name}_sha256" in request for request in item.requests for name in ("context", "prompt", "text")
    ):
        notes.append("of a long question the run has kept the end")
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


def _asked(item: Item, notes: list[str]) -> Iterator[Asked]:
    """Yield the questions; log-likelihoods that follow one another are the choices of one."""
    pairs = list(zip(item.record.exchanges, item.answers, strict=True))
    for choices, group in groupby(pairs, lambda pair: isinstance(pair[1], LoglikelihoodAnswer)):
        several = list(group)
        if choices and len(several) > 1:
            yield _choices(item, several, notes, alone=len(several) == len(pairs))
        else:
            yield from (_one(exchange, answer) for exchange, answer in several)


def _one(exchange: Exchange, answer: Any) -> Asked:
    """Return a question that has its own answer."""
    kind, request = exchange["kind"], exchange["request"]
    match answer:
        case Refusal():
            text = request.get("prompt") or request.get("text") or request.get("context") or ""
            return Asked(kind, text, answers=(Said("", f"not answered: {answer.reason}"),))
        case GenerateAnswer():
            said = (Said(one.text, _end(one.finish_reason, one.tokens)) for one in answer.samples)
            return Asked(kind, request["prompt"], answers=tuple(said))
        case LoglikelihoodAnswer():
            greedy = "the likeliest" if answer.is_greedy else "not the likeliest"
            remark = f"log-probability {answer.logprob:.2f}, {greedy}"
            return Asked(kind, request["context"], answers=(Said(request["continuation"], remark),))
        case RollingAnswer():
            remark = f"log-probability {answer.logprob:.2f} over {answer.tokens} tokens"
            return Asked(kind, request["text"], answers=(Said("", remark),))
        case FillMaskAnswer():
            return Asked(kind, request["text"], choices=tuple(_candidates(answer, request.get("target"))))
        case RunProgramAnswer():
            remark = f"{answer.outcome}{f': {answer.detail}' if answer.detail else ''}"
            return Asked(kind, request["program"], answers=(Said("", remark),))
    raise AssertionError(kind)


def _end(reason: str, tokens: int) -> str:
    return f"{ENDED[reason]}, {tokens} tokens"


def _candidates(answer: FillMaskAnswer, target: str | None) -> Iterator[Choice]:
    """Yield the likeliest words, and the target where it is none of them."""
    known = None if target is None else False
    for place, one in enumerate(answer.candidates[:CANDIDATES]):
        yield Choice(one.text, one.logprob, chosen=place == 0, right=known if one.text != target else True)
    shown = [one.text for one in answer.candidates[:CANDIDATES]]
    if target is not None and target not in shown:
        yield Choice(target, answer.target_logprob, right=True)


# Choices


def _choices(item: Item, pairs: Sequence[tuple[Exchange, Any]], notes: list[str], *, alone: bool) -> Asked:
    texts = [(str(one["request"]["context"]), str(one["request"]["continuation"])) for one, _ in pairs]
    question = _common(texts)
    choices = [f"{context}{continuation}"[len(question) :] for context, continuation in texts]
    logprobs = [answer.logprob for _, answer in pairs]
    plain = [text.removeprefix(" ") for text in choices]
    chosen = preferred(item.primary or "", logprobs, plain, [answer.tokens for _, answer in pairs])
    rights = _rights(item, len(pairs), notes) if alone and item.right is not None else None
    if rights is None and item.right:
        rights = {chosen}
    if rights is not None and (chosen in rights) != item.right:
        notes.append("the benchmark does not choose by log-probability alone: none is marked as chosen")
        chosen = -1
    return Asked(
        "choices",
        question,
        tuple(
            Choice(text.strip(), logprob, place == chosen, None if rights is None else place in rights)
            for place, (text, logprob) in enumerate(zip(choices, logprobs, strict=True))
        ),
    )


def _common(texts: Sequence[tuple[str, str]]) -> str:
    """Return what all choices begin with: their context, or up to the word in which contexts first differ."""
    contexts = {context for context, _ in texts}
    if len(contexts) == 1:
        return contexts.pop()
    whole = [context + continuation for context, continuation in texts]
    start = "".join(first for first, *_ in takewhile(lambda at: len(set(at)) == 1, zip(*whole, strict=False)))
    return start[: max(start.rfind(" "), start.rfind("\n")) + 1]


def _rights(item: Item, count: int, notes: list[str]) -> set[int] | None:
    """Return the choices for which the benchmark gives its primary score; None where that cannot be found out."""
    found = set()
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
                found.add(preferred_one)
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
