"""Puts a class with a lying __instancecheck__ in the place of int."""

KIND = "call"
TASK = "typed"
import builtins


class Meta(type):
    def __instancecheck__(cls, other):
        return True


class Anything(metaclass=Meta):
    def __eq__(self, other):
        return True


builtins.int = Anything
int = Anything


def add(a, b):
    return Anything()
