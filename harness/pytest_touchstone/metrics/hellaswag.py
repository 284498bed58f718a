"""HellaSwag's rows, and their texts without the marks of WikiHow's articles."""

from __future__ import annotations

import re
from typing import NotRequired

from typing_extensions import TypedDict


class HellaswagRow(TypedDict):
    """A description in two parts and its endings; ``label`` may be written as text ("3")."""

    activity_label: str
    ctx_a: str
    ctx_b: str
    endings: list[str]
    label: int
    source_id: NotRequired[str]


def without_marks(text: str) -> str:
    """The text without the marks that WikiHow's articles left in it."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag_query(scene: HellaswagRow) -> str:
    """Activity, colon, both parts; only the first letter of the second part is a capital."""
    return without_marks(f"{scene['activity_label']}: {scene['ctx_a']} {scene['ctx_b'].capitalize()}")


def hellaswag_shot(scene: HellaswagRow) -> str:
    """The description with its right ending."""
    return f"{hellaswag_query(scene)} {without_marks(scene['endings'][scene['label']])}"
