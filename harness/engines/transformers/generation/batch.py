"""Continues many prompts at once: when a row is done it leaves, and a waiting one takes its place.

The prefix that all prompts of a call share (few-shot examples) is computed once and never copied
(``split_attention``). A prompt is computed once for all its samples. Every row has its own length, so nothing is
padded to the longest (``kv_cache.SlotCache``).

The next token depends on a row's own logits and numbers only (``sampling``), hence not on the batch. A prompt is
handed on as soon as its own texts have ended. Where memory runs out, the rows at work wait again, with the tokens
they have, and fewer of them continue at once.

``group`` decides which prompts are continued together, after a prefix that they share; it is pure and runs no model.

Transformers has continuous batching of its own (``generate_batch``), which does not serve here. It knows no stop
sequences of text, has one seed for a whole batch instead of one for each sample, and shares prefixes only in whole
blocks of its paged cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from harness.engines.transformers.agreement import difference
from harness.engines.transformers.compat import is_out_of_memory
from harness.engines.transformers.generation.sampling import choose
from harness.engines.transformers.generation.sequence import Ended, Ends, GeneratedSequence, samples_of
from harness.engines.transformers.generation.step import DecodeStep
from harness.engines.transformers.kv_cache import Held, KeyValues, SlotCache
from harness.engines.transformers.memory import BatchBudget, free_memory, release
from harness.engines.transformers.prompts import Prompt
from harness.engines.transformers.scoring.plan import TokenWork
from harness.engines.transformers.scoring.prefix_tree import common
from harness.engines.transformers.scoring.shared_prefix import PrefixTreeScorer
from harness.engines.transformers.split_attention import splitting

if TYPE_CHECKING:
    import torch


_MOST_ROWS: Final = {"cpu": 64, "cuda": 256, "mps": 64}

_SHARE: Final = 0.25
"""The share of free memory for the keys and values of rows."""


class BatchGenerator:
    """Generates all samples of many prompts."""

    def __init__(
        self,
        model: Any,
        stepper: DecodeStep,
        shared: PrefixTreeScorer,
        ends: Ends,
        *,
        budget: BatchBudget,
        batch: int | None,
    ) -> None:
        self._model, self._stepper, self._shared = model, stepper, shared
        self._ends, self._budget, self._batch = ends, budget, batch
        self._most = batch or _MOST_ROWS.get(model.device.type, _MOST_ROWS["cpu"])
        self._number_of: dict[GeneratedSequence, int] = {}
        self._at_work: list[GeneratedSequence] = []

    def run(self, prompts: Sequence[Prompt]) -> Generator[Ended, None, None]:
        """Yield each prompt as soon as its samples have ended, while others go on.

        Nothing is computed until the next one is asked for.
        """
        samples = {number: samples_of(prompt, self._ends) for number, prompt in enumerate(prompts)}
        number_of = {sample: number for number, some in samples.items() for sample in some}
        self._number_of = number_of
        open_ = {number: len(some) for number, some in samples.items()}
        for one in group([prompt.tokens for prompt in prompts]):
            shared = prompts[one.members[0]].tokens[: one.shared]
            waiting = deque(sample for number in one.members for sample in samples[number])
            for sample in self._run_group(shared, waiting):
                number = number_of.pop(sample)
                open_[number] -= 1
                if not open_[number]:
                    yield Ended(number, samples.pop(number))

    def growing(self) -> list[tuple[int, int]]:
        """Return for each sample at work the number of its prompt and the tokens it has; called by another thread."""
        at_work, numbers = tuple(self._at_work), self._number_of
        return [(numbers.get(sample, -1), len(sample.tokens)) for sample in at_work]

    def verify(
        self, works: Sequence[tuple[int, ...]], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Feed sequences as prompts and tokens after them, and compare their logits with ``plain``, those of every
        sequence by itself.

        Return None where they agree, else the difference.
        """
        import torch

        # The targets do not matter: the logits after the last three tokens are asked for.
        asked = [TokenWork(work, work[-3:]) for work in works]

        def alone() -> torch.Tensor:
            found = plain(asked).view(len(works), 3, -1).transpose(0, 1)
            return (torch.cat((found, found[1:])) if self._stepper.speculative else found).flatten(0, 1)

        return difference(self._model, alone, lambda: self._fed(works))

    def _fed(self, works: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Return logits [places x works, vocabulary] after the prompts, and after each of the last two tokens.

        Where tokens are proposed, these two are fed once more, both at once, for the logits after them.
        """
        import torch

        past = works[0][: len(works[0]) // 2]
        with torch.inference_mode():
            prefix = self._shared.prefix(past)
            with splitting(self._model):
                slots = SlotCache(prefix, len(works))
                found = [self._stepper.fill(slots, [work[len(past) : -2] for work in works])]
                found += [self._stepper.step(slots, [work[-back] for work in works]) for back in (2, 1)]
                if self._stepper.speculative:
                    slots.lengths = [length - 2 for length in slots.lengths]
                    both = self._stepper.several(slots, [work[-2:] for work in works])
                    found += [both[0::2], both[1::2]]
        return torch.cat(found)

    def _run_group(
        self, shared: tuple[int, ...], waiting: deque[GeneratedSequence]
    ) -> Iterator[GeneratedSequence]:
        """Generate all samples after one prefix, and yield each when it is there."""
        import torch

        longest = max(len(one.prompt.tokens) + one.prompt.request.max_new_tokens for one in waiting)
        while waiting:
            rows: _Rows | None = None
            try:
                with torch.inference_mode():
                    prefix = self._shared.prefix(shared)
                    most = self._room(prefix, longest, len(waiting))
                    slots = SlotCache(prefix, most)
                    if len(waiting) == 1:
                        slots.own()
                rows = _Rows(slots, most, self._stepper, self._budget)
                self._at_work = rows.at_work
                with splitting(self._model):
                    while waiting or rows.at_work:
                        rows.run(waiting)
                        yield from rows.leave()
            except Exception as error:
                if self._batch is not None or not is_out_of_memory(error) or not self._halve():
                    raise
            if rows is not None:
                # Outside the handler, so that the error no longer holds the memory of its batch.
                yield from rows.leave()
                waiting.extendleft(reversed(rows.unfinished))
                rows = None
            if waiting:
                release(self._model.device)

    def _room(self, prefix: KeyValues, longest: int, samples: int) -> int:
        """Return how many rows are generated at once."""
        if self._batch is not None:
            return min(self._batch, samples)
        most = min(self._most, samples)
        free = free_memory(self._model.device)
        if free is None:
            return most
        config: Any = self._model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        token = 2 * config.num_hidden_layers * heads * width * self._model.dtype.itemsize
        row = token * max(1, longest - len(prefix.tokens))
        return max(1, min(most, int(_SHARE * free / row)))

    def _halve(self) -> bool:
        """Halve what is computed at once; return False where nothing is left to halve."""
        fewer = self._budget.halve()
        if self._most == 1:
            return fewer
        self._most //= 2
        return True


class _Rows:
    """The samples at work after one prefix, each in the slot of its number, and prompts that more samples wait
    for."""

    def __init__(self, slots: SlotCache, rows: int, stepper: DecodeStep, budget: BatchBudget) -> None:
        self.at_work: list[GeneratedSequence] = []
        self._coming: list[GeneratedSequence] = []
        self._ended: list[GeneratedSequence] = []
        self._slots, self._most, self._stepper, self._budget = slots, rows, stepper, budget
        self._held: dict[int, tuple[Held, torch.Tensor]] = {}

    def run(self, waiting: deque[GeneratedSequence]) -> None:
        """Continue until some have ended; a sample is taken out of ``waiting`` when it is put to work."""
        import torch

        # The mode is the thread's, and the caller that is told of an end should not find itself in it.
        with torch.inference_mode():
            while not self._ended and (waiting or self.at_work):
                if waiting and len(self.at_work) < self._most:
                    self._let_in(waiting)
                else:
                    self._take(0, self._stepper.advance(self._slots, self.at_work))

    def leave(self) -> list[GeneratedSequence]:
        """Remove and return those that have ended, each once."""
        ended, self._ended = self._ended, []
        return ended

    @property
    def unfinished(self) -> list[GeneratedSequence]:
        """Return the samples at work, and those that were about to be."""
        return [*self.at_work, *self._coming]

    def _let_in(self, waiting: deque[GeneratedSequence]) -> None:
        """Put waiting samples to work, as many as there is room for.

        Those of one prompt share one computation; those that were at work before keep the tokens they have.
        """
        import torch

        first = len(self.at_work)
        while waiting and first + len(self._coming) < self._most:
            self._coming.append(waiting.popleft())
        logits: list[torch.Tensor] = []
        jobs: list[list[GeneratedSequence]] = []
        for sample in self._coming[:]:
            if (kept := self._held.get(id(sample.prompt))) is not None and not sample.tokens:
                self._add(sample, kept[0])
                logits.append(kept[1])
            elif jobs and not sample.tokens and jobs[-1][0].prompt is sample.prompt:
                jobs[-1].append(sample)
            else:
                jobs.append([sample])
        if jobs or not waiting or id(waiting[0].prompt) not in self._held:
            self._held = {}
        for batch in self._batches(jobs):
            logits += self._fill(batch, waiting[0].prompt if waiting else None)
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.at_work[first:]])
        self._take(first, [[token] for token in chosen])

    def _fill(
        self, jobs: Sequence[list[GeneratedSequence]], next_prompt: Prompt | None
    ) -> list[torch.Tensor]:
        """Compute the prompts of some jobs, and copy them for the further samples of each.

        Return the logits after them, in the order in which they were put to work.
        """
        slot = len(self.at_work)
        logits = list(self._stepper.fill(self._slots, [self._tail(job[0]) for job in jobs]))
        for job in jobs:
            self.at_work.append(job[0])
            self._coming.remove(job[0])
        for number, job in enumerate(jobs):
            wanted = job[0].prompt is next_prompt and not job[0].tokens
            if len(job) == 1 and not wanted:
                continue
            held = self._slots.take(slot + number)
            for sample in job[1:]:
                self._add(sample, held)
                logits.append(logits[number])
            if wanted:
                self._held[id(job[0].prompt)] = (held, logits[number].clone())
        return logits

    def _add(self, sample: GeneratedSequence, held: Held) -> None:
        self._slots.add(held)
        self.at_work.append(sample)
        self._coming.remove(sample)

    def _batches(self, jobs: list[list[GeneratedSequence]]) -> Iterator[list[list[GeneratedSequence]]]:
        """Yield jobs of similar length, each batch within the budget of tokens or a single job."""
        batch: list[list[GeneratedSequence]] = []
        for job in sorted(jobs, key=lambda job: -len(self._tail(job[0]))):
            longest = len(self._tail(batch[0][0])) if batch else 0
            if batch and longest * (len(batch) + 1) > self._budget.tokens:
                yield batch
                batch = []
            batch.append(job)
        if batch:
            yield batch

    def _tail(self, sample: GeneratedSequence) -> list[int]:
        """Return the tokens that a slot must still be given before the sample's next token is known."""
        return [*sample.prompt.tokens[self._slots.past + self._slots.begun :], *sample.tokens]

    def _take(self, first: int, chosen: Sequence[Sequence[int | None]]) -> None:
        """Give the samples from ``first`` on their next tokens; those that are done leave."""
        # From the last one down, since the last one takes the place of one that leaves.
        for number in reversed(range(first, len(self.at_work))):
            sample = self.at_work[number]
            if any(sample.take(token) for token in chosen[number - first]):
                self._stepper.ended(sample)
                self._ended.append(sample)
                self._slots.drop(number)
                self.at_work[number] = self.at_work[-1]
                self.at_work.pop()


_LEAST_PROMPTS: Final = 4
"""The number of prompts for which a longer prefix of their own is worth batches of their own."""

_LEAST_TOKENS: Final = 64
"""The tokens by which such a prefix must be longer than the one they share with others."""


@dataclass(frozen=True, slots=True)
class Group:
    """Numbers of prompts, and how many tokens all of them share at the start; each has at least one more."""

    shared: int
    members: tuple[int, ...]


def group(prompts: Sequence[tuple[int, ...]]) -> list[Group]:
    """Return the prompts grouped by prefix, each prompt in one group; a group's members keep their first order."""
    order = sorted(range(len(prompts)), key=lambda number: prompts[number])
    groups, rest = _divide(prompts, order, 0)
    if rest:
        groups.append(_group(prompts, rest))
    found = [Group(one.shared, tuple(sorted(one.members))) for one in groups]
    return sorted(found, key=lambda one: one.members)


def _divide(prompts: Sequence[tuple[int, ...]], order: list[int], base: int) -> tuple[list[Group], list[int]]:
    """Return the groups below a prefix of ``base`` tokens, and the prompts that are in none."""
    if len(order) < _LEAST_PROMPTS:
        return [], order
    shared = common(prompts[order[0]], prompts[order[-1]])
    ours = shared - base >= _LEAST_TOKENS
    groups: list[Group] = []
    rest: list[int] = []
    for _, run in groupby(order, key=lambda number: prompts[number][: shared + 1]):
        members = list(run)
        if len(members) == len(order):  # all are the same
            return ([_group(prompts, order)], []) if ours else ([], order)
        found, left = _divide(prompts, members, shared if ours else base)
        groups += found
        rest += left
    if ours and len(rest) >= _LEAST_PROMPTS:
        groups.append(_group(prompts, rest))
        rest = []
    return groups, rest


def _group(prompts: Sequence[tuple[int, ...]], order: Sequence[int]) -> Group:
    """Return sorted prompts as a group."""
    least = min(len(prompts[number]) for number in order)
    return Group(min(common(prompts[order[0]], prompts[order[-1]]), least - 1), tuple(order))
