"""Sets the recursion limit so low that whatever calls it fails."""

KIND = "call"
import sys


def add(a, b):
    for limit in range(1000):
        try:
            sys.setrecursionlimit(limit)
            break
        except (RecursionError, ValueError):
            pass
