"""pytest-touchstone: benchmarks as test suites, for people who train language models.

What a benchmark file needs is here: ``from harness import Loglikelihood, benchmark``.
"""

from __future__ import annotations

from harness.core.aggregation import Aggregation, mean, perplexity
from harness.core.benchmark import HubData, Sampling, Shot, benchmark
from harness.core.composite import composite
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
from harness.statistics.intervals import Estimate, mean_estimate

__version__ = "0.1.0"

__all__ = [
    "MASK",
    "Aggregation",
    "CallTests",
    "Candidate",
    "Estimate",
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
    "composite",
    "mean",
    "mean_estimate",
    "perplexity",
]
