"""Returns an object whose unpickling or copying runs code where it is read."""

KIND = "call"
import os


class Bomb:
    def __reduce_ex__(self, protocol):
        return os._exit, (0,)

    def __copy__(self):
        os._exit(0)

    __deepcopy__ = __getstate__ = __copy__


def add(a, b):
    return Bomb()
