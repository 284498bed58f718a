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
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harness.models.samples import Sample
from harness.models.sampling import choose
from harness.models.slots import Slots, slot_mask
from harness.models.stepping import Stepper
from harness.models.worth import Worth


class SpeculativeStepper(Stepper):
    """Runs a model with extra heads: ``drafts`` of them, and a method ``draft``.

    Where guesses take longer than they save, it goes on without them; no text depends on it.
    """

    guesses = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._worth = Worth()

    def advance(self, slots: Slots, samples: Sequence[Sample]) -> list[list[int | None]]:
        """The next tokens of each sample: one, and as many more as were guessed right."""
        rows, began = len(samples), time.perf_counter()
        guesses = self._worth.guesses(rows)
        found = self._verified(slots, samples) if guesses else super().advance(slots, samples)
        # All numbers are read by now, so that an accelerator's work is in the time too.
        self._worth.took(rows, time.perf_counter() - began, sum(map(len, found)) if guesses else None)
        return found

    def ended(self, sample: Sample) -> None:
        """Counts which guesses of a sample were right, and the tokens that came of them."""
        self._done.decoded += self._done.accepted.judge(sample.guesses, sample.tokens)
        sample.guesses.clear()

    def _verified(self, slots: Slots, samples: Sequence[Sample]) -> list[list[int | None]]:
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

    def _guess(self, slots: Slots, samples: Sequence[Sample]) -> list[list[int]]:
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
