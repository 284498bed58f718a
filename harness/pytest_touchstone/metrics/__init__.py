"""Scores that benchmarks compute from answers: pure functions, each with one rule."""

from __future__ import annotations

from pytest_touchstone.core.aggregation import BITS_PER_BYTE
from pytest_touchstone.metrics.macro_f1 import MACRO_F1
from pytest_touchstone.metrics.multiple_choice import (
    BITS,
    CHOICE_METRICS,
    AnsweredChoices,
    ChoiceScores,
    LabelledChoices,
    argmax,
    ask_answers,
    ask_choices,
    bits_per_byte,
    choice_scores,
    collect_choices,
    format_lettered_options,
    grade_choices,
    true_share,
    with_bits,
)

__all__ = [
    "BITS",
    "BITS_PER_BYTE",
    "CHOICE_METRICS",
    "MACRO_F1",
    "AnsweredChoices",
    "ChoiceScores",
    "LabelledChoices",
    "argmax",
    "ask_answers",
    "ask_choices",
    "bits_per_byte",
    "choice_scores",
    "collect_choices",
    "format_lettered_options",
    "grade_choices",
    "true_share",
    "with_bits",
]
