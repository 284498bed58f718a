"""Scores that benchmarks compute from answers: pure functions, each with one rule."""

from __future__ import annotations

from harness.metrics.macro_f1 import MACRO_F1
from harness.metrics.multiple_choice import CHOICE_METRICS, ChoiceScores, argmax, choice_scores, score_choices

__all__ = ["CHOICE_METRICS", "MACRO_F1", "ChoiceScores", "argmax", "choice_scores", "score_choices"]
