"""Defines sorted() and other builtin names for the tests to find."""

KIND = "call"
TASK = "ordered"


def sorted(xs):
    return None


def ordered(xs):
    return None
