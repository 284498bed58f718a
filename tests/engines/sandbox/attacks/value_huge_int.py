"""Returns a number of ten million bits, whose decimal form takes very long to make."""

KIND = "call"


def add(a, b):
    return 1 << 10_000_000
