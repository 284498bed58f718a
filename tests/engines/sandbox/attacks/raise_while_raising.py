"""Raises an exception whose own making raises SystemExit, and has a long chain of causes."""

KIND = "call"


class Chained(Exception):
    @property
    def __traceback__(self):
        raise SystemExit(0)

    @property
    def args(self):
        raise SystemExit(0)


def add(a, b):
    last = None
    for number in range(100_000):
        made = Chained(number)
        made.__cause__ = last
        last = made
    raise last
