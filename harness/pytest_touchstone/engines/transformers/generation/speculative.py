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

``SpeculationTuner`` finds out whether proposals pay: both ways are tried and timed, and the faster one is used. The
extra time of a pass with proposals depends on the machine, the model and the number of rows; its extra tokens depend
on the text. So times are kept by the number of rows, in classes of powers of two, and token counts are kept for all
rows. Now and then the slower way is tried again. No text depends on any of this.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from pytest_touchstone.engines.transformers.attention_masks import slot_mask
from pytest_touchstone.engines.transformers.devices import to_device
from pytest_touchstone.engines.transformers.generation.sequence import DrawKey, GeneratedSequence, choose
from pytest_touchstone.engines.transformers.generation.step import DecodeStep, Groups
from pytest_touchstone.engines.transformers.kv_cache import SlotCache


class SpeculativeStepper(DecodeStep):
    """Runs a model with extra heads: ``drafts`` of them, and a method ``draft``.

    Where proposals take longer than they save, it goes on without them; no text depends on it.
    """

    speculative = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._worth = SpeculationTuner()

    def advance_all(self, groups: Groups) -> list[list[list[int | None]]]:
        """Return the next tokens of each sample: one, and those after it that were proposed correctly."""
        return [self._advance(slots, samples) for slots, samples in groups]

    def _advance(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        rows, began = len(samples), time.perf_counter()
        proposes = self._worth.proposes(rows)
        if proposes:
            proposals = self._propose(slots, samples)
            found = self._verified(slots, samples, proposals)
            for sample, mine in zip(samples, proposals, strict=True):
                sample.proposals.append((len(sample.tokens), mine))
        else:
            (found,) = super().advance_all([(slots, samples)])
        # All numbers have been read by now, so that the time includes an accelerator's work.
        self._worth.took(rows, time.perf_counter() - began, sum(map(len, found)) if proposes else None)
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


TRIED: Final = 6
"""The number of passes after which their time counts as known."""

_TIMES: Final = 12
"""The number of passes whose times are kept; the median counts, since other processes delay some of them."""

_ROWS: Final = 256
"""The number of latest passes of a row over which the mean of tokens is taken."""

_PAUSE: Final = 64
"""The number of passes before the slower way is tried again; it doubles each time that it is still slower."""

_LONGEST: Final = 1024


@dataclass(slots=True)
class _Class:
    """Seconds of passes with proposals and without; passes since the slower way was tried, and until it will be."""

    with_: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    without: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    since: int = 0
    pause: int = _PAUSE
    proposed: bool | None = None


class SpeculationTuner:
    """Decides for each pass whether to propose tokens, and is told what passes took and gave."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._brought: deque[tuple[int, int]] = deque()
        self._rows = self._tokens = 0

    def proposes(self, rows: int) -> bool:
        """Return whether the next pass, of that many rows, should propose tokens."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        if len(one.with_) < TRIED:
            return True
        if len(one.without) < TRIED:
            return False
        better = median(one.with_) * self._rows < median(one.without) * self._tokens
        if better != one.proposed:
            one.proposed, one.since, one.pause = better, 0, _PAUSE
        one.since += 1
        if one.since > one.pause:
            one.since, one.pause = 0, min(_LONGEST, 2 * one.pause)
            (one.without if better else one.with_).clear()
            return not better
        return better

    def took(self, rows: int, seconds: float, tokens: int | None) -> None:
        """Take note of a pass; ``tokens`` is what one with proposals gave, None for one without."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        (one.without if tokens is None else one.with_).append(seconds)
        if tokens is None:
            return
        self._brought.append((rows, tokens))
        self._rows, self._tokens = self._rows + rows, self._tokens + tokens
        while self._rows - self._brought[0][0] >= _ROWS:
            gone = self._brought.popleft()
            self._rows, self._tokens = self._rows - gone[0], self._tokens - gone[1]


def agreeing(proposed: Sequence[int], chosen: Sequence[int | None]) -> int:
    """Return how many proposed tokens are right, up to the first that is not."""
    pairs = zip(proposed, chosen, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(proposed), len(chosen))
    )
