"""CommonsenseQA: questions with five answers about what everybody knows."""

from __future__ import annotations

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import LabelledChoices, ask_choices, format_lettered_options


class Row(TypedDict):
    """A question, its answers, and the label of the right one."""

    question: str
    choices: LabelledChoices
    answerKey: str


LETTERS = "ABCDE"


def prompt(row: Row) -> str:
    """Return the question, its answers with their letters, and "Answer:"."""
    return "\n".join(
        [f"Question: {row['question'].strip()}", *format_lettered_options(row["choices"]["text"]), "Answer:"]
    )


@benchmark(
    "commonsense_qa",
    version=1,
    data=Dataset("tau/commonsense_qa", split="validation", fewshot="train"),
    published=Published(
        1221,
        paper="Talmor et al. 2019, arXiv 1811.00937",
        source="lm-evaluation-harness 0.4.13, task commonsense_qa",
    ),
    row=Row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    shots=Shots(shot=lambda row: f"{prompt(row)} {row['answerKey']}", lm_eval=LmEval(9741, drops_own=True)),
)
def test_commonsense_qa(example: Row, fewshot: FewShot) -> Scores:
    """CommonsenseQA (Talmor et al. 2019), validation split (1221 questions; the test split has no public answers),
    0-shot.

    Context: "Question: ", the question stripped, five lines "A. " to "E. ", "Answer:". Continuations: " A" to " E".

    - ``acc`` (primary): the letter with the highest log-probability is the right one.

    Not comparable: the cloze form, with the text of the answer in place of its letter, which many model cards of small
    models quote; in letters these are near chance, 0.2. A few rows have two equal answers, as published.
    """
    return (yield from ask_choices(fewshot, prompt(example), LETTERS, LETTERS.index(example["answerKey"])))
