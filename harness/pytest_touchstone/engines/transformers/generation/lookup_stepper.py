"""Several tokens in one pass of an ordinary model: a text's own earlier tokens propose, the model verifies.

Where few texts are left, a pass takes hardly longer for several tokens of each than for one: its time is that of
reading the weights. The tokens are those that single steps would choose, drawn ones too, as in ``speculative``: a draw
depends only on the logits, the seed, the sample and the place in its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_touchstone.engines.transformers.generation.prompt_lookup import (
    FREE,
    PromptLookup,
    agreeing,
    best_width,
    may_pay,
)
from pytest_touchstone.engines.transformers.generation.sampling import choose
from pytest_touchstone.engines.transformers.generation.sequence import GeneratedSequence
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.split_attention import FEW

Groups = Sequence[tuple[SlotCache, Sequence[GeneratedSequence]]]


class LookupStepper(DecodeStep):
    """Runs a model on a CPU, with proposals where they are expected to save time."""

    def advance_all(self, groups: Groups) -> Iterable[list[list[list[int | None]]]]:
        """Return the next tokens of each sample: one, and those after it that were proposed correctly."""
        samples = [sample for _, some in groups for sample in some]
        free = FREE.get(self._model.dtype.itemsize, FREE[4])
        if not may_pay(len(samples), free):
            return super().advance_all(groups)
        proposals = [_proposed(sample) for sample in samples]
        rates = [(_lookup(sample).rate, len(mine)) for sample, mine in zip(samples, proposals, strict=True)]
        width = best_width(rates, free)
        if width == 1:
            steps = list(super().advance_all(groups))
            found = [tokens for some in steps[0] for tokens in some]
        else:
            found = self._verified(groups, [mine[: width - 1] for mine in proposals], width)
        for sample, mine, theirs in zip(samples, proposals, found, strict=True):
            _lookup(sample).judge(mine[: max(1, width - 1)], theirs)
        rows = iter(found)
        return [[[next(rows) for _ in some] for _, some in groups]]

    def _verified(
        self, groups: Groups, proposals: Sequence[Sequence[int]], width: int
    ) -> list[list[int | None]]:
        """Return the next tokens of all samples, by one pass over ``width`` tokens of each."""
        caches = [slots for slots, _ in groups]
        samples = [sample for _, some in groups for sample in some]
        fed = [[sample.tokens[-1], *mine] for sample, mine in zip(samples, proposals, strict=True)]
        rows = iter(fed)
        logits = self.several_all(caches, [[next(rows) for _ in some] for _, some in groups], width)
        ahead = [
            draw._replace(step=draw.step + place)
            for draw in (s.draw for s in samples)
            for place in range(width)
        ]
        chosen = choose(logits, ahead)
        found = []
        for row, mine in enumerate(proposals):
            theirs = chosen[row * width : row * width + len(mine) + 1]
            found.append(theirs[: agreeing(mine, theirs) + 1])
        counts = map(len, found)
        for slots in caches:
            slots.lengths = [length + next(counts) for length in slots.lengths]
        taken = sum(map(len, found))
        self._done.stepped(taken)
        self._done.decoded += taken
        self._done.padded += width * len(samples) - taken
        return found


def _lookup(sample: GeneratedSequence) -> PromptLookup:
    if sample.lookup is None:
        sample.lookup = PromptLookup(sample.prompt.tokens)
    return sample.lookup


def _proposed(sample: GeneratedSequence) -> list[int]:
    """Return what may follow a sample's tokens, within the length that it may have."""
    left = sample.prompt.request.max_new_tokens - len(sample.tokens)
    return _lookup(sample).proposals(sample.tokens, min(FEW, left) - 1)
