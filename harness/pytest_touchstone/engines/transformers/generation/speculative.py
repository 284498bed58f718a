"""Several tokens in one pass: extra heads propose, or a text's own earlier tokens, and the model verifies.

Extra heads are those of Gloeckle et al. 2024, section 2. Where head 0 has chosen token t + 1, head i proposes token
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

In an ordinary model (``PromptLookup``), where the last few tokens of a text stood before, what followed them there is
proposed to follow again. Code repeats its names, answers repeat their questions, and small models repeat themselves.
The method is that of Yang et al. 2023 ("Inference with Reference") and Saxena 2023 ("Prompt Lookup Decoding"). Where
few texts are left, a pass takes hardly longer for several tokens of each than for one: its time is that of reading the
weights. ``best_width`` decides how many tokens of each row a pass has. It asks no clock: the same rows with the same
texts are computed in the same passes in every run, so that in half precision their texts are the same too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Any, Final

from pytest_touchstone.engines.transformers.attention_masks import slot_mask
from pytest_touchstone.engines.transformers.devices import to_device
from pytest_touchstone.engines.transformers.generation.sequence import DrawKey, GeneratedSequence, choose
from pytest_touchstone.engines.transformers.generation.step import DecodeStep, Groups
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.split_attention import FEW
from pytest_touchstone.engines.transformers.work_done import WorkDone


class SpeculativeStepper(DecodeStep):
    """Runs a model with extra heads: ``drafts`` of them, and a method ``draft``.

    Where proposals take longer than they save, it goes on without them; no text depends on it.
    """

    speculative = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._worth = SpeculationTuner()

    def advance_all(self, groups: Groups) -> Iterable[list[list[list[int | None]]]]:
        """Return the next tokens of each sample: one, and those after it that were proposed correctly."""
        return [[self._advance(slots, samples) for slots, samples in groups]]

    def _advance(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        rows, began = len(samples), time.perf_counter()
        proposes = self._worth.proposes(rows)
        if proposes:
            proposals = self._propose(slots, samples)
            found = _verified(self, self._done, [(slots, samples)], proposals, self._model.drafts + 1)
            for sample, mine in zip(samples, proposals, strict=True):
                sample.proposals.append((len(sample.tokens), mine))
        else:
            ((found,),) = super().advance_all([(slots, samples)])
        # All numbers have been read by now, so that the time includes an accelerator's work.
        self._worth.took(rows, time.perf_counter() - began, sum(map(len, found)) if proposes else None)
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
            (step,) = super().advance_all(groups)
            found = [tokens for some in step for tokens in some]
        else:
            found = _verified(self, self._done, groups, [mine[: width - 1] for mine in proposals], width)
            taken = sum(map(len, found))
            self._done.decoded += taken
            self._done.padded += width * len(samples) - taken
        for sample, mine, theirs in zip(samples, proposals, found, strict=True):
            _lookup(sample).judge(mine[: max(1, width - 1)], theirs)
        rows = iter(found)
        return [[[next(rows) for _ in some] for _, some in groups]]


def _verified(
    stepper: DecodeStep, done: WorkDone, groups: Groups, proposals: Sequence[Sequence[int]], width: int
) -> list[list[int | None]]:
    """Return the next tokens of all samples, by one pass over ``width`` tokens of each, the last and the proposed."""
    samples = [sample for _, some in groups for sample in some]
    rows = iter([[sample.tokens[-1], *mine] for sample, mine in zip(samples, proposals, strict=True)])
    fed = [[next(rows) for _ in some] for _, some in groups]
    chosen = choose(stepper.several_all([slots for slots, _ in groups], fed, width), _draws(samples, width))
    found = []
    for row, mine in enumerate(proposals):
        theirs = chosen[row * width : row * width + len(mine) + 1]
        found.append(theirs[: agreeing(mine, theirs) + 1])
    counts = map(len, found)
    for slots, _ in groups:
        slots.lengths = [length + next(counts) for length in slots.lengths]
    done.stepped(sum(map(len, found)))
    return found


def _draws(samples: Sequence[GeneratedSequence], width: int) -> list[DrawKey]:
    """Return the keys by which the next ``width`` tokens of each sample are drawn."""
    return [
        draw._replace(step=draw.step + place) for draw in (s.draw for s in samples) for place in range(width)
    ]


def _lookup(sample: GeneratedSequence) -> PromptLookup:
    lookup: PromptLookup = sample.lookup or PromptLookup(sample.prompt.tokens)
    sample.lookup = lookup
    return lookup


def _proposed(sample: GeneratedSequence) -> list[int]:
    """Return what may follow a sample's tokens, within the length that it may have."""
    left = sample.prompt.request.max_new_tokens - len(sample.tokens)
    return _lookup(sample).proposals(sample.tokens, min(FEW, left) - 1)


