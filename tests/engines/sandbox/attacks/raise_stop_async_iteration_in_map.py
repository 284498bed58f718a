"""Raises StopAsyncIteration where map calls it."""

KIND = "call"
TASK = "mapped"


def double(x):
    raise StopAsyncIteration
