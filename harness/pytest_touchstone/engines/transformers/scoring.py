"""Scores of token sequences: with every shared prefix computed once, or one sequence per row.

``PaddedScorer`` computes one sequence per row, as any causal model can: it is the reference for the shared way, and its
fallback. Rows of a batch are padded on the right. Under a causal mask no token sees what is to its right, so padding
changes nothing, and positions count from 0 as in a single row.

``PrefixTreeScorer`` computes shared prefixes once; ``verify`` tests whether a model supports that. After a prefix, the
layers attend by ``split_attention`` on a CPU or a GPU, if a probe gives the same scores that way (``verify_split``).
The model's own attention would copy the prefix for every row and every head, in every layer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pytest_touchstone.engines.transformers.agreement import ANY, BatchingConstraint, difference
from pytest_touchstone.engines.transformers.compat import (
    cache_argument,
    is_out_of_memory,
    no_look_for_padding,
)
from pytest_touchstone.engines.transformers.devices import BatchBudget, all_to_device, release
from pytest_touchstone.engines.transformers.kv_cache import (
    EndedRow,
    KeyValues,
    PrefixCache,
    PrefixSharedCache,
)
from pytest_touchstone.engines.transformers.logits import SelectiveLogits, TargetScores, read_targets
from pytest_touchstone.engines.transformers.prefix_tree import (
    ROOM,
    SAVING,
    BatchLimits,
    PrefixChain,
    PrefixTree,
    RowLayout,
    build_tree,
    common_prefix_length,
    lay_out,
    partition_tree,
    take_batch,
)
from pytest_touchstone.engines.transformers.split_attention import (
    Attention,
    additive_mask,
    use_split_attention,
)
from pytest_touchstone.engines.transformers.token_work import TargetScore, TokenWork, WorkDone, sum_scores

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Made = TypeVar("Made")


class PaddedScorer:
    """Computes the scores of sequences in batches of similar length."""

    def __init__(self, model: Any, needed: SelectiveLogits, *, budget: BatchBudget, done: WorkDone) -> None:
        self._model, self._needed, self._done = model, needed, done
        self._budget = budget
        self.company = ANY

    def scored(self, works: Sequence[TokenWork]) -> Generator[list[tuple[int, TargetScore]], None, None]:
        """Yield the numbers of all sequences and their scores at once, in their order, whatever the batches."""
        scores = compute_in_batches(
            works,
            works,
            self._score,
            budget=self._budget,
            device=self._model.device,
            company=self.company,
            done=self._done,
        )
        if works:
            enough = build_tree([work.inputs for work in works]).tokens
            self._done.distinct += enough
            self._done.slowly("scoring", sum(len(work.inputs) for work in works), enough)
        yield list(enumerate(scores))

    def logits(self, works: Sequence[TokenWork]) -> torch.Tensor:
        """Return float32 logits [targets, vocabulary] at the targets of a few short sequences, one after the
        other."""
        import torch

        if self.company.rows != "any" and len(works) > 1:
            return torch.cat([self.logits([work]) for work in works])
        return self._needed.logits(self.inputs(works), *_target_positions(works))

    def inputs(self, works: Sequence[TokenWork]) -> dict[str, Any]:
        """Return input ids and attention mask [rows, longest], padded on the right with any token."""
        return {**pad_rows([work.inputs for work in works], 0, self._model.device), "use_cache": False}

    def _score(self, works: Sequence[TokenWork]) -> list[TargetScore]:
        """Run one forward pass and return the score of each sequence."""
        rows = _pad([work.inputs for work in works], 0)
        targets = [target for work in works for target in work.targets]
        asked = [*_target_positions(works), list(range(len(targets))), targets]
        ids, mask, row, column, number, target = all_to_device([*rows, *asked], self._model.device)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
        logits = self._needed.logits_at(inputs, (row, column))
        tokens = sum(len(work.inputs) for work in works)
        self._done.passed(ids.numel(), tokens, logits=len(targets))
        token_scores = iter(TargetScores(logits, number, target).read())
        return [sum_scores([next(token_scores) for _ in work.targets]) for work in works]


def _target_positions(works: Sequence[TokenWork]) -> tuple[list[int], list[int]]:
    """Return the row of every target, and its position in the row."""
    rows = [row for row, work in enumerate(works) for _ in work.targets]
    return rows, [
        position
        for work in works
        for position in range(len(work.inputs) - len(work.targets), len(work.inputs))
    ]


def pad_rows(rows: Sequence[tuple[int, ...]], padding: int, device: Any) -> dict[str, Any]:
    """Return input ids and attention mask [rows, longest], padded on the right with a token."""
    ids, mask = all_to_device(_pad(rows, padding), device)
    return {"input_ids": ids, "attention_mask": mask}


def _pad(rows: Sequence[tuple[int, ...]], padding: int) -> list[list[list[int]]]:
    """Return rows and their masks, both filled up to the longest row."""
    longest = max(map(len, rows))
    return [
        [[*row, *[padding] * (longest - len(row))] for row in rows],
        [[1] * len(row) + [0] * (longest - len(row)) for row in rows],
    ]


def compute_in_batches(
    works: Sequence[TokenWork],
    items: Sequence[Item],
    compute: Callable[[Sequence[Item]], Sequence[Made]],
    *,
    budget: BatchBudget,
    device: Any,
    company: BatchingConstraint,
    done: WorkDone,
) -> list[Made]:
    """Compute a result for each item in batches, and return the results in order.

    Where memory runs out the budget is halved, and the items that are left are cut into smaller batches.

    Args:
        works: The tokens of each item.
        items: What ``compute`` is given.
        compute: Returns one result per item of a batch.
        budget: The limits of a batch.
        device: The device of the model.
        company: The rows that may be computed together.
        done: Counts the additional passes for rows that have to stay apart.


    """
    results: dict[int, Made] = {}
    while True:
        left = [index for index in range(len(works)) if index not in results]
        todo = [works[index] for index in left]
        queue = list(batches(todo, budget, company))
        if company.reason and (enough := len(list(batches(todo, budget)))) < len(queue):
            done.slowly("batching", len(queue), enough)
        for batch in queue:
            indices = [left[index] for index in batch]
            try:
                results.update(zip(indices, compute([items[index] for index in indices]), strict=True))
            except Exception as error:
                if budget.batch is not None or not is_out_of_memory(error) or not budget.halve():
                    raise
                break
        else:
            return [results[index] for index in range(len(works))]
        release(device)  # outside the handler, so that the error no longer holds the batch's memory


def batches(
    works: Sequence[TokenWork], budget: BatchBudget, company: BatchingConstraint = ANY
) -> Iterator[list[int]]:
    """Yield the indices of ``works``, each once, in batches of similar length, the longest first.

    Rows that may not be computed together are never in one batch. A batch has as many rows as a person has asked for;
    else as many as keep rows x longest row and the needed logits within the budget (at least one). The longest come
    first, so that a lack of memory shows at once.
    """
    order = sorted(range(len(works)), key=lambda index: (-len(works[index].inputs), index))
    most_tokens = budget.within(0, len(works[order[0]].inputs)) if works else 0
    batch: list[int] = []
    logits = 0
    for index in order:
        needed = len(works[index].targets) * budget.vocabulary
        longest = len(works[batch[0]].inputs) if batch else 0
        if budget.batch is not None:
            full = len(batch) >= budget.batch
        else:
            full = longest * (len(batch) + 1) > most_tokens or logits + needed > budget.logits
        apart = company.rows == "one" or company.group(longest) != company.group(len(works[index].inputs))
        if batch and (full or apart):
            yield batch
            batch, logits = [], 0
        batch.append(index)
        logits += needed
    if batch:
        yield batch


SPLITS: Final = frozenset({"cpu", "cuda"})
"""The kinds of devices on which attention can be split."""

_LEAST_SPLIT: Final = 8
"""The tokens of a prefix from which attention is split: setting it takes as long as computing a few tokens."""

_SHARED_BY: Final = 8
"""The number of sequences below a chain from which it is kept for later calls; fewer are the choices of one
question."""

_UNREAD: Final = {"cuda": 1}
"""The passes whose scores the host has not read when it begins the next one, so that a device never waits for it."""

TargetScoreTable = dict[tuple[int, int], tuple[float, bool]]
"""The log-probability of a target after a token, and whether it is the most probable, by the token's number in the tree
and the target."""


class PrefixTreeScorer:
    """Computes the scores of many sequences as a tree."""

    def __init__(
        self,
        model: Any,
        needed: SelectiveLogits,
        attention: Attention,
        *,
        budget: BatchBudget,
        done: WorkDone,
    ) -> None:
        self._model, self._needed, self.attention = model, needed, attention
        self._budget = budget
        self._done = done
        self._kept = PrefixCache(budget.allowance.kept(model.device))
        self._room, self._saving = ROOM, SAVING
        self._unread = _UNREAD.get(model.device.type, 0)
        if self._unread:
            no_look_for_padding(model)
        self.splits = False

    def verify(
        self, works: Sequence[TokenWork], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Compare a probe's scores with those of ``plain``, which computes every sequence by itself.

        It is computed twice: with chains, branches and gaps forced, and without. Return None where all agree, else the
        difference.
        """
        targets = [target for work in works for target in work.targets]

        def apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
            """Return the largest difference of a sequence's score."""
            scores: list[list[float]] = []
            for logits in (actual, expected):
                read = iter(read_targets(logits, range(len(logits)), 2 * targets))
                scores.append([sum(next(read)[0] for _ in work.targets) for work in (*works, *works)])
            apart = [abs(score - other) for score, other in zip(*scores, strict=True)]
            # A maximum ignores NaN.
            return math.nan if any(map(math.isnan, apart)) else max(apart)

        return difference(
            self._model,
            lambda: plain(works).repeat(2, 1),
            lambda: self._both_ways(works),
            apart=apart,
            what="a score",
            most=max(len(work.targets) for work in works),
        )

    def _both_ways(self, works: Sequence[TokenWork]) -> torch.Tensor:
        """Return float32 logits at the targets of a probe, as ``Plain.logits`` returns them, twice."""
        import torch

        logits: list[torch.Tensor] = []
        try:
            for self._room, self._saving in ((12, 0), (ROOM, SAVING)):
                pass_ = _TreePass(build_tree([work.inputs for work in works]), works, rows={})
                for _ in self._walk(pass_, ()):
                    pass
                logits += pass_.logits_asked()
        finally:
            self._room, self._saving = ROOM, SAVING
            self._kept.clear()
        return torch.stack(logits)

    def scored(self, works: Sequence[TokenWork]) -> Generator[list[tuple[int, TargetScore]], None, None]:
        """Yield the indices of sequences and their scores, each once.

        They come all at the end, or as they are computed where the device goes on meanwhile.

        Where memory runs out, the sequences that have no score yet are made into a tree again, in smaller parts.
        """
        if not works:
            return
        hints = sorted(self._kept.hints([work.inputs for work in works]))
        scores: dict[int, TargetScore] = {}
        while left := [number for number in range(len(works)) if number not in scores]:
            tree = build_tree([*(works[number].inputs for number in left), *hints])
            cuts = {tree.ends.pop() for _ in hints}
            pass_ = _TreePass(tree, [works[number] for number in left])
            self._done.distinct += 0 if scores else tree.tokens
            try:
                for _ in self._walk(pass_, cuts):
                    if self._unread and (completed := pass_.completed()):
                        scores.update((left[number], score) for number, score in completed)
                        yield [(left[number], score) for number, score in completed]
            except Exception as error:
                if self._budget.batch is not None or not is_out_of_memory(error) or not self._budget.halve():
                    raise
            # Outside the handler, so that the error no longer holds the memory of its batch.
            pass_.read(0)
            completed = sorted((left[number], score) for number, score in pass_.completed())
            scores.update(completed)
            if len(scores) < len(works):
                release(self._model.device)
            yield completed

    def prefix(self, tokens: tuple[int, ...], begun: EndedRow | None = None) -> KeyValues:
        """Return the keys and values of a prefix, and store them for later calls.

        ``begun`` is an ended text that may begin with the prefix.
        """
        if not tokens:
            return KeyValues()
        pass_ = _TreePass(build_tree([tokens]), [])
        past = self._kept.find(tokens)
        if begun is not None and (shared := common_prefix_length(begun.tokens, tokens)) > len(past.tokens):
            past = begun.cropped(shared, self._model.dtype)
        made = self._run_on(pass_, past, tokens, range(len(past.tokens), len(tokens)))
        self._kept.keep(made)
        return made

    def _walk(self, pass_: _TreePass, cuts: Collection[int]) -> Iterator[None]:
        """Compute all parts of a tree, each chain before the parts below it; yield after each batch of chunks.

        The keys and values of a chain are freed when nothing is left below it.
        """
        root = partition_tree(
            pass_.tree,
            room=min(self._room, self._budget.tokens),
            saving=self._saving,
            most_sequences=self._budget.batch,
            logits=pass_.logits,
            cuts=cuts,
        )
        todo: list[tuple[PrefixChain, KeyValues]] = [(root, KeyValues())]
        while todo:
            chain, past = todo.pop()
            if chain.nodes:
                past = self._extend_chain(pass_, chain, past)
            left = sorted(chain.chunks, key=lambda chunk: chunk.length)
            while left:
                split = self._split_after(len(past.tokens)) and self._model.device.type != "cpu"
                # Keys that are copied for the rows, or have scores that are all there at once: on a GPU none where
                # attention is split, but in layers that see a window of a text.
                keys = 0 if split and self.attention.window is None else len(past.tokens)
                tokens = self._budget.within(keys, left[-1].length)
                limits = BatchLimits(tokens, self._budget.logit_positions, self._budget.batch, self._room)
                if len(left[-1].nodes) == 1 and left[-1].length > self._budget.tokens:
                    # A long text that is too much for a batch even by itself.
                    (node,) = left.pop().nodes
                    self._run_on(pass_, past, pass_.tree.path(node), pass_.tree.token_indices([node]))
                else:
                    layout = lay_out(pass_.tree, take_batch(left, limits))
                    self._forward(
                        pass_, layout, PrefixSharedCache(past, split=self._split_after(len(past.tokens)))
                    )
                yield
            todo += [(below, past) for below in chain.chains]

    def _extend_chain(self, pass_: _TreePass, chain: PrefixChain, past: KeyValues) -> KeyValues:
        """Return the keys and values up to the end of a chain, using stored ones where there are any."""
        whole = pass_.tree.path(chain.nodes[-1])
        places = pass_.tree.token_indices(chain.nodes)
        kept = self._kept.find(whole)
        # Only what a token's successors need is stored, not what sequences want to know about it.
        wanted = next(
            (at for at, token_index in enumerate(places) if token_index in pass_.wanted), len(places)
        )
        length = min(len(kept.tokens), len(past.tokens) + wanted)
        if length > len(past.tokens):
            places = places[length - len(past.tokens) :]
            past = kept.cropped(length)
        made = self._run_on(pass_, past, whole, places)
        if _count_sequences(chain) >= _SHARED_BY:
            self._kept.keep(made)
        return made

    def _run_on(
        self, pass_: _TreePass, past: KeyValues, whole: tuple[int, ...], places: Sequence[int]
    ) -> KeyValues:
        """Prefill ``whole`` after ``past``, a token budget at a time, and return its keys and values."""
        start = len(past.tokens)
        step = self._budget.within(len(whole), self._budget.tokens)
        if any(token_index in pass_.wanted for token_index in places):
            step = min(step, max(1, self._budget.logit_positions))
        while (begin := len(past.tokens)) < len(whole):
            end = min(len(whole), begin + step)
            length = end - begin
            layout = RowLayout(
                [list(whole[begin:end])],
                [list(range(begin, end))],
                [[length] * length],
                [list(places[begin - start : end - start])],
            )
            cache = PrefixSharedCache(past, record=True, split=self._split_after(begin))
            self._forward(pass_, layout, cache)
            past = cache.made(whole[:end])
        return past

    def _split_after(self, past: int) -> bool:
        """Return whether attention is split in a pass after ``past`` tokens."""
        return self.splits and past >= _LEAST_SPLIT

    def _forward(self, pass_: _TreePass, layout: RowLayout, cache: PrefixSharedCache) -> None:
        """Run one forward pass, and pass the scores of its targets to ``pass_``."""
        asked = pass_.asked(layout.token_indices)
        rows: list[list[Any]] = [layout.ids, layout.positions, layout.seen_until]
        wanted = [asked.rows, asked.columns, asked.numbers, [target for _, target in asked.pairs]]
        *sent, row, column, number, target = all_to_device([*rows, *wanted], self._model.device)
        inputs = self._inputs(layout, cache, *sent)
        with use_split_attention(self._model) if self._split_after(cache.past) else nullcontext():
            logits = self._needed.logits_at(inputs, (row, column))
        computed, padding = sent[0].numel(), sum(places.count(-1) for places in layout.token_indices)
        self._done.passed(computed, computed - padding, logits=len(asked.token_indices))
        if asked.token_indices:
            pass_.take(asked, logits, TargetScores(logits, number, target), self._unread)

    def _inputs(self, layout: RowLayout, cache: PrefixSharedCache, *sent: torch.Tensor) -> dict[str, Any]:
        """Return the inputs of the model; ``sent`` are the ids, positions and ends of a layout on the device."""
        import torch

        ids, positions, seen_until = sent
        inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": True}
        inputs[cache_argument(type(self._model))] = cache
        if cache.past or layout.branches:
            longest = 1 + max(map(max, layout.positions)) if self.attention.window is not None else 0

            def mask(window: int | None) -> torch.Tensor:
                # Split attention takes a mask of a row's own keys, where all of the prefix is seen.
                sees_all = self._split_after(cache.past) and longest <= (window or longest)
                return additive_mask(
                    seen_until,
                    positions=positions,
                    past=0 if sees_all else cache.past,
                    window=window,
                    dtype=self._model.dtype,
                )

            inputs["attention_mask"] = self.attention.masks(mask)
        else:
            # Under the model's own causal mask no token sees the gaps to its right. Where a mask of ones is given,
            # transformers looks at it, and so waits for the device.
            inputs["attention_mask"] = None if self._unread else torch.ones_like(positions)
        return inputs


