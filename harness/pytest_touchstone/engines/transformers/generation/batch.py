"""Continues many prompts at once: when a row is done it leaves, and a waiting one takes its place.

A prefix that several prompts share (few-shot examples) is computed once and never copied (``split_attention``). The
prompts after one prefix that have about the same length make a ``PrefixGroup``. The rows of several lanes go through
the model in one pass, and each attends to its own lane's prefix and to itself. A prompt is computed once for all its
samples. Every row has its own length, so nothing is padded to the longest (``kv_cache.SlotCache``).

The next token depends on a row's own logits and numbers only (``sampling``), hence not on the batch. A prompt is
handed on as soon as its own texts have ended. Those that may become longest begin first, so that few texts are left
at the end. Where memory runs out, rows at work wait again, with the tokens they have, and fewer of them continue at
once.

Whoever has enough may leave while texts are at work. They stay where they are, and go on when their prompts are asked
for again, among others.

Texts that have ended stay in their slots until they are handed on. Where somebody then asks again (``asked``), as in a
dialogue, what the text's slot holds is kept for the next call, whose prompts may begin like it. These come first.

Transformers has continuous batching of its own (``generate_batch``), which does not serve here. It knows no stop
sequences of text, has one seed for a whole batch instead of one for each sample, and shares prefixes only in whole
blocks of its paged cache.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import difference
from pytest_touchstone.engines.transformers.compat import is_out_of_memory
from pytest_touchstone.engines.transformers.devices import BatchBudget, release, useful_rows
from pytest_touchstone.engines.transformers.generation.sequence import (
    EndedPrompt,
    GeneratedSequence,
    StopTokens,
    choose,
    new_samples,
)
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import (
    EndedRow,
    KeyValues,
    SlotCache,
    SlotKeyValues,
    grown_columns,
)
from pytest_touchstone.engines.transformers.prefix_tree import (
    common_prefix_length,
    group_by_prefix,
    longest_prefix_match,
    split_by_length,
)
from pytest_touchstone.engines.transformers.scoring import PrefixTreeScorer
from pytest_touchstone.engines.transformers.split_attention import use_split_attention
from pytest_touchstone.engines.transformers.token_work import Prompt, TokenWork

if TYPE_CHECKING:
    import torch


_PLANNED_TOKENS: Final = 48
"""Tokens of a text that memory is planned for when it begins; half of the texts get no longer, and what they leave is
for the others."""


_LEAST_SHARED: Final = 24
"""The tokens from which those of an ended text are copied."""


class _Job(NamedTuple):
    """Samples of one prompt, and the tokens that a slot must be given for them.

    The first ``copied`` of them are taken from what is ``held`` of a text that has ended.
    """

    samples: list[GeneratedSequence]
    tokens: list[int]
    copied: int = 0
    held: SlotKeyValues | None = None

    @property
    def left(self) -> int:
        """The number of tokens to compute."""
        return len(self.tokens) - self.copied


class PrefixGroup:
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
        self._stepper, self._budget = stepper, budget
        self._held: dict[int, tuple[SlotKeyValues, torch.Tensor]] = {}
        self.longest_limit = max(sample.prompt.request.max_new_tokens for sample in self._waiting)
        self._longest = self._planned()

    @property
    def samples(self) -> int:
        """The number of samples that wait or are at work."""
        return len(self._waiting) + sum(not sample.over for sample in self.at_work)

    @property
    def row(self) -> int:
        """The number of tokens that a row takes in memory, at the next step too."""
        next_ = max(self.slots.lengths, default=0) + 1
        return max(self._longest, grown_columns(self.slots.columns, next_))

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

    def preempt(self) -> list[GeneratedSequence]:
        """Let all samples wait again, with the tokens that they have; return those that have ended."""
        ended = self.over()
        self._waiting.extendleft(sample for sample in reversed(self.at_work) if not sample.over)
        for sample in self._waiting:
            sample.before = None
        self.at_work, self._held = [], {}
        self.slots, self.prefix = SlotCache(KeyValues()), KeyValues()
        return ended

    def preempt_shortest(self) -> None:
        """Let the sample with the fewest tokens wait again, and free the memory of its slot."""
        number = min(range(len(self.at_work)), key=lambda number: len(self.at_work[number].tokens))
        self._waiting.appendleft(self._remove(number))
        self.slots.trim()

    def over(self) -> list[GeneratedSequence]:
        """Return the samples that have ended, and are still in their slots."""
        return [sample for sample in self.at_work if sample.over]

    def row_of(self, samples: Collection[GeneratedSequence]) -> EndedRow | None:
        """Return a copy of what the slot of one of these samples holds, None where none of them is in a slot."""
        for number, sample in enumerate(self.at_work):
            if sample in samples:
                prefix, length = self.slots.prefix, self.slots.lengths[number]
                tokens = [*sample.prompt.tokens[self.slots.past :], *sample.tokens][:length]
                return EndedRow((*prefix.tokens, *tokens), prefix, self.slots.take(number, len(tokens)))
        return None

    def begun(self) -> EndedRow | None:
        """Return the text that has most of the prefix, of those that began like samples that wait."""
        rows = [sample.before for sample in self._waiting if sample.before is not None]
        return max(rows, key=lambda row: common_prefix_length(row.tokens, self.shared), default=None)

    def all(self) -> list[GeneratedSequence]:
        """Return the samples that wait or are at work."""
        return [*self._waiting, *(sample for sample in self.at_work if not sample.over)]

    def only(self, wanted: Collection[GeneratedSequence]) -> None:
        """Forget all samples but those that are wanted."""
        self._waiting = deque(sample for sample in self._waiting if sample in wanted)
        self.part(wanted)
        for number in reversed(range(len(self.at_work))):
            if self.at_work[number] not in wanted:
                self._remove(number)

    def admit(self, most: int) -> None:
        """Put waiting samples to work until ``most`` are.

        A prompt is computed once for all its samples. Samples that were at work before go on from the tokens they have.
        """
        import torch

        first = len(self.at_work)
        coming = list(islice(self._waiting, max(0, most - first)))
        if not coming:
            if 2 * first < self.slots.rows and not self._waiting:
                self.slots.trim()
            return
        self.slots.reserve(first + len(coming), self._longest)
        next_prompt = self._waiting[len(coming)].prompt if len(coming) < len(self._waiting) else None
        logits: list[torch.Tensor] = []
        jobs: list[_Job] = []
        for sample in coming:
            if (kept := self._held.get(id(sample.prompt))) is not None and not sample.tokens:
                self.slots.add(kept[0])
                self._put_to_work(sample)
                logits.append(kept[1])
            elif (
                jobs
                and jobs[-1].samples[0].prompt is sample.prompt
                and not (sample.tokens or jobs[-1].samples[0].tokens)
            ):
                jobs[-1].samples.append(sample)
            else:
                jobs.append(self._job(sample))
        if jobs or id(next_prompt) not in self._held:
            self._held = {}
        for batch in self._batches(jobs):
            logits += self._fill(batch, next_prompt)
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.at_work[first:]])
        self.take(first, [[token] for token in chosen])
        if not self._waiting:
            self._longest = self._planned()

    def take(self, first: int, chosen: Sequence[Sequence[int | None]]) -> None:
        """Give the samples from ``first`` on their next tokens; what comes after a sample's end counts for nothing."""
        for sample, tokens in zip(self.at_work[first:], chosen, strict=True):
            for token in tokens:
                if not sample.over:
                    sample.take(token)

    def part(self, wanted: Collection[GeneratedSequence] = ()) -> None:
        """Let the samples that are done leave, but those that are still wanted."""
        # From the last one down, since the last one takes the place of one that leaves.
        for number in reversed(range(len(self.at_work))):
            sample = self.at_work[number]
            if sample.over and sample not in wanted:
                self._stepper.ended(sample)
                self._remove(number)

    def _planned(self) -> int:
        """Return the tokens that memory is planned for in a row of those that wait."""
        longest = max(
            (len(sample.prompt.tokens) - len(self.shared) for sample in self._waiting),
            default=-_PLANNED_TOKENS,
        )
        return longest + _PLANNED_TOKENS

    def _remove(self, number: int) -> GeneratedSequence:
        """Take a sample from its slot, where the last one goes."""
        sample = self.at_work[number]
        self.slots.drop(number)
        self.at_work[number] = self.at_work[-1]
        self.at_work.pop()
        return sample

    def _put_to_work(self, sample: GeneratedSequence) -> None:
        """Note that a sample that waited is in the next slot."""
        sample.before = None
        self._waiting.remove(sample)
        self.at_work.append(sample)

    def _job(self, sample: GeneratedSequence) -> _Job:
        """Return what a slot must be given for a sample, whose prompt may begin like a text that has ended."""
        past, prompt, row = self.slots.past, sample.prompt.tokens, sample.before
        tail = [*prompt[past + self.slots.begun :], *sample.tokens]
        if row is not None and not self.slots.begun:
            until = min(common_prefix_length(row.tokens, prompt), len(prompt) - 1)
            if until - past >= _LEAST_SHARED:
                return _Job([sample], tail, until - past, row.between(past, until))
        return _Job([sample], tail)

    def _fill(self, jobs: Sequence[_Job], next_prompt: Prompt | None) -> list[torch.Tensor]:
        """Compute the prompts of some jobs, and copy them for the further samples of each.

        Return the logits after them, in the order in which they were put to work.
        """
        slot = len(self.at_work)
        for number, job in enumerate(jobs):
            if job.held is not None:
                self.slots.put(slot + number, job.held)
        tails = [job.tokens[job.copied :] for job in jobs]
        logits = list(self._stepper.prefill(self.slots, tails, [job.copied for job in jobs]))
        for job in jobs:
            self._put_to_work(job.samples[0])
        for number, (first, *others) in enumerate(job.samples for job in jobs):
            waits_for_it = first.prompt is next_prompt and not first.tokens
            if not others and not waits_for_it:
                continue
            held = self.slots.take(slot + number)
            for sample in others:
                self.slots.add(held)
                self._put_to_work(sample)
                logits.append(logits[number])
            if waits_for_it:
                self._held[id(first.prompt)] = (held, logits[number].clone())
        return logits

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


