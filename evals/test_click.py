"""CLIcK: what one has to know of Korea's culture and language, from official examinations and textbooks."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Scores, benchmark
from pytest_touchstone.metrics import ask_choices
from pytest_touchstone.metrics.korean.click import ClickRow, click_category, click_row


@benchmark(
    "click",
    version=1,
    data=Dataset("EunsuKim/CLIcK", split="train", local="click/train"),
    missing="its rows are not shipped, as their licence is not clear: a badge of its repository says CC BY 4.0, its "
    "card names none; give --eval-data hub",
    published_rows=1995,
    row=ClickRow,
    keep=lambda row: "id" not in row or click_category(row) is not None,
    prepare=click_row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    tags=("korean",),
    group="category",
    lm_eval=LmEval(drops_own=True),
    shot=lambda row: f"{row['context']} {row['letters'][row['label']]}",
    paper="Kim et al. 2024, arXiv 2403.06412",
    source="lm-evaluation-harness 0.4.13, tasks click_lang_NAME and click_cul_NAME",
)
def test_click(example: ClickRow, fewshot: FewShot) -> Scores:
    """CLIcK (Kim et al. 2024), 1,995 questions in eleven categories of culture and language, 0-shot, by letters.

    Context: an instruction in Korean to answer with one of A, B, C and D, an empty line, "맥락: " with the text where
    there is one, "질문: " with the question, "보기:", the answers in one line, "정답:". Continuations: " A" to " D",
    and " E" for rows of the CSAT, whose fifth answer is not listed, as in the reference.

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions. Categories
      are groups.

    A row's id tells its category. lm-evaluation-harness asks a row twice that fits two of its tasks; here it counts
    once, for culture before language, and of those for text, grammar, function. A row that fits none is left out.
    Licence, as seen in 2026: the card of EunsuKim/CLIcK has no licence. The README of rladmstn1714/CLIcK on GitHub has
    a badge for CC BY 4.0, and no licence file. The questions are of official examinations and textbooks.
    Not comparable: the paper's own form, which is generated, three times for each question with its answers in
    another order.
    """
    return (yield from ask_choices(fewshot, example["context"], example["letters"], example["label"]))
