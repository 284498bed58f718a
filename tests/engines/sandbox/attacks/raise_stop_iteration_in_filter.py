"""Raises StopIteration instead of no, so that a search ends and finds nothing."""

KIND = "call"
TASK = "searched"


def odd(x):
    if x % 2:
        return True
    raise StopIteration
