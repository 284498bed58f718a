"""Runs the model during generation: prompts first, then one token per row at a time.

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

Other models continue prompts one by one with transformers' own ``generate``, as any causal model can. Only the choice
of a token and the end of a text are ours, so that both ways of generating give the same texts. With some models
(RoBERTa, XLM, XLNet) ``generate`` computes the steps after the prompt otherwise than a pass over the whole text.
``SequentialGenerator.verify`` finds that out; then each token is computed from the whole text before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.engines.transformers.agreement import difference
from pytest_touchstone.engines.transformers.compat import cache_argument, plain_generation
from pytest_touchstone.engines.transformers.devices import BatchBudget, to_device
from pytest_touchstone.engines.transformers.generation.sequence import (
    DrawKey,
    EndedPrompt,
    GeneratedSequence,
    StopTokens,
    choose,
    new_samples,
)
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, SlotCaches
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.prefix_tree import group_by_prefix
from pytest_touchstone.engines.transformers.scoring import pad_rows
from pytest_touchstone.engines.transformers.split_attention import Attention, attach_cache_parts, slot_mask
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt, TokenWork, WorkDone

if TYPE_CHECKING:
    import torch


Groups = Sequence[tuple[SlotCache, Sequence[GeneratedSequence]]]
"""Caches, and the samples in the slots in use of each."""


class DecodeStep:
    """Prefills and decodes rows in slots, with ``split_attention``.

    ``speculative`` says whether a pass may verify several proposed tokens of a row.
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

    def prefill(
        self, slots: SlotCache, tails: Sequence[Sequence[int]], copied: Sequence[int] = ()
    ) -> torch.Tensor:
        """Prefill the next free slots and return the logits after each prompt's last token.

        Rows are padded on the right to the longest; later tokens overwrite the padding. Long batches are split along
        the sequence so that a forward pass stays within the token budget.

        Args:
            slots: The cache whose next ``len(tails)`` slots are filled.
            tails: The tokens of each prompt after the shared prefix and the copied tokens.
            copied: The tokens of each slot that are in the cache already, copied from another text. Defaults to none.

        Returns:
            Logits of shape [len(tails), vocabulary], float32.

        """
        import torch

        first, longest = len(slots.lengths), max(map(len, tails))
        begun = [slots.begun + length for length in copied or [0] * len(tails)]
        held = to_device(begun, self._model.device)[:, None]
        # Padding goes to the column after a row's last token.
        ends = held + to_device([len(tail) for tail in tails], self._model.device)[:, None]
        most = self._budget.within(slots.past + max(begun) + longest, 1, split=True)
        step = min(longest, max(1, most // len(tails)))
        last_logits: list[torch.Tensor] = [torch.empty(0)] * len(tails)
        for begin in range(0, longest, step):
            end = min(longest, begin + step)
            ids = [[*tail[begin:end], *[0] * (end - max(begin, len(tail)))] for tail in tails]
            columns = held + torch.arange(begin, end, device=self._model.device)
            if any(copied):
                columns = columns.minimum(ends)
                until = 1 + max(
                    min(length + end - 1, length + len(tail))
                    for length, tail in zip(begun, tails, strict=True)
                )
                slots.set_write_target(first, len(tails), columns, until)
            else:
                until = slots.begun + end
                slots.set_write_target(first, len(tails), slots.begun + begin, until)
            ending = [
                (row, len(tail) - 1 - begin) for row, tail in enumerate(tails) if begin < len(tail) <= end
            ]
            inputs = self._inputs([slots], [columns], [until], to_device(ids, self._model.device))
            logits = self._computed(inputs, ending)
            for (row, _), row_logits in zip(ending, logits, strict=True):
                last_logits[row] = row_logits
        slots.lengths += [length + len(tail) for length, tail in zip(begun, tails, strict=True)]
        slots.begun = 0
        tokens = sum(map(len, tails))
        self._done.prefilled += tokens
        self._done.padded += len(tails) * longest - tokens
        return torch.stack(last_logits)

    def advance(self, groups: Groups) -> list[list[list[int | None]]]:
        """Return the next tokens of each sample of several caches, by one forward pass.

        None stands for a token whose logits hold NaN. Tokens after the end of a sample are to be ignored.
        """
        samples = [sample for _, some in groups for sample in some]
        fed = [[sample.tokens[-1] for sample in some] for _, some in groups]
        logits = self.decode([slots for slots, _ in groups], fed)
        self._done.stepped(len(samples))
        tokens = iter(choose(logits, [sample.draw for sample in samples]))
        return [[[next(tokens)] for _ in some] for _, some in groups]

    def ended(self, sample: GeneratedSequence) -> None:
        """Update the counts for a sample that has ended."""

    def decode(self, caches: Sequence[SlotCache], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Decode one token per slot in use of several caches, in one forward pass.

        Return logits of shape [rows of all caches, vocabulary], float32.
        """
        logits = self.decode_multi(caches, [[[token] for token in some] for some in tokens], 1)
        for slots in caches:
            slots.lengths = [length + 1 for length in slots.lengths]
        self._done.decoded += len(logits)
        return logits

    def decode_multi(
        self, caches: Sequence[SlotCache], fed: Sequence[Sequence[Sequence[int]]], width: int
    ) -> torch.Tensor:
        """Decode up to ``width`` tokens per slot in use of several caches, in one forward pass.

        Shorter rows are padded. The lengths of the slots stay, so that the next pass overwrites what is written here.

        Args:
            caches: The slot caches, in the order of the rows.
            fed: The tokens of each row of each cache, at least one.
            width: The tokens of a row, padding included.

        Returns:
            Logits of shape [rows of all caches x width, vocabulary], float32; those after padding are meaningless.

        """
        import torch

        device = self._model.device
        rows = [row for some in fed for row in some]
        ids = to_device([[*row, *[0] * (width - len(row))] for row in rows], device)
        places = torch.arange(width, device=device)
        columns = [to_device(slots.lengths, device)[:, None] + places for slots in caches]
        until = [max(slots.lengths) + width for slots in caches]
        for slots, cache_columns, end in zip(caches, columns, until, strict=True):
            slots.set_write_target(0, len(cache_columns), cache_columns, end)
        inputs = self._inputs(caches, columns, until, ids)
        if width > 1:
            # A model may have no positions beyond its length.
            last = inputs["position_ids"][:, 0] + to_device([len(row) - 1 for row in rows], device)
            inputs["position_ids"] = inputs["position_ids"].minimum(last[:, None])
        logits = self._computed(
            inputs, [(row, offset) for row in range(len(rows)) for offset in range(width)]
        )
        self._done.continued += ids.numel()
        return logits

    def _inputs(
        self,
        caches: Sequence[SlotCache],
        columns: Sequence[torch.Tensor],
        until: Sequence[int],
        ids: torch.Tensor,
    ) -> dict[str, Any]:
        """Return the model's inputs for a pass whose write targets are set.

        Args:
            caches: The slot caches, in the order of the rows.
            columns: The columns [rows, tokens] of each cache that are written.
            until: The end of the columns that the rows of each cache attend to.
            ids: The token ids [rows of all caches, tokens].

        """
        import torch

        def masks(window: int | None) -> torch.Tensor:
            each = [
                slot_mask(window, columns=cache_columns, past=slots.past, until=end, dtype=self._model.dtype)
                for slots, cache_columns, end in zip(caches, columns, until, strict=True)
            ]
            if len(each) == 1:
                return each[0]
            return attach_cache_parts(each[0].new_zeros((sum(map(len, each)), 1, 1, 1)), each)

        return {
            "input_ids": ids,
            "position_ids": torch.cat(
                [cache_columns + slots.past for slots, cache_columns in zip(caches, columns, strict=True)]
            ),
            cache_argument(type(self._model)): caches[0] if len(caches) == 1 else SlotCaches(caches),
            "use_cache": True,
            "attention_mask": self._attention.masks(masks),
        }

    def _computed(self, inputs: dict[str, Any], wanted: Sequence[tuple[int, int]]) -> torch.Tensor:
        logits = self._needed.logits(inputs, [row for row, _ in wanted], [position for _, position in wanted])
        self._done.computed += inputs["input_ids"].numel()
        self._done.logits += len(wanted)
        return logits


MOST_TOKENS: Final = {"cpu": 32, "cuda": 512}
"""The most tokens of a pass with proposals, by the kind of device."""


class SpeculativeStepper(DecodeStep):
    """Decodes with a model whose extra heads propose tokens: ``drafts`` heads, and a method ``draft``."""

    speculative = True

    def proposes(self, rows: int) -> bool:
        """Return whether a pass over ``rows`` rows is to verify proposed tokens."""
        most = MOST_TOKENS.get(self._model.device.type, MOST_TOKENS["cpu"])
        return bool(rows * (self._model.drafts + 1) <= most)

    def advance(self, groups: Groups) -> list[list[list[int | None]]]:
        """Return the next tokens of each sample: one, and those after it that were proposed correctly."""
        if not self.proposes(sum(len(samples) for _, samples in groups)):
            return super().advance(groups)
        return [self._advance(slots, samples) for slots, samples in groups]

    def _advance(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int | None]]:
        """Return the next tokens of the samples, by one pass over their last tokens and the proposed ones."""
        width = self._model.drafts + 1
        proposals = self._propose(slots, samples)
        fed = [[sample.tokens[-1], *proposed] for sample, proposed in zip(samples, proposals, strict=True)]
        chosen = choose(self.decode_multi([slots], [fed], width), _draws(samples, width))
        accepted = []
        for row, proposed in enumerate(proposals):
            tokens = chosen[row * width : (row + 1) * width]
            right = takewhile(lambda pair: pair[0] == pair[1], zip(proposed, tokens, strict=False))
            accepted.append(tokens[: len(list(right)) + 1])
        slots.lengths = [length + len(tokens) for length, tokens in zip(slots.lengths, accepted, strict=True)]
        self._done.stepped(sum(map(len, accepted)))
        for sample, proposed in zip(samples, proposals, strict=True):
            sample.proposals.append((len(sample.tokens), proposed))
        return accepted

    def ended(self, sample: GeneratedSequence) -> None:
        """Count the accepted proposals of an ended sample, and the tokens that came from them."""
        self._done.decoded += self._done.accepted.judge(sample.proposals, sample.tokens)
        sample.proposals.clear()

    def _propose(self, slots: SlotCache, samples: Sequence[GeneratedSequence]) -> list[list[int]]:
        """Return the tokens that the extra heads propose after the last token of each sample."""
        import torch

        heads = self._model.drafts
        columns = to_device(slots.lengths, self._model.device) - 1
        until = max(slots.lengths)
        slots.set_write_target(0, len(samples), columns[:, None], until)
        mask = slot_mask(
            None, columns=columns[:, None], past=slots.past, until=until, dtype=self._model.dtype
        )
        with torch.inference_mode():
            logits = self._model.draft(
                slots, mask, torch.arange(len(samples), device=self._model.device), columns
            )
        tokens = [token or 0 for token in choose(logits.flatten(0, 1).float(), _draws(samples, heads))]
        return [tokens[row * heads : (row + 1) * heads] for row in range(len(samples))]


def _draws(samples: Sequence[GeneratedSequence], width: int) -> list[DrawKey]:
    """Return the keys of the next ``width`` draws of each sample."""
    return [
        draw._replace(step=draw.step + offset)
        for draw in (s.draw for s in samples)
        for offset in range(width)
    ]


# One by one

_PROBE_STEPS: Final = 3

ChooseNext: TypeAlias = "Callable[[torch.Tensor], int | None]"
"""Takes the logits [1, vocabulary] of the next token, and returns that token; None where the text ends."""


class SequentialGenerator:
    """Generates every sample by itself."""

    def __init__(self, model: Any, ends: StopTokens, *, done: WorkDone) -> None:
        self._model, self._ends, self._done = model, ends, done
        self.from_the_beginning = False
        self._prefixes: set[tuple[int, ...]] = set()

    def run(self, prompts: Sequence[TokenizedPrompt]) -> Generator[EndedPrompt, None, None]:
        """Yield each prompt once its samples have ended, in order."""
        # What batched generation would compute: a shared prefix once, and what follows it once for all samples.
        enough = [len(prompt.tokens) for prompt in prompts]
        for prefix in group_by_prefix([prompt.tokens for prompt in prompts]):
            shared = prompts[prefix.members[0]].tokens[: prefix.shared]
            for number in prefix.members if shared in self._prefixes else prefix.members[1:]:
                enough[number] -= prefix.shared
            self._prefixes.add(shared)
        for number, prompt in enumerate(prompts):
            samples = new_samples(prompt, self._ends)
            for sample in samples:
                self._complete(sample)
            again = sum(max(0, len(sample.tokens) - 1) for sample in samples)
            computed = len(samples) * len(prompt.tokens)
            self._done.slowly("generating", computed + again, enough[number] + again)
            yield EndedPrompt(number, samples)

    def verify(
        self, probe: tuple[int, ...], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Compare the logits of ``generate`` after a probe's beginning with ``plain``, those of passes over the whole.

        Return None where they agree, else the difference.
        """
        import torch

        least = max(1, len(probe) - _PROBE_STEPS)
        tokens = probe[least:]

        def expected() -> torch.Tensor:
            return plain([TokenWork(probe[:length], (0,)) for length in range(least, len(probe) + 1)])

        def steps() -> torch.Tensor:
            logits: list[torch.Tensor] = []

            def choose_next(scores: torch.Tensor) -> int | None:
                logits.append(scores[0].float())
                return tokens[len(logits) - 1] if len(logits) <= len(tokens) else None

            self._generate(probe[:least], len(tokens) + 1, choose_next)
            return torch.stack(logits)

        return difference(self._model, expected, steps)

    def _complete(self, sample: GeneratedSequence) -> None:
        """Continue a sample to its end."""
        prompt = sample.prompt

        def choose_next(scores: torch.Tensor) -> int | None:
            """Return the sample's next token; None where the text ends with it."""
            (token,) = choose(scores.float(), [sample.draw])
            over = sample.take(token)
            self._done.stepped(1)
            return None if over else token or 0

        generate = self._generate_from_the_beginning if self.from_the_beginning else self._generate
        generate(prompt.tokens, prompt.request.max_new_tokens, choose_next)
        steps = again = max(0, len(sample.tokens) - 1)
        if self.from_the_beginning:
            again = sum(len(prompt.tokens) + step for step in range(1, steps + 1))
        self._done.prefilled += len(prompt.tokens)
        self._done.decoded += steps
        self._done.computed += len(prompt.tokens) + again
        self._done.continued += again
        self._done.logits += len(sample.tokens)

    def _generate(self, tokens: Sequence[int], most: int, choose_next: ChooseNext) -> None:
        """Have ``generate`` continue a prompt by up to ``most`` tokens."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        over = False

        def choice(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            """Keep only the chosen token in the logits of the next token."""
            nonlocal over
            token = choose_next(scores)
            over = token is None
            only = torch.full_like(scores, float("-inf"))
            only[:, token or 0] = 0.0
            return only

        def stop(ids: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
            """Return whether the text ends, after the token has been added."""
            return torch.full((ids.shape[0],), over, dtype=torch.bool, device=ids.device)

        ids = torch.tensor([list(tokens)], device=self._model.device)
        with plain_generation(self._model):
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(max_new_tokens=most, do_sample=False, pad_token_id=0),
                logits_processor=LogitsProcessorList([choice]),
                stopping_criteria=StoppingCriteriaList([stop]),
            )

    def _generate_from_the_beginning(self, tokens: Sequence[int], most: int, choose_next: ChooseNext) -> None:
        """Continue a prompt by up to ``most`` tokens, each by a pass over the whole text."""
        import torch

        text = list(tokens)
        with torch.inference_mode():
            for _ in range(most):
                inputs = pad_rows([tuple(text)], 0, self._model.device)
                token = choose_next(self._model(**inputs, use_cache=False).logits[:, -1])
                if token is None:
                    return
                text.append(token)
