"""When a generated text has come to a stop sequence, and what is left of it then.

The text is what the tokenizer makes of the generated tokens alone, special tokens left out, as
lm-evaluation-harness takes it; where a tokenizer drops the space in front of a text's first word, it is
dropped here too. It is cut in front of the earliest occurrence of any stop sequence. So that the result does
not depend on how a text falls into tokens, a stop sequence that has been found does not end the text as long
as another one, begun before it, may still turn out to be there.

Making text of all tokens with every new one would take time that grows with the square of the length. Only
the last few are looked at, as many as a stop sequence has bytes and some more; where a stop sequence shows
there, the whole text decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from harness.requests import earliest_stop

Decode = Callable[[Sequence[int]], str]
"""Token ids -> text, special tokens left out."""

_MARGIN: Final = 4
"""Tokens looked at beyond those that a stop sequence can span: the first may be part of a character, or lose
its leading space."""

_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
"""What the bytes of an unfinished character are read as."""


class StopWatch:
    """Follows the tokens of one sample."""

    def __init__(self, decode: Decode, stops: Sequence[str], silent: Collection[int] = ()) -> None:
        """``silent``: tokens without text, which could push a stop sequence out of sight."""
        self._decode, self._stops, self._silent = decode, tuple(stops), silent
        self._window = _MARGIN + max(
            (len(stop.encode("utf-8", "surrogatepass")) for stop in stops), default=0
        )
        self._tokens: list[int] = []
        self._found = False

    def take(self, tokens: Sequence[int]) -> bool:
        """Whether the text has come to its end with the last of ``tokens``, which are all so far."""
        if not self._stops or tokens[-1] in self._silent:
            return False
        self._tokens.append(tokens[-1])
        if not self._found:
            seen = self._decode(self._tokens[-self._window :])
            if earliest_stop(seen, self._stops) is None:
                return False
        text = self._decode(tokens).rstrip(_UNREADABLE)
        at = earliest_stop(text, self._stops)
        self._found = at is not None
        return at is not None and not may_begin_before(text, self._stops, at)

    def cut(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The text of ``tokens`` up to the earliest stop sequence, and whether there was one."""
        text = self._decode(tokens)
        at = earliest_stop(text, self._stops)
        return (text, False) if at is None else (text[:at], True)


def may_begin_before(text: str, stops: Sequence[str], at: int) -> bool:
    """Whether a stop sequence whose beginning stands at the end of the text begins before ``at``."""
    return any(
        stop.startswith(text[start:])
        for stop in stops
        for start in range(max(0, len(text) - len(stop) + 1), min(at, len(text)))
    )
