"""The part that CodeContests and APPS share: whole programs that read the standard input and print."""

from __future__ import annotations

from typing import Any, Final

from pytest_touchstone.core.requests import Generate, RunProgram
from pytest_touchstone.metrics.code.grader import STDIO
from pytest_touchstone.metrics.code.pass_at_k import PROGRAM_METRICS
from pytest_touchstone.metrics.code.rows import StdioRow, reads_and_prints

STDIO_TASKS: Final[dict[str, Any]] = {
    "version": 3,
    "row": StdioRow,
    "keep": reads_and_prints,
    "most_rows": 1000,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PROGRAM_METRICS,
    "grader": STDIO,
}
"""The part of a declaration that both benchmarks share."""
