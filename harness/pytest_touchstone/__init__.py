"""pytest-touchstone: benchmarks as test suites, for people who train language models.

What a benchmark file needs is here: ``from pytest_touchstone import Loglikelihood, benchmark``; so are
``evaluate``, ``fidelity`` and ``load``, for Python and notebooks. Names are imported when they are first asked for, so
that a project without a benchmark pays for none of them.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pytest_touchstone.checkpoints.info import CheckpointInfo
    from pytest_touchstone.compare.fidelity import Fidelity, fidelity
    from pytest_touchstone.core.aggregation import Aggregation, mean, perplexity
    from pytest_touchstone.core.benchmark import (
        Dataset,
        LmEval,
        Published,
        ShotPick,
        Shots,
        Solution,
        benchmark,
    )
    from pytest_touchstone.core.composite import composite
    from pytest_touchstone.core.errors import HarnessError
    from pytest_touchstone.core.few_shot import ChatForm, FewShot, Sampling, Shot
    from pytest_touchstone.core.grade import Graded, Scores
    from pytest_touchstone.core.requests import (
        MASK,
        CallTests,
        Candidate,
        FillMask,
        FillMaskAnswer,
        Generate,
        GenerateAnswer,
        Generated,
        InputOutputTests,
        Judge,
        JudgeAnswer,
        Loglikelihood,
        LoglikelihoodAnswer,
        PseudoLoglikelihood,
        RollingAnswer,
        RollingLoglikelihood,
        RunProgram,
        RunProgramAnswer,
        Turn,
    )
    from pytest_touchstone.plugin.evaluate import EvaluationError, evaluate
    from pytest_touchstone.plugin.expectation import expect_like
    from pytest_touchstone.plugin.finished_run import FinishedRun, load
    from pytest_touchstone.statistics.intervals import Estimate, mean_estimate

__version__ = "0.1.0"

__all__ = [
    "MASK",
    "Aggregation",
    "CallTests",
    "Candidate",
    "ChatForm",
    "CheckpointInfo",
    "Dataset",
    "Estimate",
    "EvaluationError",
    "FewShot",
    "Fidelity",
    "FillMask",
    "FillMaskAnswer",
    "FinishedRun",
    "Generate",
    "GenerateAnswer",
    "Generated",
    "Graded",
    "HarnessError",
    "InputOutputTests",
    "Judge",
    "JudgeAnswer",
    "LmEval",
    "Loglikelihood",
    "LoglikelihoodAnswer",
    "PseudoLoglikelihood",
    "Published",
    "RollingAnswer",
    "RollingLoglikelihood",
    "RunProgram",
    "RunProgramAnswer",
    "Sampling",
    "Scores",
    "Shot",
    "ShotPick",
    "Shots",
    "Solution",
    "Turn",
    "benchmark",
    "composite",
    "evaluate",
    "expect_like",
    "fidelity",
    "load",
    "mean",
    "mean_estimate",
    "perplexity",
]

_MODULES = {
    "plugin.evaluate": ("EvaluationError", "evaluate"),
    "plugin.expectation": ("expect_like",),
    "plugin.finished_run": ("FinishedRun", "load"),
    "checkpoints.info": ("CheckpointInfo",),
    "compare.fidelity": ("Fidelity", "fidelity"),
    "core.aggregation": ("Aggregation", "mean", "perplexity"),
    "core.benchmark": ("Dataset", "LmEval", "Published", "ShotPick", "Shots", "Solution", "benchmark"),
    "core.composite": ("composite",),
    "core.errors": ("HarnessError",),
    "core.few_shot": ("ChatForm", "FewShot", "Sampling", "Shot"),
    "core.grade": ("Graded", "Scores"),
    "statistics.intervals": ("Estimate", "mean_estimate"),
}
"""The modules that names come from; all others come from ``core.requests``."""


UNSUPPORTED: Final = (
    ""
    if hasattr(signal, "pthread_sigmask")
    else f"pytest-touchstone runs benchmarks on Linux and macOS, and this is {sys.platform}; on Windows use WSL"
)
"""The line about a system without POSIX signals, on which only other people's tests are left alone; else empty."""


def __getattr__(name: str) -> Any:
    """Return a public name, from where it is defined (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if UNSUPPORTED:
        raise ImportError(UNSUPPORTED)
    module = next((place for place, names in _MODULES.items() if name in names), "core.requests")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
