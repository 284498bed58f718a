"""Counts of what went through a model: for the progress line, and for the report of what answering has cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.engines.transformers.devices import BatchBudget


@dataclass(slots=True)
class Acceptance:
    """The counts of accepted proposals.

    ``lengths`` counts how often a pass of a row gave so many tokens, head 0's own among them. ``asked`` and ``right``
    count the proposals of each extra head, from 1, at places that the text reached, and those that were the token
    there. A head is asked at every place from which texts went on, whether or not the heads before it were right.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    right: Counter[int] = field(default_factory=Counter)

    @property
    def passes(self) -> int:
        """The number of rows that went through the model with proposals."""
        return self.lengths.total()

    @property
    def mean_length(self) -> float:
        """The mean number of tokens per pass, 0 without any."""
        tokens = sum(length * number for length, number in self.lengths.items())
        return tokens / self.passes if self.passes else 0.0

    def judge(self, proposals: Sequence[tuple[int, list[int]]], tokens: Sequence[int]) -> int:
        """Compare the proposals of one text, each with its first place, with the text's tokens, to its end.

        Return how many of these came from passes with proposals.
        """
        came = 0
        for place, proposed in proposals:
            pairs = list(zip(proposed, tokens[place:], strict=False))
            wrong = (at for at, (proposal, token) in enumerate(pairs) if proposal != token)
            length = min(next(wrong, len(pairs)) + 1, len(tokens) - place)
            for head, (proposal, token) in enumerate(pairs, 1):
                self.asked[head] += 1
                self.right[head] += proposal == token
            if length:  # none where the pass gave no number
                self.lengths[length] += 1
                came += length
        return came

    def counts(self) -> dict[str, Any]:
        """Return plain counts, to be added up over processes, by length from 1 and by head from 1.

        With them go what they amount to: the mean length, and the share of each head's proposals that were right
        (None without any).
        """
        longest, heads = max(self.lengths, default=0), max(self.asked, default=0)
        return {
            "lengths": [self.lengths[length] for length in range(1, longest + 1)],
            "asked": [self.asked[head] for head in range(1, heads + 1)],
            "right": [self.right[head] for head in range(1, heads + 1)],
            "mean_length": round(self.mean_length, 4) if self.passes else None,
            "accuracy": [round(self.right[head] / self.asked[head], 4) for head in range(1, heads + 1)],
        }


class Slow(NamedTuple):
    """The amount that a slow way has computed, and the amount that would have been enough."""

    computed: int
    enough: int


@dataclass(slots=True)
class WorkDone:
    """Counts of what went through the model.

    Of tokens it counts all, those that only filled rows up, and the different ones asked for (each, with the tokens
    before it, once per call). Of logits it counts the positions at which they were computed.

    Of the tokens, some were prompts to be continued, and some were generated tokens fed again for the next one.
    ``accepted`` counts what became of proposed tokens; ``slow`` has the cost of each slow way that was taken, by its
    name (tokens, logits).

    Kept up to date while a call is under way: passes that continued texts (``steps``), the tokens ``generated`` by
    them, and those that went through the model in them (``continued``).
    """

    computed: int = 0
    padded: int = 0
    distinct: int = 0
    logits: int = 0
    prefilled: int = 0
    decoded: int = 0
    continued: int = 0
    steps: int = 0
    generated: int = 0
    accepted: Acceptance = field(default_factory=Acceptance)
    slow: dict[str, Slow] = field(default_factory=dict)

    def slowly(self, way: str, computed: int, enough: int) -> None:
        """Count what a slow way has cost."""
        before = self.slow.get(way, Slow(0, 0))
        self.slow[way] = Slow(before.computed + computed, before.enough + enough)

    def passed(self, computed: int, known: int, *, logits: int) -> None:
        """Count a pass over so many tokens, of which ``known`` are no padding, and the places of its logits."""
        self.computed += computed
        self.padded += computed - known
        self.logits += logits

    def stepped(self, tokens: int) -> None:
        """Count a pass that continued texts by so many tokens in all."""
        self.steps += 1
        self.generated += tokens

    def progress(self) -> EngineProgress:
        """Return the work so far as engines report it."""
        return EngineProgress(tokens=self.computed - self.continued + self.generated)

    def usage(
        self, budget: BatchBudget, notes: Sequence[str] = (), reasons: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the same as reports have it (see ``results.usage``); ``reasons`` say why slow ways were
        taken."""
        counts = {"tokens": self.computed, "padding": self.padded, "distinct": self.distinct}
        counts |= {"prefilled": self.prefilled, "decoded": self.decoded, "logits": self.logits}
        proposed = {"speculative": self.accepted.counts()} if self.accepted.passes else {}
        slow = [
            {"way": way, "reason": (reasons or {}).get(way, ""), **cost._asdict()}
            for way, cost in self.slow.items()
        ]
        more = {**proposed, **({"slow": slow} if slow else {})}
        return {**counts, **more, "batch_tokens": budget.tokens, "notes": list(notes)}

    def reset(self) -> None:
        """Start counting from 0 again."""
        self.computed = self.padded = self.distinct = self.logits = self.prefilled = self.decoded = 0
        self.continued = self.steps = self.generated = 0
        self.accepted, self.slow = Acceptance(), {}
