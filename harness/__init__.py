"""pytest-touchstone: benchmarks as test suites, for people who train language models.

What a benchmark file needs is here: ``from harness import Loglikelihood, benchmark``.
"""

from __future__ import annotations

from harness.benchmark import HubData, Shot, benchmark, mean, perplexity
from harness.requests import (
    MASK,
    Candidate,
    FillMask,
    FillMaskAnswer,
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    RollingAnswer,
    RollingLoglikelihood,
    Turn,
)

__version__ = "0.1.0"

__all__ = [
    "MASK",
    "Candidate",
    "FillMask",
    "FillMaskAnswer",
    "Generate",
    "GenerateAnswer",
    "Generated",
    "HubData",
    "Loglikelihood",
    "LoglikelihoodAnswer",
    "RollingAnswer",
    "RollingLoglikelihood",
    "Shot",
    "Turn",
    "benchmark",
    "mean",
    "perplexity",
]
