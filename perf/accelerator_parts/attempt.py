"""Attempts at measuring one model: a failure costs its own rows, not the others'."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from harness.engines.transformers.compat import is_out_of_memory
from perf.accelerator_parts.findings import Row
from perf.accelerator_parts.timing import begin_peak


def attempt(
    work: Callable[[], list[Row]], *, part: str, model: str, device: str, case: str = "all"
) -> list[Row]:
    """Return the rows of some work, or one that says how it failed; its traceback goes to standard error.

    Afterwards the device's memory is free.
    """
    try:
        return work()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        why = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        return [Row(part, model, case, note=f"failed: {why[:200]}")]
    finally:
        begin_peak(device)
