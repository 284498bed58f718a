"""BoolQ: questions with the answer yes or no, about a passage of Wikipedia."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, ask_choices
from pytest_touchstone.metrics.drop import with_passage_hash

ANSWERS = ("no", "yes")


class BoolqRow(TypedDict):
    """A passage with its title before it, a question without a question mark, and 1 where the answer is yes."""

    passage: str
    question: str
    label: int
    passage_sha256: str


def boolq_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as SuperGLUE has it: the title before the passage, 0 or 1 for the answer. The authors' own rows
    have ``title`` and ``answer``."""
    if "title" in row:
        row = {**row, "passage": f"{row['title']} -- {row['passage']}", "label": int(row["answer"])}
    return with_passage_hash(row)


def prompt(row: BoolqRow) -> str:
    """Return the passage and the question."""
    return f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"


@benchmark(
    "boolq",
    version=1,
    data=Dataset("aps/super_glue", "boolq", split="validation", fewshot="train", local="boolq/validation"),
    published=Published(
        3270,
        paper="Clark et al. 2019, arXiv 1905.10044; SuperGLUE, Wang et al. 2019, arXiv 1905.00537",
        source="lm-evaluation-harness 0.4.13, task boolq (version 2)",
    ),
    row=BoolqRow,
    prepare=boolq_row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc", BITS_PER_BYTE),
    shots=Shots(
        shot=lambda row: f"{prompt(row)} {ANSWERS[row['label']]}", lm_eval=LmEval(9427, drops_own=True)
    ),
    cluster="passage_sha256",
)
def test_boolq(example: BoolqRow, fewshot: FewShot) -> Scores:
    """BoolQ (Clark et al. 2019) in SuperGLUE's form, validation split (3270 questions), 0-shot.

    Context: the article's title, " -- ", the passage, a line break, "Question: ", the question, "?", a line break,
    "Answer:". Continuations: " no", " yes".

    - ``acc`` (primary): the answer with the highest log-probability is the right one. Always "yes" gives 0.622.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.

    Intervals count questions about one passage as one cluster. Not comparable: the passage without its title; yes
    offered before no, where both are equally probable; boolq-seq2seq, which is generated.
    """
    return (yield from ask_choices(fewshot, prompt(example), ANSWERS, example["label"], bits=True))
