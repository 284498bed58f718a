"""ARC, Easy and Challenge: science questions from school examinations."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, CHOICE_METRICS, ask_answers


class _Choice(TypedDict):
    """An answer and its label: A to E, or 1 to 5."""

    text: str
    label: str


class _Question(TypedDict):
    """A question with its three to five answers."""

    stem: str
    choices: list[_Choice]


class ArcRow(TypedDict):
    """A row as the authors published it."""

    id: str
    question: _Question
    answerKey: str


def arc_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its choices nested in the question, as the authors published it; the Hub's form has them side
    by side."""
    if not isinstance(row["question"], str):
        return row
    texts, labels = row["choices"]["text"], row["choices"]["label"]
    choices = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    return {**row, "question": {"stem": row["question"], "choices": choices}}


def arc_prompt(row: ArcRow) -> str:
    """Return the question; the choices are not listed."""
    return f"Question: {row['question']['stem']}\nAnswer:"


def arc_gold(row: ArcRow) -> int:
    """Return the index of the right answer, found by its label."""
    return [choice["label"] for choice in row["question"]["choices"]].index(row["answerKey"])


def arc_shot(row: ArcRow) -> str:
    """Return the question with its right answer."""
    return f"{arc_prompt(row)} {row['question']['choices'][arc_gold(row)]['text']}"


def arc_answers(row: ArcRow, fewshot: FewShot) -> Scores:
    """Ask for every choice after the prompt; the scores are those of ``ask_answers``."""
    texts = [choice["text"] for choice in row["question"]["choices"]]
    return (yield from ask_answers(fewshot, arc_prompt(row), texts, arc_gold(row)))


ARC: Final[dict[str, Any]] = {
    "version": 1,
    "row": ArcRow,
    "prepare": arc_row,
    "asks": Loglikelihood,
    "metrics": (*CHOICE_METRICS, BITS_PER_BYTE),
}

ARC_PAPER: Final = "Clark et al. 2018, arXiv 1803.05457"


@benchmark(
    "arc_easy",
    data=Dataset("allenai/ai2_arc", "ARC-Easy", fewshot="train", local="arc_easy/test"),
    published=Published(2376, paper=ARC_PAPER, source="lm-evaluation-harness 0.4.13, task arc_easy"),
    shots=Shots(shot=arc_shot, lm_eval=LmEval(2251)),
    primary="acc",
    **ARC,
)
def test_arc_easy(example: ArcRow, fewshot: FewShot) -> Scores:
    """ARC-Easy (Clark et al. 2018), test split (2376 questions in the authors' file), 0-shot.

    Context: "Question: ", the question, a line break, "Answer:". The choices are not shown. Continuation: one
    space and the text of the choice, for each of the three to five. The right answer is found by its label.

    - ``acc`` (primary): highest summed log-probability.
    - ``acc_norm``, ``acc_bytes``, ``acc_tokens``: highest per character, per UTF-8 byte, per token of the
      choice.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.

    Not comparable: harnesses that list the choices and ask for the letter measure something else, and
    published numbers are ``acc`` or ``acc_norm``, at 0 or 25 shots, often without saying which.
    """
    return (yield from arc_answers(example, fewshot))


@benchmark(
    "arc_challenge",
    data=Dataset("allenai/ai2_arc", "ARC-Challenge", fewshot="train", local="arc_challenge/test"),
    published=Published(1172, paper=ARC_PAPER, source="lm-evaluation-harness 0.4.13, task arc_challenge"),
    shots=Shots(shot=arc_shot, lm_eval=LmEval(1119)),
    primary="acc_norm",
    **ARC,
)
def test_arc_challenge(example: ArcRow, fewshot: FewShot) -> Scores:
    """ARC-Challenge (Clark et al. 2018), test split (1172 questions in the authors' file), 0-shot (usually quoted as
    ``acc_norm`` with 25 shots).

    The prompt, the continuations and the scores are those of ARC-Easy.

    - ``acc_norm`` (primary): highest log-probability per character of the choice.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: highest sum, highest per UTF-8 byte, per token.
    - ``bits_per_byte``: that of the right answer; lower is better.

    Not comparable: harnesses that list the choices and ask for the letter (the chat forms do) measure
    something else.
    """
    return (yield from arc_answers(example, fewshot))
