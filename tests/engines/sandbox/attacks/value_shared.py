"""Returns a small object that is enormous when written out: thirty lists that each hold the next twice."""

KIND = "call"


def add(a, b):
    inner = [1]
    for _ in range(40):
        inner = [inner, inner]
    return inner
