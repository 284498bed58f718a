"""Continuous batching: when a row is done it leaves the batch, and a waiting one takes its slot.

A prefix that several prompts share (few-shot examples) is computed once and never copied (``split_attention``). The
prompts after one prefix that have about the same length make a ``PrefixGroup``. The rows of several groups go through
the model in one pass, and each attends to the prefix of its group and to itself. A prompt is computed once for all its
samples. Every row has its own length, so nothing is padded to the longest (``kv_cache.SlotCache``).

The next token depends on a row's own logits and numbers only (``sampling``), hence not on the batch. A prompt is
handed on as soon as its own texts have ended. Those that may become longest begin first, so that few texts are left
at the end. Where memory runs out, running rows are preempted: they wait again, with the tokens they have, and fewer of
them continue at once.

A caller may stop iterating while texts are running. They stay in their slots, and go on when their prompts are asked
for again, among others.

Texts that have ended stay in their slots until they are handed on. Where a caller then asks for more texts (``asked``),
as in a dialogue, the keys and values of the slot are kept for the next call, whose prompts may begin with that text.
These prompts come first.

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
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt, TokenWork

if TYPE_CHECKING:
    import torch


_PLANNED_TOKENS: Final = 48
"""New tokens per text that memory is planned for; half of the texts end earlier and leave room for the others."""


_LEAST_SHARED: Final = 24
"""The least number of shared tokens for which keys and values of an ended text are copied."""


class _Prefill(NamedTuple):
    """A prefill: the samples of one prompt, and the tokens of its slot after the prefix.

    The keys and values of the first ``copied`` tokens are copied from ``held``, those of a text that has ended.
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
    """The waiting and running samples whose prompts share a prefix; running sample i is in slot i.

    The keys and values of a prompt are held while more of its samples wait.
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
        self.running: list[GeneratedSequence] = []
        self._waiting = deque(waiting)
        self._stepper, self._budget = stepper, budget
        self._held: dict[int, tuple[SlotKeyValues, torch.Tensor]] = {}
        self.longest_limit = max(sample.prompt.request.max_new_tokens for sample in self._waiting)
        self._longest = self._planned()

    @property
    def samples(self) -> int:
        """The number of samples that wait or run."""
        return len(self._waiting) + sum(not sample.over for sample in self.running)

    @property
    def row(self) -> int:
        """The tokens that memory must hold for a row, up to the next step."""
        next_ = max(self.slots.lengths, default=0) + 1
        return max(self._longest, grown_columns(self.slots.columns, next_))

    def size(self, rows: int) -> int:
        """Return the tokens in memory with ``rows`` running samples, without the prefix.

        Slots stay when their rows leave.
        """
        return max(rows, self.slots.rows if rows else 0) * self.row

    def open(self, prefix: KeyValues) -> None:
        """Open the group after a prefix whose keys and values are computed."""
        self.prefix = prefix
        self.slots = SlotCache(prefix.cropped(len(self.shared)))
        if self.samples == 1:
            self.slots.own()
            self.prefix = KeyValues()

    def preempt(self) -> list[GeneratedSequence]:
        """Preempt all running samples, which keep their tokens; return those that have ended."""
        ended = self.over()
        self._waiting.extendleft(sample for sample in reversed(self.running) if not sample.over)
        for sample in self._waiting:
            sample.before = None
        self.running, self._held = [], {}
        self.slots, self.prefix = SlotCache(KeyValues()), KeyValues()
        return ended

    def preempt_shortest(self) -> None:
        """Preempt the running sample with the fewest tokens, and free the memory of its slot."""
        number = min(range(len(self.running)), key=lambda number: len(self.running[number].tokens))
        self._waiting.appendleft(self._remove(number))
        self.slots.trim()

    def over(self) -> list[GeneratedSequence]:
        """Return the samples that have ended, and are still in their slots."""
        return [sample for sample in self.running if sample.over]

    def row_of(self, samples: Collection[GeneratedSequence]) -> EndedRow | None:
        """Return a copy of the slot of the first running sample among these; None if none is running."""
        for number, sample in enumerate(self.running):
            if sample in samples:
                prefix, length = self.slots.prefix, self.slots.lengths[number]
                tokens = [*sample.prompt.tokens[self.slots.past :], *sample.tokens][:length]
                return EndedRow((*prefix.tokens, *tokens), prefix, self.slots.take(number, len(tokens)))
        return None

    def begun(self) -> EndedRow | None:
        """Return the ended text that has most of the prefix, among those that the waiting samples continue."""
        rows = [sample.before for sample in self._waiting if sample.before is not None]
        return max(rows, key=lambda row: common_prefix_length(row.tokens, self.shared), default=None)

    def all(self) -> list[GeneratedSequence]:
        """Return the samples that wait or run."""
        return [*self._waiting, *(sample for sample in self.running if not sample.over)]

    def only(self, wanted: Collection[GeneratedSequence]) -> None:
        """Drop all samples but those that are wanted."""
        self._waiting = deque(sample for sample in self._waiting if sample in wanted)
        self.part(wanted)
        for number in reversed(range(len(self.running))):
            if self.running[number] not in wanted:
                self._remove(number)

    def admit(self, most: int) -> None:
        """Admit waiting samples until ``most`` are running.

        A prompt is prefilled once for all its samples. Preempted samples go on from the tokens they have.
        """
        import torch

        first = len(self.running)
        coming = list(islice(self._waiting, max(0, most - first)))
        if not coming:
            if 2 * first < self.slots.rows and not self._waiting:
                self.slots.trim()
            return
        self.slots.reserve(first + len(coming), self._longest)
        next_prompt = self._waiting[len(coming)].prompt if len(coming) < len(self._waiting) else None
        logits: list[torch.Tensor] = []
        jobs: list[_Prefill] = []
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
        chosen = choose(torch.stack(logits), [sample.draw for sample in self.running[first:]])
        self.take(first, [[token] for token in chosen])
        if not self._waiting:
            self._longest = self._planned()

    def take(self, first: int, chosen: Sequence[Sequence[int | None]]) -> None:
        """Append the chosen tokens to the running samples from index ``first`` on, each up to its end."""
        for sample, tokens in zip(self.running[first:], chosen, strict=True):
            for token in tokens:
                if not sample.over:
                    sample.take(token)

    def part(self, wanted: Collection[GeneratedSequence] = ()) -> None:
        """Remove the running samples that have ended, except those that are still wanted."""
        # From the last one down, since the last one takes the place of one that leaves.
        for number in reversed(range(len(self.running))):
            sample = self.running[number]
            if sample.over and sample not in wanted:
                self._stepper.ended(sample)
                self._remove(number)

    def _planned(self) -> int:
        """Return the tokens that memory is planned for in a row of the waiting samples."""
        longest = max(
            (len(sample.prompt.tokens) - len(self.shared) for sample in self._waiting),
            default=-_PLANNED_TOKENS,
        )
        return longest + _PLANNED_TOKENS

    def _remove(self, number: int) -> GeneratedSequence:
        """Remove a running sample from its slot; the last one moves there."""
        sample = self.running[number]
        self.slots.drop(number)
        self.running[number] = self.running[-1]
        self.running.pop()
        return sample

    def _put_to_work(self, sample: GeneratedSequence) -> None:
        """Move a sample from the waiting ones to the next slot."""
        sample.before = None
        self._waiting.remove(sample)
        self.running.append(sample)

    def _job(self, sample: GeneratedSequence) -> _Prefill:
        """Return the prefill of a sample, whose prompt may begin like a text that has ended."""
        past, prompt, row = self.slots.past, sample.prompt.tokens, sample.before
        tail = [*prompt[past + self.slots.begun :], *sample.tokens]
        if row is not None and not self.slots.begun:
            until = min(common_prefix_length(row.tokens, prompt), len(prompt) - 1)
            if until - past >= _LEAST_SHARED:
                return _Prefill([sample], tail, until - past, row.between(past, until))
        return _Prefill([sample], tail)

    def _fill(self, jobs: Sequence[_Prefill], next_prompt: TokenizedPrompt | None) -> list[torch.Tensor]:
        """Prefill the prompts of jobs, and copy each into the slots of its further samples.

        Return the logits [vocabulary] after each prompt, in the order of the running samples.
        """
        slot = len(self.running)
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

    def _batches(self, jobs: list[_Prefill]) -> Iterator[list[_Prefill]]:
        """Yield jobs of similar length, each batch within the budget of tokens or a single job."""
        batch: list[_Prefill] = []
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
"""The most prefix groups in one pass. Attention is computed group by group, which costs less than an empty row."""


def most_rows(device: str, batch: int | None) -> int:
    """Return the most rows of a decoding step on a kind of device; ``batch`` is ``--eval-batch``, if given."""
    return batch or _MOST_ROWS.get(device, _MOST_ROWS["cpu"])


Probe = Sequence[tuple[int, ...]]
"""Sequences of tokens, of which the first is the longest."""

Plain = Callable[[Sequence[TokenWork]], "torch.Tensor"]
"""Returns the logits [targets, vocabulary] of every sequence by itself."""


class BatchGenerator:
    """Generates all samples of many prompts by continuous batching."""

    def __init__(
        self,
        model: Any,
        stepper: DecodeStep,
        shared: PrefixTreeScorer,
        ends: StopTokens,
        *,
        budget: BatchBudget,
        most_groups: int = _MOST_GROUPS,
    ) -> None:
        """``most_groups`` is how many prefix groups may share a pass."""
        self._model, self._stepper, self._shared = model, stepper, shared
        self._ends, self._budget = ends, budget
        self._most = most_rows(model.device.type, budget.batch)
        self._most_groups = 1 if stepper.speculative else most_groups
        self._open_groups: list[PrefixGroup] = []
        self._waiting: deque[PrefixGroup] = deque()
        self._begun: dict[TokenizedPrompt, list[list[GeneratedSequence]]] = {}
        self._ended: list[EndedRow] = []
        self.asked = False
        """Whether the caller has asked for more texts while an ended one was handed on; set by the engine."""

    def run(self, prompts: Sequence[TokenizedPrompt]) -> Generator[EndedPrompt, None, None]:
        """Yield each prompt as soon as its samples have ended, while others go on.

        Nothing is computed between two prompts. Texts that are running when the generator is closed go on when a later
        call has their prompts.
        """
        samples = self._samples(prompts)
        number_of = {sample: number for number, some in enumerate(samples) for sample in some}
        going = Counter(
            number_of[sample]
            for prefix_group in (*self._open_groups, *self._waiting)
            for sample in prefix_group.all()
        )
        left = dict(enumerate(prompts))
        try:
            for number, some in enumerate(samples):
                if not going[number]:
                    del left[number]
                    yield from self._hand_on(EndedPrompt(number, some))
            self._part()
            for sample in self._run_groups():
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
            self._open_groups, self._waiting, self._ended = [], deque(), []
            raise

    def _hand_on(self, ended: EndedPrompt) -> Iterator[EndedPrompt]:
        """Yield a prompt; keep the row of a sample if the caller asks for more texts meanwhile.

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
                    rows = (prefix_group.row_of(ended.samples) for prefix_group in self._open_groups)
                    self._ended += [row for row in rows if row is not None]
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    self._ended = []

    def _tokens_kept(self) -> int:
        """Return the tokens of ended texts that are kept for the next call or for waiting prompts."""
        claimed = (
            sample.before
            for prefix_group in (*self._open_groups, *self._waiting)
            for sample in prefix_group.all()
        )
        rows = {id(row): row for row in (*self._ended, *claimed) if row is not None}
        return sum(len(row.tokens) - len(row.prefix.tokens) for row in rows.values())

    def _samples(self, prompts: Sequence[TokenizedPrompt]) -> list[list[GeneratedSequence]]:
        """Return the samples of each prompt: those of an earlier call, or new ones, which are queued."""
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
            for prefix_group in (*self._open_groups, *self._waiting):
                prefix_group.only(wanted)
        old = [prefix_group for prefix_group in self._waiting if prefix_group.samples]
        self._open_groups = [
            prefix_group for prefix_group in self._open_groups if prefix_group.samples or prefix_group.over()
        ]
        new = self._new_groups([prompts[number] for number in fresh], [samples[number] for number in fresh])
        self._waiting = deque([*new, *old] if rows else [*old, *new])
        return samples

    def _new_groups(
        self, prompts: Sequence[TokenizedPrompt], samples: Sequence[Sequence[GeneratedSequence]]
    ) -> list[PrefixGroup]:
        """Return new prefix groups, those whose texts may become longest first.

        Within a group, prompts are sorted so that neighbours begin alike.
        """
        groups = group_by_prefix([prompt.tokens for prompt in prompts])
        if self._most_groups > 1:
            lengths = [len(prompt.tokens) for prompt in prompts]
            groups = [subgroup for whole in groups for subgroup in split_by_length(whole, lengths)]
        prefix_groups = []
        for prefix in groups:
            order = sorted(
                prefix.members,
                key=lambda number: (-prompts[number].request.max_new_tokens, prompts[number].tokens),
            )
            shared = prompts[order[0]].tokens[: prefix.shared]
            members = (sample for number in order for sample in samples[number])
            prefix_groups.append(PrefixGroup(shared, members, self._stepper, self._budget))
        return sorted(prefix_groups, key=lambda prefix_group: -prefix_group.longest_limit)

    def verify(self, works: Probe, plain: Plain, *, several_groups: bool = False) -> str | None:
        """Compare the logits of batched decoding with those of every sequence by itself.

        Args:
            works: Probe sequences, which are fed as a prompt and two tokens after it.
            plain: Returns the logits of every sequence by itself.
            several_groups: Whether the last sequence is in a prefix group of its own.

        Returns:
            None where they agree, else the difference.

        """
        import torch

        if several_groups and (self._most_groups == 1 or len(works) == 1):
            return "nothing goes in prefix_groups"
        # The targets do not matter: the logits after the last three tokens are asked for.
        asked = [TokenWork(work, work[-3:]) for work in works]

        def alone() -> torch.Tensor:
            logits = plain(asked).view(len(works), 3, -1).transpose(0, 1)
            return (torch.cat((logits, logits[1:])) if self._stepper.speculative else logits).flatten(0, 1)

        return difference(self._model, alone, lambda: self._fed(works, several_groups=several_groups))

    def _fed(self, works: Probe, *, several_groups: bool) -> torch.Tensor:
        """Return logits [steps x sequences, vocabulary] after each prompt, and after each of its last two tokens.

        Where heads propose tokens, these two are fed once more, both at once, for the logits after them. With
        ``several_groups`` the last sequence is in a group of its own, after a shorter prefix.
        """
        import torch

        past = len(works[0]) // 2
        parts = [(past, works[:-1]), (past // 2, works[-1:])] if several_groups else [(past, works)]
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

    def _run_groups(self) -> Iterator[GeneratedSequence]:
        """Generate all samples, and yield each when it has ended."""
        most = self._most_tokens()
        while self._waiting or self._open_groups:
            try:
                self._open(most)
                with use_split_attention(self._model):
                    while self._open_groups and not self._opens(most):
                        self._go_on(most)
                        yield from [
                            sample for prefix_group in self._open_groups for sample in prefix_group.over()
                        ]
                        self._part()
                continue
            except Exception as error:
                if self._budget.batch is not None or not is_out_of_memory(error):
                    raise
                if not self._budget.halve() and self._most == 1:
                    raise  # nothing is left to halve
            # Outside the handler, so that the error no longer holds the memory of its batch.
            self._most = max(1, self._most // 2)
            prefix_groups, self._open_groups, self._ended = self._open_groups, [], []
            ended = [
                sample
                for prefix_group in (*prefix_groups, *self._waiting)
                for sample in prefix_group.preempt()
            ]
            self._waiting.extendleft(
                reversed([prefix_group for prefix_group in prefix_groups if prefix_group.samples])
            )
            del prefix_groups
            release(self._model.device)
            yield from ended

    def _part(self) -> None:
        """Remove the samples that have ended, and close the groups without samples, which frees their memory."""
        import torch

        with torch.inference_mode():
            for prefix_group in self._open_groups:
                prefix_group.part()
        going = [prefix_group for prefix_group in self._open_groups if prefix_group.samples]
        if len(going) < len(self._open_groups):
            self._open_groups = going
            cpu.trim_heap(self._model.device)

    def _most_tokens(self) -> int | None:
        """Return the largest number of tokens in the KV cache; None without a limit."""
        allowance = self._budget.allowance
        if self._budget.batch is not None and allowance.asked is None:
            return None
        most, whole = useful_rows(self._model, allowance), self._all_rows()
        if most is None or whole is None:
            return most
        return min(most, whole - self._tokens_kept())

    def _all_rows(self) -> int | None:
        """Return the tokens that fit into the memory for the KV cache; None where that is unknown."""
        allowance = self._budget.allowance
        return None if allowance.rows is None else allowance.rows // allowance.costs.row

    def _taken(self, rows: Callable[[PrefixGroup], int]) -> int:
        """Return the KV-cache tokens with ``rows(group)`` rows in each open group; a shared prefix counts once."""
        prefixes = {
            id(prefix_group.prefix): len(prefix_group.prefix.tokens) for prefix_group in self._open_groups
        }
        return sum(prefixes.values()) + sum(
            prefix_group.size(rows(prefix_group)) for prefix_group in self._open_groups
        )

    def _opens(self, most: int | None) -> bool:
        """Return whether the next group can open: all samples of open groups and one of its own need room."""
        prefix_groups = self._open_groups
        if not self._waiting or not prefix_groups:
            return bool(self._waiting)
        if (
            len(prefix_groups) >= self._most_groups
            or sum(prefix_group.samples for prefix_group in prefix_groups) >= self._most
        ):
            return False
        next_ = self._waiting[0]
        prefix = 0 if self._open_prefix(next_.shared) is not None else 2 * len(next_.shared)
        return (
            most is None
            or self._taken(lambda prefix_group: prefix_group.samples) + prefix + next_.size(1) <= most
        )

    def _open_prefix(self, shared: tuple[int, ...]) -> KeyValues | None:
        """Return the prefix of an open group that begins with these tokens; None if there is none."""
        for prefix_group in self._open_groups:
            if shared and prefix_group.prefix.tokens[: len(shared)] == shared:
                return prefix_group.prefix
        return None

    def _open(self, most: int | None) -> None:
        """Open the groups that there is room for, computing their prefixes."""
        import torch

        while self._opens(most):
            prefix_group = self._waiting[0]
            with torch.inference_mode():
                prefix = self._open_prefix(prefix_group.shared)
                prefix_group.open(
                    self._shared.prefix(prefix_group.shared, prefix_group.begun())
                    if prefix is None
                    else prefix
                )
            self._open_groups.append(self._waiting.popleft())

    def _go_on(self, most: int | None) -> None:
        """Admit samples as far as there is room, and decode until at least one has ended."""
        import torch

        # The mode is the thread's, and the code that receives an ended text must not run in it.
        with torch.inference_mode():
            while True:
                # Rows are preempted where all of them would outgrow the memory at the next step; one goes on.
                while most is not None and self._taken(lambda prefix_group: len(prefix_group.running)) > most:
                    if sum(len(prefix_group.running) for prefix_group in self._open_groups) <= 1:
                        break
                    max(
                        self._open_groups, key=lambda prefix_group: len(prefix_group.running)
                    ).preempt_shortest()
                for prefix_group in self._open_groups:
                    prefix_group.admit(self._room(prefix_group, most))
                if any(prefix_group.over() for prefix_group in self._open_groups):
                    return
                working = [prefix_group for prefix_group in self._open_groups if prefix_group.running]
                tokens = self._stepper.advance(
                    [(prefix_group.slots, prefix_group.running) for prefix_group in working]
                )
                for prefix_group, chosen in zip(working, tokens, strict=True):
                    prefix_group.take(0, chosen)
                if any(prefix_group.over() for prefix_group in self._open_groups):
                    return

    def _room(self, prefix_group: PrefixGroup, most: int | None) -> int:
        """Return how many samples of a group may run; at least one where no other group has any."""
        others = [other for other in self._open_groups if other is not prefix_group]
        rows = self._most - sum(len(other.running) for other in others)
        if most is not None:
            left = most - self._taken(lambda each: 0 if each is prefix_group else len(each.running))
            rows = min(rows, left // max(1, prefix_group.row))
        return max(rows, not any(other.running for other in others))
