"""The samples of a prompt as they grow, token by token. Runs no model.

When a generated text has come to a stop sequence, and what is left of it then.

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
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from harness.core.requests import FinishReason, Generated, earliest_stop
from harness.engines.transformers.generation.sampling import DrawKey, SamplingParams
from harness.engines.transformers.prompts import Prompt
from harness.engines.transformers.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True)
class Ends:
    """The tokens that end a text by themselves, and the way in which tokens are read."""

    tokenizer: TextTokenizer
    tokens: frozenset[int]
    silent: frozenset[int]


def ends_of(model: Any, tokenizer: TextTokenizer) -> Ends:
    """The end tokens that the model's generation settings and the tokenizer name."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = named if isinstance(named, (list, tuple)) else [named]
    tokens = frozenset(int(token) for token in (*listed, tokenizer.end) if token is not None)
    return Ends(tokenizer, tokens, tokenizer.special)


@dataclass(slots=True, eq=False)
class GeneratedSequence:
    """One continuation of a prompt: its tokens so far, and what became of it. ``guesses``: at which token, from 0,
    some began, and the tokens that extra heads guessed from there on."""

    prompt: Prompt
    number: int
    ends: Ends
    watch: StopWatch
    tokens: list[int] = field(default_factory=list)
    outcome: Generated | None = None
    guesses: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def draw(self) -> DrawKey:
        """How its next token is drawn."""
        asked = self.prompt.request
        warp = SamplingParams(asked.temperature, asked.top_k, asked.top_p)
        return DrawKey(warp, asked.seed, self.number, len(self.tokens))

    def take(self, token: int | None) -> bool:
        """Adds a token; whether the sample is at its end. None: the model could not say."""
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


class Ended(NamedTuple):
    """The number of a prompt, and its different samples, all at their ends."""

    number: int
    samples: list[GeneratedSequence]


def samples_of(prompt: Prompt, ends: Ends) -> list[GeneratedSequence]:
    """The different samples of a prompt, with no tokens yet."""
    read, stops = ends.tokenizer.readable, prompt.request.stop
    return [
        GeneratedSequence(prompt, number, ends, StopWatch(read, stops, ends.silent))
        for number in range(prompt.different)
    ]


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
    """Return whether a stop sequence whose prefix stands at the end of the text begins before ``at``."""
    return any(
        stop.startswith(text[start:])
        for stop in stops
        for start in range(max(0, len(text) - len(stop) + 1), min(at, len(text)))
    )
