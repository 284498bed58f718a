"""TruthfulQA: questions that many people answer wrongly, by the probability of true and false answers."""

from __future__ import annotations

from pytest_touchstone import Published, Scores, benchmark
from pytest_touchstone.metrics import ChoiceScores, answered
from pytest_touchstone.metrics.truthfulqa import (
    TRUTHFULQA,
    TRUTHFULQA_PAPER,
    TruthfulRow,
    true_share,
    truthful_requests,
)


@benchmark(
    "truthfulqa_mc1",
    published=Published(
        817, paper=TRUTHFULQA_PAPER, source="lm-evaluation-harness 0.4.13, task truthfulqa_mc1 (version 2)"
    ),
    **TRUTHFULQA,
)
def test_truthfulqa_mc1(example: TruthfulRow) -> Scores:
    """TruthfulQA MC1 (Lin et al. 2021), validation split (817 questions), after the authors' six questions and answers.

    - ``acc`` (primary): the answer with the highest log-probability is the true one, which is always the first.
    """
    offered = example["mc1_targets"]
    answers = yield truthful_requests(example, offered)
    right, choices = offered["labels"].index(1), answered(answers, offered["choices"])
    return ChoiceScores({"acc": float(choices.preferred("acc") == right)}, right, choices=choices)


@benchmark(
    "truthfulqa_mc2",
    published=Published(
        817, paper=TRUTHFULQA_PAPER, source="lm-evaluation-harness 0.4.13, task truthfulqa_mc2 (version 3)"
    ),
    **TRUTHFULQA,
)
def test_truthfulqa_mc2(example: TruthfulRow) -> Scores:
    """TruthfulQA MC2 (Lin et al. 2021): the same questions, each with several true and false answers.

    - ``acc`` (primary): the share of the true answers in the probability of all that are offered.
    """
    answers = yield truthful_requests(example, example["mc2_targets"])
    labels = example["mc2_targets"]["labels"]
    return {"acc": true_share([one.logprob for one in answers], labels)}
