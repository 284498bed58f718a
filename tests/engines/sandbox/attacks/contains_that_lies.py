"""Returns an object whose __contains__ says what is wanted, and that cannot be iterated."""

KIND = "call"
TASK = "held"


class Holds:
    def __init__(self, n):
        self.n = n

    def __contains__(self, one):
        return 0 <= one < self.n


def first(n):
    return Holds(n)
