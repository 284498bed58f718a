"""Results in a tracker of experiments: the names of metrics there."""

from __future__ import annotations

import hashlib
import re


def tracker_name(name: str) -> str:
    """Return a metric's or group's name as trackers take it: ``pass_at_1`` for ``pass@1``.

    Names with other characters that no tracker takes get six digits of their hash, so that no two become one.
    """
    known = name.replace("@", "_at_")
    safe = re.sub(r"[^\w.\- ]", "_", known)
    if safe.strip(".") and safe == known:
        return safe
    return f"{safe.strip('.')}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"
