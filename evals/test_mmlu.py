"""MMLU: questions with four answers about 57 subjects of school, university and professions; 14 of them alone; and all
by the texts of the answers."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Loglikelihood, Scores, benchmark
from harness.metrics import (
    BITS,
    BITS_PER_BYTE,
    CHOICE_METRICS,
    ChoiceScores,
    argmax,
    score_choices,
    with_bits,
)

LETTERS = ("A", "B", "C", "D")

CATEGORIES = {
    "stem": {
        "abstract_algebra": 100,
        "astronomy": 152,
        "college_biology": 144,
        "college_chemistry": 100,
        "college_computer_science": 100,
        "college_mathematics": 100,
        "college_physics": 102,
        "computer_security": 100,
        "conceptual_physics": 235,
        "electrical_engineering": 145,
        "elementary_mathematics": 378,
        "high_school_biology": 310,
        "high_school_chemistry": 203,
        "high_school_computer_science": 100,
        "high_school_mathematics": 270,
        "high_school_physics": 151,
        "high_school_statistics": 216,
        "machine_learning": 112,
    },
    "humanities": {
        "formal_logic": 126,
        "high_school_european_history": 165,
        "high_school_us_history": 204,
        "high_school_world_history": 237,
        "international_law": 121,
        "jurisprudence": 108,
        "logical_fallacies": 163,
        "moral_disputes": 346,
        "moral_scenarios": 895,
        "philosophy": 311,
        "prehistory": 324,
        "professional_law": 1534,
        "world_religions": 171,
    },
    "social_sciences": {
        "econometrics": 114,
        "high_school_geography": 198,
        "high_school_government_and_politics": 193,
        "high_school_macroeconomics": 390,
        "high_school_microeconomics": 238,
        "high_school_psychology": 545,
        "human_sexuality": 131,
        "professional_psychology": 612,
        "public_relations": 110,
        "security_studies": 245,
        "sociology": 201,
        "us_foreign_policy": 100,
    },
    "other": {
        "anatomy": 135,
        "business_ethics": 100,
        "clinical_knowledge": 265,
        "college_medicine": 173,
        "global_facts": 100,
        "human_aging": 223,
        "management": 103,
        "marketing": 234,
        "medical_genetics": 100,
        "miscellaneous": 783,
        "nutrition": 306,
        "professional_accounting": 282,
        "professional_medicine": 272,
        "virology": 166,
    },
}
"""The authors' four groups of subjects, with the number of rows in their test/SUBJECT_test.csv."""

CATEGORY = {subject: category for category, subjects in CATEGORIES.items() for subject in subjects}

SUBJECTS = {subject: CATEGORIES[CATEGORY[subject]][subject] for subject in sorted(CATEGORY)}

NOT_IN_STEM = ("astronomy", "computer_security", "conceptual_physics", "electrical_engineering")
"""The STEM subjects that ``mmlu_stem`` does not have."""

STEM = {subject: rows for subject, rows in CATEGORIES["stem"].items() if subject not in NOT_IN_STEM}


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


def cloze(row: Question) -> str:
    """The question and "Answer:"."""
    return f"Question: {row['question'].strip()}\nAnswer:"


def score(row: Question, fewshot: FewShot, *names: str) -> Scores:
    """Ask for every letter after the prompt; the scores of these names say whether the right one is preferred."""
    subject = row["subject"].replace("_", " ")
    header = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
    asked = prompt(row)
    answers = yield [fewshot.loglikelihood(asked, " " + letter, header=header) for letter in LETTERS]
    gold = row["answer"]
    return ChoiceScores(dict.fromkeys(names, float(argmax([a.logprob for a in answers]) == gold)), gold)


MMLU: dict[str, Any] = {
    "version": 1,
    "data": Dataset("cais/mmlu", "all", fewshot="dev"),
    "row": Question,
    "asks": Loglikelihood,
    "primary": "acc",
    "num_fewshot": 5,
    "shots_pick": "first",
    "shot": lambda row: f"{prompt(row)} {LETTERS[row['answer']]}",
    "group": "subject",
    "paper": "Hendrycks et al. 2020, arXiv 2009.03300",
    "source": "lm-evaluation-harness 0.4.13, tasks mmlu_SUBJECT",
}


