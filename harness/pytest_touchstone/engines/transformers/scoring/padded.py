"""Scores sequences one per row, as any causal model can: the reference for the shared way, and its fallback.

Rows of a batch are padded on the right. Under a causal mask no token sees what is to its right, so padding changes
nothing, and positions count from 0 as in a single row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_touchstone.engines.transformers.compat import is_out_of_memory
from pytest_touchstone.engines.transformers.independence import ANY, Company
from pytest_touchstone.engines.transformers.logits import SelectiveLogits, read_targets
from pytest_touchstone.engines.transformers.memory import BatchBudget, release
from pytest_touchstone.engines.transformers.scoring.plan import Score, TokenWork, WorkDone, batches
from pytest_touchstone.engines.transformers.scoring.prefix_tree import grow
from pytest_touchstone.engines.transformers.transfer import moved

if TYPE_CHECKING:
    import torch


Made = TypeVar("Made")


class PaddedScorer:
    """Computes the scores of sequences in batches of similar length."""

    def __init__(
        self,
        model: Any,
        needed: SelectiveLogits,
        *,
        vocabulary: int,
        budget: BatchBudget,
        batch: int | None,
        done: WorkDone,
    ) -> None:
        self._model, self._needed, self._done = model, needed, done
        self._vocabulary, self._budget, self._batch = vocabulary, budget, batch
        self.company = ANY

    def score(self, works: Sequence[TokenWork]) -> list[Score]:
        """Return the scores of all sequences, in their order, whatever the batches."""
        self._done.begin(len(works), sum(len(work.inputs) for work in works))
        scores = in_batches(
            works,
            lambda numbers: self._score([works[number] for number in numbers]),
            budget=self._budget,
            size=self._batch,
            vocabulary=self._vocabulary,
            device=self._model.device,
            company=self.company,
            done=self._done,
        )
        if works:
            enough = grow([work.inputs for work in works]).tokens
            self._done.distinct += enough
            self._done.slowly("scoring", sum(len(work.inputs) for work in works), enough)
        return scores

    def logits(self, works: Sequence[TokenWork]) -> torch.Tensor:
        """Return float32 logits [targets, vocabulary] at the targets of a few short sequences, one after the
        other."""
        import torch

        if self.company.rows != "any" and len(works) > 1:
            return torch.cat([self.logits([work]) for work in works])
        places = _places(works)
        return self._needed.logits(self.inputs(works), [row for row, _ in places], [at for _, at in places])

    def inputs(self, works: Sequence[TokenWork]) -> dict[str, Any]:
        """Return input ids and attention mask [rows, longest], padded on the right with any token."""
        return {**padded([work.inputs for work in works], 0, self._model.device), "use_cache": False}

    def _score(self, works: Sequence[TokenWork]) -> list[Score]:
        """Run one forward pass. Sums are Python's floats, so that their order cannot matter."""
        places = _places(works)
        targets = [target for work in works for target in work.targets]
        inputs = self.inputs(works)
        logits = self._needed.logits(inputs, [row for row, _ in places], [at for _, at in places])
        self._done.computed += inputs["input_ids"].numel()
        self._done.padded += inputs["input_ids"].numel() - sum(len(work.inputs) for work in works)
        self._done.logits += len(targets)
        self._done.scored += len(works)
        self._done.known += sum(len(work.inputs) for work in works)
        parts = iter(read_targets(logits, range(len(targets)), targets))
        found = []
        for work in works:
            mine = [next(parts) for _ in work.targets]
            found.append(Score(sum(logprob for logprob, _ in mine), all(greedy for _, greedy in mine)))
        return found


def _places(works: Sequence[TokenWork]) -> list[tuple[int, int]]:
    """Return the row and position of every target."""
    return [
        (row, position)
        for row, work in enumerate(works)
        for position in range(len(work.inputs) - len(work.targets), len(work.inputs))
    ]


def padded(rows: Sequence[tuple[int, ...]], padding: int, device: Any) -> dict[str, Any]:
    """Return input ids and attention mask [rows, longest], padded on the right with a token."""
    import torch

    ids = torch.full((len(rows), max(map(len, rows))), padding, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    return {"input_ids": moved(ids, device), "attention_mask": moved(mask, device)}


def in_batches(
    works: Sequence[TokenWork],
    compute: Callable[[Sequence[int]], Sequence[Made]],
    *,
    budget: BatchBudget,
    size: int | None,
    vocabulary: int,
    device: Any,
    company: Company,
    done: WorkDone,
) -> list[Made]:
    """Return the results of all sequences, in their order; ``compute`` returns those of a batch, given its numbers.

    ``done`` is told the passes that rows which have to stay apart cost. Where memory runs out the budget is halved, and
    what is left, that batch included, is cut into smaller batches.
    """
    made: dict[int, Made] = {}
    longest = max((len(work.inputs) for work in works), default=1)
    while left := [number for number in range(len(works)) if number not in made]:
        how: dict[str, Any] = {"size": size, "vocabulary": vocabulary, "most_logits": budget.logits}
        how["most_tokens"] = budget.within(0, longest)
        todo = [works[number] for number in left]
        queue = list(batches(todo, **how, company=company))
        if company.reason and (enough := len(list(batches(todo, **how)))) < len(queue):
            done.slowly("batching", len(queue), enough)
        smaller = False
        for batch in queue:
            numbers = [left[index] for index in batch]
            try:
                made.update(zip(numbers, compute(numbers), strict=True))
            except Exception as error:
                if size is not None or not is_out_of_memory(error) or not budget.halve():
                    raise
                smaller = True
            if smaller:
                break  # outside the handler, so that the error no longer holds the batch's memory
        if smaller:
            release(device)
    return [made[number] for number in range(len(works))]
