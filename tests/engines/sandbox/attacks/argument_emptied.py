"""Empties its argument, from which the test computes what it expects after the call."""

KIND = "call"
TASK = "ordered"


def ordered(xs):
    xs.clear()
    return []
