"""Replaces the function by another one after its first call."""

KIND = "call"


class Anything:
    def __eq__(self, other):
        return True


def add(a, b):
    globals()["add"] = lambda *_: Anything()
    return 5
