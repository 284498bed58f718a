"""Attempts at measuring one model: a failure costs its own rows, not the others'."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from perf.accelerator_parts.findings import OURS, Row
from perf.accelerator_parts.timing import begin_peak


def attempt(
    work: Callable[[], list[Row]], *, part: str, model: str, device: str, case: str = "all", side: str = OURS
) -> list[Row]:
    """Return the rows of some work, or one that says how it failed; its traceback goes to standard error.

    Afterwards the device's memory is free.
    """
    try:
        return work()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return [Row(part, model, case, side, note=f"failed: {type(error).__name__}: {error}"[:200])]
    finally:
        begin_peak(device)
