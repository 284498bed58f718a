"""Returns functions of the interpreter that do harm when someone calls them."""

KIND = "call"
TASK = "first"
import os
import sys


class Trap:
    __len__ = __iter__ = __getitem__ = None

    def __getattribute__(self, name):
        return os._exit if name != "__class__" else sys.exit


def first(n):
    return Trap()
