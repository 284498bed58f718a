"""PIQA: which of two ways to reach a goal of everyday life works?"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, CHOICE_METRICS, ask_answers


class Goal(TypedDict):
    """A goal, two ways to reach it, and the number of the one that works."""

    goal: str
    sol1: str
    sol2: str
    label: Literal[0, 1]


def prompt(row: Goal) -> str:
    """Return the goal."""
    return f"Question: {row['goal']}\nAnswer:"


def ways(row: Goal) -> tuple[str, str]:
    """Return the two ways."""
    return row["sol1"], row["sol2"]


@benchmark(
    "piqa",
    version=1,
    data=Dataset("baber/piqa", split="validation", fewshot="train", local="piqa/validation"),
    published=Published(
        1838, paper="Bisk et al. 2020, arXiv 1911.11641", source="lm-evaluation-harness 0.4.13, task piqa"
    ),
    row=Goal,
    asks=Loglikelihood,
    primary="acc_norm",
    metrics=(*CHOICE_METRICS, BITS_PER_BYTE),
    shots=Shots(
        shot=lambda row: f"{prompt(row)} {ways(row)[row['label']]}", lm_eval=LmEval(16_113, drops_own=True)
    ),
)
def test_piqa(example: Goal, fewshot: FewShot) -> Scores:
    """PIQA (Bisk et al. 2020), validation split (1838 rows; the labels of the test split are not published), 0-shot.

    Context: "Question: ", the goal, a line break, "Answer:". Continuation: one space and the solution, for both.
    Nothing is stripped: about one row in 16 has white space at an end of a field.

    - ``acc_norm`` (primary): highest log-probability per character of the solution.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.

    Not comparable: OLMo's form ("Goal: ", 5 fixed examples). Some goals occur more than once, with other solutions.
    """
    return (yield from ask_answers(fewshot, prompt(example), ways(example), example["label"]))
