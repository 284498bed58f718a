"""Items as they were asked and answered, for people to read: the exchanges of a record in order.

Log-likelihoods that follow one another are the choices of one question. Of long questions the journal has the end only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.grade import flat
from pytest_touchstone.metrics.multiple_choice import preferred
from pytest_touchstone.results.item_view import Asked, Choice, Said
from pytest_touchstone.results.records import Record

CANDIDATES: Final = 5
"""Words that are shown for a mask."""

ENDED: Final = {
    "stop": "ended at a stop sequence",
    "eos": "ended by itself",
    "length": "cut off at the limit",
}

CUT: Final = "of a long question the run has kept the end"

Exchange: TypeAlias = Mapping[str, Any]

Rights: TypeAlias = Callable[[int, list[str]], Sequence[int] | None]
"""The right ones of that many choices; None where that is not known, with a note on the reason."""


def asked_of(
    record: Record, primary: str | None, right: bool | None, rights: Rights, notes: list[str]
) -> tuple[Asked, ...]:
    """Return the questions of an item with their answers; what cannot be known is added to ``notes``.

    ``primary`` is the score by which the item is ``right``; ``rights`` is called for choices that are the whole item.
    """
    found: list[Asked] = []
    exchanges = record.exchanges
    for choices, group in groupby(exchanges, _is_choice):
        several = list(group)
        if choices and len(several) > 1:
            whole = len(several) == len(exchanges) and right is not None
            known = rights(len(several), notes) if whole else None
            found.append(_choices(several, primary, right, known, notes))
        else:
            found += map(_one, several)
    if any(f"{name}_sha256" in one["request"] for one in exchanges for name in ("context", "prompt", "text")):
        notes.append(CUT)
    return tuple(found)


def rest_of_row(asked: Sequence[Asked], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item's row that do not stand in its questions."""
    texts = "".join(one.text for one in asked)
    texts += "".join(
        f"{one.text}{said.text}\n" for one in asked for said in one.answers if one.kind == "Loglikelihood"
    )
    return {
        name: value
        for name, value in row.items()
        if value not in ("", None, [], {}) and flat(value).strip() not in texts
    }


def is_right(score: float | None) -> bool | None:
    """Return True for a score of 1, False below; None where it is no share of 1, or there is none."""
    return None if score is None or not 0 <= score <= 1 else score == 1


def _refused(answer: Mapping[str, Any]) -> str | None:
    """Return why there is no answer, None where there is one."""
    return next((str(answer[name]) for name in ("reason", "error") if name in answer), None)


def _is_choice(exchange: Exchange) -> bool:
    return bool(exchange["kind"] == "Loglikelihood" and _refused(exchange["answer"]) is None)


def _one(exchange: Exchange) -> Asked:  # noqa: PLR0911 -- one per kind
    """Return a question that has its own answer."""
    kind, request, answer = exchange["kind"], exchange["request"], exchange["answer"]
    if (reason := _refused(answer)) is not None:
        text = next(
            (request[name] for name in ("prompt", "text", "context", "program") if name in request), ""
        )
        return Asked(kind, text, answers=(Said("", f"not answered: {reason}"),))
    match kind:
        case "Generate":
            said = (Said(one["text"], _end(one)) for one in answer["samples"])
            turns = tuple((one["role"], one["text"]) for one in request.get("turns", ()))
            return Asked(
                kind, request["prompt"], answers=tuple(said), turns=turns if answer.get("chat") else ()
            )
        case "Loglikelihood":
            greedy = "the likeliest" if answer["is_greedy"] else "not the likeliest"
            remark = f"log-probability {float(answer['logprob']):.2f}, {greedy}"
            return Asked(kind, request["context"], answers=(Said(request["continuation"], remark),))
        case "RollingLoglikelihood" | "PseudoLoglikelihood":
            remark = f"log-probability {float(answer['logprob']):.2f} over {answer['tokens']} tokens"
            return Asked(kind, request["text"], answers=(Said("", remark),))
        case "FillMask":
            return Asked(kind, request["text"], choices=tuple(_candidates(answer, request.get("target"))))
        case "RunProgram":
            remark = f"{answer['outcome']}{f': {detail}' if (detail := answer.get('detail')) else ''}"
            return Asked(kind, request["program"], answers=(Said("", remark),))
    return Asked(kind, "", answers=(Said("", "no kind of request that is known here"),))


def _end(sample: Mapping[str, Any]) -> str:
    return f"{ENDED.get(sample['finish_reason'], sample['finish_reason'])}, {sample['tokens']} tokens"


def _candidates(answer: Mapping[str, Any], target: str | None) -> Iterator[Choice]:
    """Yield the likeliest words, and the target where it is none of them."""
    known = None if target is None else False
    first = answer["candidates"][:CANDIDATES]
    for place, one in enumerate(first):
        right = known if one["text"] != target else True
        yield Choice(one["text"], float(one["logprob"]), chosen=place == 0, right=right)
    if target is not None and all(one["text"] != target for one in first):
        logprob = answer.get("target_logprob")
        yield Choice(target, None if logprob is None else float(logprob), right=True)


def _choices(
    exchanges: Sequence[Exchange],
    primary: str | None,
    right: bool | None,
    rights: Sequence[int] | None,
    notes: list[str],
) -> Asked:
    texts = [(str(one["request"]["context"]), str(one["request"]["continuation"])) for one in exchanges]
    question = _common(texts)
    choices = [f"{context}{continuation}"[len(question) :] for context, continuation in texts]
    answers = [one["answer"] for one in exchanges]
    logprobs = [float(one["logprob"]) for one in answers]
    plain = [text.removeprefix(" ") for text in choices]
    chosen = preferred(primary or "", logprobs, plain, [one["tokens"] for one in answers])
    if rights is None and right:
        rights = [chosen]
    if rights is not None and (chosen in rights) != right:
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
