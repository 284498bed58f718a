"""The samples of a prompt as they grow: sampling of each token, and the end of a text.

The text is the tokenizer's decoding of the generated tokens alone, without special tokens, as in
lm-evaluation-harness. Where a tokenizer drops the space before a text's first word, it is dropped here too.

The text is cut before the earliest occurrence of any stop sequence. The result must not depend on how a text is split
into tokens. So a stop sequence that has been found does not end the text as long as another one, begun before it, may
still be completed.

A reasoning before the answer is no part of the text: no stop sequence is looked for in it.

Decoding all tokens after every new one would take time that grows with the square of the length. Only the last few
are examined, as many as a stop sequence has bytes and some more; where a stop sequence appears there, the whole text
decides.

The next token is the most probable one, or one drawn. Draws use the inverse distribution function, with a number from 0
up to 1 that is a hash of the request's seed, the sample's number and the place in its text. No generator has a state,
so a draw is the same in any batch, in any order and after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.core.reasoning import ReasoningDelimiters
from pytest_touchstone.core.requests import FinishReason, Generated, earliest_stop
from pytest_touchstone.engines.transformers.devices import AsyncHostCopy, to_device
from pytest_touchstone.engines.transformers.kv_cache import EndedRow
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt
from pytest_touchstone.engines.transformers.tokenizer import UNREADABLE, TextTokenizer

if TYPE_CHECKING:
    import torch

_LIKELIEST: Final = 1024
"""The number of tokens among which ``top_p`` is searched first: sorting a whole vocabulary takes longer than a
layer."""

NAN_TOKEN: Final = -1
"""Stands for a token where the logits hold a NaN."""


class SamplingParams(NamedTuple):
    """The parameters that turn logits into the distribution of a draw; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


class DrawKey(NamedTuple):
    """What a draw depends on besides the logits."""

    warp: SamplingParams
    seed: int
    sample: int
    step: int


def choose(logits: torch.Tensor, draws: Sequence[DrawKey]) -> list[int | None]:
    """Return the next token of each row of logits [rows, vocabulary]; None for a row with NaN."""
    import torch

    best, tokens = logits.max(dim=-1)
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    drawn: dict[SamplingParams, list[int]] = {}
    for row, draw in enumerate(draws):
        if draw.warp.temperature > 0:
            drawn.setdefault(draw.warp, []).append(row)
    for warp, rows in drawn.items():
        keys = [draws[row] for row in rows]
        numbers = [uniform_draw(key.seed, key.sample, key.step) for key in keys]
        places = to_device(rows, logits.device)
        probabilities = warp_probabilities(logits[places], warp)
        chosen = sample_by_inverse_cdf(probabilities, to_device(numbers, logits.device, exact))
        tokens = tokens.index_copy(0, places, chosen)
    next_tokens = AsyncHostCopy(tokens.masked_fill(best.isnan(), NAN_TOKEN)).numbers()
    return [token if token >= 0 else None for token in next_tokens]