@benchmark(
    "mmlu",
    published_rows=SUBJECTS,
    metrics=("acc", *(f"acc_{category}" for category in CATEGORIES)),
    keep=lambda row: row.get("subject") in SUBJECTS or "subject" not in row,
    **MMLU,
)
def test_mmlu(example: Question, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020), all 57 subjects, test split (14,042 questions), 5-shot.

    Context: "The following are multiple choice questions (with answers) about SUBJECT." with spaces for
    underscores, an empty line, the first five rows of the subject's dev file, the question stripped, four
    lines "A. " to "D. ", "Answer:". Continuation: " A", " B", " C", " D".

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions
      (micro), as in lm-evaluation-harness and the paper's total. Subjects are groups.
    - ``acc_macro``: the mean of the subjects' means, another number.
    - ``acc_stem``, ``acc_humanities``, ``acc_social_sciences``, ``acc_other``: over all questions of the authors' four
      groups, of 18, 13, 12 and 14 subjects.

    lm-evaluation-harness has anatomy (135 questions) in its STEM group, which then has 19 subjects, the authors have
    it in the last one. So ``acc_stem`` and ``acc_other`` differ from that harness's mmlu_stem and mmlu_other; the other
    two groups and the total are the same.

    Drift: the authors' own script writes two spaces after "about", drops examples until the prompt fits, and
    takes -100 for letters outside the 100 most probable tokens; lm-evaluation-harness is 0-shot unless told
    otherwise. Numbers for the texts of the answers in place of letters (its mmlu_continuation, and the cloze form on
    many model cards) are another task.
    """
    return (yield from score(example, fewshot, "acc", f"acc_{CATEGORY[example['subject']]}"))


@benchmark(
    "mmlu_stem",
    published_rows=STEM,
    metrics=("acc",),
    keep=lambda row: row.get("subject") in STEM or "subject" not in row,
    **MMLU,
)
def test_mmlu_stem(example: Question, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020), 14 of its STEM subjects, test split, 5-shot.

    The subjects: abstract algebra; college biology, chemistry, computer science, mathematics and physics;
    elementary mathematics; high-school biology, chemistry, computer science, mathematics, physics and
    statistics; machine learning. This is neither the authors' list of 18 STEM subjects (which adds astronomy,
    computer security, conceptual physics and electrical engineering; ``acc_stem`` of ``mmlu``) nor the 19 of
    lm-evaluation-harness (those and anatomy). An average over another list is another number.

    Prompt, examples and continuations are those of ``mmlu``.

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions
      (micro). ``acc_macro`` is the mean of the subjects' means.
    """
    return (yield from score(example, fewshot, "acc"))


@benchmark(
    "mmlu_continuation",
    published_rows=SUBJECTS,
    metrics=(*CHOICE_METRICS, BITS_PER_BYTE, *(f"acc_{category}" for category in CATEGORIES)),
    aggregate=BITS,
    keep=lambda row: row.get("subject") in SUBJECTS or "subject" not in row,
    **{
        **MMLU,
        "num_fewshot": 0,
        "shot": lambda row: f"{cloze(row)} {row['choices'][row['answer']]}",
        "source": "lm-evaluation-harness 0.4.13, tasks mmlu_SUBJECT_continuation",
    },
)
def test_mmlu_continuation(example: Question, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020) by the texts of its answers, all 57 subjects, test split (14,042 questions), 0-shot.

    Context: "The following are questions (with answers) about SUBJECT.", an empty line, "Question: ", the question
    stripped, a line break, "Answer:"; examples (``--eval-shots 5``) are the first rows of the subject's dev file.
    Continuation: one space and the text of the answer, which is not shown before, for each of the four.

    - ``acc`` (primary): the highest summed log-probability is the right answer's; over all questions.
    - ``acc_norm``, ``acc_bytes``, ``acc_tokens``: highest per character, per UTF-8 byte, per token of the answer.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.
    - ``acc_macro``, ``acc_stem`` and the other groups: as in ``mmlu``.

    Not comparable: ``mmlu``, which asks for letters: small models do better here, large ones there. Model cards of
    small models quote such a form under the name MMLU (lighteval's, OLMo's), each with a prompt of its own.
    """
    subject = example["subject"].replace("_", " ")
    header = f"The following are questions (with answers) about {subject}.\n\n"
    asked, texts = cloze(example), example["choices"]
    answers = yield [fewshot.loglikelihood(asked, " " + text, header=header) for text in texts]
    found = with_bits(score_choices(answers, texts, example["answer"]), answers, texts)
    return ChoiceScores({**found, f"acc_{CATEGORY[example['subject']]}": found["acc"]}, found.right)
