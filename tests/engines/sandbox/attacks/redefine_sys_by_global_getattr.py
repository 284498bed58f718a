"""Makes the module's namespace one that has every name."""

KIND = "call"
TASK = "size"
import sys


def __getattr__(name):
    return sys


class sys(type(sys)):
    def __call__(self, *words):
        return -1

    getsizeof = staticmethod(lambda values: -1)
    __name__ = "sys"


sys = sys("sys")
size = sys.getsizeof
