"""The names of metrics and groups in a tracker."""

from __future__ import annotations

import hashlib
import re
from typing import Final

IDENTITY: Final = "touchstone.run"
KEY: Final = "touchstone.key"
METRICS: Final = "touchstone.metrics"
"""Tags by which our runs are known: the run, the part of it, and the names and methods of its metrics."""


def tracker_name(name: str) -> str:
    """Return a metric's or group's name as trackers take it: ``pass_at_1`` for ``pass@1``.

    Names with other characters that no tracker takes get six digits of their hash, so that no two become one.
    """
    known = name.replace("@", "_at_")
    safe = re.sub(r"[^\w.\- ]", "_", known)
    if safe.strip(".") and safe == known:
        return safe
    return f"{safe.strip('.')}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"
