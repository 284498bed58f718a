"""KMMLU: questions of Korean examinations in 45 subjects, with four answers each."""

from __future__ import annotations

from typing import Any, Final, Literal

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import ask_choices

LETTERS: Final = "ABCD"

KMMLU_GROUPS: Final = {
    "stem": (
        "Biology",
        "Chemical-Engineering",
        "Chemistry",
        "Civil-Engineering",
        "Computer-Science",
        "Ecology",
        "Electrical-Engineering",
        "Information-Technology",
        "Materials-Engineering",
        "Math",
        "Mechanical-Engineering",
    ),
    "applied_science": (
        "Aviation-Engineering-and-Maintenance",
        "Electronics-Engineering",
        "Energy-Management",
        "Environmental-Science",
        "Gas-Technology-and-Engineering",
        "Geomatics",
        "Industrial-Engineer",
        "Machine-Design-and-Manufacturing",
        "Maritime-Engineering",
        "Nondestructive-Testing",
        "Railway-and-Automotive-Engineering",
        "Telecommunications-and-Wireless-Technology",
    ),
    "humss": (
        "Accounting",
        "Criminal-Law",
        "Economics",
        "Education",
        "Korean-History",
        "Law",
        "Management",
        "Political-Science-and-Sociology",
        "Psychology",
        "Social-Welfare",
        "Taxation",
    ),
    "other": (
        "Agricultural-Sciences",
        "Construction",
        "Fashion",
        "Food-Processing",
        "Health",
        "Interior-Architecture-and-Design",
        "Marketing",
        "Patent",
        "Public-Safety",
        "Real-Estate",
        "Refrigerating-Machinery",
    ),
}
"""The authors' four groups of subjects, by the names of the configurations on the Hub."""

KMMLU_SUBJECTS: Final = tuple(sorted(subject for subjects in KMMLU_GROUPS.values() for subject in subjects))

_GROUP_OF: Final = {subject: group for group, subjects in KMMLU_GROUPS.items() for subject in subjects}


class KmmluRow(TypedDict):
    """A question, its four answers, the number of the right one, from 1, and its subject, the name of its file."""

    question: str
    A: str
    B: str
    C: str
    D: str
    answer: Literal[1, 2, 3, 4]
    file: str


def kmmlu_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its answers as texts: of a subject whose answers are all numbers, the Hub has numbers."""
    return {**row, **{letter: str(row[letter]) for letter in LETTERS}}


def kmmlu_prompt(row: KmmluRow) -> str:
    """Return the question stripped, its answers with their letters, and "정답" (answer) with a wide colon."""
    listed = (f"{letter}. {row[letter]}" for letter in ("A", "B", "C", "D"))
    return "\n".join([row["question"].strip(), *listed, "정답："])


def kmmlu_scores(row: KmmluRow) -> tuple[str, ...]:
    """Return the names of the scores that a row counts for: that of all, and its group's where it has one."""
    group = _GROUP_OF.get(row["file"])
    return ("acc",) if group is None else ("acc", f"acc_{group}")


@benchmark(
    "kmmlu",
    version=1,
    data=Dataset("HAERAE-HUB/KMMLU", KMMLU_SUBJECTS, fewshot="dev", local="kmmlu/test"),
    missing="its licence (CC BY-ND 4.0) lets no part of it be shipped in another form; give --eval-data hub",
    published=Published(
        35_030,
        paper="Son et al. 2024, arXiv 2402.11548",
        source="lm-evaluation-harness 0.4.13, tasks kmmlu_SUBJECT (version 2)",
    ),
    row=KmmluRow,
    prepare=kmmlu_row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc", *(f"acc_{group}" for group in KMMLU_GROUPS)),
    tags=("korean",),
    group="file",
    shots=Shots(5, lambda row: f"{kmmlu_prompt(row)} {LETTERS[row['answer'] - 1]}", lm_eval=LmEval(5)),
)
def test_kmmlu(example: KmmluRow, fewshot: FewShot) -> Scores:
    """KMMLU (Son et al. 2024), 45 subjects, test split (35,030 questions), 5-shot, by letters.

    Context: the five rows of the subject's dev split; the question stripped, four lines "A. " to "D. ", "정답："
    (answer, with a wide colon). Continuations: " A" to " D".

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions (micro), as in
      lm-evaluation-harness. Subjects are groups.
    - ``acc_macro``: the mean of the subjects' means, which the paper reports.
    - ``acc_stem``, ``acc_applied_science``, ``acc_humss``, ``acc_other``: over all questions of the authors' four
      groups of subjects, of 11, 12, 11 and 11.

    Licence, as seen in 2026: CC BY-ND 4.0, since 5 March 2024 in the card of HAERAE-HUB/KMMLU.
    Not comparable: lm-evaluation-harness's default, which is 0-shot; its kmmlu_direct, which is generated, and its
    kmmlu_hard and kmmlu_hard_cot, a selection of the questions. KMMLU-Redux and KMMLU-Pro are other sets.
    """
    names = kmmlu_scores(example)
    return (
        yield from ask_choices(fewshot, kmmlu_prompt(example), LETTERS, example["answer"] - 1, names=names)
    )
