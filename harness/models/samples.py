"""The samples of a prompt as they grow, token by token. Runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.models.prompts import Prompt
from harness.models.sampling import Draw, Warp
from harness.models.stopping import StopWatch
from harness.models.tokenization import TextTokenizer
from harness.requests import FinishReason, Generated


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends a text by itself, and how tokens are read."""

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
class Sample:
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
    def draw(self) -> Draw:
        """How its next token is drawn."""
        asked = self.prompt.request
        warp = Warp(asked.temperature, asked.top_k, asked.top_p)
        return Draw(warp, asked.seed, self.number, len(self.tokens))

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
    samples: list[Sample]


def samples_of(prompt: Prompt, ends: Ends) -> list[Sample]:
    """The different samples of a prompt, with no tokens yet."""
    read, stops = ends.tokenizer.readable, prompt.request.stop
    return [
        Sample(prompt, number, ends, StopWatch(read, stops, ends.silent))
        for number in range(prompt.different)
    ]
