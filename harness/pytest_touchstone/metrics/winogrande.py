"""WinoGrande's sentences, each with a blank."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class WinograndeRow(TypedDict):
    """A sentence with one "_" and what could stand there."""

    sentence: str
    option1: str
    option2: str
    answer: Literal["1", "2"]


def around_blank(row: WinograndeRow) -> tuple[str, str]:
    """The text before the first blank as it stands, and the text after it, stripped."""
    blank = row["sentence"].index("_")
    return row["sentence"][:blank], row["sentence"][blank + 1 :].strip()


def filled(row: WinograndeRow) -> str:
    """The sentence with the right option in place of the blank."""
    before, after = around_blank(row)
    return before + (row["option1"] if row["answer"] == "1" else row["option2"]) + " " + after
