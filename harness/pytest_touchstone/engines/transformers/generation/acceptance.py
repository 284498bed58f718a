"""Counts of what became of proposed tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


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
