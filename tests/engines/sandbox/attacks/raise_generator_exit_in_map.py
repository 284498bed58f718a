"""Raises GeneratorExit where map calls it."""

KIND = "call"
TASK = "mapped"


def double(x):
    raise GeneratorExit
