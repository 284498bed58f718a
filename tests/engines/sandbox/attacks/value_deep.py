"""Returns a list in a list, a hundred thousand deep."""

KIND = "call"


def add(a, b):
    inner = []
    for _ in range(100_000):
        inner = [inner]
    return inner
