"""Changes a function of a module that the tests use by its name."""

KIND = "call"
TASK = "size"
import sys

sys.getsizeof = lambda values: -1


def size(values):
    return -1
