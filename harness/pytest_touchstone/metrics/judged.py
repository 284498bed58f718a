"""Verdicts of a judge as scores: pairs in both orders, and agreement with people.

    WHICH = Judge("Question: {question}\\nFirst:\\n{first}\\nSecond:\\n{second}\\nWhich answers better?", choices=ORDER)

    verdicts = yield both_orders(WHICH, answer.text, example["other"], question=example["question"])
    return pair_scores(verdicts)

A judge that likes a place says of both orders that the same place is better (Zheng et al. 2023, arXiv 2306.05685,
section 3.4: such a pair is a tie). So ``win`` is 1 where the first text is better in both orders, 0.5 for a tie and 0
for a loss, ``tie`` says that the two verdicts differ, or that one is lacking, and ``first_place`` and ``second_place``
that the same place won twice. Their means over the items are the win rate, the rate of ties and the position bias, with
the intervals of every mean.

Agreement with labels of people is the share of items with the same verdict (``agreement``), and Cohen's kappa, which
takes off what two raters with these habits would agree by chance (Cohen 1960, Educational and Psychological Measurement
20):

    @benchmark(..., primary="agreement", aggregate={"kappa": KAPPA})
    return agreement(verdict, example["label"])
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.requests import Judge, JudgeAnswer
from pytest_touchstone.metrics.multiple_choice import ChoiceScores
from pytest_touchstone.statistics.comparison import LEVEL, z_quantile
from pytest_touchstone.statistics.intervals import Estimate, moments_of

ORDER: Final = ("first", "second")
"""The choices of a question about two texts, which have these names in it."""


def both_orders(question: Judge, text: str, other_text: str, /, **texts: str) -> list[Judge]:
    """Return the question about two texts, ``first`` and ``second``, in both orders; ``texts`` are the others in it.

    Raises ``BenchmarkError`` where its choices are others than ``ORDER``.
    """
    if tuple(question.choices) != ORDER:
        raise BenchmarkError(
            f"Judge: a question about a pair has choices={ORDER}, not {tuple(question.choices)}"
        )
    return [
        question.about(first=first, second=second, **texts)
        for first, second in ((text, other_text), (other_text, text))
    ]


def pair_scores(verdicts: Sequence[JudgeAnswer]) -> dict[str, float]:
    """Return the scores of the first text of a pair, from the verdicts on both orders."""
    straight, swapped = (verdict.verdict for verdict in verdicts)
    decided = None not in (straight, swapped) and straight != swapped
    return {
        "win": float(straight == ORDER[0]) if decided else 0.5,
        "tie": float(not decided),
        "first_place": float(straight == swapped == ORDER[0]),
        "second_place": float(straight == swapped == ORDER[1]),
    }


def agreement(verdict: JudgeAnswer, label: str) -> ChoiceScores:
    """Return whether the verdict is a person's label; without a verdict it is not.

    Raises ``BenchmarkError`` for a label that is none of the choices.
    """
    if label not in verdict.choices:
        raise BenchmarkError(
            f"the label {label!r} is none of the judge's choices: {', '.join(verdict.choices)}"
        )
    chosen = len(verdict.choices) if verdict.verdict is None else verdict.choices.index(verdict.verdict)
    return ChoiceScores({"agreement": float(verdict.verdict == label)}, verdict.choices.index(label), chosen)


def cohen_kappa(
    items: Sequence[tuple[float, int, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return Cohen's kappa of items (score, label, verdict), with its interval; ``clusters`` as in ``mean_estimate``.

    With p the share of agreement and e that expected by chance, kappa is (p - e) / (1 - e). The interval is that of the
    delta method (Fleiss, Cohen and Everitt 1969, Psychological Bulletin 72, eq. 13): with r(c) and q(c) the shares of
    class c among labels and verdicts, an item with label i and verdict j moves kappa by

        ([i = j] - p) / (1 - e)  -  (1 - p) (q(i) + r(j) - 2 e) / (1 - e)^2

    Near 1 that interval is too short and lies too high. So for the interval four items are added, as Agresti and Caffo
    (2000, American Statistician 54) do for shares: two that agree and two that do not, spread evenly over the classes;
    with clusters, as many as four units have. Undefined where one class is all that there is.
    """
    pairs = [(label, verdict) for _, label, verdict in items]
    if not pairs:
        return Estimate(None, None, None, None, "none", "no items were scored")
    counts = Counter(pairs)
    plain = _Kappa.from_counts(counts)
    if plain.chance == 1:
        return Estimate(None, None, None, None, "none", "all labels and verdicts are of one class")
    moments = moments_of([plain.influence(*pair) for pair in pairs], clusters)
    if moments.variance is None:
        return Estimate(plain.value, None, None, None, "none", f"{moments.one_unit}: no standard error")
    classes = sorted({label for pair in pairs for label in pair})
    unit, same = moments.n / moments.kish, _MORE / 2 / len(classes)
    added_items = {
        pair: unit * (same if pair[0] == pair[1] else same / (len(classes) - 1))
        for pair in product(classes, classes)
    }
    fuller = _Kappa.from_counts({pair: counts[pair] + weight for pair, weight in added_items.items()})
    fuller_moments = moments_of([fuller.influence(*pair) for pair in pairs], clusters)
    units = len(fuller_moments.totals)
    square = math.fsum(total**2 for total in fuller_moments.totals) * units / (units - 1)
    square += unit * math.fsum(weight * fuller.influence(*pair) ** 2 for pair, weight in added_items.items())
    reach = z_quantile(LEVEL) * math.sqrt(square) / fuller.items
    return Estimate(
        plain.value,
        max(-1.0, min(plain.value, fuller.value - reach)),
        min(1.0, max(plain.value, fuller.value + reach)),
        math.sqrt(moments.variance),
        "delta method with four items more",
    )


_MORE: Final = 4.0


class _Kappa(NamedTuple):
    """The shares that kappa is made of, and the number of items."""

    items: float
    same: float
    chance: float
    labels: Mapping[int, float]
    given: Mapping[int, float]

    @classmethod
    def from_counts(cls, counts: Mapping[tuple[int, int], float]) -> _Kappa:
        """Return the shares of a table of (label, verdict)."""
        count = math.fsum(counts.values())
        labels, given = defaultdict[int, float](float), defaultdict[int, float](float)
        for (label, verdict), items in counts.items():
            labels[label] += items / count
            given[verdict] += items / count
        same = math.fsum(number for (label, verdict), number in counts.items() if label == verdict) / count
        chance = math.fsum(share * given[label] for label, share in labels.items())
        return cls(count, same, chance, labels, given)

    @property
    def value(self) -> float:
        """Kappa itself."""
        return (self.same - self.chance) / (1 - self.chance)

    def influence(self, label: int, verdict: int) -> float:
        """Return the change of kappa by one item of this kind, times the number of items."""
        rest = 1 - self.chance
        shares = self.given.get(label, 0.0) + self.labels.get(verdict, 0.0)
        return ((label == verdict) - self.same) / rest - (1 - self.same) * (
            shares - 2 * self.chance
        ) / rest**2


KAPPA: Final = Aggregation("Cohen's kappa", "agreement", function=cohen_kappa, beside=("right", "chosen"))
"""The metric of ``agreement`` that takes chance off."""
