"""The texts after one prefix, at work or waiting, and the memory that they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.engines.transformers.devices import BatchBudget
from pytest_touchstone.engines.transformers.generation.sequence import GeneratedSequence, choose, take_each
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import EndedRow, Held, KeyValues, SlotCache, enlarged
from pytest_touchstone.engines.transformers.prefix_tree import LEAST_SHARED, CopySource, common, waves
from pytest_touchstone.engines.transformers.token_work import Prompt

if TYPE_CHECKING:
    import torch

_AHEAD: Final = 48
"""Tokens of a text that memory is planned for when it begins; half of the texts get no longer, and what they leave is
for the others."""


class _Job(NamedTuple):
    """Samples of one prompt, and the tokens that a slot must be given for them.

    So many tokens are ``copied``, from what is ``held`` of a text that has ended, or else from another ``slot``.
    """

    samples: list[GeneratedSequence]
    tokens: list[int]
    slot: int = 0
    copied: int = 0
    held: Held | None = None

    @property
    def left(self) -> int:
        """The number of tokens to compute."""
        return len(self.tokens) - self.copied


class Lane:
    """The samples after one prefix.

    Those at work are each in the slot of their number. The keys and values of a prompt are held while more of its
    samples wait, and those with which a waiting prompt begins too.
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
        self._begun: tuple[list[int], Held] = ([], [])
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
        self.slots, self.prefix, self._begun = SlotCache(KeyValues()), KeyValues(), ([], [])
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

        A prompt is computed once for all its samples, and what it shares with others of the lane once for all.
        Samples that were at work before go on from the tokens they have.
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
        for wave in self._waves(jobs):
            for batch in self._batches(wave):
                logits += self._fill(batch, following)
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.at_work[first:]])
        self.take(first, [[token] for token in chosen])
        if not self._waiting:
            self._begun, self._longest = ([], []), self._planned()

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
                self._keep_beginning(number)
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

    def _keep_beginning(self, number: int) -> None:
        """Keep, of a text that leaves, that with which the next one begins."""
        if not self._waiting or self._stepper.speculative:
            return
        tokens = self._content(number)
        shared = common(tokens, self._tail(self._waiting[0]))
        if shared >= max(LEAST_SHARED, 1 + common(self._begun[0], self._tail(self._waiting[0]))):
            self._begun = tokens[:shared], self.slots.take(number, shared)

    def _content(self, number: int) -> list[int]:
        """Return the tokens that a slot holds after the prefix."""
        sample = self.at_work[number]
        whole = [*sample.prompt.tokens[self.slots.past :], *sample.tokens]
        return whole[: self.slots.lengths[number]]

    def _waves(self, jobs: list[list[GeneratedSequence]]) -> Iterator[list[_Job]]:
        """Yield the jobs, those that take tokens from another after it."""
        tails = [self._tail(job[0]) for job in jobs]
        if self._stepper.speculative or self.slots.begun:
            yield [_Job(job, tail) for job, tail in zip(jobs, tails, strict=True)]
            return
        if going_on := list(filter(None, map(self._going_on, jobs, tails))):
            yield going_on
            taken = [one.samples for one in going_on]
            jobs = [job for job in jobs if job not in taken]
            tails = [self._tail(job[0]) for job in jobs]
        known = [self._content(number) for number in range(len(self.at_work))]
        slots = [*range(len(known)), -1]
        for wave in waves(tails, [*known, self._begun[0]]):
            yield [
                _Job(jobs[number], tails[number], *self._taken(source, jobs, slots))
                for number, source in wave
            ]

    def _going_on(self, samples: list[GeneratedSequence], tail: list[int]) -> _Job | None:
        """Return samples as a job that takes what their prompt shares with the text before it, None where that is
        little."""
        if (row := samples[0].before) is None:
            return None
        past, prompt = self.slots.past, samples[0].prompt.tokens
        until = min(common(row.tokens, prompt), len(prompt) - 1)
        if until - past < LEAST_SHARED:
            return None
        return _Job(samples, tail, 0, until - past, row.between(past, until))

    def _taken(
        self, source: CopySource | None, jobs: list[list[GeneratedSequence]], slots: Sequence[int]
    ) -> tuple[int, int, Held | None]:
        """Return the slot of a source, the tokens taken from it, and what the lane holds of it where it has ended."""
        if source is None:
            return 0, 0, None
        if source.text >= len(jobs):
            slot = slots[source.text - len(jobs)]
            return slot, source.shared, self._begun[1] if slot < 0 else None
        return self.at_work.index(jobs[source.text][0]), source.shared, None

    def _fill(self, jobs: Sequence[_Job], next_prompt: Prompt | None) -> list[torch.Tensor]:
        """Compute the prompts of some jobs, and copy them for the further samples of each.

        Return the logits after them, in the order in which they were put to work.
        """
        slot = len(self.at_work)
        for number, job in enumerate(jobs):
            if job.copied:
                held = self.slots.look(job.slot, job.copied) if job.held is None else job.held
                self.slots.put(
                    slot + number, [(key[:, : job.copied], value[:, : job.copied]) for key, value in held]
                )
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
