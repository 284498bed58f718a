"""pytest-touchstone: benchmarks as test suites, for people who train language models.

What a benchmark file needs is here: ``from harness import Loglikelihood, benchmark``.
"""

from __future__ import annotations

from harness.core.benchmark import HubData, Sampling, Shot, benchmark, mean, perplexity
from harness.core.requests import (
    MASK,
    CallTests,
    Candidate,
    FillMask,
    FillMaskAnswer,
    Generate,
    GenerateAnswer,
    Generated,
    InputOutputTests,
    Loglikelihood,
    LoglikelihoodAnswer,
    RollingAnswer,
    RollingLoglikelihood,
    RunProgram,
    RunProgramAnswer,
    Turn,
)

__version__ = "0.1.0"

__all__ = [
    "MASK",
    "CallTests",
    "Candidate",
    "FillMask",
    "FillMaskAnswer",
    "Generate",
    "GenerateAnswer",
    "Generated",
    "HubData",
    "InputOutputTests",
    "Loglikelihood",
    "LoglikelihoodAnswer",
    "RollingAnswer",
    "RollingLoglikelihood",
    "RunProgram",
    "RunProgramAnswer",
    "Sampling",
    "Shot",
    "Turn",
    "benchmark",
    "mean",
    "perplexity",
]