_MOST_ROWS: Final = {"cpu": 64, "cuda": 256, "mps": 64}

_MOST_GROUPS: Final = 16
"""The most lanes in one pass. Attention is computed lane by lane, which costs less than a row that stays empty."""


def most_rows(device: str, batch: int | None) -> int:
    """Return the most texts that go on together on a kind of device; ``batch`` is what a person has asked for."""
    return batch or _MOST_ROWS.get(device, _MOST_ROWS["cpu"])


Probe = Sequence[tuple[int, ...]]
"""Sequences of tokens, of which the first is the longest."""

Plain = Callable[[Sequence[TokenWork]], "torch.Tensor"]
"""Returns the logits [targets, vocabulary] of every sequence by itself."""


class BatchGenerator:
    """Generates all samples of many prompts."""

    def __init__(
        self,
        model: Any,
        stepper: DecodeStep,
        shared: PrefixTreeScorer,
        ends: StopTokens,
        *,
        budget: BatchBudget,
        lanes: int = _MOST_GROUPS,
    ) -> None:
        """``lanes`` is how many may share a pass."""
        self._model, self._stepper, self._shared = model, stepper, shared
        self._ends, self._budget = ends, budget
        self._most = most_rows(model.device.type, budget.batch)
        self._most_lanes = 1 if stepper.speculative else lanes
        self._lanes: list[PrefixGroup] = []
        self._waiting: deque[PrefixGroup] = deque()
        self._begun: dict[Prompt, list[list[GeneratedSequence]]] = {}
        self._ended: list[EndedRow] = []
        self.asked = False
        """Set by whoever asks again while an ended text is handed on."""

    def run(self, prompts: Sequence[Prompt]) -> Generator[EndedPrompt, None, None]:
        """Yield each prompt as soon as its samples have ended, while others go on.

        Nothing is computed until the next one is asked for. Texts that are at work when the generator is closed go on
        where the next call has their prompts.
        """
        samples = self._samples(prompts)
        number_of = {sample: number for number, some in enumerate(samples) for sample in some}
        going = Counter(number_of[sample] for lane in (*self._lanes, *self._waiting) for sample in lane.all())
        left = dict(enumerate(prompts))
        try:
            for number, some in enumerate(samples):
                if not going[number]:
                    del left[number]
                    yield from self._hand_on(EndedPrompt(number, some))
            self._part()
            for sample in self._run_lanes():
                number = number_of[sample]
                going[number] -= 1
                if not going[number]:
                    del left[number]
                    yield from self._hand_on(EndedPrompt(number, samples[number]))
        except GeneratorExit:
            for number, prompt in left.items():
                self._begun.setdefault(prompt, []).append(samples[number])
            raise
        except BaseException:
            self._lanes, self._waiting, self._ended = [], deque(), []
            raise

    def _hand_on(self, ended: EndedPrompt) -> Iterator[EndedPrompt]:
        """Yield a prompt, and keep what a slot holds of it where somebody asks again meanwhile.

        Kept rows take up to a quarter of the memory for rows.
        """
        self.asked = False
        try:
            yield ended
        finally:
            most = self._all_rows()
            if (
                self.asked
                and not self._stepper.speculative
                and (most is None or 4 * self._tokens_kept() < most)
            ):
                try:
                    rows = (lane.row_of(ended.samples) for lane in self._lanes)
                    self._ended += [row for row in rows if row is not None]
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    self._ended = []

    def _tokens_kept(self) -> int:
        """Return the tokens of ended texts that are kept, for the next call or for prompts that wait."""
        claimed = (sample.before for lane in (*self._lanes, *self._waiting) for sample in lane.all())
        rows = {id(row): row for row in (*self._ended, *claimed) if row is not None}
        return sum(len(row.tokens) - len(row.prefix.tokens) for row in rows.values())

    def _samples(self, prompts: Sequence[Prompt]) -> list[list[GeneratedSequence]]:
        """Return the samples of each prompt: those that the call before has begun, or new ones, which now wait."""
        import torch

        begun, self._begun = self._begun, {}
        samples: list[list[GeneratedSequence]] = []
        fresh: list[int] = []
        for number, prompt in enumerate(prompts):
            if of_before := begun.get(prompt):
                samples.append(of_before.pop())
            else:
                samples.append(new_samples(prompt, self._ends))
                fresh.append(number)
        # Texts that began like new prompts; the others are forgotten.
        rows, self._ended = sorted(self._ended, key=lambda row: row.tokens), []
        texts = [row.tokens for row in rows]
        for sample in (sample for number in fresh for sample in samples[number] if rows):
            if (nearest_row := longest_prefix_match(texts, sample.prompt.tokens)) is not None:
                sample.before = rows[nearest_row]
        wanted = {sample for some in samples for sample in some}
        with torch.inference_mode():
            for lane in (*self._lanes, *self._waiting):
                lane.only(wanted)
        old = [lane for lane in self._waiting if lane.samples]
        self._lanes = [lane for lane in self._lanes if lane.samples or lane.over()]
        new = self._new_lanes([prompts[number] for number in fresh], [samples[number] for number in fresh])
        self._waiting = deque([*new, *old] if rows else [*old, *new])
        return samples

    def _new_lanes(
        self, prompts: Sequence[Prompt], samples: Sequence[Sequence[GeneratedSequence]]
    ) -> list[PrefixGroup]:
        """Return the samples in lanes; those that may become longest come first, and in a lane neighbours begin
        alike."""
        groups = group_by_prefix([prompt.tokens for prompt in prompts])
        if self._most_lanes > 1:
            lengths = [len(prompt.tokens) for prompt in prompts]
            groups = [subgroup for whole in groups for subgroup in split_by_length(whole, lengths)]
        lanes = []
        for prefix in groups:
            order = sorted(
                prefix.members,
                key=lambda number: (-prompts[number].request.max_new_tokens, prompts[number].tokens),
            )
            shared = prompts[order[0]].tokens[: prefix.shared]
            members = (sample for number in order for sample in samples[number])
            lanes.append(PrefixGroup(shared, members, self._stepper, self._budget))
        return sorted(lanes, key=lambda lane: -lane.longest_limit)

    def verify(self, works: Probe, plain: Plain, *, lanes: bool = False) -> str | None:
        """Feed sequences as prompts and tokens after them, and compare their logits with ``plain``, those of every
        sequence by itself; with ``lanes`` in two of them.

        Return None where they agree, else the difference.
        """
        import torch

        if lanes and (self._most_lanes == 1 or len(works) == 1):
            return "nothing goes in lanes"
        # The targets do not matter: the logits after the last three tokens are asked for.
        asked = [TokenWork(work, work[-3:]) for work in works]

        def alone() -> torch.Tensor:
            logits = plain(asked).view(len(works), 3, -1).transpose(0, 1)
            return (torch.cat((logits, logits[1:])) if self._stepper.speculative else logits).flatten(0, 1)

        return difference(self._model, alone, lambda: self._fed(works, lanes=lanes))

    def _fed(self, works: Probe, *, lanes: bool) -> torch.Tensor:
        """Return logits [places x works, vocabulary] after the prompts, and after each of the last two tokens.

        Where heads propose tokens, these two are fed once more, both at once, for the logits after them. With
        ``lanes`` the last sequence is in one of its own, after a shorter prefix.
        """
        import torch

        past = len(works[0]) // 2
        parts = [(past, works[:-1]), (past // 2, works[-1:])] if lanes else [(past, works)]
        fed = [[work[-2:] for work in some] for _, some in parts]
        with torch.inference_mode():
            caches = [SlotCache(self._shared.prefix(works[0][:length])) for length, _ in parts]
            with use_split_attention(self._model):
                logits = [
                    self._stepper.prefill(slots, [work[length:-2] for work in some])
                    for slots, (length, some) in zip(caches, parts, strict=True)
                ]
                logits += [
                    self._stepper.decode(caches, [[pair[index] for pair in some] for some in fed])
                    for index in (0, 1)
                ]
                if self._stepper.speculative:
                    for slots in caches:
                        slots.lengths = [length - 2 for length in slots.lengths]
                    both = self._stepper.decode_multi(caches, fed, 2)
                    logits += [both[0::2], both[1::2]]
        return torch.cat(logits)

    def _run_lanes(self) -> Iterator[GeneratedSequence]:
        """Generate all samples, and yield each when it is there."""
        most = self._most_tokens()
        while self._waiting or self._lanes:
            try:
                self._open(most)
                with use_split_attention(self._model):
                    while self._lanes and not self._opens(most):
                        self._go_on(most)
                        yield from [sample for lane in self._lanes for sample in lane.over()]
                        self._part()
                continue
            except Exception as error:
                if self._budget.batch is not None or not is_out_of_memory(error):
                    raise
                if not self._budget.halve() and self._most == 1:
                    raise  # nothing is left to halve
            # Outside the handler, so that the error no longer holds the memory of its batch.
            self._most = max(1, self._most // 2)
            lanes, self._lanes, self._ended = self._lanes, [], []
            ended = [sample for lane in (*lanes, *self._waiting) for sample in lane.preempt()]
            self._waiting.extendleft(reversed([lane for lane in lanes if lane.samples]))
            del lanes
            release(self._model.device)
            yield from ended

    def _part(self) -> None:
        """Let the samples that have ended leave, and the lanes that are done, with their memory."""
        import torch

        with torch.inference_mode():
            for lane in self._lanes:
                lane.part()
        going = [lane for lane in self._lanes if lane.samples]
        if len(going) < len(self._lanes):
            self._lanes = going
            cpu.trim_heap(self._model.device)

    def _most_tokens(self) -> int | None:
        """Return the most tokens whose keys and values may be in memory at once; None where there is no limit."""
        allowance = self._budget.allowance
        if allowance is None or (self._budget.batch is not None and allowance.asked is None):
            return None
        most, whole = useful_rows(self._model, allowance), self._all_rows()
        if most is None or whole is None:
            return most
        return min(most, whole - self._tokens_kept())

    def _all_rows(self) -> int | None:
        """Return the tokens whose keys and values there is memory for; None where that is not known."""
        allowance = self._budget.allowance
        return None if allowance is None or allowance.rows is None else allowance.rows // allowance.costs.row

    def _taken(self, rows: Callable[[PrefixGroup], int]) -> int:
        """Return the tokens in memory with so many rows in each lane that is open; a prefix of several counts once."""
        prefixes = {id(lane.prefix): len(lane.prefix.tokens) for lane in self._lanes}
        return sum(prefixes.values()) + sum(lane.size(rows(lane)) for lane in self._lanes)

    def _opens(self, most: int | None) -> bool:
        """Return whether the next lane can begin: there is room for all samples of the others and one of its own."""
        lanes = self._lanes
        if not self._waiting or not lanes:
            return bool(self._waiting)
        if len(lanes) >= self._most_lanes or sum(lane.samples for lane in lanes) >= self._most:
            return False
        next_ = self._waiting[0]
        prefix = 0 if self._open_prefix(next_.shared) is not None else 2 * len(next_.shared)
        return most is None or self._taken(lambda lane: lane.samples) + prefix + next_.size(1) <= most

    def _open_prefix(self, shared: tuple[int, ...]) -> KeyValues | None:
        """Return the prefix of an open lane that begins with those tokens."""
        for lane in self._lanes:
            if shared and lane.prefix.tokens[: len(shared)] == shared:
                return lane.prefix
        return None

    def _open(self, most: int | None) -> None:
        """Compute the prefixes of the lanes that can begin."""
        import torch

        while self._opens(most):
            lane = self._waiting[0]
            with torch.inference_mode():
                prefix = self._open_prefix(lane.shared)
                lane.open(self._shared.prefix(lane.shared, lane.begun()) if prefix is None else prefix)
            self._lanes.append(self._waiting.popleft())

    def _go_on(self, most: int | None) -> None:
        """Put samples to work as far as there is room, and go on until some have ended."""
        import torch

        # The mode is the thread's, and whoever is told of an end should not find himself in it.
        with torch.inference_mode():
            while True:
                # Rows wait again where all of them would grow out of the memory at the next step; one goes on.
                while most is not None and self._taken(lambda lane: len(lane.at_work)) > most:
                    if sum(len(lane.at_work) for lane in self._lanes) <= 1:
                        break
                    max(self._lanes, key=lambda lane: len(lane.at_work)).preempt_shortest()
                for lane in self._lanes:
                    lane.admit(self._room(lane, most))
                if any(lane.over() for lane in self._lanes):
                    return
                working = [lane for lane in self._lanes if lane.at_work]
                tokens = self._stepper.advance([(lane.slots, lane.at_work) for lane in working])
                for lane, chosen in zip(working, tokens, strict=True):
                    lane.take(0, chosen)
                if any(lane.over() for lane in self._lanes):
                    return

    def _room(self, lane: PrefixGroup, most: int | None) -> int:
        """Return how many samples of a lane may be at work; at least one where no other lane has any."""
        others = [other for other in self._lanes if other is not lane]
        rows = self._most - sum(len(other.at_work) for other in others)
        if most is not None:
            left = most - self._taken(lambda each: 0 if each is lane else len(each.at_work))
            rows = min(rows, left // max(1, lane.row))
        return max(rows, not any(other.at_work for other in others))
