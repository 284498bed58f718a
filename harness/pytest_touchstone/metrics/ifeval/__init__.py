"""IFEval (Zhou et al. 2023, arXiv 2311.07911): whether a text follows instructions that a program can verify.

``instructions`` has a rule for each of the 25 kinds, ``language`` what they need to know of English and other
languages, ``grade`` the strict and the loose reading of a text.
"""

from __future__ import annotations

from pytest_touchstone.metrics.ifeval.grade import IFEVAL_METRICS, IFEVAL_POOLED, grade_ifeval
from pytest_touchstone.metrics.ifeval.instructions import INSTRUCTIONS, follows

__all__ = ["IFEVAL_METRICS", "IFEVAL_POOLED", "INSTRUCTIONS", "follows", "grade_ifeval"]
