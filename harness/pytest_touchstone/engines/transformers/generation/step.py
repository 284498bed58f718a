"""Runs the model for rows that are being generated: prompts first, then one token for each row at a time.

Of a model with extra heads (Gloeckle et al. 2024, section 2) these propose several tokens in one pass, and the model
verifies. Where head 0 has chosen token t + 1, head i proposes token t + 1 + i from the same place. All of them go
through the model at once, and head 0's logits after each say which token comes next there. As long as that is the
proposed token, the next logits count too. The first that differs is replaced by head 0's choice, and the proposals
after it are void; what they left in the slots is overwritten.

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
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.compat import cache_argument
from pytest_touchstone.engines.transformers.devices import BatchBudget, to_device
from pytest_touchstone.engines.transformers.generation.sequence import DrawKey, GeneratedSequence, choose
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, SlotCaches
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.split_attention import Attention, put_beside, slot_mask
from pytest_touchstone.engines.transformers.work_done import WorkDone

if TYPE_CHECKING:
    import torch


Groups = Sequence[tuple[SlotCache, Sequence[GeneratedSequence]]]
"""Caches, and the samples in the slots in use of each."""


class DecodeStep:
    """Fills slots, and predicts the token after their content.

    The model attends by ``split_attention``. ``speculative`` says whether several tokens of a row may go through the
    model at once.
    """

    speculative = False

    def __init__(
        self,
        model: Any,
        needed: SelectiveLogits,
        attention: Attention,
        *,
        budget: BatchBudget,
        done: WorkDone,
    ) -> None:
        self._model, self._needed, self._attention = model, needed, attention
        self._budget, self._done = budget, done

    def fill(
        self, slots: SlotCache, tails: Sequence[Sequence[int]], copied: Sequence[int] = ()
    ) -> torch.Tensor:
        """Put tokens in the next slots, after the prefix or what a slot holds; return float32 logits [rows,
        vocabulary] after each. Each of the slots holds so many ``copied`` tokens.

        Rows are padded on the right to the longest; what is computed there is overwritten by later tokens. Long rows
        go through the model a budget of tokens at a time.
        """
        import torch

        first, longest = len(slots.lengths), max(map(len, tails))
        begun = [slots.begun + one for one in copied or [0] * len(tails)]
        held = to_device(begun, self._model.device)[:, None]
        # Padding goes to the column after a row's last token.
        ends = held + to_device([len(tail) for tail in tails], self._model.device)[:, None]
        most = self._budget.within(slots.past + max(begun) + longest, 1, split=True)
        step = min(longest, max(1, most // len(tails)))
        found: list[torch.Tensor] = [torch.empty(0)] * len(tails)
        for begin in range(0, longest, step):
            end = min(longest, begin + step)
            ids = [[*tail[begin:end], *[0] * (end - max(begin, len(tail)))] for tail in tails]
            columns = held + torch.arange(begin, end, device=self._model.device)
            if any(copied):
                columns = columns.minimum(ends)
                until = 1 + max(
                    min(one + end - 1, one + len(tail)) for one, tail in zip(begun, tails, strict=True)
                )
                slots.aim(first, len(tails), columns, until)
            else:
                until = slots.begun + end
                slots.aim(first, len(tails), slots.begun + begin, until)
            ending = [
                (row, len(tail) - 1 - begin) for row, tail in enumerate(tails) if begin < len(tail) <= end
            ]
            inputs = self._inputs([slots], [columns], [until], to_device(ids, self._model.device))
            logits = self._computed(inputs, ending)
            for (row, _), part in zip(ending, logits, strict=True):
                found[row] = part
        slots.lengths += [one + len(tail) for one, tail in zip(begun, tails, strict=True)]
        slots.begun = 0
        tokens = sum(map(len, tails))
        self._done.prefilled += tokens
        self._done.padded += len(tails) * longest - tokens
        return torch.stack(found)

    def advance_all(self, groups: Groups) -> list[list[list[int | None]]]:
        """Return the next token of each sample of several caches, by one pass; None where a logit is NaN.

        There may be several tokens of a sample. What a sample gets after its end counts for nothing.
        """
        samples = [sample for _, some in groups for sample in some]
        fed = [[sample.tokens[-1] for sample in some] for _, some in groups]
        logits = self.step_all([slots for slots, _ in groups], fed)
        self._done.stepped(len(samples))
        tokens = iter(choose(logits, [sample.draw for sample in samples]))
        return [[[next(tokens)] for _ in some] for _, some in groups]

    def ended(self, sample: GeneratedSequence) -> None:
        """Take note of each sample that has ended."""

    def step_all(self, caches: Sequence[SlotCache], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Put one more token in every slot in use of several caches, in one pass.

        Return float32 logits [rows, vocabulary] after each.
        """
        logits = self.several_all(caches, [[[token] for token in some] for some in tokens], 1)
        for slots in caches:
            slots.lengths = [length + 1 for length in slots.lengths]
        self._done.decoded += len(logits)
        return logits

    def several_all(
        self, caches: Sequence[SlotCache], fed: Sequence[Sequence[Sequence[int]]], width: int
    ) -> torch.Tensor:
        """Put up to ``width`` tokens in every slot in use of several caches, in one pass; return float32 logits [rows x
        width, vocabulary] after each.

        Rows with fewer are filled up; what is computed there counts for nothing. The slots' lengths stay, so that the
        next tokens overwrite what was put there.
        """
        import torch

        device = self._model.device
        rows = [row for some in fed for row in some]
        ids = to_device([[*row, *[0] * (width - len(row))] for row in rows], device)
        places = torch.arange(width, device=device)
        columns = [to_device(slots.lengths, device)[:, None] + places for slots in caches]
        until = [max(slots.lengths) + width for slots in caches]
        for slots, own, end in zip(caches, columns, until, strict=True):
            slots.aim(0, len(own), own, end)
        inputs = self._inputs(caches, columns, until, ids)
        if width > 1:
            # A model may have no positions beyond its length.
            last = inputs["position_ids"][:, 0] + to_device([len(row) - 1 for row in rows], device)
            inputs["position_ids"] = inputs["position_ids"].minimum(last[:, None])
        logits = self._computed(inputs, [(row, place) for row in range(len(rows)) for place in range(width)])
        self._done.continued += ids.numel()
        return logits

    def _inputs(
        self,
        caches: Sequence[SlotCache],
        columns: Sequence[torch.Tensor],
        until: Sequence[int],
        ids: torch.Tensor,
    ) -> dict[str, Any]:
        """Return the inputs of a pass that puts ``ids`` [rows, tokens] in the ``columns`` [rows, tokens] of caches,
        which are aimed there."""
        import torch

        def masks(window: int | None) -> torch.Tensor:
            each = [
                slot_mask(window, own=own, past=slots.past, until=end, dtype=self._model.dtype)
                for slots, own, end in zip(caches, columns, until, strict=True)
            ]
            if len(each) == 1:
                return each[0]
            return put_beside(each[0].new_zeros((sum(map(len, each)), 1, 1, 1)), each)

        return {
            "input_ids": ids,
            "position_ids": torch.cat([own + slots.past for slots, own in zip(caches, columns, strict=True)]),
            cache_argument(type(self._model)): caches[0] if len(caches) == 1 else SlotCaches(caches),
            "use_cache": True,
            "attention_mask": self._attention.masks(masks),
        }

    def _computed(self, inputs: dict[str, Any], wanted: Sequence[tuple[int, int]]) -> torch.Tensor:
        logits = self._needed.logits(inputs, [row for row, _ in wanted], [place for _, place in wanted])
        self._done.computed += inputs["input_ids"].numel()
        self._done.logits += len(wanted)
        return logits


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
