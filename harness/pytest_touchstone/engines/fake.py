"""An engine without a model: answers come from hashes of the requests, the same in every process and on every
machine.

It serves for trying out a new benchmark (``--checkpoint fake:causal``) and for tests; results say ``model_type``
"fake".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, cast

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.core.requests import (
    MASK,
    Answer,
    Candidate,
    FillMask,
    FillMaskAnswer,
    FinishReason,
    Generate,
    GenerateAnswer,
    Generated,
    Judge,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
    RollingLoglikelihood,
    RunProgram,
    earliest_stop,
)
from pytest_touchstone.engines.base import Done, Engine, EngineFactory
from pytest_touchstone.engines.settings import ModelSettings

_VOCABULARY: Final = (
    "서울 학교 사람 역사 나라 도시 영화 음악 세계 river house music history people city water time"
)
_WORDS: Final = tuple(_VOCABULARY.split())

_END, _BREAK, _NUMBER = 0.025, 0.1, 0.8
"""Upper limits of a hash below which a generated word is the end, a line break, or a word; the rest are numbers."""


class FakeFactory(EngineFactory):
    """The factory of ``fake:`` checkpoints."""

    name = "fake"

    def fingerprint(self, info: CheckpointInfo) -> str | None:
        """Return the fingerprint of its name."""
        return fingerprint(info)

    def open(self, info: CheckpointInfo, _: ModelSettings, /) -> FakeEngine:
        """Return an engine for the checkpoint."""
        return FakeEngine(info)


class FakeEngine(Engine):
    """An engine with answers of plausible sizes and no meaning; each word counts as one token."""

    def __init__(self, info: CheckpointInfo) -> None:
        self.info = info

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in order; types that the checkpoint does not serve are refused."""
        answers = []
        for number, request in enumerate(requests):
            answers.append(self._answer(request))
            if done is not None:
                done(number, answers[-1])
        return answers

    def _answer(self, request: Request) -> Answer | Refusal:  # noqa: PLR0911 -- one per kind
        if not isinstance(request, self.info.serves):
            return Refusal(
                f"{self.info.name} is a {self.info.kind} model; it does not answer {type(request).__name__}"
            )
        match request:
            case Loglikelihood(context, continuation):
                if not continuation:
                    return Refusal("the continuation is empty; there is nothing to score")
                tokens = max(1, len(continuation.split()))
                chance = _chance(context, continuation)
                return LoglikelihoodAnswer(-tokens * (0.2 + 6 * chance), chance < 0.3, tokens)
            case RollingLoglikelihood(text) | PseudoLoglikelihood(text):
                if not text:
                    return Refusal("the text is empty; there is nothing to score")
                tokens = max(1, len(text.split()))
                return RollingAnswer(-tokens * (1.0 + 6 * _chance(text)), tokens)
            case Generate():
                if (fault := request.fault()) is not None:
                    return Refusal(fault)
                samples = tuple(_sample(request, number) for number in range(request.samples))
                return GenerateAnswer(samples, max(1, len(request.prompt.split())))
            case FillMask():
                return _fill(request)
            case RunProgram() | Judge():
                return Refusal("programs are run by the sandbox, and verdicts are a judge's")


def _sample(request: Generate, number: int) -> Generated:
    """Return random words, numbers and line breaks up to a stop, the limit, or an end (one in forty words)."""
    drawn = (str(request.seed), str(number)) if request.temperature else ()
    text, words, reason = "", 0, "length"
    while words < request.max_new_tokens:
        chance = _chance(request.prompt, *drawn, str(words))
        words += 1
        if chance < _END:
            reason = "eos"
            break
        if chance < _BREAK:
            text += "\n"
        else:
            text += f" {_WORDS[words % len(_WORDS)] if chance < _NUMBER else int(1000 * chance)}"
        if (at := earliest_stop(text, request.stop)) is not None:
            text, reason = text[:at], "stop"
            break
    return Generated(text, cast(FinishReason, reason), words)


def _fill(request: FillMask) -> FillMaskAnswer | Refusal:
    if request.text.count(MASK) != 1:
        return Refusal(f"the text has {request.text.count(MASK)} masks; exactly one {MASK} can be filled")
    order = sorted(_WORDS, key=lambda word: _chance(request.text, word))
    logprobs = {word: -0.5 - 0.5 * rank for rank, word in enumerate(order)}
    candidates = tuple(Candidate(word, word, logprobs[word]) for word in order[: request.top_k])
    if request.target is None:
        return FillMaskAnswer(candidates)
    return FillMaskAnswer(candidates, request.target in logprobs, logprobs.get(request.target))


def _chance(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on the parts."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
