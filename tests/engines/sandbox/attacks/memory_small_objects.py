"""Fills the memory with small objects."""

KIND = "call"


def add(a, b):
    kept = []
    for number in range(40_000_000):
        kept.append((number, b))
    raise RuntimeError("ESCAPED: three gigabytes of objects")
