"""The samples of a prompt as they grow, token by token, and their ends. Runs no model.

The text is the tokenizer's decoding of the generated tokens alone, without special tokens, as in
lm-evaluation-harness. Where a tokenizer drops the space before a text's first word, it is dropped here too.

The text is cut before the earliest occurrence of any stop sequence. The result must not depend on how a text is split
into tokens. So a stop sequence that has been found does not end the text as long as another one, begun before it, may
still be completed.

Decoding all tokens after every new one would take time that grows with the square of the length. Only the last few
are examined, as many as a stop sequence has bytes and some more; where a stop sequence appears there, the whole text
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.requests import FinishReason, Generated, earliest_stop
from pytest_touchstone.engines.transformers.generation.prompt_lookup import PromptLookup
from pytest_touchstone.engines.transformers.generation.sampling import DrawKey, SamplingParams
from pytest_touchstone.engines.transformers.prompts import Prompt
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True)
class Ends:
    """The tokens that end a text by themselves, and the way in which tokens are read."""

    tokenizer: TextTokenizer
    tokens: frozenset[int]
    silent: frozenset[int]


def ends_of(model: Any, tokenizer: TextTokenizer) -> Ends:
    """Return the end tokens that the model's generation settings and the tokenizer name."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = named if isinstance(named, (list, tuple)) else [named]
    tokens = frozenset(int(token) for token in (*listed, tokenizer.end) if token is not None)
    return Ends(tokenizer, tokens, tokenizer.special)


@dataclass(slots=True, eq=False)
class GeneratedSequence:
    """One continuation of a prompt: its tokens so far, and what became of it.

    ``proposals`` has the tokens that extra heads proposed, each list with the number (from 0) of the token that it
    begins at. ``lookup`` proposes tokens from the text itself, once it was asked to.
    """

    prompt: Prompt
    number: int
    ends: Ends
    watch: StopWatch
    tokens: list[int] = field(default_factory=list)
    outcome: Generated | None = None
    proposals: list[tuple[int, list[int]]] = field(default_factory=list)
    lookup: PromptLookup | None = None

    @property
    def draw(self) -> DrawKey:
        """The key by which its next token is drawn."""
        asked = self.prompt.request
        warp = SamplingParams(asked.temperature, asked.top_k, asked.top_p)
        return DrawKey(warp, asked.seed, self.number, len(self.tokens))

    def take(self, token: int | None) -> bool:
        """Add a token; return whether the sample has ended. None: the model gave no token."""
        if token is None:
            return True
        self.tokens.append(token)
        if token in self.ends.tokens:
            self._finish("eos", self.tokens[:-1])
        elif self.watch.take(self.tokens):
            self._finish("stop", self.tokens)
        elif len(self.tokens) >= self.prompt.request.max_new_tokens:
            self._finish("length", self.tokens)
        return self.outcome is not None

    def _finish(self, reason: FinishReason, tokens: Sequence[int]) -> None:
        text, stopped = self.watch.cut(tokens)
        self.outcome = Generated(text, "stop" if stopped else reason, len(self.tokens))


class EndedPrompt(NamedTuple):
    """The number of a prompt, and its different samples, all ended."""

    number: int
    samples: list[GeneratedSequence]


def samples_of(prompt: Prompt, ends: Ends) -> list[GeneratedSequence]:
    """Return the different samples of a prompt, with no tokens yet."""
    read, stops = ends.tokenizer.readable, prompt.request.stop
    return [
        GeneratedSequence(prompt, number, ends, StopWatch(read, stops, ends.silent))
        for number in range(prompt.different)
    ]


Decode = Callable[[Sequence[int]], str]
"""Token ids -> text, special tokens left out."""

_MARGIN: Final = 4
"""The number of tokens examined beyond those that a stop sequence can span.

The first may be part of a character, or lose its leading space.
"""

_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
"""The character that stands for the bytes of an unfinished character."""


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
        """Return whether the text has ended with the last of ``tokens``, which are all so far."""
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
        """Return the text of ``tokens`` up to the earliest stop sequence, and whether there was one."""
        text = self._decode(tokens)
        at = earliest_stop(text, self._stops)
        return (text, False) if at is None else (text[:at], True)


def may_begin_before(text: str, stops: Sequence[str], at: int) -> bool:
    """Return whether a stop sequence whose prefix stands at the end of the text begins before ``at``."""
    return any(
        stop.startswith(text[start:])
        for stop in stops
        for start in range(max(0, len(text) - len(stop) + 1), min(at, len(text)))
    )
