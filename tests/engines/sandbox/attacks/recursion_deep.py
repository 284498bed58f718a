"""Calls itself without end, with the limit of recursion taken away."""

KIND = "call"
import sys

sys.setrecursionlimit(2**31 - 1)


def add(a, b):
    return add(a, b)
