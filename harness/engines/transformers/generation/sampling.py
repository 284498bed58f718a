"""The choice of the next token: the most probable one, or one drawn.

Draws use the inverse distribution function, with a number from 0 up to 1 that is a hash of the request's seed, the
sample's number and the place in its text. No generator has a state, so a draw is the same in any batch, in any order
and after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import torch

_LIKELIEST: Final = 1024
"""The number of tokens among which ``top_p`` is searched first: sorting a whole vocabulary takes longer than a
layer."""


class SamplingParams(NamedTuple):
    """The steps from logits to the distribution that is drawn from, in this order; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


class DrawKey(NamedTuple):
    """The facts that one draw depends on besides the logits."""

    warp: SamplingParams
    seed: int
    sample: int
    step: int


def choose(logits: torch.Tensor, draws: Sequence[DrawKey]) -> list[int | None]:
    """Return the next token for each row of logits [rows, vocabulary]; None where a row holds a NaN."""
    import torch

    best, likeliest = logits.max(dim=-1)
    chosen: list[int | None] = likeliest.tolist()
    by_warp: dict[SamplingParams, list[int]] = {}
    for row, draw in enumerate(draws):
        if draw.warp.temperature > 0:
            by_warp.setdefault(draw.warp, []).append(row)
    for warp, rows in by_warp.items():
        probabilities = warped(logits[torch.tensor(rows, device=logits.device)], warp)
        numbers = [uniform(draws[row].seed, draws[row].sample, draws[row].step) for row in rows]
        for row, token in zip(rows, pick(probabilities, numbers), strict=True):
            chosen[row] = token
    for row, broken in enumerate(best.isnan().tolist()):
        if broken:
            chosen[row] = None
    return chosen


def uniform(seed: int, sample: int, step: int) -> float:
    """Return a number from 0 up to 1, as good as random, that depends on the three numbers only."""
    digest = hashlib.sha256(f"{seed}/{sample}/{step}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def warped(logits: torch.Tensor, warp: SamplingParams) -> torch.Tensor:
    """Return probabilities [rows, vocabulary], 0 for what top-k and top-p leave out; rows need not sum to 1.

    The same tokens remain as after transformers' warpers. Those are the tokens no less probable than the k-th, then
    the most probable ones until they have ``top_p``, at least one.
    """
    # The largest logit is subtracted first, so that a low temperature cannot make infinities.
    scaled = (logits - logits.max(dim=-1, keepdim=True).values) / warp.temperature
    if 0 < warp.top_k < scaled.shape[-1]:
        least = scaled.topk(warp.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    probabilities = scaled.softmax(dim=-1)
    return probabilities if warp.top_p >= 1.0 else _nucleus(probabilities, warp.top_p)


def pick(probabilities: torch.Tensor, numbers: Sequence[float]) -> list[int]:
    """Return for each row the token at which the cumulative probability exceeds that row's number."""
    import torch

    if probabilities.device.type == "mps":
        probabilities = probabilities.cpu()  # MPS has no double precision
    sums = probabilities.double().cumsum(dim=-1)
    aims = torch.tensor(numbers, dtype=torch.float64, device=sums.device)[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, aims, right=True)[:, 0].clamp(max=sums.shape[-1] - 1)
    found: list[int] = tokens.tolist()
    return found


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the same with 0 for all but the fewest most probable tokens that have ``top_p``."""
    import torch

    values, tokens = probabilities.topk(min(_LIKELIEST, probabilities.shape[-1]), dim=-1)
    if bool((values.sum(dim=-1) < top_p).any()):
        values, tokens = probabilities.sort(dim=-1, descending=True)
    before = values.cumsum(dim=-1) - values
    kept = values.masked_fill(before >= top_p, 0.0)
    return torch.zeros_like(probabilities).scatter_(-1, tokens, kept)
