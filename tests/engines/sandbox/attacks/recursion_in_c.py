"""Overflows the stack inside the interpreter, by objects in objects."""

KIND = "call"
import sys

sys.setrecursionlimit(2**31 - 1)


def add(a, b):
    inner = ()
    for _ in range(5_000_000):
        inner = (inner,)
    return repr(inner) == hash(inner)
