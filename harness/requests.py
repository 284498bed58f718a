"""What a benchmark may ask a checkpoint, and what it is answered.

A benchmark yields one request or a list of them and is sent the answers in the same order:

    ========================  ===========================  =======================
    request                   answer                       served by
    ========================  ===========================  =======================
    ``Loglikelihood``         ``LoglikelihoodAnswer``      causal language models
    ``RollingLoglikelihood``  ``RollingAnswer``            causal language models
    ``FillMask``              ``FillMaskAnswer``           masked language models
    ========================  ===========================  =======================

All are frozen and hold plain data only. Log-probabilities are natural logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

MASK: Final = "[MASK]"
"""How data and benchmarks write a mask; the engine puts the checkpoint's own mask token in its place."""


@dataclass(frozen=True, slots=True)
class Loglikelihood:
    """Asks for log P(continuation | context), both tokenized together."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class RollingLoglikelihood:
    """Asks for log P(text), every token scored once, in windows as long as the checkpoint allows."""

    text: str


@dataclass(frozen=True, slots=True)
class FillMask:
    """Asks for the ``top_k`` most probable tokens at the one ``[MASK]`` in ``text``.

    With ``target``, the answer also says whether that word is one token, and how probable it is.
    """

    text: str
    top_k: int = 50
    target: str | None = None


@dataclass(frozen=True, slots=True)
class LoglikelihoodAnswer:
    """Sum of the continuation's token log-probabilities (nats), and how it came about.

    ``is_greedy``: every continuation token is the most probable one. ``tokens``: number of continuation
    tokens scored. ``truncated``: context tokens cut off from the left because the whole was too long.
    ``spans_join``: a token reaches over the end of the context; it is scored as part of the continuation.
    """

    logprob: float
    is_greedy: bool
    tokens: int
    truncated: int = 0
    spans_join: bool = False


@dataclass(frozen=True, slots=True)
class RollingAnswer:
    """Sum of all token log-probabilities (nats) and the number of tokens scored."""

    logprob: float
    tokens: int
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could fill the mask: as in the vocabulary, as plain text without marks, its
    log-probability.
    """

    token: str
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class FillMaskAnswer:
    """Candidates, most probable first.

    ``reachable``: some token of the vocabulary reads exactly as the target once its continuation mark is
    stripped (None without a target); ``target_logprob`` is the log-probability of the likeliest such token,
    None where there is none. ``truncated``: tokens cut off, farthest from the mask first, because the text
    was too long.
    """

    candidates: tuple[Candidate, ...]
    reachable: bool | None = None
    target_logprob: float | None = None
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Stands in the place of an answer to a request that cannot be answered; ``reason`` says why, for a
    person.
    """

    reason: str


Request: TypeAlias = Loglikelihood | RollingLoglikelihood | FillMask
Answer: TypeAlias = LoglikelihoodAnswer | RollingAnswer | FillMaskAnswer

REQUEST_KINDS: Final[tuple[type[Request], ...]] = (Loglikelihood, RollingLoglikelihood, FillMask)
