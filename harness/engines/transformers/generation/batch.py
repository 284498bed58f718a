"""Continues many prompts at once: when a row is done it leaves, and a waiting one takes its place.

A prefix that several prompts share (few-shot examples) is computed once and never copied (``split_attention``). The
prompts after one prefix that have about the same length make a lane. The rows of several lanes go through the model in
one pass, and each attends to its own lane's prefix and to itself. A prompt is computed once for all its samples. Every
row has its own length, so nothing is padded to the longest (``kv_cache.SlotCache``).

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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
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

_MOST_LANES: Final = 8
"""The most lanes in one pass: attention is computed lane by lane."""

_SHARE: Final = 0.25
"""The share of free memory for the keys and values of rows and of their prefixes."""

_MOST_BYTES: Final = {"cpu": 2**29}
"""The most memory for them: on a CPU more than a few dozen rows are no faster."""

_AHEAD: Final = 128
"""Tokens of a text that memory is planned for; few texts get much longer."""


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
        lanes: int = _MOST_LANES,
    ) -> None:
        """``lanes`` is how many may share a pass."""
        self._model, self._stepper, self._shared = model, stepper, shared
        self._ends, self._budget, self._batch = ends, budget, batch
        self._most = batch or _MOST_ROWS.get(model.device.type, _MOST_ROWS["cpu"])
        self._most_lanes = 1 if stepper.speculative else lanes
        self._number_of: dict[GeneratedSequence, int] = {}
        self._lanes: list[_Lane] = []

    def run(self, prompts: Sequence[Prompt]) -> Generator[Ended, None, None]:
        """Yield each prompt as soon as its samples have ended, while others go on.

        Nothing is computed until the next one is asked for.
        """
        samples = {number: samples_of(prompt, self._ends) for number, prompt in enumerate(prompts)}
        number_of = {sample: number for number, some in samples.items() for sample in some}
        self._number_of = number_of
        open_ = {number: len(some) for number, some in samples.items()}
        groups = group([prompt.tokens for prompt in prompts])
        if self._most_lanes > 1:
            groups = [
                part for one in groups for part in by_length(one, [len(prompt.tokens) for prompt in prompts])
            ]
        waiting = deque(
            _Lane(
                prompts[one.members[0]].tokens[: one.shared],
                (sample for number in one.members for sample in samples[number]),
                self._stepper,
                self._budget,
            )
            for one in groups
        )
        for sample in self._run_lanes(waiting):
            number = number_of.pop(sample)
            open_[number] -= 1
            if not open_[number]:
                yield Ended(number, samples.pop(number))

    def growing(self) -> list[tuple[int, int]]:
        """Return for each sample at work the number of its prompt and the tokens it has; called by another thread."""
        at_work = [sample for lane in tuple(self._lanes) for sample in tuple(lane.at_work)]
        numbers = self._number_of
        return [(numbers.get(sample, -1), len(sample.tokens)) for sample in at_work]

    def verify(
        self, works: Sequence[tuple[int, ...]], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Feed sequences as prompts and tokens after them, and compare their logits with ``plain``, those of every
        sequence by itself.

        Return None where they agree, else the difference.
        """
        return self._differs(works, plain, self._fed, self._stepper.speculative)

    def verify_lanes(
        self, works: Sequence[tuple[int, ...]], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Feed them in two lanes; return None where the logits agree, else the difference."""
        if self._most_lanes == 1 or len(works) == 1:
            return "nothing goes in lanes"
        return self._differs(works, plain, self._fed_in_lanes, False)

    def _differs(
        self,
        works: Sequence[tuple[int, ...]],
        plain: Callable[[Sequence[TokenWork]], torch.Tensor],
        fed: Callable[[Sequence[tuple[int, ...]]], torch.Tensor],
        twice: bool,
    ) -> str | None:
        import torch

        # The targets do not matter: the logits after the last three tokens are asked for.
        asked = [TokenWork(work, work[-3:]) for work in works]

        def alone() -> torch.Tensor:
            found = plain(asked).view(len(works), 3, -1).transpose(0, 1)
            return (torch.cat((found, found[1:])) if twice else found).flatten(0, 1)

        return difference(self._model, alone, lambda: fed(works))

    def _fed(self, works: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Return logits [places x works, vocabulary] after the prompts, and after each of the last two tokens.

        Where tokens are proposed, these two are fed once more, both at once, for the logits after them.
        """
        import torch

        past = works[0][: len(works[0]) // 2]
        with torch.inference_mode():
            prefix = self._shared.prefix(past)
            with splitting(self._model):
                slots = SlotCache(prefix)
                found = [self._stepper.fill(slots, [work[len(past) : -2] for work in works])]
                found += [self._stepper.step(slots, [work[-back] for work in works]) for back in (2, 1)]
                if self._stepper.speculative:
                    slots.lengths = [length - 2 for length in slots.lengths]
                    both = self._stepper.several(slots, [work[-2:] for work in works])
                    found += [both[0::2], both[1::2]]
        return torch.cat(found)

    def _fed_in_lanes(self, works: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Return the same logits with the last sequence in a lane of its own, after a shorter prefix."""
        import torch

        past = len(works[0]) // 2
        parts = [(past, works[:-1]), (past // 2, works[-1:])]
        with torch.inference_mode():
            caches = [SlotCache(self._shared.prefix(works[0][:length])) for length, _ in parts]
            with splitting(self._model):
                found = [
                    self._stepper.fill(slots, [work[length:-2] for work in some])
                    for slots, (length, some) in zip(caches, parts, strict=True)
                ]
                found += [
                    self._stepper.step_all(caches, [[work[-back] for work in some] for _, some in parts])
                    for back in (2, 1)
                ]
        return torch.cat(found)

    def _run_lanes(self, waiting: deque[_Lane]) -> Iterator[GeneratedSequence]:
        """Generate all samples, and yield each when it is there."""
        most = self._most_tokens()
        lanes: list[_Lane] = []
        while waiting or lanes:
            try:
                self._lanes = lanes
                self._open(lanes, waiting, most)
                with splitting(self._model):
                    while lanes and not self._opens(lanes, waiting, most):
                        self._go_on(lanes, most)
                        for lane in lanes:
                            yield from lane.leave()
                        lanes = self._lanes = [lane for lane in lanes if lane.samples]
                continue
            except Exception as error:
                if self._batch is not None or not is_out_of_memory(error) or not self._halve():
                    raise
            # Outside the handler, so that the error no longer holds the memory of its batch.
            for lane in lanes:
                yield from lane.leave()
                lane.retreat()
            waiting.extendleft(reversed([lane for lane in lanes if lane.samples]))
            lanes = []
            release(self._model.device)

    def _most_tokens(self) -> int | None:
        """Return the most tokens whose keys and values may be in memory at once; None where there is no limit."""
        device = self._model.device
        free = free_memory(device)
        if free is None or self._batch is not None:
            return None
        config: Any = self._model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        token: int = 2 * config.num_hidden_layers * heads * width * self._model.dtype.itemsize
        return min(int(_SHARE * free), _MOST_BYTES.get(device.type, free)) // token

    def _opens(self, lanes: Sequence[_Lane], waiting: Sequence[_Lane], most: int | None) -> bool:
        """Return whether the next lane can begin: there is room for all samples of the others and one of its own."""
        if not waiting or not lanes:
            return bool(waiting)
        if len(lanes) == self._most_lanes or sum(lane.samples for lane in lanes) >= self._most:
            return False
        return most is None or sum(lane.size(lane.samples) for lane in lanes) + waiting[0].size(1) <= most

    def _open(self, lanes: list[_Lane], waiting: deque[_Lane], most: int | None) -> None:
        """Compute the prefixes of the lanes that can begin."""
        import torch

        while self._opens(lanes, waiting, most):
            with torch.inference_mode():
                waiting[0].open(self._shared.prefix(waiting[0].shared))
            lanes.append(waiting.popleft())

    def _go_on(self, lanes: Sequence[_Lane], most: int | None) -> None:
        """Put samples to work as far as there is room, and go on until some have ended."""
        import torch

        # The mode is the thread's, and whoever is told of an end should not find himself in it.
        with torch.inference_mode():
            while True:
                for lane in lanes:
                    lane.let_in(self._room(lane, lanes, most))
                if any(lane.ended for lane in lanes):
                    return
                working = [lane for lane in lanes if lane.at_work]
                found = self._stepper.advance_all([(lane.slots, lane.at_work) for lane in working])
                for lane, chosen in zip(working, found, strict=True):
                    lane.take(0, chosen)

    def _room(self, lane: _Lane, lanes: Sequence[_Lane], most: int | None) -> int:
        """Return how many samples of a lane may be at work; at least one where no other lane has any."""
        others = [one for one in lanes if one is not lane]
        rows = self._most - sum(len(one.at_work) for one in others)
        if most is not None:
            left = most - sum(one.size(len(one.at_work)) for one in others) - lane.size(0)
            rows = min(rows, left // max(1, lane.row))
        return max(rows, not any(one.at_work for one in others))

    def _halve(self) -> bool:
        """Halve what is computed at once; return False where nothing is left to halve."""
        fewer = self._budget.halve()
        if self._most == 1:
            return fewer
        self._most //= 2
        return True


class _Lane:
    """The samples after one prefix.

    Those at work are each in the slot of their number. The keys and values of a prompt are held while more of its
    samples wait.
    """

    def __init__(
        self,
        shared: tuple[int, ...],
        waiting: Iterable[GeneratedSequence],
        stepper: DecodeStep,
        budget: BatchBudget,
    ) -> None:
        """``shared`` is the prefix, in tokens."""
        self.shared, self.slots = shared, SlotCache(KeyValues())
        self.at_work: list[GeneratedSequence] = []
        self.ended: list[GeneratedSequence] = []
        self._waiting = deque(waiting)
        self._coming: list[GeneratedSequence] = []
        self._stepper, self._budget = stepper, budget
        self._held: dict[int, tuple[Held, torch.Tensor]] = {}
        self._longest = max(len(one.prompt.tokens) for one in self._waiting) - len(shared) + _AHEAD

    @property
    def samples(self) -> int:
        """The number of samples that wait or are at work."""
        return len(self._waiting) + len(self.at_work)

    @property
    def row(self) -> int:
        """The number of tokens that a row takes in memory."""
        return max(self._longest, self.slots.columns)

    def size(self, rows: int) -> int:
        """Return the number of tokens in memory with ``rows`` samples at work; slots stay when their rows leave."""
        return len(self.shared) + max(rows, self.slots.rows if rows else 0) * self.row

    def open(self, prefix: KeyValues) -> None:
        """Begin after a prefix whose keys and values are computed."""
        self.slots = SlotCache(prefix)
        if self.samples == 1:
            self.slots.own()

    def retreat(self) -> None:
        """Let all samples wait again, with the tokens that they have."""
        self._waiting.extendleft(reversed([*self.at_work, *self._coming]))
        self.at_work, self._coming, self._held = [], [], {}
        self.slots = SlotCache(KeyValues())

    def leave(self) -> list[GeneratedSequence]:
        """Return the samples that have ended, each once."""
        ended, self.ended = self.ended, []
        return ended

    def let_in(self, most: int) -> None:
        """Put waiting samples to work until ``most`` are.

        A prompt is computed once for all its samples. Samples that were at work before go on from the tokens they have.
        """
        import torch

        first = len(self.at_work)
        while self._waiting and first + len(self._coming) < most:
            self._coming.append(self._waiting.popleft())
        if not self._coming:
            if 2 * len(self.at_work) < self.slots.rows and not self._waiting:
                self.slots.trim()
            return
        self.slots.reserve(first + len(self._coming))
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
        following = self._waiting[0].prompt if self._waiting else None
        if jobs or id(following) not in self._held:
            self._held = {}
        for batch in self._batches(jobs):
            logits += self._fill(batch, following)
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.at_work[first:]])
        self.take(first, [[token] for token in chosen])

    def _fill(
        self, jobs: Sequence[list[GeneratedSequence]], next_prompt: Prompt | None
    ) -> list[torch.Tensor]:
        """Compute the prompts of some jobs, and copy them for the further samples of each.

        Return the logits after them, in the order in which they were put to work.
        """
        slot = len(self.at_work)
        logits = list(self._stepper.fill(self.slots, [self._tail(job[0]) for job in jobs]))
        for job in jobs:
            self.at_work.append(job[0])
            self._coming.remove(job[0])
        for number, job in enumerate(jobs):
            wanted = job[0].prompt is next_prompt and not job[0].tokens
            if len(job) == 1 and not wanted:
                continue
            held = self.slots.take(slot + number)
            for sample in job[1:]:
                self._add(sample, held)
                logits.append(logits[number])
            if wanted:
                self._held[id(job[0].prompt)] = (held, logits[number].clone())
        return logits

    def _add(self, sample: GeneratedSequence, held: Held) -> None:
        self.slots.add(held)
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
        return [*sample.prompt.tokens[self.slots.past + self.slots.begun :], *sample.tokens]

    def take(self, first: int, chosen: Sequence[Sequence[int | None]]) -> None:
        """Give the samples from ``first`` on their next tokens; those that are done leave."""
        # From the last one down, since the last one takes the place of one that leaves.
        for number in reversed(range(first, len(self.at_work))):
            sample = self.at_work[number]
            if any(sample.take(token) for token in chosen[number - first]):
                self._stepper.ended(sample)
                self.ended.append(sample)
                self.slots.drop(number)
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


def by_length(one: Group, lengths: Sequence[int]) -> list[Group]:
    """Return the group in parts by the length of the prompts, given in tokens: no tail is much longer than another."""
    parts: list[list[int]] = []
    most = 0
    for number in sorted(one.members, key=lambda number: lengths[number]):
        tail = lengths[number] - one.shared
        if not parts or tail > most:
            parts.append([])
            most = 2 * tail + _LEAST_TOKENS
        parts[-1].append(number)
    return sorted((Group(one.shared, tuple(sorted(part))) for part in parts), key=lambda part: part.members)


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
