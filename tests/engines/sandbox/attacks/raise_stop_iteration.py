"""Raises StopIteration, to end a loop of the tests' early."""

KIND = "call"
TASK = "first"


def first(n):
    raise StopIteration([0, 1, 2])