_SIZES: Final = (3, 2)
"""The numbers of last tokens that are looked up, one after the other."""

_PROMPT: Final = 256
"""The last tokens of a prompt in which they are looked up; the examples before them are about other things."""

_FIRST_RATE: Final = 0.5
_NEW: Final = 0.3
"""The share of proposals that is taken to be right at first, and the weight of what the latest pass showed."""

FREE: Final = {4: 16, 2: 32}
"""The tokens that a pass computes in the time in which it reads the weights, by the bytes of a number. On CPUs both
grow with the cores. Half the bytes are read in half the time, and bfloat16 numbers are computed 2.5 to 7 times as
fast."""

_GAIN: Final = 1.05
"""The gain per second from which proposals are worth their pass."""

_MOST: Final = 4
"""The most tokens of a pass with proposals, in times ``FREE``: with more, computing takes nearly all of the time."""


class PromptLookup:
    """Looks up one text; ``rate`` is the share of its proposals that are right, as the latest passes show it."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.rate = _FIRST_RATE
        self._tokens: list[int] = []
        self._followed: dict[tuple[int, ...], int] = {}
        self._known = 0
        self._extend(prompt[-_PROMPT:])

    def proposals(self, generated: Sequence[int], count: int) -> list[int]:
        """Return up to ``count`` tokens that may follow; ``generated`` are all that the text has so far.

        Where the looked-up text reaches the end of this one, it goes on with what is proposed: a loop stays one.
        """
        self._extend(generated[self._known :])
        self._known = len(generated)
        tokens = self._tokens
        for size in _SIZES:
            place = self._followed.get(tuple(tokens[-size:]))
            if place is not None:
                found: list[int] = []
                for at in range(place, place + count):
                    found.append(tokens[at] if at < len(tokens) else found[at - len(tokens)])
                return found
        return []

    def judge(self, proposed: Sequence[int], chosen: Sequence[int | None]) -> None:
        """Take note of how many of the proposed tokens were right; ``chosen`` are the tokens that there were."""
        tried = min(len(proposed), len(chosen))
        right = agreeing(proposed, chosen)
        if tried:
            self.rate += _NEW * (right / min(tried, right + 1) - self.rate)

    def _extend(self, tokens: Iterable[int]) -> None:
        own = self._tokens
        for token in tokens:
            for size in _SIZES:
                if len(own) >= size:
                    self._followed[tuple(own[-size:])] = len(own)
            own.append(token)


def agreeing(proposed: Sequence[int], chosen: Sequence[int | None]) -> int:
    """Return how many proposed tokens are right, up to the first that is not."""
    pairs = zip(proposed, chosen, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(proposed), len(chosen))
    )


def may_pay(rows: int, free: int) -> bool:
    """Return whether proposals for so many rows are worth looking up."""
    return 2 * rows <= _MOST * free


def best_width(rows: Sequence[tuple[float, int]], free: int) -> int:
    """Return how many tokens of each row a pass should have, one without proposals.

    ``rows`` has the rate of each row's proposals and how many there are, and ``free`` is one of ``FREE``. A row gives
    one token, and one more for each proposal that is right after others that were (Leviathan et al. 2023, equation 1).
    A pass is taken to cost the reading of the weights and the computing of its tokens.
    """
    best, most = 1, len(rows) / _cost(len(rows), free)
    for width in (2, 4, 8, FEW):
        count = width * len(rows)
        if count > _MOST * free:
            break
        brings = fsum(_expected(rate, min(width - 1, proposed)) for rate, proposed in rows) / _cost(
            count, free
        )
        if brings > most * (_GAIN if best == 1 else 1.0):
            best, most = width, brings
    return best


def _cost(tokens: int, free: int) -> float:
    return 1 + tokens / free


def _expected(rate: float, proposed: int) -> float:
    """Return the tokens that a row is expected to give."""
    return fsum(rate**right for right in range(proposed + 1))
