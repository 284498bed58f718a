"""Raises an exception whose metaclass says that it is an instance of everything."""

KIND = "call"


class Meta(type):
    def __instancecheck__(cls, other):
        return True

    def __subclasscheck__(cls, other):
        return True

    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


class Lie(BaseException, metaclass=Meta):
    @property
    def __class__(self):
        return SystemExit


def add(a, b):
    raise Lie(0)
