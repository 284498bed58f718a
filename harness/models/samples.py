"""Prompts to be continued, and their samples as they grow. Runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.models.sampling import Draw, Warp
from harness.models.stopping import StopWatch
from harness.models.tokenization import TextTokenizer
from harness.requests import FinishReason, Generate, GenerateAnswer, Generated, Refusal


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


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request and the tokens of its prompt that the model is given; ``truncated``: those cut off on the
    left."""

    request: Generate
    tokens: tuple[int, ...]
    truncated: int

    @property
    def different(self) -> int:
        """Samples that may differ from each other: a greedy one is all of them."""
        return self.request.samples if self.request.temperature > 0 else 1

    def answer(self, samples: Sequence[Sample]) -> GenerateAnswer | Refusal:
        """The answer, from the different samples in order."""
        texts: list[Generated] = []
        for sample in samples:
            if sample.outcome is None:
                return Refusal(
                    "the checkpoint's logits hold NaN; its weights are broken, or overflow: "
                    "try --eval-dtype float32"
                )
            texts.append(sample.outcome)
        texts *= self.request.samples // len(texts)
        return GenerateAnswer(tuple(texts), len(self.tokens), self.truncated)


@dataclass(slots=True, eq=False)
class Sample:
    """One continuation of a prompt: its tokens so far, and what became of it."""

    prompt: Prompt
    number: int
    ends: Ends
    watch: StopWatch
    tokens: list[int] = field(default_factory=list)
    outcome: Generated | None = None

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


def samples_of(prompt: Prompt, ends: Ends) -> list[Sample]:
    """The different samples of a prompt, with no tokens yet."""
    read, stops = ends.tokenizer.readable, prompt.request.stop
    return [
        Sample(prompt, number, ends, StopWatch(read, stops, ends.silent))
        for number in range(prompt.different)
    ]


def prepare(request: Generate, tokenizer: TextTokenizer, *, seq_len: int, rows: int) -> Prompt | Refusal:
    """The prompt as the model, with ``rows`` embeddings, is given it.

    Cut from the left to the ``seq_len`` - ``max_new_tokens`` tokens that leave room for the new ones, special
    tokens in front included, as lm-evaluation-harness does.
    """
    if (fault := request.fault()) is not None:
        return Refusal(fault)
    tokens = tokenizer.prompt(request.prompt)
    if isinstance(tokens, Refusal):
        return tokens
    room = seq_len - request.max_new_tokens
    if room < 1:
        return Refusal(
            f"{request.max_new_tokens} new tokens leave no room for the prompt in {seq_len}; "
            "ask for fewer, or give a larger --eval-seq-len"
        )
    if max(tokens) >= rows:
        return Refusal(f"the prompt has a token that the model, with {rows} embeddings, does not know")
    truncated = max(0, len(tokens) - room)
    return Prompt(request, tokens[truncated:], truncated)
