"""Returns a list of ten million numbers."""

KIND = "call"


def add(a, b):
    return [5] * 10_000_000