class _PassTargets(NamedTuple):
    """The targets wanted at the tokens of a pass.

    Attributes:
        token_indices: The tree's indices of the tokens at which targets are wanted.
        rows: The row of each of these tokens.
        columns: The column of each of these tokens.
        pairs: The tree's token index and the target, for each target.
        numbers: For each target, the index of its token in ``token_indices``.


    """

    token_indices: list[int]
    rows: list[int]
    columns: list[int]
    pairs: list[tuple[int, int]]
    numbers: list[int]


class _TreePass:
    """A tree, the targets wanted at its tokens, and the scores that are computed so far."""

    def __init__(
        self, tree: PrefixTree, works: Sequence[TokenWork], rows: dict[int, torch.Tensor] | None = None
    ) -> None:
        """``rows`` receives the logits, by place."""
        self.tree, self._rows = tree, rows
        self._asked = [
            list(zip(tree.last_token_indices(number, len(work.targets)), work.targets, strict=True))
            for number, work in enumerate(works)
        ]
        # What stands before it is known by then.
        self._last: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, pairs in enumerate(self._asked):
            self._last[pairs[-1]].append(number)
        self._completed: list[int] = []
        self.wanted: dict[int, list[int]] = defaultdict(list)
        for token_index, target in dict.fromkeys(pair for pairs in self._asked for pair in pairs):
            self.wanted[token_index].append(target)
        self.logits = [0] * len(tree.nodes)
        firsts = [node.first for node in tree.nodes]
        for token_index in self.wanted:
            self.logits[bisect_right(firsts, token_index) - 1] += 1
        self._chosen: TargetScoreTable = {}
        self._unread: deque[tuple[list[tuple[int, int]], TargetScores]] = deque()

    def asked(self, laid_out: Sequence[Sequence[int]]) -> _PassTargets:
        """Return the targets wanted in a pass, whose rows have these token indices by column."""
        asked = _PassTargets([], [], [], [], [])
        for row, places in enumerate(laid_out):
            columns = [*compress(range(len(places)), map(self.wanted.__contains__, places))]
            asked.rows.extend([row] * len(columns))
            asked.columns.extend(columns)
            asked.token_indices.extend(map(places.__getitem__, columns))
        for number, token_index in enumerate(asked.token_indices):
            targets = self.wanted[token_index]
            asked.pairs.extend((token_index, target) for target in targets)
            asked.numbers.extend([number] * len(targets))
        return asked

    def take(self, asked: _PassTargets, logits: torch.Tensor, scores: TargetScores, unread: int = 0) -> None:
        """Read the scores of what was wanted of a pass.

        The scores of the last ``unread`` passes stay on the device meanwhile.
        """
        if self._rows is not None:
            self._rows.update(zip(asked.token_indices, logits, strict=True))
        self._unread.append((asked.pairs, scores))
        self.read(unread)

    def read(self, but: int) -> None:
        """Read the scores of all passes but the last ``but``."""
        while len(self._unread) > but:
            pairs, scores = self._unread.popleft()
            for pair in set(pairs) - self._chosen.keys():
                self._completed += self._last.get(pair, ())
            self._chosen.update(zip(pairs, scores.read(), strict=True))

    def logits_asked(self) -> list[torch.Tensor]:
        """Return the logits [vocabulary] at all targets, sequence by sequence."""
        assert self._rows is not None, "logits are not kept"
        return [self._rows[token_index] for pairs in self._asked for token_index, _ in pairs]

    def completed(self) -> list[tuple[int, TargetScore]]:
        """Return the indices and scores of the sequences completed since the last call."""
        completed, self._completed = self._completed, []
        return [
            (number, sum_scores([self._chosen[pair] for pair in self._asked[number]])) for number in completed
        ]


def _count_sequences(chain: PrefixChain) -> int:
    """Return the number of sequences that end below a chain."""
    return sum(chunk.sequences for chunk in chain.chunks) + sum(map(_count_sequences, chain.chains))
