"""KMMLU's 45 subjects in their four groups, and its rows as a prompt asks them."""

from __future__ import annotations

from typing import Any, Final, Literal

from typing_extensions import TypedDict

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
    """The row with its answers as texts: of a subject whose answers are all numbers, the Hub has numbers."""
    return {**row, **{letter: str(row[letter]) for letter in LETTERS}}


def kmmlu_prompt(row: KmmluRow) -> str:
    """The question stripped, its answers with their letters, and "정답" (answer) with a wide colon."""
    listed = (f"{letter}. {row[letter]}" for letter in ("A", "B", "C", "D"))
    return "\n".join([row["question"].strip(), *listed, "정답："])


def kmmlu_scores(row: KmmluRow) -> tuple[str, ...]:
    """The names of the scores that a row counts for: that of all, and its group's where it has one."""
    group = _GROUP_OF.get(row["file"])
    return ("acc",) if group is None else ("acc", f"acc_{group}")
