"""Passages that several rows share: a hash that says so, since questions about one text are not independent."""

from __future__ import annotations

import hashlib
from typing import Any

from typing_extensions import TypedDict


def with_passage_hash(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ``passage_sha256``, by which its ``passage`` is known: the field for ``cluster=``."""
    digest = hashlib.sha256(row["passage"].encode("utf-8", "surrogatepass")).hexdigest()
    return {**row, "passage_sha256": digest[:16]}


class BoolqRow(TypedDict):
    """A passage with its title before it, a question without a question mark, and 1 where the answer is yes."""

    passage: str
    question: str
    label: int
    passage_sha256: str


def boolq_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row as SuperGLUE has it: the title before the passage, 0 or 1 for the answer. The authors' own rows have
    ``title`` and ``answer``."""
    if "title" in row:
        row = {**row, "passage": f"{row['title']} -- {row['passage']}", "label": int(row["answer"])}
    return with_passage_hash(row)
