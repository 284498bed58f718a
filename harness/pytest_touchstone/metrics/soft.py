"""The confidence of a model in the right choice: scores that move before right and wrong do.

Let x be the log-probabilities (nats) of the choices, divided as the primary score of the benchmark divides them: by
nothing, or per character, byte or token (``AnsweredChoices.normalised``); r the right choice.

    ==================  ===========================================================================================
    score               for an item
    ==================  ===========================================================================================
    ``soft``            the signed rank of its ``logprob_margin`` among all items of the result, between 0 and 1
                        (``statistics.paired.signed_ranks``)
    ``p_right``         exp(x_r / T) over the sum of exp(x / T) of all choices: between 0 and 1
    ``log_odds``        x_r less log of the sum of exp(x) of the wrong ones: at temperature 1, whatever T is
    ``logprob_margin``  x_r less the highest x of a wrong one: above 0 where the answer is right
    ``bits_per_byte``   ``metrics.bits_per_byte`` of the right choice, of which lower is better
    ==================  ===========================================================================================

Sources: the probability of the right choice among the choices is that of OLMES (Gu et al. 2024, arXiv 2406.08446),
there of plain sums, per character and so on; that it sees differences with fewer items than accuracy, and bits per
byte as well, is measured by Heineman et al. 2025 (arXiv 2508.13144); why a measure must hold the right choice against
the wrong ones, and the likelihood of the right one alone may part from accuracy, by Schaeffer et al. 2024 (arXiv
2406.04391). Bits alone tell fluency as much as knowledge.

``soft`` is what a gate compares. The other scores move with the scale of the log-probabilities alone, as after
distillation or with another temperature; the order of a model's own margins does not, nor does it change by any other
function that keeps their signs and their order.

T makes one scale of lengths that differ: logarithms per character differ by tenths, and at temperature 1 every choice
would be about as probable. It is the benchmark's (``temperature``), else that of its rule in ``TEMPERATURES``. Values
of ``p_right`` at different temperatures are different measures, and are not compared. Those of
``acc`` and ``acc_norm`` are near the largest at which, over series of checkpoints (``perf.series``), a change of
``p_right`` may equal that of ARC-Easy's accuracy, and of PIQA's; the others follow by the length of a token.

An impossible choice (minus infinity) has probability 0; where all are impossible they are equally probable.
``log_odds`` and ``logprob_margin`` are cut at ``MAX_NATS`` nats, so that no item decides a mean alone, and undefined
for a single choice, whose ``p_right`` is 1. Numbers are rounded to ``DIGITS`` digits after the point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pytest_touchstone.core.aggregation import BITS_PER_BYTE, LOG_ODDS, LOGPROB_MARGIN, P_RIGHT, SOFT_METRICS
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.requests import Loglikelihood, PseudoLoglikelihood
from pytest_touchstone.metrics.multiple_choice import ChoiceScores, bits_per_byte

TEMPERATURES: Final = {"acc": 1.0, "acc_norm": 0.01, "acc_bytes": 0.01, "acc_tokens": 0.05}
"""The temperature of each rule, in its own nats; other primary scores count as plain sums, as ``acc``."""

MAX_NATS: Final = 100.0
DIGITS: Final = 6


def temperature_of(spec: Benchmark) -> float:
    """Return the temperature of the benchmark's ``p_right``."""
    if spec.temperature is not None:
        return spec.temperature
    return TEMPERATURES.get(spec.primary_score, TEMPERATURES["acc"])


def soft_names(spec: Benchmark) -> tuple[str, ...]:
    """Return the names of the soft scores that a benchmark's items may have, by the type of its requests."""
    pseudo = tuple(name for name in SOFT_METRICS if name != BITS_PER_BYTE)
    return SOFT_METRICS if Loglikelihood in spec.asks else pseudo if PseudoLoglikelihood in spec.asks else ()


def soft_of(returned: object, spec: Benchmark) -> dict[str, float]:
    """Return the soft scores of an item from what its benchmark returned; none without the choices.

    Bits are added for texts with a likelihood (not of a masked model), unless the benchmark has added them.
    """
    if not isinstance(returned, ChoiceScores) or returned.choices is None:
        return {}
    choices, right = returned.choices, returned.right
    if (
        not 0 <= right < len(choices.texts) == len(choices.logprobs) == len(choices.tokens)
    ):  # of somebody else's making
        return {}
    scores = soft_scores(choices.normalised(spec.primary_score), right, temperature_of(spec))
    text, logprob = choices.texts[right], choices.logprobs[right]
    if BITS_PER_BYTE not in returned and Loglikelihood in spec.asks and text and math.isfinite(logprob):
        scores[BITS_PER_BYTE] = round(bits_per_byte(logprob, text), DIGITS)
    return scores


def soft_scores(values: Sequence[float], right: int, temperature: float) -> dict[str, float]:
    """Return ``p_right``, ``log_odds`` and ``logprob_margin`` of normalised log-probabilities.

    ``right`` is the index of the right choice, from 0. Nothing if a value is not a log-probability.
    """
    if not all(value < math.inf for value in values):
        return {}
    highest = max(values)
    if highest == -math.inf:
        values, highest = [0.0] * len(values), 0.0
    normalizer = math.fsum(math.exp((value - highest) / temperature) for value in values)
    scores = {P_RIGHT: round(math.exp((values[right] - highest) / temperature) / normalizer, DIGITS)}
    wrong = [value for index, value in enumerate(values) if index != right]
    if wrong:
        highest_wrong = max(wrong)
        total = (
            math.log(math.fsum(math.exp(value - highest_wrong) for value in wrong))
            if highest_wrong > -math.inf
            else 0.0
        )
        margin = values[right] - highest_wrong
        scores[LOG_ODDS] = _clip(margin - total)
        scores[LOGPROB_MARGIN] = _clip(margin)
    return scores


def _clip(value: float) -> float:
    return round(min(MAX_NATS, max(-MAX_NATS, value)), DIGITS)
