"""Returns members of an IntEnum whose comparison lies."""

KIND = "call"
TASK = "typed"
from enum import IntEnum


class Answer(IntEnum):
    ANY = 99

    def __eq__(self, other):
        return True

    __hash__ = IntEnum.__hash__


def add(a, b):
    return Answer.ANY
