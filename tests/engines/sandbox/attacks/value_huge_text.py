"""Returns a text of a hundred megabytes."""

KIND = "call"


def add(a, b):
    return "5" * 100_000_000
