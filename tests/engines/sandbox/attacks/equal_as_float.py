"""Returns a float of its own class whose comparisons and differences lie."""

KIND = "call"
TASK = "close"


class Number(float):
    def __sub__(self, other):
        return Number(0)

    def __abs__(self):
        return Number(0)

    def __lt__(self, other):
        return True


def add(a, b):
    return Number(1e9)
