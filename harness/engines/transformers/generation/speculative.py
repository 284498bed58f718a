"""Several tokens in one pass: extra heads guess, head 0 verifies (Gloeckle et al. 2024, section 2).

Where head 0 has chosen token t + 1, head i has a guess at token t + 1 + i from the same place. All of them go
through the model at once; head 0's logits behind each say which token comes next there. As long as that is the
guess, the next logits count too; the first that is not is replaced by head 0's choice, and the guesses behind it
are void. What they left in the slots is written over.

Tokens that are drawn stay those that head 0 alone would draw. A draw is the distribution's inverse at a number that
depends on the seed, the sample and the place in its text alone (``sampling``); a head's guess is the inverse of its
own distribution at that same number, and is accepted where head 0's distribution has the same inverse there. So
every text is the one without guesses, token for token, and the distribution is kept because nothing of it is
touched. Accepting by a ratio of probabilities (Leviathan et al. 2023, Chen et al. 2023) keeps the distribution too,
and accepts somewhat more at high temperatures, but a text would then depend on where passes begin, which memory
and batches decide.

Whether guessing ahead pays: both ways are tried, timed, and the faster one is gone on with.

How much longer a pass takes with guesses depends on the machine, the model and the number of rows; how many tokens it
brings, on the text. So what passes take is kept by the number of rows, in classes of powers of two, and what they bring
is kept for all. Now and then the slower way is tried again. No text depends on any of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from harness.engines.transformers.generation.sampling import choose
from harness.engines.transformers.generation.sequence import GeneratedSequence
from harness.engines.transformers.generation.step import DecodeStep
from harness.engines.transformers.kv_cache import SlotCache, slot_mask


class SpeculativeStepper(DecodeStep):
    """Runs a model with extra heads: ``drafts`` of them, and a method ``draft``.

    Where guesses take longer than they save, it goes on without them; no text depends on it.
    """

    guesses = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._worth = SpeculationTuner()

    def advance(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        """The next tokens of each sample: one, and as many more as were guessed right."""
        rows, began = len(samples), time.perf_counter()
        guesses = self._worth.guesses(rows)
        found = self._verified(slots, samples) if guesses else super().advance(slots, samples)
        # All numbers are read by now, so that an accelerator's work is in the time too.
        self._worth.took(rows, time.perf_counter() - began, sum(map(len, found)) if guesses else None)
        return found

    def ended(self, sample: GeneratedSequence) -> None:
        """Counts which guesses of a sample were right, and the tokens that came of them."""
        self._done.decoded += self._done.accepted.judge(sample.guesses, sample.tokens)
        sample.guesses.clear()

    def _verified(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        """The next tokens by one pass over what the extra heads guess."""
        width = self._model.drafts + 1
        guesses = self._guess(slots, samples)
        fed = [[sample.tokens[-1], *mine] for sample, mine in zip(samples, guesses, strict=True)]
        logits = self.several(slots, fed)
        draws = [sample.draw for sample in samples]
        ahead = [draw._replace(step=draw.step + place) for draw in draws for place in range(width)]
        chosen = choose(logits, ahead)
        found = []
        for row, mine in enumerate(guesses):
            theirs = chosen[row * width : (row + 1) * width]
            right = next((place for place, token in enumerate(mine) if theirs[place] != token), len(mine))
            found.append(theirs[: right + 1])
            samples[row].guesses.append((draws[row].step, mine))
        slots.lengths = [length + len(mine) for length, mine in zip(slots.lengths, found, strict=True)]
        return found

    def _guess(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int]]:
        """What the extra heads expect behind each sample's last token."""
        import torch

        heads = self._model.drafts
        columns = torch.tensor(slots.lengths, device=self._model.device) - 1
        until = max(slots.lengths)
        slots.aim(0, len(samples), columns[:, None], until)
        mask = slot_mask(None, own=columns[:, None], past=slots.past, until=until, dtype=self._model.dtype)
        with torch.inference_mode():
            logits = self._model.draft(
                slots, mask, torch.arange(len(samples), device=self._model.device), columns
            )
        draws = [sample.draw for sample in samples]
        ahead = [draw._replace(step=draw.step + place) for draw in draws for place in range(heads)]
        tokens = [token or 0 for token in choose(logits.flatten(0, 1).float(), ahead)]
        return [tokens[row * heads : (row + 1) * heads] for row in range(len(samples))]


TRIED: Final = 6
"""Passes after which it is known how long they take."""

_KEPT: Final = 12
"""Passes whose times are kept; the median counts, since some are held up by other processes."""

_ROWS: Final = 256
"""Passes of a row, the latest, over which the mean of tokens is taken."""

_PAUSE: Final = 64
"""Passes before the slower way is tried again; twice as many each time that it is slower still."""

_LONGEST: Final = 1024


@dataclass(slots=True)
class _Class:
    """Seconds of passes with guesses and without; passes since the slower way was tried, and until it will be."""

    with_: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    without: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    since: int = 0
    pause: int = _PAUSE
    guessed: bool | None = None


class SpeculationTuner:
    """Says for each pass whether to guess, and is told what passes took and brought."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._brought: deque[tuple[int, int]] = deque()
        self._rows = self._tokens = 0

    def guesses(self, rows: int) -> bool:
        """Whether the next pass, of so many rows, should be one with guesses."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        if len(one.with_) < TRIED:
            return True
        if len(one.without) < TRIED:
            return False
        better = median(one.with_) * self._rows < median(one.without) * self._tokens
        if better != one.guessed:
            one.guessed, one.since, one.pause = better, 0, _PAUSE
        one.since += 1
        if one.since > one.pause:
            one.since, one.pause = 0, min(_LONGEST, 2 * one.pause)
            (one.without if better else one.with_).clear()
            return not better
        return better

    def took(self, rows: int, seconds: float, tokens: int | None) -> None:
        """Told of each pass; ``tokens`` that one with guesses brought, None for one without."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        (one.without if tokens is None else one.with_).append(seconds)
        if tokens is None:
            return
        self._brought.append((rows, tokens))
        self._rows, self._tokens = self._rows + rows, self._tokens + tokens
        while self._rows - self._brought[0][0] >= _ROWS:
            gone = self._brought.popleft()
            self._rows, self._tokens = self._rows - gone[0], self._tokens - gone[1]
