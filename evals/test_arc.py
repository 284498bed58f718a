"""ARC, Easy and Challenge: science questions from school examinations."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, LmEval, Loglikelihood, Scores, benchmark
from harness.metrics import CHOICE_METRICS, score_choices


class Choice(TypedDict):
    """An answer and its label: A to E, or 1 to 5."""

    text: str
    label: str


class Question(TypedDict):
    """A question with its three to five answers."""

    stem: str
    choices: list[Choice]


class Row(TypedDict):
    """A row as the authors published it."""

    id: str
    question: Question
    answerKey: str


def as_published(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its choices nested in the question, as the authors published it; the Hub's form has them side by
    side."""
    if not isinstance(row["question"], str):
        return row
    texts, labels = row["choices"]["text"], row["choices"]["label"]
    choices = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    return {**row, "question": {"stem": row["question"], "choices": choices}}


def prompt(row: Row) -> str:
    """The question; the choices are not listed."""
    return f"Question: {row['question']['stem']}\nAnswer:"


def gold(row: Row) -> int:
    """The index of the right answer, found by its label."""
    return [choice["label"] for choice in row["question"]["choices"]].index(row["answerKey"])


def shot(row: Row) -> str:
    """The question with its right answer."""
    return f"{prompt(row)} {row['question']['choices'][gold(row)]['text']}"


def score(row: Row, fewshot: FewShot) -> Scores:
    """Ask for every choice after the prompt, and return which ways of scoring prefer the right one."""
    texts = [choice["text"] for choice in row["question"]["choices"]]
    answers = yield [fewshot.loglikelihood(prompt(row), " " + text) for text in texts]
    return score_choices(answers, texts, gold(row))


ARC: dict[str, Any] = {
    "version": 1,
    "row": Row,
    "prepare": as_published,
    "asks": Loglikelihood,
    "metrics": CHOICE_METRICS,
    "shot": shot,
    "paper": "Clark et al. 2018, arXiv 1803.05457",
}


@benchmark(
    "arc_easy",
    data=Dataset("allenai/ai2_arc", "ARC-Easy", fewshot="train", local="arc_easy/test"),
    published_rows=2376,
    lm_eval=LmEval(2251),
    primary="acc",
    source="lm-evaluation-harness 0.4.13, task arc_easy",
    **ARC,
)
def test_arc_easy(example: Row, fewshot: FewShot) -> Scores:
    """ARC-Easy (Clark et al. 2018), test split (2376 questions in the authors' file), 0-shot.

    Context: "Question: ", the question, a line break, "Answer:". The choices are not shown. Continuation: one
    space and the text of the choice, for each of the three to five. The right answer is found by its label.

    - ``acc`` (primary): highest summed log-probability.
    - ``acc_norm``, ``acc_bytes``, ``acc_tokens``: highest per character, per UTF-8 byte, per token of the
      choice.

    Not comparable: harnesses that list the choices and ask for the letter measure something else, and
    published numbers are ``acc`` or ``acc_norm``, at 0 or 25 shots, often without saying which.
    """
    return (yield from score(example, fewshot))


@benchmark(
    "arc_challenge",
    data=Dataset("allenai/ai2_arc", "ARC-Challenge", fewshot="train", local="arc_challenge/test"),
    published_rows=1172,
    lm_eval=LmEval(1119),
    primary="acc_norm",
    source="lm-evaluation-harness 0.4.13, task arc_challenge",
    **ARC,
)
def test_arc_challenge(example: Row, fewshot: FewShot) -> Scores:
    """ARC-Challenge (Clark et al. 2018), test split (1172 questions in the authors' file), 0-shot (usually quoted as
    ``acc_norm`` with 25 shots).

    The prompt, the continuations and the four scores are those of ARC-Easy.

    - ``acc_norm`` (primary): highest log-probability per character of the choice.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: highest sum, highest per UTF-8 byte, per token.

    Not comparable: harnesses that list the choices and ask for the letter (the chat forms do) measure
    something else.
    """
    return (yield from score(example, fewshot))
