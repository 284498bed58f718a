"""Several tokens in one pass: extra heads propose, and the model verifies.

The heads are those of Gloeckle et al. 2024, section 2. Where head 0 has chosen token t + 1, head i proposes token
t + 1 + i from the same place. All of them go through the model at once, and head 0's logits after each say which token
comes next there. As long as that is the proposed token, the next logits count too. The first that differs is replaced
by head 0's choice, and the proposals after it are void; what they left in the slots is overwritten.

Tokens that are drawn stay those that head 0 alone would draw. A draw is the distribution's inverse at a number that
depends only on the seed, the sample and the place in its text (``sequence``). A head's proposal is the inverse of its
own distribution at that number, and is accepted where head 0's distribution has the same inverse there. So every text
is the one without proposals, token for token, and the distribution is unchanged.

Accepting by a ratio of probabilities (Leviathan et al. 2023, Chen et al. 2023) preserves the distribution too, and
accepts somewhat more at high temperatures. But a text would then depend on where passes begin, which memory and
batches decide.

A pass with proposals pays as long as it takes hardly longer than one of a token for each row: while its time is that
of reading the weights (``MOST_TOKENS``). It does not depend on a clock, so the same call computes the same passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_touchstone.engines.transformers.attention_masks import slot_mask
from pytest_touchstone.engines.transformers.devices import to_device
from pytest_touchstone.engines.transformers.generation.sequence import DrawKey, GeneratedSequence, choose
from pytest_touchstone.engines.transformers.generation.step import DecodeStep, Groups
from pytest_touchstone.engines.transformers.kv_cache import SlotCache

MOST_TOKENS: Final = {"cpu": 32, "cuda": 512}
"""The most tokens of a pass with proposals, by the kind of device."""


class SpeculativeStepper(DecodeStep):
    """Runs a model with extra heads: ``drafts`` of them, and a method ``draft``."""

    speculative = True

    def proposes(self, rows: int) -> bool:
        """Return whether a pass of so many rows has proposals."""
        most = MOST_TOKENS.get(self._model.device.type, MOST_TOKENS["cpu"])
        return bool(rows * (self._model.drafts + 1) <= most)

    def advance_all(self, groups: Groups) -> list[list[list[int | None]]]:
        """Return the next tokens of each sample: one, and those after it that were proposed correctly."""
        if not self.proposes(sum(len(samples) for _, samples in groups)):
            return super().advance_all(groups)
        return [self._advance(slots, samples) for slots, samples in groups]

    def _advance(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        proposals = self._propose(slots, samples)
        found = self._verified(slots, samples, proposals)
        for sample, mine in zip(samples, proposals, strict=True):
            sample.proposals.append((len(sample.tokens), mine))
        return found

    def _verified(
        self, slots: SlotCache, samples: Sequence[GeneratedSequence], proposals: Sequence[Sequence[int]]
    ) -> list[list[int | None]]:
        """Return the next tokens of the samples, by one pass over the last token of each and the proposed ones."""
        width = self._model.drafts + 1
        fed = [[sample.tokens[-1], *mine] for sample, mine in zip(samples, proposals, strict=True)]
        chosen = choose(self.several_all([slots], [fed], width), _draws(samples, width))
        found = []
        for row, mine in enumerate(proposals):
            theirs = chosen[row * width : (row + 1) * width]
            found.append(theirs[: agreeing(mine, theirs) + 1])
        slots.lengths = [length + len(tokens) for length, tokens in zip(slots.lengths, found, strict=True)]
        self._done.stepped(sum(map(len, found)))
        return found

    def ended(self, sample: GeneratedSequence) -> None:
        """Count which proposals of a sample were right, and the tokens that came from them."""
        self._done.decoded += self._done.accepted.judge(sample.proposals, sample.tokens)
        sample.proposals.clear()

    def _propose(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int]]:
        """Return what the extra heads propose after each sample's last token."""
        import torch

        heads = self._model.drafts
        columns = to_device(slots.lengths, self._model.device) - 1
        until = max(slots.lengths)
        slots.aim(0, len(samples), columns[:, None], until)
        mask = slot_mask(None, own=columns[:, None], past=slots.past, until=until, dtype=self._model.dtype)
        with torch.inference_mode():
            logits = self._model.draft(
                slots, mask, torch.arange(len(samples), device=self._model.device), columns
            )
        tokens = [token or 0 for token in choose(logits.flatten(0, 1).float(), _draws(samples, heads))]
        return [tokens[row * heads : (row + 1) * heads] for row in range(len(samples))]


def _draws(samples: Sequence[GeneratedSequence], width: int) -> list[DrawKey]:
    """Return the keys by which the next ``width`` tokens of each sample are drawn."""
    return [
        draw._replace(step=draw.step + place) for draw in (s.draw for s in samples) for place in range(width)
    ]


def agreeing(proposed: Sequence[int], chosen: Sequence[int | None]) -> int:
    """Return how many proposed tokens are right, up to the first that is not."""
    pairs = zip(proposed, chosen, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(proposed), len(chosen))
    )
