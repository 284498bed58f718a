"""Gives back its emptied argument itself."""

KIND = "call"
TASK = "ordered"


def ordered(xs):
    xs.clear()
    return xs
