"""One item of a run in readable form: questions, answers, the right choice, and extracted answers.

``questions_of`` and ``plugin.finished_run`` make it from a record; ``reports.items`` writes it. Consecutive
log-likelihoods are the choices of one question. The journal keeps only the end of a long question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.dataset import CANONICAL, read_lines
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.grade import join_value
from pytest_touchstone.core.requests import Judge, JudgeAnswer, answer_from_plain
from pytest_touchstone.metrics.multiple_choice import AnsweredChoices
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Summary


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """A possible answer with its log-probability, None where it is more than one token.

    ``right`` is None where the right answer is unknown.
    """

    text: str
    logprob: float | None
    chosen: bool = False
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class ResponseView:
    """An answer: its text, the ``reasoning`` before it, and a remark.

    The remark says how the text ended, or gives the verdict on a program.
    """

    text: str
    remark: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its text, with its answers or its choices.

    ``turns`` are the role and text of each message of a conversation.
    """

    kind: str
    text: str
    choices: tuple[AnswerChoice, ...] = ()
    answers: tuple[ResponseView, ...] = ()
    turns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemView:
    """One item in readable form.

    ``right`` is None where the primary score is not between 0 and 1. ``extracted`` has the answers that were extracted
    from the texts, by rule. ``gold`` is the expected answer, if the benchmark gives it. ``row`` has the fields of the
    dataset row that the question does not show. ``notes`` say which facts are missing, and why.
    """

    example: str
    benchmark: str
    checkpoint: str
    group: str | None
    status: str
    scores: dict[str, float]
    right: bool | None
    message: str | None
    asked: tuple[Question, ...]
    extracted: dict[str, str | None] = field(default_factory=dict)
    gold: str | None = None
    row: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


CANDIDATES: Final = 5
"""Words that are shown for a mask."""

ENDED: Final = {
    "stop": "ended at a stop sequence",
    "eos": "ended by itself",
    "length": "cut off at the limit",
}

PROMPTS: Final = {
    "Loglikelihood": "context",
    "Generate": "prompt",
    "RollingLoglikelihood": "text",
    "FillMask": "text",
    "PseudoLoglikelihood": "text",
}
"""The field of a request that is its prompt, by kind."""

CUT: Final = "of a long question the run has kept the end"

Exchange: TypeAlias = Mapping[str, Any]

RightChoices: TypeAlias = Callable[[int, list[str]], Sequence[int] | None]
"""The right ones of that many choices; None where that is not known, with a note on the reason."""


def prompt_hash(exchange: Exchange) -> str:
    """Return the SHA-256 of a request's prompt, even a shortened one; empty without a prompt."""
    name, request = PROMPTS.get(exchange["kind"], ""), exchange["request"]
    if (digest := request.get(f"{name}_sha256")) is not None:
        return str(digest)
    return (
        hashlib.sha256(str(request[name]).encode("utf-8", "backslashreplace")).hexdigest()
        if name in request
        else ""
    )


def questions_of(
    record: Record,
    primary: str | None,
    right: bool | None,
    rights: RightChoices,
    notes: list[str],
    *,
    words: int | None = CANDIDATES,
) -> tuple[Question, ...]:
    """Return the questions of an item with their answers.

    Args:
        record: The record of the item.
        primary: The name of the primary score.
        right: Whether the primary score is 1; None where it is not between 0 and 1.
        rights: Called with the number of choices where they are the whole item; returns the indices of the right ones.
        notes: Gets a line for each fact that cannot be determined.
        words: The most candidates shown for a mask; None for all.

    """
    questions: list[Question] = []
    exchanges = record.exchanges
    for choices, group in groupby(exchanges, _is_choice):
        several = list(group)
        if choices and len(several) > 1:
            whole = len(several) == len(exchanges) and right is not None
            right_choices = rights(len(several), notes) if whole else None
            questions.append(_choice_question(several, primary, right, right_choices, notes))
        else:
            questions += (_single_question(exchange, words) for exchange in several)
    if is_shortened(exchanges):
        notes.append(CUT)
    return tuple(questions)


