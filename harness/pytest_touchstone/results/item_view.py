"""An item as a person reads it: what was asked and answered, which answer is right, and what was read out of a text.

Plain data, which ``results.asked`` and ``plugin.api.view`` make of a record and
``reports.items`` writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Choice:
    """A possible answer with its log-probability, None where no single token is the word.

    ``right`` is None where that is not known.
    """

    text: str
    logprob: float | None
    chosen: bool = False
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its text, if it has any, and a remark on it: how it ended, or the verdict on a program."""

    text: str
    remark: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: its text, and its answers or the choices that there were.

    ``turns`` are the role and text of each message, where it was asked as a conversation.
    """

    kind: str
    text: str
    choices: tuple[Choice, ...] = ()
    answers: tuple[Said, ...] = ()
    turns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemView:
    """One item.

    ``right`` is None where the primary score is no share of 1. ``extracted`` has what was read out of the texts, by
    rule. ``gold`` is the answer that is due as far as the benchmark tells it, ``row`` the fields of the dataset's row
    that do not stand in the question. ``notes`` say what cannot be known, and why.
    """

    example: str
    benchmark: str
    checkpoint: str
    group: str | None
    status: str
    scores: dict[str, float]
    right: bool | None
    message: str | None
    asked: tuple[Asked, ...]
    extracted: dict[str, str | None] = field(default_factory=dict)
    gold: str | None = None
    row: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
