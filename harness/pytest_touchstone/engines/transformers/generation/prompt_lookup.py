"""Proposals of next tokens that are looked up in a text itself. Pure; runs no model.

Where the last few tokens of a text stood before, what followed them there is proposed to follow again. Code repeats
its names, answers repeat their questions, and small models repeat themselves. The method is that of Yang et al. 2023
("Inference with Reference") and Saxena 2023 ("Prompt Lookup Decoding"). The model verifies several proposed tokens in
one pass, and only those that it would have chosen itself count (``lookup_stepper``).

``best_width`` decides how many tokens of each row a pass has. It asks no clock: the same rows with the same texts are
computed in the same passes in every run, so that in half precision their texts are the same too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import Final

from pytest_touchstone.engines.transformers.split_attention import FEW

_SIZES: Final = (3, 2)
"""The numbers of last tokens that are looked up, one after the other."""

_PROMPT: Final = 256
"""The last tokens of a prompt in which they are looked up; the examples before them are about other things."""

_FIRST_RATE: Final = 0.5
_NEW: Final = 0.3
"""The share of proposals that is taken to be right at first, and the weight of what the latest pass showed."""

FREE: Final = {4: 16, 2: 32}
"""The tokens that a pass computes in the time in which it reads the weights, by the bytes of a number. On CPUs both
grow with the cores. Half the bytes are read in half the time, and bfloat16 numbers are computed 2.5 to 7 times as
fast."""

_GAIN: Final = 1.05
"""The gain per second from which proposals are worth their pass."""

_MOST: Final = 4
"""The most tokens of a pass with proposals, in times ``FREE``: with more, computing takes nearly all of the time."""


class PromptLookup:
    """Looks up one text; ``rate`` is the share of its proposals that are right, as the latest passes show it."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.rate = _FIRST_RATE
        self._tokens: list[int] = []
        self._followed: dict[tuple[int, ...], int] = {}
        self._known = 0
        self._extend(prompt[-_PROMPT:])

    def proposals(self, generated: Sequence[int], count: int) -> list[int]:
        """Return up to ``count`` tokens that may follow; ``generated`` are all that the text has so far.

        Where the looked-up text reaches the end of this one, it goes on with what is proposed: a loop stays one.
        """
        self._extend(generated[self._known :])
        self._known = len(generated)
        tokens = self._tokens
        for size in _SIZES:
            place = self._followed.get(tuple(tokens[-size:]))
            if place is not None:
                found: list[int] = []
                for at in range(place, place + count):
                    found.append(tokens[at] if at < len(tokens) else found[at - len(tokens)])
                return found
        return []

    def judge(self, proposed: Sequence[int], chosen: Sequence[int | None]) -> None:
        """Take note of how many of the proposed tokens were right; ``chosen`` are the tokens that there were."""
        tried = min(len(proposed), len(chosen))
        right = agreeing(proposed, chosen)
        if tried:
            self.rate += _NEW * (right / min(tried, right + 1) - self.rate)

    def _extend(self, tokens: Iterable[int]) -> None:
        own = self._tokens
        for token in tokens:
            for size in _SIZES:
                if len(own) >= size:
                    self._followed[tuple(own[-size:])] = len(own)
            own.append(token)


def agreeing(proposed: Sequence[int], chosen: Sequence[int | None]) -> int:
    """Return how many proposed tokens are right, up to the first that is not."""
    pairs = zip(proposed, chosen, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(proposed), len(chosen))
    )


def may_pay(rows: int, free: int) -> bool:
    """Return whether proposals for so many rows are worth looking up."""
    return 2 * rows <= _MOST * free


def best_width(rows: Sequence[tuple[float, int]], free: int) -> int:
    """Return how many tokens of each row a pass should have, one without proposals.

    ``rows`` has the rate of each row's proposals and how many there are, and ``free`` is one of ``FREE``. A row gives
    one token, and one more for each proposal that is right after others that were (Leviathan et al. 2023, equation 1).
    A pass is taken to cost the reading of the weights and the computing of its tokens.
    """
    best, most = 1, len(rows) / _cost(len(rows), free)
    for width in (2, 4, 8, FEW):
        count = width * len(rows)
        if count > _MOST * free:
            break
        brings = fsum(_expected(rate, min(width - 1, proposed)) for rate, proposed in rows) / _cost(
            count, free
        )
        if brings > most * (_GAIN if best == 1 else 1.0):
            best, most = width, brings
    return best


def _cost(tokens: int, free: int) -> float:
    return 1 + tokens / free


def _expected(rate: float, proposed: int) -> float:
    """Return the tokens that a row is expected to give."""
    return fsum(rate**right for right in range(proposed + 1))
