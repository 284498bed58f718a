"""KoBEST HellaSwag: the ending of a Korean scene."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics import CHOICE_METRICS, argmax, grade_choices
from pytest_touchstone.metrics.korean import KobestRow, kobest_task


@benchmark("kobest_hellaswag", **kobest_task("hellaswag"), primary="acc_norm", metrics=CHOICE_METRICS)
def test_kobest_hellaswag(example: KobestRow, fewshot: FewShot) -> Scores:
    """KoBEST HellaSwag (Kim et al. 2022), test split (500 rows), 0-shot.

    Context: "문장: " and the scene. Continuations: one space and the ending, for each of the four.

    - ``acc_norm`` (primary): highest log-probability per character of the ending.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.
    - ``f1``: macro F1 of the endings with the highest plain sum, as in lm-evaluation-harness, not of the normalised
      choice; a paper may print that under this name.
    """
    answers = yield [fewshot.loglikelihood(example["context"], " " + one) for one in example["choices"]]
    found = grade_choices(answers, example["choices"], example["label"])
    found.chosen = argmax([one.logprob for one in answers])
    return found
