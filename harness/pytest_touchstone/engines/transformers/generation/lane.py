"""The texts after one prefix, at work or waiting, and the memory that they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.engines.transformers.devices import BatchBudget
from pytest_touchstone.engines.transformers.generation.sequence import GeneratedSequence, choose, take_each
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import EndedRow, Held, KeyValues, SlotCache, enlarged
from pytest_touchstone.engines.transformers.prefix_tree import common
from pytest_touchstone.engines.transformers.token_work import Prompt

if TYPE_CHECKING:
    import torch

_AHEAD: Final = 48
"""Tokens of a text that memory is planned for when it begins; half of the texts get no longer, and what they leave is
for the others."""


_LEAST_SHARED: Final = 24
"""The tokens from which those of an ended text are copied."""


class _Job(NamedTuple):
    """Samples of one prompt, and the tokens that a slot must be given for them.

    So many tokens are ``copied`` from what is ``held`` of a text that has ended.
    """

    samples: list[GeneratedSequence]
    tokens: list[int]
    copied: int = 0
    held: Held | None = None

    @property
    def left(self) -> int:
        """The number of tokens to compute."""
        return len(self.tokens) - self.copied


class Lane:
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
        self.prefix = KeyValues()
        self.at_work: list[GeneratedSequence] = []
        self._waiting = deque(waiting)
        self._coming: list[GeneratedSequence] = []
        self._over: set[GeneratedSequence] = set()
        self._stepper, self._budget = stepper, budget
        self._held: dict[int, tuple[Held, torch.Tensor]] = {}
        self.longest_limit = max(one.prompt.request.max_new_tokens for one in self._waiting)
        self._longest = self._planned()

    @property
    def samples(self) -> int:
        """The number of samples that wait or are at work."""
        return len(self._waiting) + len(self.at_work) - len(self._over)

    @property
    def row(self) -> int:
        """The number of tokens that a row takes in memory, at the next step too."""
        next_ = max(self.slots.lengths, default=0) + 1
        return max(self._longest, enlarged(self.slots.columns, next_))

    def size(self, rows: int) -> int:
        """Return the number of tokens in memory with ``rows`` samples at work, without the prefix; slots stay when
        their rows leave."""
        return max(rows, self.slots.rows if rows else 0) * self.row

    def open(self, prefix: KeyValues) -> None:
        """Begin after a prefix whose keys and values are computed."""
        self.prefix = prefix
        self.slots = SlotCache(prefix.cropped(len(self.shared)))
        if self.samples == 1:
            self.slots.own()
            self.prefix = KeyValues()

    def retreat(self) -> list[GeneratedSequence]:
        """Let all samples wait again, with the tokens that they have; return those that have ended."""
        ended, self._over = self.over(), set()
        going = [sample for sample in self.at_work if sample not in ended]
        self._waiting.extendleft(reversed([*going, *self._coming]))
        for sample in self._waiting:
            sample.before = None
        self.at_work, self._coming, self._held = [], [], {}
        self.slots, self.prefix = SlotCache(KeyValues()), KeyValues()
        return ended

    def put_back(self) -> None:
        """Let the sample with the fewest tokens wait again, and free the memory of its slot."""
        number = min(range(len(self.at_work)), key=lambda one: len(self.at_work[one].tokens))
        self._waiting.appendleft(self._remove(number))
        self.slots.trim()

    def over(self) -> list[GeneratedSequence]:
        """Return the samples that have ended, and are still in their slots."""
        return [one for one in self.at_work if one in self._over] if self._over else []

    def row_of(self, samples: Collection[GeneratedSequence]) -> EndedRow | None:
        """Return a copy of what the slot of one of these samples holds, None where none of them is in a slot."""
        for number, sample in enumerate(self.at_work):
            if sample in samples:
                own = self._content(number)
                tokens = (*self.slots.prefix.tokens, *own)
                return EndedRow(tokens, self.slots.prefix, self.slots.take(number, len(own)))
        return None

    def begun(self) -> EndedRow | None:
        """Return the text that has most of the prefix, of those that began like samples that wait."""
        rows = [one.before for one in self._waiting if one.before is not None]
        return max(rows, key=lambda row: common(row.tokens, self.shared), default=None)

    def all(self) -> list[GeneratedSequence]:
        """Return the samples that wait or are at work."""
        return [*self._waiting, *(one for one in self.at_work if one not in self._over)]

    def only(self, wanted: Collection[GeneratedSequence]) -> None:
        """Forget all samples but those that are wanted."""
        self._waiting = deque(one for one in self._waiting if one in wanted)
        self.part(wanted)
        for number in reversed(range(len(self.at_work))):
            if self.at_work[number] not in wanted:
                self._remove(number)

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
        self.slots.reserve(first + len(self._coming), self._longest)
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
        for batch in self._batches([self._job(samples) for samples in jobs]):
            logits += self._fill(batch, following)
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.at_work[first:]])
        self.take(first, [[token] for token in chosen])
        if not self._waiting:
            self._longest = self._planned()

    def take(self, first: int, chosen: Sequence[Sequence[int | None]]) -> None:
        """Give the samples from ``first`` on their next tokens; what comes after a sample's end counts for nothing."""
        take_each(self.at_work[first:], chosen, self._over)

    def part(self, wanted: Collection[GeneratedSequence] = ()) -> None:
        """Let the samples that are done leave, but those that are still wanted."""
        # From the last one down, since the last one takes the place of one that leaves.
        for number in reversed(range(len(self.at_work)) if self._over else ()):
            sample = self.at_work[number]
            if sample in self._over and sample not in wanted:
                self._over.remove(sample)
                self._stepper.ended(sample)
                self._remove(number)

    def _planned(self) -> int:
        """Return the tokens that memory is planned for in a row of those that wait."""
        shared = len(self.shared)
        return (
            max((len(one.prompt.tokens) for one in self._waiting), default=shared - _AHEAD) - shared + _AHEAD
        )

    def _remove(self, number: int) -> GeneratedSequence:
        """Take a sample from its slot, where the last one goes."""
        sample = self.at_work[number]
        self.slots.drop(number)
        self.at_work[number] = self.at_work[-1]
        self.at_work.pop()
        return sample

    def _content(self, number: int) -> list[int]:
        """Return the tokens that a slot holds after the prefix."""
        sample = self.at_work[number]
        whole = [*sample.prompt.tokens[self.slots.past :], *sample.tokens]
        return whole[: self.slots.lengths[number]]

    def _job(self, samples: list[GeneratedSequence]) -> _Job:
        """Return what a slot must be given for samples of a prompt, which may begin like a text that has ended."""
        tail, row = self._tail(samples[0]), samples[0].before
        if row is None or self.slots.begun:
            return _Job(samples, tail)
        past, prompt = self.slots.past, samples[0].prompt.tokens
        until = min(common(row.tokens, prompt), len(prompt) - 1)
        if until - past < _LEAST_SHARED:
            return _Job(samples, tail)
        return _Job(samples, tail, until - past, row.between(past, until))

    def _fill(self, jobs: Sequence[_Job], next_prompt: Prompt | None) -> list[torch.Tensor]:
        """Compute the prompts of some jobs, and copy them for the further samples of each.

        Return the logits after them, in the order in which they were put to work.
        """
        slot = len(self.at_work)
        for number, job in enumerate(jobs):
            if job.held is not None:
                self.slots.put(slot + number, job.held)
        tails = [job.tokens[job.copied :] for job in jobs]
        logits = list(self._stepper.fill(self.slots, tails, [job.copied for job in jobs]))
        for job in jobs:
            self.at_work.append(job.samples[0])
            self._coming.remove(job.samples[0])
            job.samples[0].before = None
        for number, job in enumerate(jobs):
            wanted = job.samples[0].prompt is next_prompt and not job.samples[0].tokens
            if len(job.samples) == 1 and not wanted:
                continue
            held = self.slots.take(slot + number)
            for sample in job.samples[1:]:
                self._add(sample, held)
                logits.append(logits[number])
            if wanted:
                self._held[id(job.samples[0].prompt)] = (held, logits[number].clone())
        return logits

    def _add(self, sample: GeneratedSequence, held: Held) -> None:
        self.slots.add(held)
        sample.before = None
        self.at_work.append(sample)
        self._coming.remove(sample)

    def _batches(self, jobs: list[_Job]) -> Iterator[list[_Job]]:
        """Yield jobs of similar length, each batch within the budget of tokens or a single job."""
        batch: list[_Job] = []
        for job in sorted(jobs, key=lambda job: -job.left):
            longest = batch[0].left if batch else 0
            if batch and longest * (len(batch) + 1) > self._budget.tokens:
                yield batch
                batch = []
            batch.append(job)
        if batch:
            yield batch

    def _tail(self, sample: GeneratedSequence) -> list[int]:
        """Return the tokens that a slot must still be given before the sample's next token is known."""
        return [*sample.prompt.tokens[self.slots.past + self.slots.begun :], *sample.tokens]
