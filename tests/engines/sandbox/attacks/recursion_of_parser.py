"""Gives the compiler an expression too deep for it."""

KIND = "call"


def add(a, b):
    return eval("(" * 90 + "-" * 1_000_000 + "1" + ")" * 90)
