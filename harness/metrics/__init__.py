"""Scores that benchmarks compute from answers: pure functions, each with one rule."""

from __future__ import annotations

from harness.metrics.multiple_choice import CHOICE_METRICS, ChoiceScores, argmax, choice_scores, score_choices

__all__ = ["CHOICE_METRICS", "ChoiceScores", "argmax", "choice_scores", "score_choices"]
