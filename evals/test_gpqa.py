"""GPQA: questions that experts of other fields cannot answer with a search engine at hand."""

from __future__ import annotations

import hashlib
from typing import Any

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, Loglikelihood, Published, Scores, benchmark
from pytest_touchstone.metrics import ask_choices

ANSWERS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Correct Answer")


class Row(TypedDict):
    """A question, its four answers as they are listed, and the number of the right one."""

    question: str
    choices: list[str]
    label: int


def row(published: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its answers in an order drawn by the question's hash; a missing one is a space."""
    question, texts = published["Question"], [published[name] for name in ANSWERS]
    listed = [" " if t is None else t.strip().replace(" [title]", ". ").replace("  ", " ") for t in texts]
    order = sorted(range(4), key=lambda n: hashlib.sha256(f"{question}\0{n}".encode()).digest())
    return {"question": question, "choices": [listed[n] for n in order], "label": order.index(3)}


@benchmark(
    "gpqa",
    version=1,
    data=Dataset("Idavidrein/gpqa", "gpqa_main", split="train", local="gpqa/main"),
    missing="GPQA is on the Hub for people who have accepted its conditions (Idavidrein/gpqa, CC BY 4.0; its examples "
    "are not to be shown in plain text), so no rows of it are shipped. Accept them, log in and use --eval-data hub",
    published=Published(
        448,
        paper="Rein et al. 2023, arXiv 2311.12022",
        source="the prompt of lm-evaluation-harness 0.4.13, task gpqa_main_zeroshot (version 2.2)",
    ),
    row=Row,
    prepare=row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
)
def test_gpqa(example: Row, fewshot: FewShot) -> Scores:
    """GPQA (Rein et al. 2023), main set (448 questions), 0-shot.

    Context: "What is the correct answer to this question:", the question, "Choices:", four lines "(A) " to "(D) ",
    "Answer:". Continuations: " (A)" to " (D)". The order of the answers is drawn by the hash of the question, so it is
    always the same. lm-evaluation-harness shuffles them, by a generator that also depends on what it loaded before.

    - ``acc`` (primary): the letter with the highest log-probability is the right one. Chance is 0.25.
    """
    letters = ("(A)", "(B)", "(C)", "(D)")
    listed = [f"{letter} {text}" for letter, text in zip(letters, example["choices"], strict=True)]
    asked = f"What is the correct answer to this question:{example['question']}"
    context = "\n".join([asked, "Choices:", *listed, "Answer:"])
    return (yield from ask_choices(fewshot, context, letters, example["label"]))
