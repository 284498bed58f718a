"""The section ``eval`` of pytest-json-report's file.

That plugin calls an item passed as soon as its setup passed, so the numbers and counts of this section, which
come from the journal, are the ones to read.
"""

from __future__ import annotations

from typing import Any

from harness.results import Summary, summary_json


def eval_section(summary: Summary) -> dict[str, Any]:
    """The summary as ``summary.json`` has it, in plain data without NaN."""
    return summary_json(summary)
