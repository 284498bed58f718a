"""Computes a number so large that one operation does not end."""

KIND = "call"


def add(a, b):
    return 3 ** (10**9)
