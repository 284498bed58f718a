"""Returns NaN and infinity, which are neither smaller nor larger."""

KIND = "call"
TASK = "close"


def add(a, b):
    return float("nan") if a < 1 else float("inf")
