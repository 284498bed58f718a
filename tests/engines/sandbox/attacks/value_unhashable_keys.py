"""Returns a set and a dict whose members hash alike, a hundred thousand of them."""

KIND = "call"


def add(a, b):
    step = (1 << 61) - 1
    return {number * step for number in range(30_000)}
