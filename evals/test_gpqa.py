"""GPQA: questions that experts of other fields cannot answer with a search engine at hand."""

from __future__ import annotations

import hashlib
from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Loglikelihood, Scores, benchmark
from harness.metrics import ChoiceScores, argmax

WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


class Row(TypedDict):
    """A question, its four answers as they are listed, and the number of the right one."""

    question: str
    choices: list[str]
    label: int


def row(published: dict[str, Any]) -> dict[str, Any]:
    """The row with its answers in an order of their own, drawn by the hash of the question."""
    right, question = published["Correct Answer"], published["Question"]
    listed = [*(published[name] for name in WRONG), right]
    listed = [text.strip().replace(" [title]", ". ").replace("  ", " ") for text in listed]
    order = sorted(range(4), key=lambda n: hashlib.sha256(f"{question}\0{n}".encode()).digest())
    return {"question": question, "choices": [listed[n] for n in order], "label": order.index(3)}


@benchmark(
    "gpqa",
    version=1,
    data=Dataset("Idavidrein/gpqa", "gpqa_main", split="train", local="gpqa/main"),
    missing="GPQA is on the Hub for people who have accepted its conditions (Idavidrein/gpqa, CC BY 4.0; its examples "
    "are not to be shown in plain text), so no rows of it are shipped. Accept them, log in and use --eval-data hub",
    published_rows=448,
    row=Row,
    prepare=row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    paper="Rein et al. 2023, arXiv 2311.12022",
    source="the prompt of lm-evaluation-harness 0.4.13, task gpqa_main_zeroshot (version 2.2)",
)
def test_gpqa(example: Row, fewshot: FewShot) -> Scores:
    """GPQA (Rein et al. 2023), main set (448 questions), 0-shot.

    Context: "What is the correct answer to this question:", the question, "Choices:", four lines "(A) " to "(D) ",
    "Answer:". Continuations: " (A)" to " (D)". The order of the answers is drawn by the hash of the question, so it is
    the same in all runs. lm-evaluation-harness shuffles them with an unseeded generator: no two of its runs agree.

    - ``acc`` (primary): the letter with the highest log-probability is the right one. Chance is 0.25.
    """
    listed = [f"({letter}) {text}" for letter, text in zip("ABCD", example["choices"], strict=True)]
    lines = [
        f"What is the correct answer to this question:{example['question']}",
        "Choices:",
        *listed,
        "Answer:",
    ]
    answers = yield [fewshot.loglikelihood("\n".join(lines), f" ({letter})") for letter in "ABCD"]
    chosen = argmax([one.logprob for one in answers])
    return ChoiceScores({"acc": float(chosen == example["label"])}, example["label"], chosen)
