"""Returns a range that is small to write and endless to read."""

KIND = "call"
TASK = "first"


def first(n):
    return range(0, 10**18)
