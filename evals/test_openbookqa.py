"""OpenBookQA: questions about elementary science, which join a fact of the "open book" with common knowledge."""

from __future__ import annotations

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, CHOICE_METRICS, LabelledChoices, ask_answers


class Row(TypedDict):
    """The beginning of a sentence or a question, its answers, and the label of the right one."""

    question_stem: str
    choices: LabelledChoices
    answerKey: str


def gold(row: Row) -> int:
    """Return the index of the right answer."""
    return row["choices"]["label"].index(row["answerKey"].strip())


@benchmark(
    "openbookqa",
    version=1,
    data=Dataset("allenai/openbookqa", "main", fewshot="train"),
    missing="its rows are not shipped, as their licence is not clear: the authors' repository says Apache-2.0, the "
    "card of the data set unknown; give --eval-data hub, or --eval-data DIR",
    published=Published(
        500,
        paper="Mihaylov et al. 2018, arXiv 1809.02789",
        source="lm-evaluation-harness 0.4.13, task openbookqa",
    ),
    row=Row,
    asks=Loglikelihood,
    primary="acc_norm",
    metrics=(*CHOICE_METRICS, BITS_PER_BYTE),
    shots=Shots(
        shot=lambda row: f"{row['question_stem']} {row['choices']['text'][gold(row)]}", lm_eval=LmEval(4957)
    ),
)
def test_openbookqa(example: Row, fewshot: FewShot) -> Scores:
    """OpenBookQA (Mihaylov et al. 2018), test split (500 questions), 0-shot, without the fact of the open book.

    Context: the stem alone, as it is. Continuation: one space and the text of the answer, for each of the four.

    - ``acc_norm`` (primary, and usually quoted): highest log-probability per character of the answer.
    - ``acc``, ``acc_bytes``, ``acc_tokens``: the same with the plain sum, per UTF-8 byte, per token.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.

    Not comparable: the validation split; forms with "Question:" and "Answer:" (OLMo), with the fact, or that list
    the answers and ask for a letter.
    """
    texts = example["choices"]["text"]
    return (yield from ask_answers(fewshot, example["question_stem"], texts, gold(example)))
