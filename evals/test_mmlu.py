"""MMLU-STEM: 14 school and college subjects, questions with four answers."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Loglikelihood, Scores, benchmark
from harness.metrics import ChoiceScores, argmax

LETTERS = ("A", "B", "C", "D")

SUBJECTS = {
    "abstract_algebra": 100,
    "college_biology": 144,
    "college_chemistry": 100,
    "college_computer_science": 100,
    "college_mathematics": 100,
    "college_physics": 102,
    "elementary_mathematics": 378,
    "high_school_biology": 310,
    "high_school_chemistry": 203,
    "high_school_computer_science": 100,
    "high_school_mathematics": 270,
    "high_school_physics": 151,
    "high_school_statistics": 216,
    "machine_learning": 112,
}
"""The subjects, with the number of rows in the authors' test/SUBJECT_test.csv."""


class Question(TypedDict):
    """A question of one of the subjects, its four answers and the index of the right one, from 0."""

    question: str
    subject: str
    choices: tuple[str, str, str, str]
    answer: Literal[0, 1, 2, 3]


def prompt(row: Question) -> str:
    """The question, its answers with their letters, and "Answer:"."""
    answers = [f"{letter}. {text}" for letter, text in zip(LETTERS, row["choices"], strict=True)]
    return "\n".join([row["question"].strip(), *answers, "Answer:"])


@benchmark(
    "mmlu_stem",
    version=1,
    data=Dataset("cais/mmlu", "all", fewshot="dev"),
    published_rows=SUBJECTS,
    row=Question,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    num_fewshot=5,
    shots_pick="first",
    shot=lambda row: f"{prompt(row)} {LETTERS[row['answer']]}",
    group="subject",
    keep=lambda row: row.get("subject") in SUBJECTS or "subject" not in row,
    paper="Hendrycks et al. 2020, arXiv 2009.03300",
    source="lm-evaluation-harness 0.4.13, tasks mmlu_SUBJECT",
)
def test_mmlu_stem(example: Question, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020), 14 of its STEM subjects, test split, 5-shot.

    The subjects: abstract algebra; college biology, chemistry, computer science, mathematics and physics;
    elementary mathematics; high-school biology, chemistry, computer science, mathematics, physics and
    statistics; machine learning. This is neither the authors' list of 18 STEM subjects (which adds astronomy,
    computer security, conceptual physics and electrical engineering) nor the 19 of lm-evaluation-harness (those and
    anatomy). An average over another list is another number.

    Context: "The following are multiple choice questions (with answers) about SUBJECT." with spaces for
    underscores, an empty line, the first five rows of the subject's dev file, the question stripped, four
    lines "A. " to "D. ", "Answer:". Continuation: " A", " B", " C", " D".

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions
      (micro). ``acc_macro`` is the mean of the subjects' means.

    Drift: the authors' own script writes two spaces after "about", drops examples until the prompt fits, and
    takes -100 for letters outside the 100 most probable tokens; lm-evaluation-harness is 0-shot unless told
    otherwise.
    """
    subject = example["subject"].replace("_", " ")
    header = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
    asked = prompt(example)
    answers = yield [fewshot.loglikelihood(asked, " " + letter, header=header) for letter in LETTERS]
    gold = example["answer"]
    return ChoiceScores({"acc": float(argmax([a.logprob for a in answers]) == gold)}, gold)