def uniform_draw(seed: int, sample: int, step: int) -> float:
    """Return a pseudo-random number in [0, 1) that depends on seed, sample and step only."""
    digest = hashlib.sha256(f"{seed}/{sample}/{step}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def sample_by_inverse_cdf(probabilities: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return the token of each row at which the cumulative probability exceeds the row's number."""
    import torch

    device = probabilities.device
    if device.type == "mps":  # which has no double precision
        probabilities, numbers = probabilities.cpu(), numbers.cpu()
    sums = probabilities.double().cumsum(dim=-1)
    aims = numbers.double()[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, aims, right=True)[:, 0].clamp(max=sums.shape[-1] - 1)
    return tokens.to(device)


def warp_probabilities(logits: torch.Tensor, warp: SamplingParams) -> torch.Tensor:
    """Return probabilities [rows, vocabulary] after top-k and top-p; rows need not sum to 1.

    The same tokens remain as after transformers' warpers: those no less probable than the k-th, then the most probable
    ones until they have ``top_p``, at least one. All others are 0.
    """
    import torch

    # The largest logit is subtracted first, so that a low temperature cannot make infinities.
    scaled = (logits - logits.max(dim=-1, keepdim=True).values) / warp.temperature
    if 0 < warp.top_k < scaled.shape[-1]:
        least = scaled.topk(warp.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    probabilities = scaled.softmax(dim=-1)
    if warp.top_p >= 1.0:
        return probabilities
    # The fewest most probable tokens that have ``top_p``.
    values, tokens = probabilities.topk(min(_LIKELIEST, probabilities.shape[-1]), dim=-1)
    if bool((values.sum(dim=-1) < warp.top_p).any()):
        values, tokens = probabilities.sort(dim=-1, descending=True)
    before = values.cumsum(dim=-1) - values
    kept = values.masked_fill(before >= warp.top_p, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, tokens, kept)


@dataclass(frozen=True, slots=True)
class StopTokens:
    """The tokens that end a text by themselves, and the way in which tokens are read."""

    tokenizer: TextTokenizer
    tokens: frozenset[int]
    silent: frozenset[int]


def stop_tokens_of(model: Any, tokenizer: TextTokenizer) -> StopTokens:
    """Return the stop tokens that the generation config and the tokenizer name."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = named if isinstance(named, (list, tuple)) else [named]
    tokens = frozenset(int(token) for token in (*listed, tokenizer.end) if token is not None)
    return StopTokens(tokenizer, tokens, tokenizer.special)


@dataclass(slots=True, eq=False)
class GeneratedSequence:
    """One continuation of a prompt: its tokens so far, and what became of it.

    ``proposals`` has the tokens that extra heads proposed, each list with the number (from 0) of the token that it
    begins at. ``before`` is a text that began like its prompt, until the prompt is computed.
    """

    prompt: TokenizedPrompt
    number: int
    ends: StopTokens
    watch: StopWatch
    tokens: list[int] = field(default_factory=list)
    outcome: Generated | None = None
    over: bool = False
    proposals: list[tuple[int, list[int]]] = field(default_factory=list)
    before: EndedRow | None = None

    @property
    def draw(self) -> DrawKey:
        """The key of the draw of the next token."""
        asked = self.prompt.request
        warp = SamplingParams(asked.temperature, asked.top_k, asked.top_p)
        return DrawKey(warp, asked.seed, self.number, len(self.tokens))

    def take(self, token: int | None) -> bool:
        """Add a token; return whether the sample has ended. None: the model gave no token."""
        if token is not None:
            self.tokens.append(token)
            if token in self.ends.tokens:
                self._finish("eos", self.tokens[:-1])
            elif self.watch.take(self.tokens):
                self._finish("stop", self.tokens)
            elif len(self.tokens) >= self.prompt.request.max_new_tokens:
                self._finish("length", self.tokens)
        self.over = token is None or self.outcome is not None
        return self.over

    def _finish(self, reason: FinishReason, tokens: Sequence[int]) -> None:
        trace, text, stopped = self.watch.cut(tokens, at_limit=reason == "length")
        used = 0 if trace is None else self.watch.reasoned or len(self.tokens)
        self.outcome = Generated(text, "stop" if stopped else reason, len(self.tokens), trace, used)


class EndedPrompt(NamedTuple):
    """The number of a prompt, and its different samples, all ended."""

    number: int
    samples: list[GeneratedSequence]


def new_samples(prompt: TokenizedPrompt, ends: StopTokens) -> list[GeneratedSequence]:
    """Return the samples of a prompt, one per different draw, with no tokens yet."""
    tokenizer, stops = ends.tokenizer, prompt.request.stop
    opened, delimiters = tokenizer.opens_reasoning(prompt.tokens), tokenizer.reasoning
    may_end = tokenizer.may_end(stops if delimiters is None else (*stops, delimiters.end))
    samples = []
    for number in range(prompt.request.different):
        watch = StopWatch(tokenizer.readable, stops, ends.silent, delimiters, opened=opened, may_end=may_end)
        samples.append(GeneratedSequence(prompt, number, ends, watch))
    return samples


Decode = Callable[[Sequence[int]], str]
"""Token ids -> text, special tokens left out."""

_MARGIN: Final = 4
"""The number of tokens examined beyond those that a stop sequence can span.

The first may be part of a character, or lose its leading space.
"""


class StopWatch:
    """Follows the tokens of one sample."""

    def __init__(
        self,
        decode: Decode,
        stops: Sequence[str],
        silent: Collection[int] = (),
        delimiters: ReasoningDelimiters | None = None,
        *,
        opened: bool = False,
        may_end: Callable[[int], bool] = lambda _token: True,
    ) -> None:
        """Follow a sample from its first token on.

        Args:
            decode: Returns the text of tokens.
            stops: The stop sequences.
            silent: Tokens without text, which could push a stop sequence out of sight.
            delimiters: Those of a reasoning.
            opened: Whether the prompt has opened a reasoning.
            may_end: Returns whether a token may be the last one of a stop sequence, or of the delimiter after a
                reasoning. Others are not decoded.

        """
        self._decode, self._stops, self._silent = decode, tuple(stops), frozenset(silent)
        self._delimiters, self._opened, self._may_end = delimiters, opened, may_end
        self._window = _MARGIN + max(
            (len(text.encode("utf-8", "surrogatepass")) for text in stops), default=0
        )
        self._found = False
        self._answers = delimiters is None
        self._begins = delimiters is None or opened or delimiters.named
        self.reasoned = 0
        """The tokens of a reasoning that has ended."""

    def take(self, tokens: Sequence[int]) -> bool:
        """Return whether the text has ended with the last of ``tokens``, which are all so far."""
        if tokens[-1] in self._silent or not (self._stops or self._delimiters):
            return False
        if self._begins and not self._found and not self._may_end(tokens[-1]):
            return False
        if not self._answers and self._reasons(tokens):
            return False
        if not self._found and earliest_stop(self._latest(tokens, self._window), self._stops) is None:
            return False
        text = self._answer(tokens)[1].rstrip(UNREADABLE)
        at = earliest_stop(text, self._stops)
        self._found = at is not None
        return at is not None and not may_begin_before(text, self._stops, at)

    def cut(self, tokens: Sequence[int], *, at_limit: bool = False) -> tuple[str | None, str, bool]:
        """Split all tokens of a text at its reasoning and its earliest stop sequence.

        Args:
            tokens: All tokens of the text.
            at_limit: Whether the text ends at the limit of tokens.

        Returns:
            The reasoning or None, the text up to the stop sequence, and whether there is a stop sequence.


        """
        trace, text = self._answer(tokens, at_limit=at_limit)
        at = earliest_stop(text, self._stops)
        return (trace, text, False) if at is None else (trace, text[:at], True)

    def _answer(self, tokens: Sequence[int], *, at_limit: bool = False) -> tuple[str | None, str]:
        text = self._decode(tokens)
        if self._delimiters is None:
            return None, text
        return self._delimiters.split(text, opened=self._opened, at_limit=at_limit)

    def _reasons(self, tokens: Sequence[int]) -> bool:
        """Return whether the text is a reasoning so far, or may be the beginning of its delimiter."""
        delimiters = self._delimiters
        assert delimiters is not None
        if not self._begins:
            text = self._decode(tokens[: _MARGIN + len(delimiters.begin)]).lstrip()
            if text.startswith(delimiters.begin):
                self._begins = True
            elif text and not delimiters.begin.startswith(text):
                self._answers = self._begins = self._found = True  # what has come is looked at as a whole
                return False
        if self._begins and delimiters.end in self._latest(tokens, _MARGIN + len(delimiters.end)):
            self._answers, self.reasoned = True, len(tokens)
        return not self._answers

    def _latest(self, tokens: Sequence[int], most: int) -> str:
        """Return the text of the last tokens that have any, of up to ``most``."""
        last = tokens[-most:]
        if not self._silent.isdisjoint(last):
            last = [token for token in tokens if token not in self._silent][-most:]
        return self._decode(last)


def may_begin_before(text: str, stops: Sequence[str], at: int) -> bool:
    """Return whether a stop sequence whose prefix stands at the end of the text begins before ``at``."""
    return any(
        stop.startswith(text[start:])
        for stop in stops
        for start in range(max(0, len(text) - len(stop) + 1), min(at, len(text)))
    )
