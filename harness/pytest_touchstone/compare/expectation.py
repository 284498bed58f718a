"""Whether a candidate answers like the references of a file: the rule of ``expect_like``, and what it could have found.

Each benchmark is compared with the mean of its reference runs (``statistics.paired``); Holm's correction is over all
benchmarks. One that is worse is scored again, and is worse only where the mean of both scorings is, so that references
by chance too good seldom fail an equal engine (``simulations.engines``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import columns, compare, compute_verdicts, score_name
from pytest_touchstone.statistics.power import CHURN, design_of_comparison, items_for_drop, smallest_drop

POWER: Final = 0.9
"""The probability with which a loss is said to be found."""

BROKEN: Final = 5
"""The number of items that are named of a benchmark that is worse."""

Scores = Mapping[str, BenchmarkScores]


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """The verdict on a benchmark.

    ``line`` is the comparison with its references, None where the candidate has answered nothing in time. ``scores``
    are the scores that were compared, of ``scorings`` runs; ``settled`` is False where it ought to have been scored
    again, and there was no time. ``finds`` is the smallest loss that is found with ``POWER``, None where none is, and
    ``items`` the number that finds the largest loss allowed, None where that takes too many.
    """

    line: BenchmarkComparison | None
    scores: BenchmarkScores | None = None
    scorings: int = 1
    settled: bool = True
    finds: float | None = None
    items: int | None = None

    @property
    def kind(self) -> str:
        """Return "worse", "better", "not worse" or "inconclusive"."""
        verdict = None if self.line is None else self.line.comparison.verdict
        return verdict if verdict is not None and self.settled else "inconclusive"


def judge_candidate(
    score: Callable[[Collection[str]], Scores],
    references: Scores,
    max_loss: float,
    *,
    again: bool = True,
) -> dict[str, CandidateVerdict]:
    """Return the verdict on each benchmark of the references.

    Args:
        score: Scores the candidate on the named benchmarks. It may leave some out, as far as its time is up.
        references: The references by benchmark.
        max_loss: The largest loss that does not matter, as a share.
        again: Whether what is worse is scored a second time.

    """
    scores = _answered(score(references))
    lines = _judged(scores, references, max_loss)
    worse = [name for name, line in lines.items() if line.comparison.verdict == "worse"]
    second = _answered(score(worse)) if worse and again else {}
    means = {name: _mean_scores(scores[name], entry, references[name]) for name, entry in second.items()}
    lines = _judged({**scores, **means}, references, max_loss)
    return {
        name: _verdict(
            lines.get(name),
            means.get(name, scores.get(name)),
            max_loss,
            family=len(lines),
            scorings=1 + (name in means),
            settled=not again or name not in worse or name in means,
        )
        for name in references
    }


def _answered(scores: Scores) -> Scores:
    """Return the scores of which there are any: of a run that was stopped early some benchmarks have none."""
    return {name: entry for name, entry in scores.items() if entry.items.examples}


def _judged(scores: Scores, references: Scores, max_loss: float) -> dict[str, BenchmarkComparison]:
    compared = {
        name: compare(entry, [references[name]], references[name].saved.primary)
        for name, entry in scores.items()
    }
    return compute_verdicts(compared, margin=max_loss)


def _mean_scores(
    first: BenchmarkScores, second: BenchmarkScores, references: BenchmarkScores
) -> BenchmarkScores:
    """Return the first scores with the mean of both in the place of the score; None where one is lacking."""
    score = score_name(first.saved, references.saved.primary)
    others = dict(zip(second.items.examples, second.items.scores[score], strict=True))
    column = [
        None if value is None or (other := others.get(example)) is None else (value + other) / 2
        for example, value in zip(first.items.examples, first.items.scores[score], strict=True)
    ]
    return replace(first, items=replace(first.items, scores={**first.items.scores, score: column}))


def _verdict(
    line: BenchmarkComparison | None,
    scores: BenchmarkScores | None,
    max_loss: float,
    *,
    family: int,
    scorings: int,
    settled: bool,
) -> CandidateVerdict:
    design = None if line is None else design_of_comparison(line.comparison)
    if line is None or design is None or design.flips is None:
        return CandidateVerdict(line, scores, scorings, settled)
    # Of the flips that were seen, those of the loss itself are no noise.
    lost = max(0.0, -(line.comparison.difference or 0.0))
    noise = max(design.flips - CHURN * lost, 0.5 / (design.items + 1))
    design = replace(design, flips=noise, churn=CHURN)
    return CandidateVerdict(
        line,
        scores,
        scorings,
        settled,
        finds=smallest_drop(design, power=POWER, family=family, margin=0.0),
        items=items_for_drop(design, max_loss, power=POWER, family=family, margin=0.0),
    )


def broken_items(verdict: CandidateVerdict, references: BenchmarkScores) -> dict[str, tuple[float, float]]:
    """Return the items that have lost most, with the reference runs' mean and the candidate's."""
    if verdict.scores is None:
        return {}
    score = score_name(verdict.scores.saved, references.saved.primary)
    aligned = columns(verdict.scores.items, [references.items], score)
    pairs = dict(zip(aligned.names, zip(aligned.baselines[0], aligned.new, strict=True), strict=True))
    lost = sorted(
        (name for name, (old, new) in pairs.items() if new < old),
        key=lambda name: pairs[name][1] - pairs[name][0],
    )
    return {name: pairs[name] for name in lost[:BROKEN]}