def is_shortened(exchanges: Sequence[Exchange]) -> bool:
    """Return whether the journal keeps only a part of a request to the checkpoint or the judge."""
    kept = [exchange["request"] for exchange in exchanges if exchange["kind"] != "RunProgram"]
    return any(name.endswith("_sha256") for request in kept for name in request)


def unshown_fields(asked: Sequence[Question], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item's row that its questions do not show."""
    texts = "".join(question.text for question in asked)
    texts += "".join(
        f"{question.text}{answer.text}\n"
        for question in asked
        for answer in question.answers
        if question.kind == "Loglikelihood"
    )
    return {
        name: value
        for name, value in row.items()
        if value not in ("", None, [], {}) and join_value(value).strip() not in texts
    }


def is_right(score: float | None) -> bool | None:
    """Return True for a score of 1, False below, and None outside 0 to 1."""
    return None if score is None or not 0 <= score <= 1 else score == 1


def _refusal_reason(answer: Mapping[str, Any]) -> str | None:
    """Return why a request was not answered; None where it was."""
    return next((str(answer[name]) for name in ("reason", "error") if name in answer), None)


def _is_choice(exchange: Exchange) -> bool:
    return bool(exchange["kind"] == "Loglikelihood" and _refusal_reason(exchange["answer"]) is None)


def _single_question(exchange: Exchange, words: int | None) -> Question:  # noqa: PLR0911 -- one per kind
    """Return a question with its own answer, without choices."""
    kind, request, answer = exchange["kind"], exchange["request"], exchange["answer"]
    if (reason := _refusal_reason(answer)) is not None:
        text = next(
            (request[name] for name in ("prompt", "text", "context", "program") if name in request), ""
        )
        return Question(kind, text, answers=(ResponseView("", f"not answered: {reason}"),))
    match kind:
        case "Generate":
            answers = (
                ResponseView(sample["text"], _end(sample), sample.get("reasoning") or "")
                for sample in answer["samples"]
            )
            turns = tuple((turn["role"], turn["text"]) for turn in request.get("turns", ()))
            return Question(
                kind, request["prompt"], answers=tuple(answers), turns=turns if answer.get("chat") else ()
            )
        case "Loglikelihood":
            greedy = "the likeliest" if answer["is_greedy"] else "not the likeliest"
            remark = f"log-probability {float(answer['logprob']):.2f}, {greedy}"
            return Question(
                kind, request["context"], answers=(ResponseView(request["continuation"], remark),)
            )
        case "RollingLoglikelihood" | "PseudoLoglikelihood":
            remark = f"log-probability {float(answer['logprob']):.2f} over {answer['tokens']} tokens"
            return Question(kind, request["text"], answers=(ResponseView("", remark),))
        case "FillMask":
            return Question(
                kind, request["text"], choices=tuple(_candidates(answer, request.get("target"), words))
            )
        case "RunProgram":
            remark = f"{answer['outcome']}{f': {detail}' if (detail := answer.get('detail')) else ''}"
            return Question(kind, request["program"], answers=(ResponseView("", remark),))
        case "Judge":
            asked = Judge(request["prompt"], choices=request["choices"], texts=request["texts"])
            return Question(kind, asked.filled(dict(asked.texts)), answers=(_verdict(answer),))
    return Question(kind, "", answers=(ResponseView("", "no kind of request that is known here"),))


def _verdict(plain: Mapping[str, Any]) -> ResponseView:
    answer = answer_from_plain("Judge", dict(plain))
    if not isinstance(answer, JudgeAnswer):
        return ResponseView("", "not answered")
    if answer.verdict is None:
        return ResponseView(answer.text, "none")
    sure = "" if answer.logprobs is None else f", probability {answer.probabilities[answer.verdict]:.2f}"
    return ResponseView(answer.text, f"{answer.verdict}{sure}")


def _end(sample: Mapping[str, Any]) -> str:
    thought = f", {number} of them reasoning" if (number := sample.get("reasoning_tokens")) else ""
    tokens = (
        f", {number} tokens" if (number := sample["tokens"]) else ""
    )  # of a file's texts they are not known
    return f"{ENDED.get(sample['finish_reason'], sample['finish_reason'])}{tokens}{thought}"


def _candidates(answer: Mapping[str, Any], target: str | None, words: int | None) -> Iterator[AnswerChoice]:
    """Yield the most probable words for a mask, and the target if it is not among them."""
    if_wrong = None if target is None else False
    first = answer["candidates"][:words]
    for index, candidate in enumerate(first):
        right = if_wrong if candidate["text"] != target else True
        yield AnswerChoice(candidate["text"], float(candidate["logprob"]), chosen=index == 0, right=right)
    if target is not None and all(candidate["text"] != target for candidate in first):
        logprob = answer.get("target_logprob")
        yield AnswerChoice(target, None if logprob is None else float(logprob), right=True)


def _choice_question(
    exchanges: Sequence[Exchange],
    primary: str | None,
    right: bool | None,
    rights: Sequence[int] | None,
    notes: list[str],
) -> Question:
    texts = [
        (str(exchange["request"]["context"]), str(exchange["request"]["continuation"]))
        for exchange in exchanges
    ]
    question = _common_context(texts)
    choices = [f"{context}{continuation}"[len(question) :] for context, continuation in texts]
    answers = [exchange["answer"] for exchange in exchanges]
    logprobs = [float(answer["logprob"]) for answer in answers]
    plain = [text.removeprefix(" ") for text in choices]
    tokens = [answer["tokens"] for answer in answers]
    chosen = AnsweredChoices(logprobs, plain, tokens).preferred(primary or "")
    if rights is None and right:
        rights = [chosen]
    if rights is not None and (chosen in rights) != right:
        notes.append("the benchmark does not choose by log-probability alone: none is marked as chosen")
        chosen = -1
    return Question(
        "choices",
        question,
        tuple(
            AnswerChoice(text.strip(), logprob, index == chosen, None if rights is None else index in rights)
            for index, (text, logprob) in enumerate(zip(choices, logprobs, strict=True))
        ),
    )


def _common_context(texts: Sequence[tuple[str, str]]) -> str:
    """Return the common beginning of all choices, up to the word where their contexts differ."""
    contexts = {context for context, _ in texts}
    if len(contexts) == 1:
        return contexts.pop()
    whole = [context + continuation for context, continuation in texts]
    start = "".join(first for first, *_ in takewhile(lambda at: len(set(at)) == 1, zip(*whole, strict=False)))
    return start[: max(start.rfind(" "), start.rfind("\n")) + 1]


MOST_SHOWN: Final = 20_000
"""Characters of a field that are shown: a row may have megabytes of tests."""


def data_rows(summary: Summary, benchmark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the hash and the fields of each readable row of a benchmark, long texts without their end."""
    root = Path(summary.manifest.get("rootdir", "."))
    paths = [
        Path(declaration.dataset.path)
        for declaration in summary.declarations
        if declaration.name == benchmark
    ]
    try:
        for path in (path if path.exists() else root / path for path in paths if str(path) != "."):
            for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.is_file() else []:
                for line in read_lines(file):
                    canonical = CANONICAL.encode(line.data).encode("utf-8", "backslashreplace")
                    shown = {
                        name: f"{value[:MOST_SHOWN]} ..."
                        if isinstance(value, str) and len(value) > MOST_SHOWN
                        else value
                        for name, value in line.data.items()
                    }
                    yield hashlib.sha256(canonical).hexdigest()[:16], shown  # the hash as in records
    except HarnessError:  # the data has changed since; items are shown without it
        return
